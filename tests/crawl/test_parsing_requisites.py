"""What pages and style sheets load crosses threads and processes as links do, and only if it was asked for."""

import msgspec
import pytest

from crawler.content.requisite_bodies import SHEET_INLINE_BYTES
from crawler.model import ParsedPage, Requisite, Response
from crawler.parsing.parse import PageParser
from crawler.parsing.secret_urls import without_secrets
from crawler.redaction import forget, learn_login
from crawler.settings import Settings
from tests.crawl.test_parsing import Apart, response

PAGE = (
    b"<link rel=icon href=data:,><base href=/b/><img src=a.png><style>p{background:url(c.png)}</style><a href=x>x</a>"
)
LOADED = (Requisite("http://a.test/b/a.png", "image"), Requisite("http://a.test/b/c.png", "image"))
SVG = (
    b"<?xml version='1.0'?><?xml-stylesheet href='a.css'?><svg xmlns='http://www.w3.org/2000/svg'><image href='b.png'/>"
)


def of_type(content_type: str, body: bytes, url: str = "http://a.test/d/x") -> Response:
    return msgspec.structs.replace(response(body), url=url, headers=((b"Content-Type", content_type.encode()),))


@pytest.mark.parametrize("guarded", [False, True], ids=["here", "in a process"])
async def test_what_a_page_loads_comes_with_its_links(guarded: bool) -> None:
    parser = PageParser(Settings())
    page, _ = await parser.parse_with_tree(response(PAGE), guarded=guarded, requisites_max=9)
    few, _ = await parser.parse_with_tree(response(PAGE), guarded=guarded, requisites_max=1)
    none, _ = await parser.parse_with_tree(response(PAGE), guarded=guarded)
    assert (page.requisites, page.requisites_cut) == (LOADED, 0)
    assert (few.requisites, few.requisites_cut) == (LOADED[:1], 1)
    assert (none.requisites, none.requisites_cut) == ((), 0)
    assert page.links == few.links == none.links == ("http://a.test/b/x",)
    await parser.close()


@pytest.mark.slow(ci=True)
async def test_a_long_page_is_read_in_the_thread() -> None:
    parser = PageParser(Settings())
    page = await parser.parse(response(PAGE + b"<div>" * 25_000), requisites_max=9)
    assert page.requisites == LOADED


@pytest.mark.parametrize(
    ("content_type", "requested_as", "body", "found"),
    [
        ("text/css", "", b"p{a:url(a.png)}@import 'b.css';", ["/d/a.png image", "/d/b.css style"]),
        ("text/plain", "style", b"p{a:url(a.png)}", ["/d/a.png image"]),
        ("text/plain", "", b"p{a:url(a.png)}", []),
        ("text/html", "style", b"p{a:url(a.png)}<img src=b.png>", ["/d/b.png image"]),
        ("image/svg+xml", "image", SVG, ["/d/a.css style", "/d/b.png image"]),
        ("image/svg+xml", "", b"\xff\xfe" + SVG.decode().encode("utf-16-le"), ["/d/a.css style", "/d/b.png image"]),
        ("application/json", "manifest", b'{"icons":[{"src":"a.png"}]}', ["/d/a.png icon"]),
        ("application/json", "", b'{"icons":[{"src":"a.png"}]}', []),
        ("image/png", "image", b"\x89PNG url(a.png)", []),
        ("application/javascript", "script", b"'url(a.png)'", []),
    ],
)
async def test_bodies_that_are_no_pages_are_read_by_their_type(
    content_type: str, requested_as: str, body: bytes, found: list[str]
) -> None:
    parser = PageParser(Settings())
    page = await parser.parse(of_type(content_type, body), requisites_max=9, requested_as=requested_as)
    assert [f"{one.url.removeprefix('http://a.test')} {one.kind}" for one in page.requisites] == found
    assert (page.links, page.requisites_cut) == ((), 0)
    nothing = await parser.parse(of_type(content_type, body), requested_as=requested_as)
    assert nothing.requisites == ()


@pytest.mark.parametrize(
    ("body", "content_type", "is_apart"),
    [
        (b"p{a:url(b)}".ljust(SHEET_INLINE_BYTES), "text/css", False),
        (b"p{a:url(b)}".ljust(SHEET_INLINE_BYTES + 1), "text/css", True),
        (b"<svg>".ljust(5 * 1024 * 1024), "image/svg+xml", True),
        (b"<svg>" + b"<g>" * 100_000, "image/svg+xml", True),
        (b"<svg>" + b"<g>" * 10, "image/svg+xml", False),
    ],
)
async def test_long_sheets_and_expensive_pictures_are_read_in_a_process(
    body: bytes, content_type: str, is_apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parser = PageParser(Settings())
    apart = Apart(parser, monkeypatch)
    await parser.parse(of_type(content_type, body), requisites_max=9)
    assert bool(apart.urls) == is_apart
    apart.urls.clear()
    await parser.parse(of_type(content_type, body))
    assert apart.urls == [], "nothing was asked for"


@pytest.mark.slow(ci=True)
async def test_a_sheet_of_ten_megabytes_is_read_in_a_process() -> None:
    parser = PageParser(Settings())
    body = b"".join(b"p{a:url(%d.png)}\\67 " % n for n in range(500_000))
    page = await parser.parse(of_type("text/css", body), requisites_max=1_000)
    assert (len(body) > 10_000_000, len(page.requisites), page.requisites_cut) == (True, 1_000, 499_001)
    await parser.close()


def test_urls_with_the_password_of_a_login_are_left_out_and_counted() -> None:
    page = ParsedPage(requisites=(*LOADED, Requisite("http://a.test/?p=tr0ub4dor", "image")), requisites_cut=2)
    learn_login("somebody", "tr0ub4dor")
    try:
        kept = without_secrets(page)
    finally:
        forget()
    assert (kept.requisites, kept.requisites_cut) == (LOADED, 3)
