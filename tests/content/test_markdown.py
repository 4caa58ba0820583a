"""Pages as Markdown: what others lose or break, Markdown's own characters, and pages that are made to stall."""

import time

import pytest
from selectolax.lexbor import LexborHTMLParser

from crawler.content.html import NO_EVENTS
from crawler.content.main_text import UnreadableTextError
from crawler.content.markdown import DEPTH_MAX, markdown
from crawler.redaction import learn_login
from tests.support.growth import LINEAR_MAX, growth

URL = "http://x.test/a/b.html"


def of(html: str, main: str | None = None) -> str:
    return markdown(LexborHTMLParser(html, options=NO_EVENTS), URL, main=main)


# What other programs were told of: the text behind empty elements (Crawl4AI 1938, 1966), rows without outer pipes
# (Crawl4AI 1731), lines of cells (markdownify 238), line ends of code (markdownify 185), parentheses of URLs
# (markdownify 270, html2text 44), links and strong text that a filter takes away (Crawl4AI 582), nested tables
# (turbohtml 764).
KNOWN_BUGS = {
    "text behind empty elements": (
        "<p>Hello <span></span>world<b> </b> and <i></i>more</p><p><a href=/e1><small></small>Example 1</a> after</p>",
        "Hello world and more\n\n[Example 1](http://x.test/e1) after\n",
    ),
    "text behind scripts": ("<p>jane<script>a()</script>@b.test<!-- c --> here", "jane@b.test here\n"),
    "pipes around and in tables": (
        "<table><tr><th>A|B<th>C</tr><tr><td>x<td>y|z</table>",
        "| A\\|B | C |\n| --- | --- |\n| x | y\\|z |\n",
    ),
    "lines of a cell": (
        "<table><tr><td>1<td><div>2-1</div> <div>2-2</div><ul><li>a<li>b</ul></table>",
        "|  |  |\n| --- | --- |\n| 1 | 2-1<br>2-2<br>a<br>b |\n",
    ),
    "blank lines and backticks of code": (
        "<pre><code class='language-py'><span>a = 1\n\n\n</span><span>```\n</span></code></pre><p><code>x`y</code>",
        "````py\na = 1\n\n\n```\n````\n\n``x`y``\n",
    ),
    "parentheses and blanks of URLs": (
        "<a href='http://w.test/X_(y)'>x</a> <a href='b c.html'>y</a> <a href='<z>'>z</a>",
        "[x](http://w.test/X_%28y%29) [y](http://x.test/a/b%20c.html) [z](http://x.test/a/%3Cz%3E)\n",
    ),
    "nested lists": (
        "<ul><li>a<ul><li>b<ol start=3><li>c</ol></ul><li>d</ul>",
        "- a\n  - b\n    3. c\n- d\n",
    ),
    "nested tables": (
        "<table><tr><td><table><tr><td>a<td>b</table><td>c</table>",
        "|  |  |\n| --- | --- |\n| a | b |\n\nc\n",
    ),
}


@pytest.mark.parametrize("name", KNOWN_BUGS)
def test_nothing_is_lost_that_others_were_told_of(name: str) -> None:
    html, expected = KNOWN_BUGS[name]
    assert of(html) == expected


def test_links_and_strong_text_stay_in_the_main_text() -> None:
    text = "Examine this Raspberry Pi project in greater detail and visit GitHub for updates of all kinds."
    html = (
        "<p>Examine this <a href=/p>Raspberry Pi project</a> in greater detail and visit <strong>GitHub</strong> for "
    )
    found = of(
        f"<nav><a href=/>Home</a></nav>{html}updates of all kinds.<p>A banner that sells something else", main=text
    )
    assert found == (
        "Examine this [Raspberry Pi project](http://x.test/p) in greater detail and visit **GitHub** for updates of all "  # noqa: E501
        "kinds.\n"
    )


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<base href='http://o.test/d/'><a href=r.html>r</a>", "[r](http://o.test/d/r.html)\n"),
        ("<a href='javascript:alert(1)'>js</a> <a href=' JaVaScRiPt:1'>k</a>", "js k\n"),
        ("<a href='data:text/html,x'>d</a> <a href='vbscript:x'>v</a> <a href='http://[/'>bad</a>", "d v bad\n"),
        (f"<img alt=pic src='data:image/png;base64,{'A' * 100_000}'>", "pic\n"),
        ("<img src=../i.png alt='a ] b'> <a href=mailto:a@b.test>m</a>", "![a \\] b](http://x.test/i.png) [m](mailto:a@b.test)\n"),  # noqa: E501
        ("<a href='?q=1#f(x)'>q</a><a href='#s'>¶</a>", "[q](http://x.test/a/b.html?q=1#f%28x%29)\n"),
        ("<a href=/c><h3>Card</h3><p>about it</p></a>", "### [Card](http://x.test/c)\n\nabout it\n"),
        ("<h2><strong>Hi</strong> <br>there</h2><h4></h4>", "## **Hi** there\n"),
        ("<p># no heading<p>1. no list<p>- none<p>> none<p>a_b_c *s* _t_ `u` &amp;lt; [x](y) <b>**</b>", (
            "\\# no heading\n\n1\\. no list\n\n\\- none\n\n\\> none\n\na_b_c \\*s* \\_t\\_ \\`u\\` \\&lt; [x\\](y) **\\*\\***\n"  # noqa: E501
        )),
        ("<p><span>[click]</span><b></b><span>(javascript:alert(1))</span>", "[click\\](javascript:alert(1))\n"),
        ("<p>&lt;script&gt; a < b", "\\<script> a < b\n"),
        ("<p>a<br>b<hr><blockquote><p>one<p>two</blockquote>", "a  \nb\n\n---\n\n> one\n>\n> two\n"),
        ("<p>Welcome!<p>See!<a href=/x>x</a>", "Welcome!\n\nSee\\![x](http://x.test/x)\n"),
        ("<dl>\n<dt>V</dt>\n<dd>said</dd>\n</dl>", "- **V**\n\n  said\n"),
        ("<dl><dt>T<dt>U<dd>said</dl>", "- **T**  \n  **U**\n\n  said\n"),
        ("<div class='highlight-python notranslate'><div class=highlight><pre>x = 1\n</pre></div></div>", "```python\nx = 1\n```\n"),  # noqa: E501
        ("<p hidden>no<p style='display: none'>no<p>yes", "yes\n"),
        ("<p>a\0b\x07c", "abc\n"),
        ("<div><template shadowrootmode=open><p>in</template>light</div>", "light\n\nin\n"),
        ("", ""),
    ],
)  # fmt: skip
def test_markdown_says_what_the_page_says(html: str, expected: str) -> None:
    assert of(html).replace("\ufffd", "") == expected


