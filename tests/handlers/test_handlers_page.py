"""What a handler sees of a page, and what it may follow."""

from typing import Any

import pytest

from crawler.content.html import parse_page
from crawler.handlers.page import Page
from crawler.model import Followed, Response

HTML = b"""<title>Tea</title><base href="/shop/"><h1> Green </h1><p>Two cups.</p>
<a class="next" href="tea?page=2">2</a><a class="next" href="tea?page=2#top">2</a><a href="mailto:x@y.test">m</a>"""


def page(body: bytes = HTML, content_type: str = "text/html; charset=utf-8", **more: Any) -> Page:
    url = "https://shop.test/tea"
    response = Response(
        url=url, status=200, reason="OK", http_version="1.1", request_head=b"", remote_ip="192.0.2.1", started_at=0.0,
        headers=((b"Content-Type", content_type.encode()), (b"X-Two", b"1"), (b"x-two", b"2")), raw_body=body,
        body=body, fetch_ms=1,
    )  # fmt: skip
    parsed = parse_page(url, content_type, "", body, links_max=100, obey_nofollow=True, bytes_max=8192, agent="crawler")
    return Page(response, parsed, domain="shop.test", **more)


def test_what_there_is_to_see() -> None:
    seen = page(depth=3, label="detail")
    assert (seen.url, seen.status, seen.domain, seen.depth) == ("https://shop.test/tea", 200, "shop.test", 3)
    assert (seen.title, seen.label) == ("Tea", "detail")
    assert seen.css_first("h1").text(strip=True) == "Green"
    assert [node.tag for node in seen.css("a")] == ["a"] * 3
    assert seen.text.splitlines()[:2] == ["Green", "Two cups."]
    assert seen.links == ("https://shop.test/shop/tea?page=2",)
    assert (seen.headers["content-TYPE"], seen.headers["X-Two"]) == ("text/html; charset=utf-8", "1")
    assert "x-none" not in seen.headers


def test_what_is_not_there_is_an_error_that_says_what_and_where() -> None:
    with pytest.raises(LookupError, match=r"nothing fits 'h2' on https://shop\.test/tea"):
        page().css_first("h2")


def test_json_and_plain_text() -> None:
    seen = page(b'{"a": [1]}', "application/json")
    assert seen.json() == {"a": [1]}
    assert seen.text == '{"a": [1]}'
    assert seen.css("a") == []
    with pytest.raises(ValueError, match="Expecting"):
        page().json()


@pytest.mark.parametrize(
    ("target", "urls"),
    [
        ("a.next", ["https://shop.test/shop/tea?page=2"]),
        ("a", ["https://shop.test/shop/tea?page=2"]),
        ("h1", []),
        ("/x", ["https://shop.test/x"]),
        ("./x", ["https://shop.test/shop/x"]),
        ("?q=1", ["https://shop.test/shop/?q=1"]),
        ("HTTPS://Other.test", ["https://other.test/"]),
        ("ftp://other.test/", []),
    ],
)
def test_what_is_followed(target: str, urls: list[str]) -> None:
    seen = page()
    assert seen.follow(target, label="l", priority=5) == len(urls)
    assert seen.followed == [Followed(url, "l", 5) for url in urls]


def test_a_priority_without_measure_is_refused() -> None:
    with pytest.raises(ValueError, match="expected -1000 to 1000"):
        page().follow("/x", priority=1e9)


def test_a_page_leads_to_so_many_urls_of_so_many_bytes_and_no_more() -> None:
    seen = page(follow_max=3)
    assert seen.follow("/1") + seen.follow("/2") + seen.follow("/3") == 3
    with pytest.raises(ValueError, match="more than 3 URLs are followed"):
        seen.follow("/4")
    seen = page()
    for n in range(130):
        seen.follow(f"/{n:03}{'x' * 8000}")
    with pytest.raises(ValueError, match="more than 1 MiB of URLs"):
        seen.follow(f"/130{'x' * 8000}")
    seen.forget_followed()
    assert seen.follow("/again") == 1


def test_queries_of_links_are_spelled_as_the_page_spells_them_and_those_of_the_handler_in_utf_8() -> None:
    seen = page("<base href='/?b=é'><a href='?q=é'>".encode("latin-1"), "text/html; charset=latin1")
    assert seen.links == ("https://shop.test/?q=%E9",)
    assert seen.follow("a") + seen.follow("?q=é") == 2
    assert [one.url for one in seen.followed] == ["https://shop.test/?q=%E9", "https://shop.test/?q=%C3%A9"]
