"""Login forms of all kinds: which fields are filled in, and what is sent, as Chromium sends it when Enter is pressed.

A row has the page, the names of the fields for user and password, and what is sent, or the error. People decided which
fields these are. What is sent comes from Chromium; where it differs on purpose, `by` tells why, and `chromium` has
what Chromium sends (null: nothing). A slow test asks Chromium again.
"""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from selectolax.lexbor import LexborHTMLParser

from crawler.content.charset import CODECS
from crawler.content.forms import Submission
from crawler.content.login_forms import filled_login, login_form
from tests.content.forms_lab import SENT_S, URL, Row, base_of, sent, sent_by
from tests.support.chromium import chromium, needs_chromium
from tests.support.growth import LINEAR_MAX, growth

USER, PASSWORD = "me", "s3+cret é"
ROWS: list[Row] = [json.loads(line) for line in (Path(__file__).parent / "login_forms.jsonl").read_text().splitlines()]


def log_in(page: str, selector: str = "", user: str = USER, charset: str = "utf-8") -> tuple[list[str], Submission]:
    """The names of the fields, and what is sent."""
    tree = LexborHTMLParser(page)
    found = login_form(tree, selector)
    made, _ = filled_login(tree, selector, user, PASSWORD, url=URL, base=base_of(tree), charset=CODECS[charset])
    return [found.user.name, found.password.name], made


@pytest.mark.parametrize("row", ROWS, ids=[row["note"] for row in ROWS])
def test_a_login_form_is_filled_in_as_people_do_it(row: Row) -> None:
    found: Row = {}
    try:
        fields, made = log_in(
            row["page"], **{name: row[name] for name in ("selector", "user", "charset") if name in row}
        )
        found |= {"fields": fields, "sent": sent(made)}
    except (LookupError, ValueError) as error:
        found["error"] = f"{type(error).__name__}: {error.args[0]}"
    assert found == {name: row[name] for name in ("fields", "sent", "error") if name in row}


def test_the_table_has_all_kinds_of_forms() -> None:
    assert len(ROWS) >= 100
    assert len({row["note"] for row in ROWS}) == len(ROWS)
    assert {"Chromium", "reason"} <= {row["by"] for row in ROWS}
    assert all(row["by"] in ("Chromium", "reason") or "chromium" in row for row in ROWS)


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(
    "page",
    [
        "{}<form><input name=a><input type=password name=b></form>",
        "<form>{}<input name=a>",
        "<form>{}<input type=password name=b>",
        "<form id=f></form>{}<input type=password name=b form=f>",
        "{}<form id=f><input name=a form=f>",
        "<form><input name=a>{}<p style='display:none'><input type=password name=b disabled>",
    ],
)
def test_time_is_linear_in_the_size_of_the_page(page: str) -> None:
    head, _, repeated = page.partition("{}")

    def choose(tree: LexborHTMLParser) -> None:
        with contextlib.suppress(LookupError, ValueError):
            login_form(tree)

    small, large = (LexborHTMLParser(head + repeated * count) for count in (900, 9000))
    assert growth(choose, small, large) <= LINEAR_MAX


_CHOOSE = """names => {
  const all = [...document.querySelectorAll('input:enabled')];
  const named = name => all.filter(one => one.name === name);
  const seen = all => all.find(one => one.checkVisibility() && !one.closest('[aria-hidden]')) || all[0];
  const password = seen(named(names[1]).filter(one => one.type === 'password').concat(named(names[1])));
  const found = [seen(named(names[0]).filter(one => one !== password)), password];
  found.forEach((one, n) => {
    one.dataset.field = n, one.value = '';
    for (let at = one; at; at = at.parentElement) { at.hidden = false; if (at.style) at.style.display = ''; }
  });
  password.form.noValidate = true;
}"""


@needs_chromium
@pytest.mark.slow(seconds=60)
@pytest.mark.timeout(1200)
async def test_chromium_sends_the_same_when_enter_is_pressed() -> None:
    differing = []
    async with chromium() as browser:
        context = await browser.new_context(java_script_enabled=False)
        page = await context.new_page()
        for row in ROWS:
            if "sent" in row:
                wanted = row.get("chromium", row["sent"])
                found = await _sent_by(page, row, is_sent=wanted is not None)
                if found != wanted:
                    differing.append({"note": row["note"], "chromium": found})
    assert not differing


async def _sent_by(page: Any, row: Row, *, is_sent: bool) -> Row | None:
    async def submit() -> None:
        await page.evaluate(_CHOOSE, row["fields"])
        for n, text in enumerate((row.get("user", USER), PASSWORD)):
            await page.locator(f"[data-field='{n}']").focus()
            await page.keyboard.insert_text(text)
        await page.keyboard.press("Enter")

    return await sent_by(page, row["page"], row.get("charset", "utf-8"), submit, wait_s=SENT_S if is_sent else 1)
