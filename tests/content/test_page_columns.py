"""Columns of bodies: what a page says of itself, its main text and language, and what is not the page's failure."""

import json
import time
from typing import Any

import pytest

from crawler.content import page_columns
from crawler.content.main_text import UnreadableTextError, language_of, main_text
from crawler.content.page_columns import PageBody, columns_of
from crawler.rules.page_columns import COLUMNS
from crawler.rules.urls import JoinCache

STORY = "".join(f"<p>Sentence {n} of the story tells something that its readers want to know.</p>" for n in range(9))
PAGE = (
    "<html lang=en-GB><head><title>T</title><link rel=canonical href=/c><meta name=Description content=' About\n it '>"
    "<meta property=og:title content=One><meta property='og:image' content=a><meta property=og:image content=b>"
    '<meta name=author content=\'Jane Doe\'><script type=application/ld+json>{"@type": "Article", "n": 1}</script>'
    "</head><body><nav><a href=/>Home</a><a href=/about>About us</a></nav><main><article><h1>A story</h1>"
    f"{STORY}<time datetime=2026-11-01>then</time></article></main><footer>Copyright by nobody</footer>"
)


def found(body: str | bytes, *names: str, content_type: str = "text/html", **more: Any) -> dict[str, Any]:
    raw = body.encode() if isinstance(body, str) else body
    page = PageBody(url="http://x.test/p", content_type=content_type, body=raw, **more)
    answer = columns_of(page, names or tuple(COLUMNS), JoinCache())
    assert answer.failed == {}
    return answer.columns


def test_every_column_is_found() -> None:
    pytest.importorskip("resiliparse")
    columns = found(PAGE)
    assert list(columns) == list(COLUMNS)
    assert columns["canonical"] == "http://x.test/c"
    assert (columns["language"], columns["declared_language"]) == ("en", "en-gb")
    assert columns["description"] == "About it"
    assert columns["metadata"] == {
        "description": "About it", "og:title": "One", "og:image": ["a", "b"], "author": "Jane Doe", "time": "2026-11-01",  # noqa: E501
    }  # fmt: skip
    assert columns["jsonld"] == [{"@type": "Article", "n": 1}]
    assert columns["links"] == ["http://x.test/", "http://x.test/about"]
    assert columns["markdown"].startswith("[Home](http://x.test/)")
    for name in ("main_text", "main_markdown"):
        assert columns[name].count("Sentence") == 9
        assert "About us" not in columns[name]
        assert "Copyright" not in columns[name]
    assert "# A story\n\nSentence 0" in columns["main_markdown"]


@pytest.mark.parametrize(
    ("body", "more", "expected"),
    [
        ("<html lang='pt_BR'>", {}, "pt-br"),
        ("<html lang=' '><meta http-equiv=content-language content='de, en'>", {}, "de"),
        ("<p>x", {"content_language": "fr"}, "fr"),
        (f"<html lang='{'x' * 99}'>", {}, None),
        ("<html lang='<b>'>", {}, None),
        ("<p>x", {}, None),
    ],
)
def test_the_declared_language_is_that_of_the_page_before_the_header(
    body: str, more: dict[str, str], expected: str | None
) -> None:
    assert found(body, "declared_language", **more)["declared_language"] == expected


def test_metadata_is_bounded_in_number_and_length() -> None:
    body = "".join(f"<meta name=n{n} content={'x' * 9_000}>" for n in range(400)) + "<meta name=n1 content=y>" * 100
    metadata = found(body, "metadata")["metadata"]
    assert len(metadata) == 200
    assert all(len(value) <= 4_000 for name, value in metadata.items() if name != "n1")


def test_json_ld_is_as_every_output_takes_it() -> None:
    body = '<script type="application/ld+json">{"n": 123456789012345678901234567890, "s": "\\ud800", "f": NaN}</script>'
    (one,) = found(body, "jsonld")["jsonld"]
    assert (one["n"], one["s"]) == ("123456789012345678901234567890", "?")
    deep = f'<script type="application/ld+json">{{"a": {"[" * 900}{"]" * 900}}}</script>'
    page = PageBody(url="http://x.test/p", content_type="text/html", body=deep.encode())
    answer = columns_of(page, ("jsonld", "text"), JoinCache())
    assert answer.columns["text"] == ""
    assert list(answer.failed) in ([], ["jsonld"])


def test_bodies_that_are_no_html_have_text_alone() -> None:
    columns = found("Grüße", "text", "markdown", "links", "metadata", content_type="text/plain; charset=utf-8")
    assert columns == {"text": "Grüße", "markdown": None, "links": [], "metadata": None}
    assert set(found(b"%PDF-1.4 \x00\xff", "text", "markdown", content_type="application/pdf").values()) == {None}


def test_a_library_that_fails_on_a_page_fails_its_column_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> str:
        raise ValueError("of a library: with what the page has, like http://x.test/secret")

    monkeypatch.setattr(page_columns, "extract_text", fails)
    page = PageBody(url="http://x.test/p", content_type="text/html", body=b"<p>x")
    answer = columns_of(page, ("text", "markdown"), JoinCache())
    assert answer.columns == {"text": None, "markdown": "x\n"}
    assert answer.failed == {"text": "ValueError"}


def test_the_language_of_short_texts_is_not_guessed() -> None:
    pytest.importorskip("resiliparse")
    german = "Die Sprache eines Textes wird nur erkannt, wenn er lang genug ist; sonst wird nichts darüber gesagt."
    assert language_of(german * 2) == "de"
    assert language_of(german[:40]) == ""
    assert language_of("") == ""


HOSTILE = {
    "nested": "<div>" * 3_000 + "x",
    "nested and closed": "<div><a>x</a>" * 4_000,
    "nested articles": "<article>x" * 10_000,
    "options": "<select>" + "<option>x" * 100_000,
}
HARMLESS = {
    "attributes": f"<p {' '.join(f'a{n}=1' for n in range(2_000))}>x",
    "classes": f"<div class='{'a ' * 200_000}'>x",
    "a table": "<table>" + "<tr><td>a<td>b" * 20_000,
    "a text": "<p>" + "word " * 1_000_000,
    "nul": "a\0b" * 50_000,
    "comments": "<!--" * 50_000,
    "formatting": "<p><b><i><u>" * 300,
    "paragraphs": "<p>x" * 50_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_pages_that_take_the_square_of_their_length_have_no_main_text(name: str) -> None:
    pytest.importorskip("resiliparse")
    with pytest.raises(UnreadableTextError):
        main_text(HOSTILE[name].encode(), "utf-8")


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("name", HARMLESS)
def test_odd_pages_have_a_main_text_or_none(name: str) -> None:
    pytest.importorskip("resiliparse")
    began = time.process_time()
    assert isinstance(main_text(HARMLESS[name].encode(), "utf-8"), str)
    assert time.process_time() - began < 30  # some tenths of a second


@pytest.mark.parametrize("charset", ["utf-16", "windows-1251", "shift_jis", "iso-2022-jp"])
def test_the_main_text_of_any_bytes_in_any_charset_is_a_text(charset: str) -> None:
    pytest.importorskip("resiliparse")
    body = bytes(range(256)) * 20 + PAGE.encode()
    assert json.dumps(main_text(body, charset))
