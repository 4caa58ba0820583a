"""What a handler sees of a page, and what it may follow."""

from typing import Any

import pytest

from crawler.content.html import parse_page
from crawler.handlers.page import Page
from crawler.model import Followed, Response
from tests.support.growth import LINEAR_MAX, growth

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
    assert seen.links() == ["https://shop.test/shop/tea?page=2"]
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


BLOCKS = b"""<script type=application/ld+json>[{"@type": "Product"},]</script>
<script type=application/ld+json>{broken}</script><script type=application/ld+json>{"@type": "Shop"}</script>"""


def test_jsonld_blocks_that_cannot_be_read_are_left_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert page(BLOCKS).jsonld() == [{"@type": "Product"}, {"@type": "Shop"}]
    ((event, blocks),) = [(one.message, getattr(one, "blocks", 0)) for one in caplog.records]
    assert (event, blocks) == ("jsonld.unreadable", 1)
    assert page().jsonld() == page(b"{}", "application/json").jsonld() == []


TABLE = b"<table><tr><td>1<td title=t>2</table><a href=/x>a</a><p>b<p>c<script>if (a < b) {}</script>"


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("//table/tr/td/text()", ["1", "2"]), ("string(//@title)", "t"), ("count(//p)", 2.0), ("boolean(//b)", False),
        ("//a/@href", ["/x"]), ("//p[2]/text()", ["c"]), ("//none", []),
    ],
)  # fmt: skip
def test_xpath_gives_what_lxml_gives(expression: str, found: Any) -> None:
    assert page(TABLE).xpath(expression) == found


def test_xpath_takes_variables_and_namespaces_and_gives_elements() -> None:
    (link,) = page(TABLE).xpath("//a[@href=$to]", to="/x")
    assert (link.tag, link.get("href"), link.text_content()) == ("a", "/x", "a")
    found = (link.text_content(), link.xpath("string(.)"), *link.xpath("text()"), *link.xpath("@href"))
    assert [type(text) for text in found] == [str] * 4, "lxml's own texts keep the tree, and are no items"
    with pytest.raises(ValueError, match="Unregistered function"):
        link.xpath("re:test(., 'a')", namespaces={"re": "http://exslt.org/regular-expressions"})
    feed = "<?xml version='1.0' encoding='latin-1'?><feed xmlns='urn:a'><title>\xe9</title></feed>".encode("latin-1")
    seen = page(feed, "application/atom+xml; charset=latin-1")
    assert seen.xpath("//a:title/text()", namespaces={"a": "urn:a"}) == ["\xe9"]


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        ("<p>\xe9</p>".encode("latin-1"), "text/html; charset=latin-1", "\xe9"),
        ("<meta charset=koi8-r><p>\u0436".encode("koi8-r"), "text/html", "\u0436"),
        (b"\xef\xbb\xbf<p>x", "text/html; charset=latin-1", "x"), ("<p>x".encode("utf-16"), "text/html", "x"),
        (b"", "text/html", ""), (b"<!-- -->", "text/html", ""), (b"<p>x", "text/plain", ""),
        (b"{}", "application/json", ""),
        (b"<p>x\0y", "text/html", "x\ufffdy"), (b"<r><x>1<y>2</x>", "text/xml", "12"), (b"&lt;", "text/xml", ""),
    ],
)  # fmt: skip
def test_xpath_reads_the_text_as_it_was_decoded(body: bytes, content_type: str, text: str) -> None:
    assert page(body, content_type).xpath("string(/)") == text


@pytest.mark.parametrize("expression", ["//p[", "", "//x:p", "$none", "nothing()", "re:test('a', '(a*)*b')"])
def test_an_invalid_xpath_is_an_error_of_one_line(expression: str) -> None:
    with pytest.raises(ValueError, match="XPath ") as caught:
        page(TABLE).xpath(expression, namespaces={"re": "http://exslt.org/regular-expressions"})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "content_type", "said"),
    [
        (b"<div>" * 2100 + b"<p>x", "text/html", "does not read all of https://shop.test/tea: Excessive depth"),
        (b"<a>" * 300, "text/xml", "Excessive depth"),
        (b"<!DOCTYPE r [<!ENTITY a 'aa'><!ENTITY b '&a;&a;'>]><r>&b;</r>", "text/xml", "defines entities"),
        (b"<!DOCTYPE r [<!ENTITY f SYSTEM 'file:///etc/passwd'>]><r>&f;</r>", "text/xml", "defines entities"),
    ],
)
def test_what_lxml_does_not_read_whole_is_an_error_and_not_a_part(body: bytes, content_type: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        page(body, content_type).xpath("//p")


def test_xpath_keeps_to_the_bounds_of_the_tree() -> None:
    seen = page(TABLE, may_parse=False)
    with pytest.raises(RuntimeError, match="only its handler sees its tree"):
        seen.xpath("//p")
    seen = page(TABLE)
    assert seen._xpath_tree is seen._xpath_tree
    seen.close()
    assert "_xpath_tree" not in vars(seen)


def test_a_tree_of_many_options_is_built_in_linear_time() -> None:
    def build(options: int) -> object:
        return page(b"<select>" + b"<option>" * options).html

    assert growth(build, 900, 9000) <= LINEAR_MAX


LIST = b"""<base href=/shop/><nav><a href=a>1</a></nav><div class=x><div class=x><a href=b#top>2</a><a href=b>2</a>
<img src=i.png><iframe src=f></iframe><a name=n>3</a><a href=mailto:x@y.test>4</a></div></div><link rel=icon href=l>"""


@pytest.mark.parametrize(
    ("selector", "urls"),
    [
        ("a", ["a", "b"]), ("nav", ["a"]), ("div.x", ["b", "f"]), ("div.x, nav a", ["a", "b", "f"]), ("img", ["i.png"]),
        ("link", ["l"]), ("html", ["a", "b", "f"]), ("h1", []), ("a[name]", []),
    ],
)  # fmt: skip
def test_links_of_a_selector_are_those_that_match_or_are_inside(selector: str, urls: list[str]) -> None:
    assert page(LIST).links(selector) == [f"https://shop.test/shop/{url}" for url in urls]


def test_links_of_a_selector_are_bounded_and_read_in_linear_time() -> None:
    many = b"".join(b"<a href=%d>" % n for n in range(300))
    assert len(page(many, follow_max=200).links("a")) == 200
    assert len(page(b"<base href='/%b/'>" % (b"x" * 8000) + many).links("a")) < 140
    with pytest.raises(ValueError, match="'a\\[' is not a valid CSS selector"):
        page().links("a[")

    def nested(depth: int) -> Page:
        return page(b"<div>" * depth + b"<a href=x>" * depth)

    assert growth(lambda seen: seen.links("div"), nested(400), nested(4000)) <= LINEAR_MAX


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
    assert seen.links() == ["https://shop.test/?q=%E9"]
    assert seen.follow("a") + seen.follow("?q=é") == 2
    assert [one.url for one in seen.followed] == ["https://shop.test/?q=%E9", "https://shop.test/?q=%C3%A9"]
