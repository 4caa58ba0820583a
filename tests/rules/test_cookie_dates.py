"""Dates of cookies: a table of many forms, by the algorithm of RFC 6265bis, and by Chromium where it differs.

`chromium` is there where Chromium takes a date for another one, or for none (null); a slow test asks it again.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.rules.cookie_dates import cookie_date
from crawler.rules.cookies import AGE_MAX_S, Jar, cookie_of
from crawler.runtime.clocks import wall_s
from tests.support.chromium import chromium, needs_chromium
from tests.support.growth import LINEAR_MAX, growth

NOW_S = 1_795_900_000.0  # 2026-11-28
URL = "https://a.test/"
Row = dict[str, Any]
ROWS: list[Row] = [json.loads(line) for line in (Path(__file__).parent / "cookie_dates.jsonl").read_text().splitlines()]


def seconds(utc: str | None) -> float | None:
    return None if utc is None else datetime.fromisoformat(utc).replace(tzinfo=UTC).timestamp()


def raw(text: str) -> str:
    """As headers have it."""
    return text.encode().decode("latin-1")


@pytest.mark.parametrize("row", ROWS, ids=[row["date"] for row in ROWS])
def test_a_date_is_read_as_its_row_says(row: Row) -> None:
    assert cookie_date(raw(row["date"])) == seconds(row["utc"])


@pytest.mark.parametrize("date", [row["date"] for row in ROWS if row["utc"] and row["utc"] < "2026"])
def test_every_form_of_a_past_date_removes_a_cookie(date: str) -> None:
    jar = Jar()
    for line in ("a=1", f"a=; Expires={date}"):
        jar.take(URL, [(b"Set-Cookie", line.encode())], NOW_S)
    assert jar.cookies == []


@pytest.mark.parametrize(
    ("attributes", "expires_at"),
    [
        ("", 0.0),
        ("Max-Age=60", NOW_S + 60),
        ("Max-Age=00000000000060", NOW_S + 60),
        ("Max-Age=" + "9" * 1000, NOW_S + AGE_MAX_S),
        ("Max-Age=" + "9" * 1100, 0.0),
        ("Max-Age=0", NOW_S - 1),
        ("Max-Age=000", NOW_S - 1),
        ("Max-Age=-60", NOW_S - 1),
        ("Max-Age=-", 0.0),
        ("Max-Age=6e1", 0.0),
        ("Max-Age=1.5", 0.0),
        ('Max-Age="60"', 0.0),
        ("Max-Age", 0.0),
        ("Max-Age=60; Expires=Thu, 01 Jan 1970 00:00:00 GMT", NOW_S + 60),
        ("Max-Age=soon; Expires=Thu, 01 Jan 1970 00:00:00 GMT", 1.0),
        ("Expires=07/Nov/2027 08:49:37", 1_825_577_377.0),
        ("Expires=07 Nov 2099 08:49:37", NOW_S + AGE_MAX_S),
        ("Expires=" + "-" * 1010 + " 07 Nov 2027 08:49:37", 0.0),
    ],
)
def test_when_a_cookie_ends(attributes: str, expires_at: float) -> None:
    cookie = cookie_of(URL, f"a=1; {attributes}".encode(), NOW_S)
    assert cookie is not None
    assert cookie.expires_at == expires_at


@given(st.text(alphabet="0123456789:-/ ,.JanFebGMT\u00e9\0", max_size=200))
def test_any_text_is_a_date_or_none(text: str) -> None:
    found = cookie_date(text)
    assert found is None or -1.2e10 < found < 2.6e11


@pytest.mark.parametrize("repeated", ["1", "1:", "Nov ", "12:12:1", "-", "1-", "x"])
def test_time_is_linear_in_the_length(repeated: str) -> None:
    assert growth(cookie_date, repeated * 9_000, repeated * 90_000) <= LINEAR_MAX


@needs_chromium
@pytest.mark.slow(seconds=20)
@pytest.mark.timeout(600)
async def test_chromium_reads_the_same_dates() -> None:
    async def answer(route: Any) -> None:
        at = int(route.request.url.rpartition("/")[2] or 0)
        some = [f"c{n}=1; Expires={raw(row['date'])}" for n, row in enumerate(ROWS[at : at + 20], at)]
        await route.fulfill(body="x", headers={"set-cookie": "\n".join(some)})

    async with chromium() as browser:
        context = await browser.new_context(java_script_enabled=False)
        page = await context.new_page()
        await page.route("**/*", answer)
        for at in range(0, len(ROWS), 20):
            await page.goto(f"{URL}{at}")
        kept, now_s = {one["name"]: one["expires"] for one in await context.cookies()}, wall_s()
    differing = []
    for n, row in enumerate(ROWS):
        ends_at, found = seconds(row.get("chromium", row["utc"])), kept.get(f"c{n}")
        if ends_at is None:
            is_same = found == -1  # with the session
        elif ends_at < now_s:
            is_same = found is None
        else:
            is_same = found is not None and abs(found - min(ends_at, now_s + AGE_MAX_S)) < 600
        if not is_same:
            differing.append((row["date"], found))
    assert not differing
