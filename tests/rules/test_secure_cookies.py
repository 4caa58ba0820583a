"""Cookies of a site by http and https: what replaces, removes or goes before what, as Chromium has it.

A row has the lines that an https page of www.shop.test sets, what another response sets after that, and what is sent to
some URLs then. A slow test asks Chromium for the same.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from crawler.rules.cookies import COOKIES_MAX, SENT_BYTES_MAX, Jar
from tests.support.chromium import chromium, needs_chromium

NOW_S = 1_795_900_000.0
FIRST = "https://www.shop.test/a/b"
INSECURE = FIRST.replace("https", "http")
Row = dict[str, Any]
ROWS: list[Row] = [
    json.loads(line) for line in (Path(__file__).parent / "secure_cookies.jsonl").read_text().splitlines()
]


def lines(*texts: str) -> list[tuple[bytes, bytes]]:
    return [(b"Set-Cookie", text.encode()) for text in texts]


def sent(jar: Jar, url: str, now_s: float = NOW_S) -> str:
    return "; ".join(f"{name}={value}" if name else value for name, value in jar.sent_to(url, now_s))


@pytest.mark.parametrize("row", ROWS, ids=[row["note"] for row in ROWS])
def test_what_is_sent_after_a_row(row: Row) -> None:
    jar, now_s = Jar(), NOW_S + row.get("later", 0)
    jar.take(FIRST, lines(*row["known"]), NOW_S)
    jar.take(row["url"], lines(row["line"]), now_s)
    assert {url: sent(jar, url, now_s) for url in row["sent"]} == row["sent"]


@needs_chromium
@pytest.mark.slow(seconds=30)
@pytest.mark.timeout(600)
async def test_chromium_sends_the_same() -> None:
    differing = []
    async with chromium() as browser:
        for row in ROWS:
            if row["by"] != "Chromium":
                continue
            context = await browser.new_context(java_script_enabled=False)
            page = await context.new_page()
            found = {}
            for url, set_cookie in ((FIRST, "\n".join(row["known"])), (row["url"], row["line"])):
                await _open(page, url, set_cookie)
            for url in row["sent"]:
                found[url] = await _open(page, url)
            if found != row["sent"]:
                differing.append({"note": row["note"], "chromium": found})
            await context.close()
    assert not differing


async def _open(page: Any, url: str, set_cookie: str = "") -> str:
    """The Cookie header of a request; no request leaves the browser."""

    async def answer(route: Any) -> None:
        headers = {"content-type": "text/html"} | ({"set-cookie": set_cookie} if set_cookie else {})
        await route.fulfill(body="<link rel=icon href='data:,'>", headers=headers)

    await page.route("**/*", answer)
    async with page.expect_request(url) as request:
        await page.goto(url)
    headers = await (await request.value).all_headers()
    await page.unroute("**/*")
    return str(headers.get("cookie", ""))


@pytest.mark.parametrize(
    ("known", "url", "flood", "gone"),
    [
        (["id=1; Path=/; Secure"], INSECURE, "n{}=1; Path=/", False),
        (["id=1; Path=/; Secure"], INSECURE, "n{}=1; Path=/; Domain=shop.test", False),
        (["id=1; Path=/; Secure"], "http://evil.shop.test/", "n{}=1; Path=/; Domain=shop.test", False),
        (["id=1; Path=/; Secure"], INSECURE, "n{}=" + "v" * 4000 + "; Path=/", False),
        (["id=1; Path=/; Secure"], INSECURE, "n{}=1; Path=/" + "p" * 1000, False),
        (["id=1; Path=/; Secure"], FIRST, "n{}=1; Path=/", False),
        (["id=1; Path=/; Secure"], FIRST, "n{}=1; Path=/; Secure", True),
        (["id=1; Path=/"], INSECURE, "n{}=1; Path=/", True),
        (["id=1; Path=/; Secure; Max-Age=1"], INSECURE, "n{}=1; Path=/", True),
    ],
)
def test_secure_cookies_are_pushed_out_last(known: list[str], url: str, flood: str, gone: bool) -> None:
    jar = Jar()
    jar.take(FIRST, lines(*known), NOW_S)
    for n in range(3 * COOKIES_MAX):
        jar.take(url, lines(flood.format(n)), NOW_S + 2)
    assert ("id" not in {one.name for one in jar.cookies}) is gone
    assert 0 < len(jar) <= COOKIES_MAX


def test_a_full_jar_of_secure_cookies_takes_no_other() -> None:
    jar = Jar()
    jar.take(FIRST, lines(*(f"n{n}=1; Path=/; Secure" for n in range(COOKIES_MAX))), NOW_S)
    before = jar.cookies
    jar.take(INSECURE, lines("late=1; Path=/"), NOW_S)
    assert jar.cookies == before


def test_secure_cookies_are_sent_where_there_is_no_room_for_all() -> None:
    """Longer paths go first: those of http would take the room of a request."""
    jar = Jar()
    jar.take(FIRST, lines("id=1; Path=/; Secure"), NOW_S)
    jar.take(INSECURE, lines(*(f"n{n}={'v' * 1000}; Path=/a" for n in range(20))), NOW_S)
    found = sent(jar, FIRST)
    assert found.endswith("; id=1")
    assert 7000 < len(found) <= SENT_BYTES_MAX


def test_paths_and_names_of_hosts_count_in_a_jar() -> None:
    jar = Jar()
    jar.take(FIRST, lines(*(f"n{n}=1; Path=/{'p' * 1000}" for n in range(COOKIES_MAX))), NOW_S)
    assert len(jar) == 32


def test_a_session_that_is_made_longer_is_stored_again() -> None:
    jar = Jar()
    jar.take(FIRST, lines("id=1; Path=/; Max-Age=600"), NOW_S)
    assert not jar.take(FIRST, lines("id=1; Path=/; Max-Age=600"), NOW_S + 30)
    assert jar.take(FIRST, lines("id=1; Path=/; Max-Age=600"), NOW_S + 120)
