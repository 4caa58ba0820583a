"""What forms send: a table of odd ones with the answers of Chromium and of the standard, and what bounds them.

A row has the page, what is set and pressed, and what is sent, or the error. `by` is who gave the answer; where Chromium
gives another, the row has that, too, and why ours is another. A slow test asks Chromium again.
"""

import contextlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
import pytest
from selectolax.lexbor import LexborHTMLParser

from crawler.content import form_values
from crawler.content.charset import CODECS, form_bytes, name_of, with_query_in
from crawler.content.forms import BYTES_MAX, FIELDS_MAX, Submission, filled
from tests.content.forms_lab import SENT_S, URL, Row, base_of, sent, sent_by
from tests.support.chromium import chromium, needs_chromium
from tests.support.growth import LINEAR_MAX, growth

ROWS: list[Row] = [json.loads(line) for line in (Path(__file__).parent / "odd_forms.jsonl").read_text().splitlines()]


def send(page: str, form: str = "form", values: Any = None, **options: Any) -> Submission:
    tree = LexborHTMLParser(page)
    given = {"url": URL, "base": base_of(tree), "charset": "utf-8", **options}
    return filled(tree, form, values or {}, **given)


@pytest.mark.parametrize("row", ROWS, ids=[row["note"] for row in ROWS])
def test_a_form_sends_what_its_row_says(row: Row) -> None:
    options: Row = {name: row[name] for name in ("button", "extra") if name in row}
    options["charset"] = CODECS[row.get("charset", "utf-8")]
    found: Row = {}
    try:
        found["sent"] = sent(send(row["form"], row.get("selector", "form"), row.get("values"), **options))
    except (LookupError, ValueError, TypeError) as error:
        found["error"] = f"{type(error).__name__}: {error.args[0]}"
    assert found == {name: row[name] for name in ("sent", "error") if name in row}


def test_a_form_is_named_by_its_element_too() -> None:
    tree = LexborHTMLParser("<form><input name=a></form><form action=/two><input name=b></form><p>")
    urls = [filled(tree, node, {}, url=URL, base=URL, charset="utf-8").url for node in tree.css("form")]
    assert urls == ["http://site.test/d/page?a=", "http://site.test/two?b="]
    with pytest.raises(ValueError, match="a p is not a form"):
        filled(tree, tree.css("p")[0], {}, url=URL, base=URL, charset="utf-8")


def test_a_tree_that_was_changed_is_taken_as_it_is() -> None:
    tree = LexborHTMLParser("<form></form><div><form id=f></div><input name=a></form>")
    assert filled(tree, "#f", {}, url=URL, base=URL, charset="utf-8").url == "http://site.test/d/page?a="
    tree.css("form")[0].decompose()
    assert filled(tree, "#f", {}, url=URL, base=URL, charset="utf-8").url == "http://site.test/d/page"


def test_the_boundary_comes_from_the_data() -> None:
    page = "<form method=post enctype=multipart/form-data><input name=a>"
    once, again, other = (send(page, values={"a": value}) for value in ("x", "x", "y"))
    assert once == again
    assert once.content_type != other.content_type
    _, _, boundary = once.content_type.partition("boundary=")
    assert len(once.body.split(b"--" + boundary.encode())) == 3


@pytest.mark.parametrize("fields", [FIELDS_MAX, FIELDS_MAX + 1])
def test_a_form_has_at_most_ten_thousand_fields(fields: int) -> None:
    page = "<form>" + "<input disabled name=a>" * fields
    if fields == FIELDS_MAX:
        assert send(page).url == "http://site.test/d/page"
    else:
        with pytest.raises(ValueError, match="form has more than 10,000 fields"):
            send(page)


