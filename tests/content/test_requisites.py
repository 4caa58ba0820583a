"""What pages and style sheets load: tables of their forms, and what bounds them.

A row has the text and what is found in it. `chromium` is what a browser requests of it, where that differs, and `why`
ours is another: a slow test (test_requisites_chromium.py) asks it again.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from selectolax.lexbor import LexborHTMLParser

from crawler.content import requisite_list
from crawler.content.css_urls import css_urls, read_css
from crawler.content.html import NO_EVENTS, base_of, shadow_roots
from crawler.content.requisite_list import RequisiteList
from crawler.content.requisites import manifest_icons, requisites_of
from crawler.model import REQUISITE_KINDS, Requisite

HERE, SITE = Path(__file__).parent, "http://site.test"
PAGE, SHEET = f"{SITE}/d/page", f"{SITE}/d/sheet.css"

Row = dict[str, Any]


def rows(name: str) -> list[Row]:
    return [json.loads(line) for line in (HERE / name).read_text("utf-8").splitlines()]


def listed(found: tuple[Requisite, ...]) -> list[list[str]]:
    return [[one.url.removeprefix(SITE), one.kind] for one in found]


def loaded_by(body: str, *, limit: int = 100, **given: Any) -> tuple[tuple[Requisite, ...], int]:
    markup = body.encode()
    tree = LexborHTMLParser(markup, options=NO_EVENTS)
    given = {"own_url": PAGE, "shadow_roots": shadow_roots(tree), **given}
    return requisites_of(tree, base_of(tree, PAGE), markup=markup, limit=limit, **given)


PAGES, SHEETS = rows("requisites.jsonl"), rows("odd_css.jsonl")


@pytest.mark.parametrize("row", PAGES, ids=[row["note"] for row in PAGES])
def test_a_page_loads_what_its_row_says(row: Row) -> None:
    found, cut = loaded_by(row["body"])
    assert (listed(found), cut) == (row["found"], 0)
    assert {one.kind for one in found} <= {*REQUISITE_KINDS}


@pytest.mark.parametrize("row", SHEETS, ids=[row["note"] for row in SHEETS])
def test_a_style_sheet_loads_what_its_row_says(row: Row) -> None:
    found, cut = css_urls(row["body"], SHEET, limit=100)
    assert (listed(found), cut) == (row["found"], 0)


@pytest.mark.parametrize(
    ("body", "content_type", "found"),
    [
        ("p{a:url(ä)}".encode(), "", "/d/%C3%A4"),
        (b"p{a:url(\xe4)}", "text/css; charset=iso-8859-1", "/d/%C3%A4"),
        (b'@charset "iso-8859-1";p{a:url(\xe4)}', "text/css", "/d/%C3%A4"),
        (b'@charset "iso-8859-1";p{a:url(\xc3\xa4)}', "text/css; charset=utf-8", "/d/%C3%A4"),
        (b'@charset "utf-16";p{a:url(x)}', "", "/d/x"),
        (b"@charset 'iso-8859-1';p{a:url(\xe4?\xe4)}", "", "/d/%C3%A4?%E4"),  # as if it were of the West
        (b"@charset 'iso-8859-1';p{a:url(\xc3\xa4?\xc3\xa4)}", "", "/d/%C3%A4?%C3%A4"),
        ("p{a:url(я?я)}".encode("cp1251"), "text/css; charset=windows-1251", "/d/%D1%8F?%FF"),
        ("p{a:url(ä)}".encode("utf-8-sig"), "text/css; charset=iso-8859-1", "/d/%C3%A4"),
        ("\ufeffp{a:url(ä)}".encode("utf-16-le"), "", "/d/%C3%A4"),
        ("\ufeffp{a:url(ä)}".encode("utf-16-be"), "text/css; charset=utf-8", "/d/%C3%A4"),
        ("p{a:url(x)}".encode("utf-16-le"), "text/css; charset=utf-16le", "/d/x"),
    ],
)
def test_a_sheet_is_read_in_its_encoding(body: bytes, content_type: str, found: str) -> None:
    assert css_urls(body, SHEET, limit=9, content_type=content_type) == ((Requisite(SITE + found, "image"),), 0)


def test_queries_of_imports_are_in_utf_8() -> None:
    body = "@import 'a?я'; @import url(b?я); p{a:url(c?я)}".encode("cp1251")
    found, _ = css_urls(body, SHEET, limit=9, content_type="text/css; charset=windows-1251")
    assert listed(found) == [["/d/a?%D1%8F", "style"], ["/d/b?%D1%8F", "style"], ["/d/c?%FF", "image"]]


def test_a_page_without_an_icon_has_the_one_of_its_site() -> None:
    def icons(body: str) -> list[str]:
        found, _ = loaded_by(f"<base href=/base/>{body}", with_favicon=True)
        return [one.url for one in found if one.kind == "icon"]

    assert icons("<p>") == [f"{SITE}/favicon.ico"]
    assert icons("<link rel=apple-touch-icon href=a.png>") == [f"{SITE}/base/a.png", f"{SITE}/favicon.ico"]
    assert icons("<link rel='shortcut icon' href=a.png>") == [f"{SITE}/base/a.png"]
    assert icons("<link rel=icon href=data:,>") == []


def test_queries_are_in_the_encoding_of_the_page() -> None:
    found, _ = loaded_by("<img src='a?ä'><p style='b:url(c?ä)'>", query_charset="cp1252")
    assert [one.url for one in found] == [f"{SITE}/d/a?%E4", f"{SITE}/d/c?%E4"]


def test_an_xml_document_names_its_style_sheets_before_its_root() -> None:
    prolog = "<?xml version='1.0'?><?xml-stylesheet href='a.css?b&amp;c' type='text/css'?><?xml-stylesheet"
    found, cut = loaded_by(f"{prolog}?><svg></svg>")
    assert (listed(found), cut) == ([["/d/a.css?b&c", "style"]], 0)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (
            b'{"icons": [{"src": "a.png"}, {"src": "/b.png"}, {"src": 1}, 2, {}]}',
            ["/d/a.png", "/b.png"],
        ),
        (b'\xef\xbb\xbf{"icons": [{"src": "a.png"}]}', ["/d/a.png"]),
        (b'{"icons": "a.png"}', []),
        (b"[]", []),
        (b"", []),
        (b"[" * 100_000, []),
        (b'{"icons": [{"src": "\xff.png"}]}', []),
        (b'{"icons": [{"src": "a.png"}]}' + b" " * 256 * 1024, []),
    ],
)
def test_a_manifest_names_icons(body: bytes, found: list[str]) -> None:
    assert manifest_icons(body, f"{SITE}/d/m", limit=9) == (tuple(Requisite(SITE + one, "icon") for one in found), 0)


def test_what_is_beyond_the_limit_is_counted() -> None:
    page = "".join(f"<img src={n}.png><img src={n % 3}.png>" for n in range(10))
    found, cut = loaded_by(page, limit=4)
    assert (listed(found), cut) == ([[f"/d/{n}.png", "image"] for n in range(4)], 6)


@pytest.mark.parametrize("images", [50_000, 100_000])
def test_of_a_hundred_thousand_images_all_but_the_limit_are_counted(images: int) -> None:
    found, cut = loaded_by("".join(f"<img src={n}>" for n in range(images)), limit=1_000)
    assert (len(found), cut) == (1_000, images - 1_000)


def test_urls_have_a_mebibyte_together() -> None:
    found, cut = loaded_by("".join(f"<img src={n}{'a' * 8_000}>" for n in range(200)), limit=1_000)
    assert sum(len(one.url) for one in found) <= requisite_list.URLS_BYTES_MAX < 8_100 * (len(found) + 1)
    assert len(found) + cut == 200


def test_references_that_lead_nowhere_are_not_tried_forever() -> None:
    found, cut = loaded_by("".join(f"<img src=http://[{n}>" for n in range(1_000)) + "<img src=a.png>", limit=10)
    assert (found, cut) == ((), 1_000 - 40 + 1)


def test_references_that_take_long_are_counted() -> None:
    found, cut = loaded_by("".join(f"<img src={n}{'ä' * 1_000}>" for n in range(500)), limit=1_000)
    assert 0 < len(found) < 200
    assert len(found) + cut == 500


HOSTILE = [
    *("url(", "url(a)", "url('a')", 'url("', "url(a b)", "url(\\", "/*", "/**/", '"', "'a'", "\\", "\\67 ", "\\a"),
    *("@", "@import", "@import 'a';", "@import/*", "@font-face{src:url(a)", "@supports(", "(", "l(", "image-set("),
    *("image-set('a'", "{", "}", "aurl(", "\0", "\n", "/", "*/", "\\\n", "url(data:a)"),
]


def steps(text: str) -> int:
    found = RequisiteList(SHEET, 10)
    read_css(text, found)
    return requisite_list.STEPS_MAX - found.steps_left


@pytest.mark.parametrize("token", HOSTILE)
def test_twice_the_sheet_takes_at_most_twice_the_steps(token: str) -> None:
    times = 20_000
    assert steps(token * 2 * times) <= 2 * steps(token * times) + 2
    assert steps(token * times) <= 2 * times + 2


def test_a_sheet_of_ten_megabytes_ends_at_the_bound_of_steps() -> None:
    text = "p{a:url(b)}" * 1_000_000
    found, cut = css_urls(text, SHEET, limit=10)
    assert (len(found), cut) == (1, 1_000_000 - requisite_list.STEPS_MAX + 1)


@pytest.mark.parametrize(
    ("srcset", "found", "cut"),
    [
        ("," * 1_000_000, 0, 0),
        ("a," * 1_000_000, 0, 0),  # one URL, too long
        ("a 1x," * 1_000_000, 1, 1_000_000 - requisite_list.STEPS_MAX + 2),
        ("(" * 1_000_000, 0, 0),
        ("a " + "(" * 1_000_000, 1, 0),
    ],
)
def test_a_srcset_of_a_million_commas_is_bounded(srcset: str, found: int, cut: int) -> None:
    requisites, left_out = loaded_by(f"<img srcset='{srcset}'>", limit=1_000)
    assert (len(requisites), left_out) == (found, cut)


def test_style_elements_in_style_elements_are_read_once_each() -> None:
    text = "p{a:url(b)}"
    page = "<svg>" + f"<style>{text}" * 2_000
    tree = LexborHTMLParser(page)
    assert [len(node.text(deep=False)) for node in tree.css("style")] == [len(text)] * 2_000
    assert listed(loaded_by(page)[0]) == [["/d/b", "image"]]