def test_a_link_with_the_password_of_a_login_is_its_text() -> None:
    learn_login("user", "s3cret-of-a-login")
    assert of("<a href='/x?p=s3cret-of-a-login'>go</a>") == "go\n"


HOSTILE = {
    "nested": "<div>" * 3_000 + "deep",
    "nested lists": "<ul><li>" * 2_000 + "deep",
    "nested quotations": "<blockquote>" * 3_000 + "deep",
    "nested tables": "<table><tr><td>" * 1_000 + "deep",
    "nested inline": "<b><i>" * 500 + "deep",
    "links in links": "<a href=x>" * 20_000 + "deep",
    "a long text": "<p>deep " + "word " * 1_000_000,
    "one word": "<p>deep" + "x" * 4_000_000,
    "marks": "<p>deep" + "*_[`](<" * 200_000,
    "backticks": "<pre>deep" + "` `` " * 200_000,
    "blanks": "<pre>deep" + " \n" * 500_000,
    "a wide table": "<table><tr>" + "<td colspan=1000>x" * 20_000 + "<td>deep",
    "a long table": "<table>" + "<tr><td>a<td>b" * 20_000 + "<tr><td>deep<td>x",
    "lists of one": "<ul><li>a</ul>" * 20_000 + "deep",
    "line ends": "<p>deep" + "<br>" * 50_000,
    "many references": "<p>deep" + "".join(f"<a href=/p{n}>x</a>" for n in range(20_000)),
    "broken entities": "<p>deep" + "&" * 500_000,
}


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pages_take_no_more_than_their_length(name: str) -> None:
    began = time.process_time()
    found = of(HOSTILE[name])
    assert "deep" in found
    assert len(found) < 40 * len(HOSTILE[name]) + 1000
    assert time.process_time() - began < 30  # some tenths of a second; what grows with the square takes minutes


GROWING = {
    "texts of elements that have no form": lambda count: "<p>" + "<span>some words of a text </span>" * count,
    "shadow roots": lambda count: "<div><template shadowrootmode=open>x</template></div>" * count,
    "shadow roots with blocks in links": lambda count: (
        "<div><template shadowrootmode=open><a href=/><p>x</p></a></template></div>" * count
    ),
    "lists in a list": lambda count: "<ul><li>a" + "<ul><li>some words of an item</li></ul>" * count,
}


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("name", GROWING)
def test_what_a_page_repeats_takes_linear_time(name: str) -> None:
    def tree(count: int) -> LexborHTMLParser:
        return LexborHTMLParser(GROWING[name](count), options=NO_EVENTS)

    assert growth(lambda one: markdown(one, URL), tree(1_500), tree(15_000)) <= LINEAR_MAX


def test_the_queries_of_links_are_in_the_charset_of_the_page() -> None:
    tree = LexborHTMLParser("<a href='?q=ж'>x</a><img src='/i?ж' alt=y>", options=NO_EVENTS)
    assert markdown(tree, URL, "cp1251") == "[x](http://x.test/a/b.html?q=%E6)![y](http://x.test/i?%E6)\n"
    assert markdown(tree, URL) == "[x](http://x.test/a/b.html?q=%D0%B6)![y](http://x.test/i?%D0%B6)\n"


def test_a_page_with_too_many_elements_is_refused() -> None:
    with pytest.raises(UnreadableTextError, match="too many elements"):
        of("<p>x" * 200_000)


@pytest.mark.parametrize("links", ["".join(f"<a href={n}>x</a>" for n in range(3_000)), "<a href=y>x</a>" * 3_000])
def test_a_long_base_does_not_make_gigabytes_of_short_links(links: str) -> None:
    with pytest.raises(UnreadableTextError, match="longer than 16 MiB"):
        of(f"<base href='http://x.test/{'d' * 8_000}/'>{links}")


def test_what_is_deeper_than_the_bound_belongs_to_what_is_around_it() -> None:
    assert of("<div>" * (3 * DEPTH_MAX) + "<p>one<p>two").split() == ["one", "two"]
