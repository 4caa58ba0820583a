"""What is taken from a page: links by the policy table, directives, title, canonical; and nothing ever raises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.content.html import (
    LINK_BYTES_MAX,
    parse_page,
    redirect_target,
    refresh_target,
)
from crawler.content.robots_directives import robots_header
from crawler.media_type import is_html
from crawler.process_tuning import keep_freed_memory

URL = "http://h.test/d/page.html"
NESTED_SHADOWS = (
    "<div><template shadowrootmode=open><a href=/1><p><template shadowrootmode=open><iframe src=/2></iframe>"
    "</template></p><a href=/3></template></div><a href=/4>"
)


def parse(body, content_type="text/html; charset=utf-8", *, header="", links_max=100, obey=True, url=URL):
    raw = body.encode() if isinstance(body, str) else body
    return parse_page(
        url, content_type, header, raw, links_max=links_max, obey_nofollow=obey, bytes_max=8192, agent="shardcrawl"
    )


def links(body, **options):
    return [link.removeprefix("http://h.test") for link in parse(body, **options).links]


@pytest.mark.parametrize(
    ("html", "found"),
    [
        ("<a href=x>", ["/d/x"]),
        ("<a name=x><a href=y>", ["/d/y"]),
        ("<map><area href=/x></map>", ["/x"]),
        ("<iframe src=/f></iframe><frame src=/no>", ["/f"]),
        ("<frameset><frame src=/f></frameset>", ["/f"]),
        ("<iframe></iframe><iframe src></iframe>", []),
        ("<link rel=next href=/n><link rel='alternate x' href=/a><link rel=prev href=/p>", ["/n", "/a", "/p"]),
        ("<link rel=stylesheet href=/s><link rel='alternate stylesheet' href=/s>", []),
        ("<link rel=icon href=/i><link href=/x>", []),
        ("<link rel=canonical href=/c>", []),
        ("<meta http-equiv=Refresh content='5; URL=/r'>", ["/r"]),
        ("<noscript><a href=/n></a></noscript>", ["/n"]),
        ("<template><a href=/t></a></template>", []),
        ("<div><a href=/1></a><template shadowrootmode=open><a href=/2></template><a href=/3>", ["/1", "/2", "/3"]),
        ("<x-y><template ShadowRootMode=Closed><a href=/c></template></x-y>", ["/c"]),
        ("<p><template shadowrootmode=x><a href=/t></template>", []),
        ("<ul><template shadowrootmode=open><a href=/t></template></ul>", []),
        ("<div>" + 2 * "<template shadowrootmode=open><a href='?{}'></template>" + "</div>", ["/d/page.html?{}"]),
        ("<template><p><template shadowrootmode=open><a href=/t></template></template>", []),
        ("<div><template shadowrootmode=open><base href=/b/><title>t</title><a href=x></template></div>", ["/d/x"]),
        (NESTED_SHADOWS, ["/1", "/2", "/3", "/4"]),
        ("<form action=/f><button></form><img src=/i srcset='/j 2x'><script src=/s></script><embed src=/e>", []),
        ("<svg><a xlink:href=/x></a><a href=/y></a><a></a><use xlink:href=/z /></svg>", ["/x", "/y"]),
        ("<script>'<a href=/s>'</script><!-- <a href=/c> --><textarea><a href=/t></textarea>", []),
        ("<a href=/1><area href=/2><iframe src=/3></iframe><a href=/4>", ["/1", "/2", "/3", "/4"]),
        ("<a href=/x#a><a href=/x#b><a href=/x>", ["/x"]),
        ("<a href>", ["/d/page.html"]),
        ("<a href='?q'><a href='#'><a href=''>", ["/d/page.html?q", "/d/page.html"]),
        ("<A HREF=/x>", ["/x"]),
        ("<a href=' /x\n'><a href='/a\tb'>", ["/x", "/ab"]),
        ("<a href='/?a=1&amp;b=2'><a href='/?c&#x2f;d'><a href='/?x&copy=1'>", ["/?a=1&b=2", "/?c/d", "/?x&copy=1"]),
        ("<a href='javascript:x'><a href=mailto:a@b><a href=tel:1><a href=data:,>", []),
        ("<a href=blob:x><a href=about:blank><a href=ftp://h.test/>", []),
        ("<a href='http:///x.test'><a href='http:y'><a href='\\\\z.test'>", ["http://x.test/", "/d/y", "http://z.test/"]),
        ("<a href='http://['><a href='http://a b/'><a href=ok>", ["/d/ok"]),
        ("<div><p><a href=/1<a href=/2>", ["/1%3Ca"]),
    ],
)  # fmt: skip
def test_each_element_is_followed_by_the_policy_table(html, found):
    assert links(html) == found


@pytest.mark.parametrize(
    ("html", "found"),
    [
        ("<base href=/b/><a href=x>", "/b/x"),
        ("<a href=x><base href=/b/>", "/b/x"),
        ("<base href=/1/><base href=/2/><a href=x>", "/1/x"),
        ("<base href='javascript:x'><base href=data:,><base target=_top><base href=/2/><a href=x>", "/d/x"),
        ("<base target=_top><base href=/2/><a href=x>", "/2/x"),
        ("<base href=''><a href=x>", "/d/x"),
        ("<base href='http://o.test/q/r'><a href=x>", "http://o.test/q/x"),
        ("<base href='../up/'><a href=x>", "/up/x"),
    ],
)
def test_the_first_base_resolves_all_links(html, found):
    assert links(html) == [found]


def test_nofollow_links_are_left_out_only_when_that_is_obeyed():
    html = "<a rel=nofollow href=/1><a rel='ugc NoFollow' href=/2><a rel=noopener href=/3><area rel=nofollow href=/4>"
    assert links(html) == ["/3"]
    assert links(html, obey=False) == ["/1", "/2", "/3", "/4"]


@pytest.mark.parametrize(
    "rel", ["noopener,nofollow", "nofollow;ugc", "ugc/nofollow", "\nnofollow\t", "ugc&nbsp;NOFOLLOW"]
)
def test_nofollow_counts_whatever_separates_it_from_other_words(rel):
    assert links(f"<a rel='{rel}' href=/1><a rel='noopener,follow' href=/2>") == ["/2"]


@pytest.mark.parametrize(
    ("content", "noindex", "nofollow"),
    [
        ("nofollow", False, True),
        ("NOINDEX, NoFollow", True, True),
        ("none", True, True),
        ("noindex,follow", True, False),
        ("all", False, False),
        ("unavailable_after: 2030-01-01, noindex", True, False),
        ("noindex nofollow", True, True),
        ("noindex;nofollow", True, True),
        ("noindex/nofollow", True, True),
        ("index;\tnofollow", False, True),
        ("noindex\xa0follow", True, False),
        ("noindex: nofollow", True, True),
        ("max-image-preview: none; index", False, False),
        ("max-image-preview:none nofollow", False, True),
        ("unavailable_after: none/noindex", True, False),
        ("noindexes, donofollow", False, False),
        ("", False, False),
    ],
)
def test_directives_hold_in_meta_and_header_alike(content, noindex, nofollow):
    by_meta = parse(f"<meta name=Robots content='{content}'><a href=/x>")
    by_header = parse("<a href=/x>", header=content)
    for page in (by_meta, by_header):
        assert (page.noindex, page.nofollow) == (noindex, nofollow)
        assert len(page.links) == (0 if nofollow else 1)


def test_nofollow_of_a_page_is_recorded_but_not_obeyed_on_demand():
    page = parse("<meta name=robots content=none><a href=/x>", obey=False)
    assert (page.nofollow, page.noindex, len(page.links)) == (True, True, 1)


def test_directives_to_other_agents_are_not_ours():
    assert not parse("<meta name=googlebot content=noindex>").noindex
    assert parse("<meta name=ShardCrawl content=noindex>").noindex
    assert robots_header("googlebot: noindex, nofollow", "shardcrawl") == (False, False)
    assert robots_header("otherbot: none\nnofollow", "shardcrawl") == (False, True)
    assert robots_header("otherbot: noindex, ShardCrawl: nofollow", "shardcrawl") == (False, True)
    assert robots_header("otherbot: noindex; ShardCrawl: nofollow", "shardcrawl") == (False, True)
    assert robots_header("otherbot: noindex nofollow", "shardcrawl") == (False, False)
    assert robots_header("shardcrawl: noindex nofollow", "shardcrawl") == (True, True)
    assert robots_header("unavailable_after: 25 Jun 2030 15:00:00 PST, noindex", "shardcrawl") == (True, False)


def test_the_canonical_link_is_kept_apart_and_resolved():
    page = parse("<base href=/b/><link rel=canonical href='javascript:x'><link rel=Canonical href='c#f'>")
    assert page.canonical == "http://h.test/b/c"
    assert page.links == ()
    assert parse("<p>").canonical == ""


def test_the_title_is_folded_and_bounded():
    assert parse("<title>\n A &amp;  B\t</title><title>C</title>").title == "A & B"
    assert parse("<title>" + "ü" * 999 + "</title>").title == "ü" * 300
    assert parse("<p>none").title == ""


def test_links_beyond_the_cap_are_counted():
    html = "".join(f"<a href=/{n}><a href=/{n}#x>" for n in range(50))
    page = parse(html, links_max=10)
    assert page.links == tuple(f"http://h.test/{n}" for n in range(10))
    assert page.links_dropped == 40
    assert parse(html, links_max=50).links_dropped == 0


def test_links_beyond_a_mebibyte_of_urls_are_counted():
    long = "x" * 8000
    page = parse("".join(f"<a href=/{n}{long}>" for n in range(300)), links_max=20_000)
    assert sum(map(len, page.links)) <= LINK_BYTES_MAX < sum(map(len, page.links)) + 8100
    assert len(page.links) + page.links_dropped == 300


def test_links_in_a_base_of_eight_kibibytes_are_joined_only_as_far_as_they_can_be_kept():
    html = f"<base href=/{'b' * 8000}/>" + "".join(f"<a href={n}>" for n in range(30_000))
    page = parse(html, links_max=20_000)
    assert 100 < len(page.links) < 140
    assert len(page.links) + page.links_dropped == 30_000


@pytest.mark.parametrize(
    ("body", "content_type", "html"),
    [
        (b"<p>x", "text/html", True),
        (b"x", "TEXT/HTML;charset=x", True),
        (b"<p>x", "application/xhtml+xml", True),
        (b"%PDF-1.4 <a href=x>", "text/html", False),
        (b"\x89PNG\r\n", "text/html", False),
        (b"<html><a href=x>", "text/plain", False),
        (b"<html><a href=x>", "image/png", False),
        (b"  \n<!DOCTYPE HTML><a href=x>", "", True),
        (b"<a href=x>", "", True),
        (b"<!-- c --><p>", "", True),
        ("\ufeff<html>".encode("utf-16-le"), "", True),
        (b"plain words", "", False),
        (b"", "", False),
        (b"<article-like", "", True),
        (b"<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'>", "application/xml", True),
        (b"<?xml version='1.0'?><rss>", "application/xml", False),
        (b"<svg xmlns='http://www.w3.org/2000/svg'>", "image/svg+xml", False),
    ],
)
def test_only_html_is_parsed_as_html(body, content_type, html):
    assert is_html(content_type, body) is html


def test_other_types_have_no_links_but_keep_the_headers_directives():
    page = parse(b"%PDF <a href=/x>", "application/pdf", header="noindex")
    assert page.links == ()
    assert page.noindex
    assert page.charset == ""


@pytest.mark.parametrize(
    ("body", "content_type", "title"),
    [
        ("<title>é</title>".encode("cp1252"), "text/html; charset=latin1", "é"),
        ("\ufeff<title>é</title>".encode(), "text/html; charset=latin1", "é"),
        ("\ufeff<title>é</title>".encode("utf-16-le"), "text/html", "é"),
        (b"<meta charset=shift_jis><title>" + "日本".encode("shift_jis"), "text/html", "日本"),
        (b"<title>\xff\xfe\x80</title>", "text/html; charset=utf-8", "\ufffd\ufffd\ufffd"),
    ],
)
def test_pages_are_read_in_their_own_encoding(body, content_type, title):
    assert parse(body, content_type).title == title


def test_head_elements_keep_their_place_behind_a_byte_order_mark():
    page = parse("\ufeff<title>t</title><base href=/b/><a href=x>")
    assert page.links == ("http://h.test/b/x",)


@given(
    st.binary(max_size=300),
    st.sampled_from(["", "text/html", "text/html; charset=utf-7", "text/html; charset=utf-16le"]),
)
def test_no_bytes_whatever_make_it_raise(body, content_type):
    for raw in (body, b"<html><a href='" + body + b"'><title>" + body):
        page = parse(raw, content_type)
        assert all(link.isascii() for link in page.links)
        page.title.encode("utf-8")


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/x", "http://h.test/x"),
        ("y#f", "http://h.test/d/y"),
        ("//evil.test", "http://evil.test/"),
        ("\\\\evil.test", "http://evil.test/"),
        ("http:/path", "http://h.test/path"),
        ("https://h.test:443/", "https://h.test/"),
        ("/caf\xc3\xa9", "http://h.test/caf%C3%A9"),
        ("/caf\xe9", "http://h.test/caf%E9"),
        ("http://b\xc3\xbccher.test/", "http://xn--bcher-kva.test/"),
        ("", None),
        ("  ", None),
        ("file:///etc/passwd", None),
        ("javascript:x", None),
        ("data:,x", None),
        ("view-source:http://h.test/", None),
        ("http://[", None),
        ("/" + "a" * 1_000_000, None),
    ],
)
def test_a_location_leads_where_browsers_go_or_nowhere(location, target):
    assert redirect_target(URL, location) == target


@pytest.mark.parametrize(
    ("value", "target"),
    [
        ("0;url=/x", "/x"),
        ("0; URL = '/x y' junk", "/x%20y"),
        ('5;url="/x"', "/x"),
        ("5,/x", "/x"),
        ("5 /x", "/x"),
        ("0.5;url=/x", "/x"),
        ("5", None),
        ("5;", None),
        ("url=/x", None),
        ("0;url=javascript:x", None),
    ],
)
def test_a_refresh_is_a_link_or_a_mere_reload(value, target):
    found = refresh_target(URL, value)
    assert (found and found.removeprefix("http://h.test")) == target


def test_the_allocator_can_be_told_to_keep_memory():
    import platform

    assert keep_freed_memory() is (platform.libc_ver()[0] == "glibc")


@pytest.mark.parametrize(
    ("value", "target"),
    [
        ("0;url=/next", "http://a.test/next"),
        ("5; URL = '/next' and more", "http://a.test/next"),
        (' 0.5 , "/next"', "http://a.test/next"),
        ("0 url=/next", "http://a.test/next"),
        ("0;/next", "http://a.test/next"),
        ("0;url=//b.test", "http://b.test/"),
        (".5;url=/next", "http://a.test/next"),
        ("0;url", "http://a.test/url"),
        ("0; url='/ne\"xt", "http://a.test/ne%22xt"),
        ("0", None),
        ("0;", None),
        ("0;url=", None),
        ("x;url=/next", None),
        ("url=/next", None),
        ("0x;url=/next", None),
        ("0;url=javascript:alert(1)", None),
        ("0;url=http://" + "a" * 300 + ".test/", None),
    ],
)
def test_a_refresh_header_leads_to_the_target_of_the_standard(value, target):
    assert refresh_target("http://a.test/", value) == target


def test_a_refresh_header_is_one_more_link_of_any_kind_of_page():
    def links(kind, **more):
        return parse_page("http://a.test/d/", kind, more.pop("x_robots", ""), b"<base href=/e/><a href=x>",
                          refresh="0;url=y",
                          links_max=9, obey_nofollow=True, bytes_max=8192, agent="x").links  # fmt: skip

    assert links("text/html") == ("http://a.test/e/x", "http://a.test/d/y")
    assert links("text/plain") == ("http://a.test/d/y",)
    assert links("text/plain", x_robots="nofollow") == ()
    assert links("text/html", x_robots="nofollow") == ()


def test_a_line_separator_in_x_robots_tag_does_not_start_a_line():
    """Else what is addressed to another agent would count for ours."""
    assert robots_header("other: noarchive\x85, noindex", "crawler") == (False, False)
