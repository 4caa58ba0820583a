"""Rows of what reads pages, sitemaps, robots.txt and URLs."""

from collections.abc import Iterator

from crawler.content.charset import with_query_in
from crawler.content.css_urls import css_urls
from crawler.content.parse_cost import cost_of
from crawler.content.requisite_list import RequisiteList
from crawler.content.requisites import candidates
from crawler.content.sitemap import SitemapUrl, parse_sitemap
from crawler.content.sniff import decode, detect_charset
from crawler.media_type import is_html
from crawler.outputs.lines import _safe
from crawler.redaction import redact
from crawler.rules.text import one_line, printable, printable_json
from crawler.rules.url_list import lines_in, listed
from tests.growth.reading import (
    BASE,
    KIB,
    URL_BYTES,
    form,
    hosts,
    jsonld,
    page,
    page_markdown,
    page_requisites,
    page_text,
    references,
    robots,
    url_rules,
)
from tests.growth.target import Target
from tests.growth.tokens import CODECS, CODED, CSS, EMPTY_GZIP, FORM, HOST, HTML, LOADING, ROBOTS, TEXT, URL, XML


def rows() -> Iterator[Target]:
    marker = b"# our group only\nUser-agent: *\n"
    yield Target(
        name="charset.body",
        tokens=(*HTML, *TEXT, b"\xff", b"\xfe", b"\xe9", b"\x81", b"\xa4", b"\x1b$B"),
        bytes_max=8 * KIB,
        around=((b"", b""), (b"<meta charset", b""), (b"<meta ", b"\xe9"), (b"<?xml ", b"\xe9"), (b"\xe9", b"")),
        function=lambda data: (decode(data, detect_charset(data, "")), is_html("", data)),
    )
    yield Target(
        name="charset.codecs",
        function=lambda data: [decode(data, codec) for codec in CODECS],
        bytes_max=4 * KIB,
        tokens=(
            b"a",
            b"\xff",
            b"\x80",
            b"\xe3",
            b"\xd8\x00",
            b"\x1b$B",
            b"\x1b(B",
            b"\x81",
            b"\x810",
            b"\xfe\xfe",
            b"\x1b",
        ),
    )
    yield Target(
        name="charset.query",
        function=lambda text: [with_query_in(codec, f"?{text}") for codec in CODECS],
        tokens=tuple(c.encode() for c in "é日ｱ¥€\ue000a#?%\n"),
        reads_text=True,
        bytes_max=4 * KIB,
    )
    yield Target(
        name="page", function=page, tokens=HTML, around=((b"", b""), (b"<p title='", b"'>")), bytes_max=8 * KIB
    )
    yield Target(
        name="jsonld",
        function=jsonld,
        tokens=(
            b'"',
            b"\\",
            b"{",
            b"}",
            b"[",
            b"]",
            b",",
            b":",
            b"1",
            b"/*",
            b"*/",
            b"//",
            b"\n",
            b" ",
            b"<!--",
            b"@graph",
        ),
        around=((b"<script type=application/ld+json>", b"</script>"), (b"<script type=application/ld+json>{", b",}")),
        bytes_max=16 * KIB,
    )
    yield Target(
        name="form",
        function=form,
        raises=(LookupError, ValueError),
        tokens=(*HTML, *FORM),
        around=((b"<form>", b""), (b"<table><form>", b""), (b"<form><select>", b""), (b"<form><input type=", b">")),
        bytes_max=4 * KIB,
    )
    yield Target(name="page.text", function=page_text, tokens=HTML, bytes_max=4 * KIB)
    marks = (b"*", b"_", b"`", b"[", b"](", b"<li>", b"<td>", b"<pre>", b"<code>", b"&amp;", b"1. ", b"\x00")
    yield Target(name="page.markdown", function=page_markdown, tokens=(*HTML, *marks), bytes_max=4 * KIB)
    yield Target(
        name="page.cost",
        function=cost_of,
        tokens=(*HTML, b"=", b"='", b"='>'", b"x%d ", b"</textare", b"<b x='", b'<i y="', b"<i <i "),
        is_timed=False,  # it looks closer at long bodies; tests/content/test_content_cost.py counts what it reads
        around=((b"", b""), (b"<p ", b">"), (b"<p>", b"<b x='>' y>"), (b"<!--<a x='-->", b"'")),
        bytes_max=64 * KIB,
    )
    yield Target(name="page.requisites", function=page_requisites, tokens=(*HTML, *LOADING), bytes_max=4 * KIB)
    yield Target(
        name="page.css",
        function=lambda data: css_urls(data, BASE, limit=100),
        tokens=CSS,
        around=((b"", b""), (b"p{a:", b"}"), (b"@import ", b""), (b"@font-face{src:", b"}"), (b"url(", b")")),
    )
    yield Target(
        name="page.srcset",
        function=lambda text: candidates(text, "image", RequisiteList(BASE, 100)),
        reads_text=True,
        tokens=(*TEXT, b"1x", b"(", b")", b"a 2x, ", b"data:a"),
    )
    yield Target(
        name="sitemap",
        function=lambda data: parse_sitemap(data, "http://site.test/sitemap.xml"),
        tokens=XML,
        bytes_max=16 * KIB,
        around=(
            (b"", b""),
            (b"<urlset><url>", b""),
            (b"<urlset><url><loc>http://site.test/a", b"</loc>"),
            (b"<!--<", b""),
            (b"<feed><entry><link ", b" href='x'>"),
            (b"http://site.test/\n", b""),
            (b"<sitemapindex><sitemap><loc>", b""),
        ),
    )
    yield Target(
        name="list",
        function=lambda text: [listed(line) for line in lines_in(text)],
        reads_text=True,
        bytes_max=16 * KIB,
        tokens=(*TEXT, b"\r", b"\n", b"0.8 ", b"2026-01-02 ", b"12:00:00 ", b"weekly ", b" #", b"http://a "),
        around=((b"", b""), (b"http://site.test/a ", b""), (b"http://site.test/a\t2026-01-02T", b"")),
    )
    yield Target(
        name="sitemap.gzip",
        function=lambda data: parse_sitemap(data, BASE),
        tokens=CODED,
        around=((EMPTY_GZIP, b""),),
        bytes_max=256 * KIB,
    )
    yield Target(
        name="sitemap.date",
        reads_text=True,
        bytes_max=16 * KIB,
        tokens=(*TEXT, b"(", b"-", b"2026", b"T", b"+00:00", b"Nov "),
        around=((b"", b""), (b"2026-01-01T", b""), (b"Sun, 06 Nov 1994 ", b"")),
        function=lambda text: SitemapUrl(loc=BASE, lastmod=text).changed_at,
    )
    yield Target(
        name="url",
        function=url_rules,
        reads_text=True,
        tokens=URL,
        around=((b"", b""), (b"?", b"x")),
        bytes_max=URL_BYTES,
    )
    yield Target(name="host", function=hosts, reads_text=True, tokens=HOST, bytes_max=URL_BYTES)
    yield Target(name="references", function=references, reads_text=True, tokens=(*URL, *HOST), bytes_max=URL_BYTES)
    yield Target(
        name="robots",
        function=robots,
        tokens=ROBOTS,
        bytes_max=16 * KIB,
        around=((b"", b""), (b"User-agent: *\nDisallow: /", b"b\n"), (marker, b""), (marker + b"Disallow: /a #", b"")),
    )
    yield Target(
        name="shown",
        function=lambda text: (one_line(text), printable(text), printable_json(text), redact(text), _safe(text)),
        tokens=(*TEXT, b"://", b"redis://", b"a:", b"@", b"?pwd=", b"password=", b"token=", b"\x1b", b"\xe2\x80\xae"),
        reads_text=True,
        bytes_max=16 * KIB,
    )