def test_what_is_sent_has_at_most_64_kib_however_it_grows() -> None:
    posted = "<form method=post><textarea name=a></textarea><select multiple name=s>{}</select>"
    assert len(send(posted, values={"a": "x" * (BYTES_MAX - 2)}).body) == BYTES_MAX
    for value in ("x" * (BYTES_MAX - 1), "é" * (BYTES_MAX // 4)):
        with pytest.raises(ValueError, match="more than 64 KiB"):
            send(posted, values={"a": value})
    with pytest.raises(ValueError, match="more than 10,000"):
        send(posted.format("<option selected>" * FIELDS_MAX))
    with pytest.raises(ValueError, match="the URL with the data of the form can't be fetched: too long"):
        send("<form><input name=a>", values={"a": "x" * 9000})


def test_names_of_a_page_stay_short_in_messages() -> None:
    page = "<form id='" + "i" * 5000 + "'>" + "".join(f"<input name='{n}\n{'n' * 3000}'>" for n in range(500))
    with pytest.raises(LookupError) as caught:
        send(page, values={"q": "x"})
    assert len(caught.value.args[0]) < 3000
    assert "\n" not in caught.value.args[0]
    assert "and 480 more" in caught.value.args[0]


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(
    "page",
    [
        "<form id=f></form><form>{}<input name=a>",
        "<form id=f></form>{}<fieldset disabled><legend><input name=a></legend>",
        "<form id=f></form>{}<b><input form=f name=a>",
        "<table><form id=f>{}<tr><td><input name=a>",
        "<form id=f></form><fieldset disabled>{}<legend></legend><input>",
        "<form id=f><select name=s>{}<option>",
        "<form id=f></form>{}<!-- -->",
        "<form id=f></form>{}<!--",
        "<form id=f></form>{}<title>",
        "<form id=f></form>{}<a b='",
        "<form id=f></form>{}<textarea></text",
        "<div><form id=f></div>{}<svg><title>",
    ],
)
def test_time_is_linear_in_the_number_of_fields(page: str) -> None:
    head, _, repeated = page.partition("{}")

    def fill(tree: LexborHTMLParser) -> None:
        with contextlib.suppress(ValueError):
            filled(tree, "#f", {}, url=URL, base=URL, charset="utf-8")

    small, large = (LexborHTMLParser(head + repeated * count) for count in (900, 9000))
    assert growth(fill, small, large) <= LINEAR_MAX


@pytest.mark.parametrize(
    ("kind", "value", "is_kept"),
    [
        ("date", "2026-W01-1", False), ("date", "20260101", False), ("date", "2026-1-01", False),
        ("date", "0001-01-01", True), ("date", "٢٠٢٦-01-01", False), ("month", "2026-1", False),
        ("week", "2026-W53", True), ("week", "2025-W53", False), ("week", "2026-w01", False),
        ("time", "23:59", True), ("time", "23:59:60", False), ("time", "12:00:00.1234", False),
        ("time", "12:00.5", False), ("time", "12:00:00.", False), ("time", "1:2:3:4", False),
        ("number", "1e5", True), ("number", "1e", False), ("number", "--1", False), ("number", "Infinity", False),
        ("number", "1_0", False), ("number", "-.5", True), ("number", "1e+5", True),
        ("datetime-local", "2026-01-01T12:00:00.50", False), ("range", "1e99", False),
    ],
)  # fmt: skip
def test_values_that_a_type_does_not_allow_are_not_sent(kind: str, value: str, is_kept: bool) -> None:
    (node,) = LexborHTMLParser("<input>").css("input")
    assert (form_values.CLEANED[kind](value, node) == value) is is_kept


@pytest.mark.parametrize("codec", sorted({codec for codec in CODECS.values() if not codec.startswith("utf-")}))
def test_forms_and_links_of_a_page_are_in_the_same_bytes(codec: str) -> None:
    text = "aé\u0416日本\u00a5\u203e\u2212\uff71\ue000\U0001f600~b"
    query = with_query_in(codec, f"?{text}")[1:]
    assert form_bytes(codec, text) == unquote_to_bytes(query)


@pytest.mark.parametrize("label", sorted(set(CODECS)))
def test_every_encoding_has_a_name_that_leads_to_it(label: str) -> None:
    codec = CODECS[label]
    assert CODECS[name_of(codec).lower()] == ("utf-8" if codec.startswith("utf-16") else codec)
    assert form_bytes(codec, "a b~") == b"a b~"
    assert form_bytes("cp1252", "日\U0001f600") == b"&#26085;&#128512;"


_SUBMIT = """([form, button]) => {
  const found = document.querySelector(form);
  const all = [...found.elements, ...document.querySelectorAll('input[type=image]')];
  const pressed = button === "" ? [...found.elements].find(one => one.type === 'submit')
    : button && (all.find(one => one.name === button) || document.querySelector(button));
  found.noValidate = true;
  setTimeout(() => pressed ? found.requestSubmit(pressed) : found.submit(), 0);
}"""


@needs_chromium
@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_chromium_sends_what_the_rows_say() -> None:
    rows = [row for row in ROWS if "sent" in row and "values" not in row]
    differing = []
    async with chromium() as browser:
        page = await browser.new_page()
        for row in rows:
            found = await _sent_by(page, row)
            if found not in (row.get("chromium", row["sent"]), row.get("newer")):  # Chromium 156
                differing.append({"note": row["note"], "chromium": found})
    assert not differing


async def _sent_by(page: Any, row: Row) -> Row | None:
    async def submit() -> None:
        await page.evaluate(_SUBMIT, [row.get("selector", "form"), row.get("button", "")])

    return await sent_by(page, row["form"], row.get("charset", "utf-8"), submit, wait_s=SENT_S)


def test_a_submission_is_a_record_that_can_be_sent_on() -> None:
    made = send("<form method=post><input name=a>", values={"a": "é"})
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=Submission) == made
