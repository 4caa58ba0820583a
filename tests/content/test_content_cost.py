"""Expensive pages are detected before parsing, whatever they hide; ordinary pages pass."""

import itertools
import random
import re
from collections.abc import Callable

import pytest

from crawler.content import parse_cost
from crawler.content.html import ExpensiveLinksError, markup_of, parse_with_tree
from crawler.content.parse_cost import Cost, cost_of


def numbered(unit: bytes, size: int) -> bytes:
    """As many units as fit, each with its number in place of %d."""
    return b"".join(unit.replace(b"%d", b"%d" % n) for n in range(size // len(unit)))


@pytest.mark.parametrize(
    "body",
    [
        b"<div>" * 60_000,
        b"<ul><li>" * 30_000,
        b"<p " + b" ".join(b"a%d" % n for n in range(20_000)) + b">",
        b"<p " + b"/".join(b"a%d" % n for n in range(20_000)) + b">",
        b"<p>" + b"".join(b"<b x%d>" % n for n in range(1000)) + b"<p>x" * 1000,
        b"<p>" + b"".join(b"<b x%d>" % n for n in range(1000)) + b"<p>x" * 20_000,
    ],
    ids=[
        "nested div", "nested lists", "attributes", "attributes by slash", "formatting reopened",
        "formatting reopened in a long page",
    ],
)  # fmt: skip
def test_known_expensive_shapes_are_flagged(body):
    assert cost_of(body) is Cost.EXPENSIVE


def test_a_million_links_are_expensive() -> None:
    assert cost_of(b"<html>" + b"<a href=x>" * 1_000_000) is Cost.EXPENSIVE


# Each opens a formatting element that stays open, and may show what looks as if it were closed or were something else.
OPENED = {
    "plain": b"<b x%d>", "upper case": b"<B X%d>", "by slash": b"<b/x%d>", "self-closing": b"<b x%d/>",
    "line feed": b"<b\nx%d>", "> in quotes": b"<b x='>%d'>", "> in double quotes": b'<b x=">%d">',
    "quotes in a bare value": b"<b x=y=\"a b='>%d'>", "closed by others": b"<b x%d></i></u>",
    "closed in a value": b"<b x%d='</b>'>", "closed in a comment": b"<b x%d><!--</b>-->",
    "closed in a bogus comment": b"<b x%d><!</b>", "closed in CDATA": b"<b x%d><![CDATA[</b>]]>",
    "closed in a script": b"<b x%d><script></b></script>", "closed in a title": b"<b x%d><title></b></title>",
    "closed out of scope": b"<b x%d><table></b></table>", "closed in a select": b"<b x%d><select></b></select>",
    "closed in a template": b"<b x%d><template></b></template>", "closed in a foreign element":
    b"<b x%d><svg><desc></b></svg>", "closed behind a marker": b"<b x%d><object></b></object>",
    "opened in an open quote": b"<!--<b y='--><b x%d>", "NUL": b"<b x\0%d>", "entity": b"<b x=&#%d;>",
    "nobr": b"<nobr x%d>", "font": b"<font x%d>", "mixed case": b"<stRONG x%d>", "many attributes":
    b"<i %d " + b" ".join(b"%x" % n for n in range(60)) + b">",
}  # fmt: skip
REOPENED = {"paragraphs": b"<p>x", "with a slash": b"<p>/", "with many": b"<p>////", "items": b"<li>/",
            "in a comment": b"<p>x<!--////-->"}  # fmt: skip


@pytest.mark.parametrize("opened", OPENED)
@pytest.mark.parametrize("reopened", REOPENED)
def test_formatting_that_stays_open_is_never_cheap(opened: str, reopened: str) -> None:
    """79 KB of it took 9.7 s of CPU: slashes in the text passed for closing tags."""
    body = b"<ul><p>" + numbered(OPENED[opened], 40_000) + REOPENED[reopened] * (40_000 // len(REOPENED[reopened]))
    assert cost_of(body) is Cost.EXPENSIVE


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-be", "iso-2022-jp"])
def test_a_charset_hides_nothing(codec: str) -> None:
    text = "<p>" + "".join(f"<b x='{n}\u013e'>" for n in range(4000)) + "<p>/" * 8000
    body = text.encode(codec, "replace").replace(b"<b", b"<\x1b(Bb" if codec == "iso-2022-jp" else b"<b")
    markup = markup_of(f"text/html; charset={codec}", body)
    assert markup is not None
    assert cost_of(markup.body) is Cost.EXPENSIVE


ATTRIBUTES = {
    "blanks": b"a%d ", "no blanks": b"a%d=''", "slashes": b"a%d/", ">": b"a%d='>'", "<>": b"a%d='<>'", "a tag":
    b"a%d='<p>' ", "double quotes": b'a%d=">"', "quotes in quotes": b"a%d=\"'>\"c='\">'", "equals": b"=%d ",
    "equals and quotes": b"=%d='>' ", "<": b"<%d ", "blanks around": b"a%d = '>' ", "lines": b"a%d\n=\n'>'\n",
    "few in long values": b"a%d='" + b"z" * 40 + b">'",
}  # fmt: skip
BEFORE = {
    "nothing": b"<p ", "an end tag": b"</p ", "an open quote": b"<!--<a x=\"-->" + b"y" * 9000 + b"<p ",
    "a long value": b"<p x='" + b"y" * 40_000 + b"' ",
}  # fmt: skip


@pytest.mark.parametrize("attribute", ATTRIBUTES)
@pytest.mark.parametrize("before", BEFORE)
def test_a_tag_with_thousands_of_attributes_is_never_cheap(attribute: str, before: str) -> None:
    body = BEFORE[before] + numbered(ATTRIBUTES[attribute], 30 * len(ATTRIBUTES[attribute]) * 1000) + b">"
    assert cost_of(body) is Cost.EXPENSIVE


def test_attributes_that_are_copied_into_each_block_are_never_cheap() -> None:
    attributes = b" ".join(b"%x" % n for n in range(1000))
    for name, block in itertools.product((b"a", b"b", b"A", b"nobr"), (b"<p>/", b"<p>x</p>")):
        assert cost_of(b"<p><%b %b>" % (name, attributes) + block * 10_000) is Cost.EXPENSIVE


def test_blocks_that_end_tags_move_out_of_open_elements_are_never_cheap() -> None:
    """24 KB of it took 4.6 s of CPU: each end tag moved blocks out of 200 elements."""
    for block in (b"<div>", b"<p>/", b"<ul><li>"):
        assert cost_of(numbered(b"<b x%d>" + block, 3000) + b"</b><br>" * 3000) is Cost.EXPENSIVE


@pytest.mark.parametrize(("opened", "ended"), [(200, 1500), (300, 1000), (400, 1000), (150, 2400), (200, 2400)])
def test_a_short_page_of_end_tags_that_move_blocks_is_never_cheap(opened: int, ended: int) -> None:
    """10 KB of it took 1.5 s of CPU, 12 KB 4.5 s: pages of that size, and the end of any page, were not looked at."""
    assert cost_of(numbered(b"<b x%d><div>", 12 * opened) + b"</b>" * ended) is not Cost.CHEAP


@pytest.mark.parametrize(
    "unit",
    [
        b"<a href='/page/%d.html'>it's</a> text ",
        b'<a title="a > b" href="/page/%d.html">text</a> ',
        b"<p>x = 'y' > \"z\" <a href=/page/%d>text</a> ",
        b'<img src="%d.png" alt="a picture"> ',
        b'<code class="c%d">x</code>',
        b"<pre>if (a<b && c>d) %d;</pre>" + b"text " * 200,
    ],
    ids=["single quotes", "> in quotes", "quotes in the text", "pictures", "code", "long texts"],
)
@pytest.mark.parametrize("size", [20_000, 80_000, 160_000])
def test_what_real_pages_repeat_is_not_expensive(unit: bytes, size: int) -> None:
    assert cost_of(numbered(unit.replace(b"%d", b"%d" if b"class" not in unit else b"1"), size)) is Cost.CHEAP


# Each takes more than five seconds in the parser: what is opened, and what makes it expensive.
EXPENSIVE = (
    (b"<b x%d>", b"<p>x"), (b"<font/x%d y z>", b"<li>/"), (b"<nobr x='>%d'>", b"<div>x</div>"),
    (b"<b x%d><div>", b"</b><br>"), (b"<code x%d><p>", b"</code>x"), (b"<x>", b"</y>"), (b"<div>", b"</p>"),
)  # fmt: skip
HIDING = (b"", b"/", b"<!--</b></x>-->", b"</i>", b"it's ", b'say "x" ', b"<script>'</b>'</script>", b"<p title='\">'>",
          b"<!--='-->", b"<!--=\"-->", "\u013e".encode(), b"5 > 3 ", b"<hr>")  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_no_mixture_hides_an_expensive_shape(seed: int) -> None:
    choose = random.Random(seed)
    opened, then = choose.choice(EXPENSIVE)
    hiding = choose.choices(HIDING, k=2)
    if choose.random() < 0.5:
        opened = opened.upper().replace(b"%D", b"%d")
    body = choose.choice(HIDING) * choose.randrange(2000)
    body += b"<p>" + b"".join(opened.replace(b"%d", b"%d" % n) + hiding[0] for n in range(16_000))
    body += choose.choice(HIDING) * choose.randrange(2000) + (then + hiding[1]) * 48_000
    assert cost_of(body) is Cost.EXPENSIVE


class Reader:
    """In place of an expression: counts the bytes that it reads of tags."""

    def __init__(self) -> None:
        self.count = 0
        self._tag = parse_cost.TAG

    def match(self, markup: bytes, *span: int) -> re.Match[bytes] | None:
        found = self._tag.match(markup, *span)
        self.count += 0 if found is None else found.end() - found.start()
        return found


@pytest.mark.parametrize(
    "unit",
    [b"<b x='", b"<i <i ", b"</textare", b"<b x=\"<b x='", b"<a '", b"<code =\"'>", b"<a href='/%d\xc3\xa4'>x</a>"],
)
@pytest.mark.parametrize("size", [100_000, 800_000, 3_000_000])
def test_no_byte_is_read_again_and_again(unit: bytes, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse_cost, "TAG", reader := Reader())
    cost_of(b"x" * 20_000 + unit * (20_000 // len(unit)) + b" y='" + b"y" * (size - 40_000))
    cost_of(unit * (size // len(unit)))
    assert reader.count < 8 * size


@pytest.mark.parametrize("closing", [b"</p>", b"</x>", b"</li>", b"</b>", b"</body>", b"<hr>"])
@pytest.mark.parametrize("opening", [b"<x>", b"<div>", b"<svg><g>"])
def test_a_walk_for_each_tag_is_bounded(opening: bytes, closing: bytes) -> None:
    def cost(count: int) -> Cost:
        return cost_of(opening * count + closing * count)

    assert cost(2000) is Cost.CHEAP
    assert cost(13_000) is not Cost.CHEAP
    assert cost_of(opening * 13_000 + closing * 500_000) is Cost.EXPENSIVE


@pytest.mark.parametrize(
    "body",
    [
        b"<div>" * 20_000,
        b"<ul><li>" * 10_000,
        b"<div></x>" * 12_000 + b"<div>" * 3_000,
        b"<html><body>" + b'<a class="x" href="/page/"><code>y</code></a><br>' * 5_000,
        b"<p>some words of a long page</p>" * 40_000,
    ],
    ids=["nested div", "nested lists", "closed by others", "a long page", "more than a megabyte"],
)
def test_what_may_be_nested_deeply_is_long_and_no_more(body):
    assert cost_of(body[:1_300_000]) is Cost.LONG if len(body) < 1_000_000 else cost_of(body) is not Cost.CHEAP


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"text " * 100_000,
        b"<html><body>" + b'<div class="x"><a href="/page/">link</a> <code class="y">z</code></div>' * 1500,
        b"<table>" + b"<tr><td>1<td>2<td>3" * 2000 + b"</table>",
        b"<script>" + b"var a = 1; if (a<b || a>c) a = 2; " * 5_000 + b"</script>",
        b'<img src="data:image/png;base64,' + b"QUJD/EVG" * 20_000 + b'">',
        b"<ul>" + b"<li><p>one <b>two</b> <br>" * 2000 + b"</ul>",
        b"<p>don't = 'quote' \"this\" text " * 3000,
        b'<script type="application/json">{"a": "' + b'some text, {\\"b\\": 1}, ' * 20_000 + b'"}</script>',
        b"".join(b'<i class="icon-%d" title="a > b"></i><p>text</p>' % (n % 12) for n in range(2000)),
    ],
    ids=[
        "empty", "text", "divs", "unclosed cells", "long script", "inline image", "unclosed items", "apostrophes",
        "JSON", "icons",
    ],
)  # fmt: skip
def test_ordinary_pages_are_not_flagged(body):
    assert cost_of(body) is Cost.CHEAP


HREFS: dict[str, Callable[[int], str]] = {
    "names of hosts": lambda n: f"http://{n}{'ä.' * 120}test/",
    "paths": lambda n: f"/{n}{'ä' * 3000}",
    "a long base": lambda n: f"../{n}",
}


@pytest.mark.parametrize("kind", HREFS)
def test_links_that_take_long_to_join_are_not_joined_here(kind: str) -> None:
    base = "<base href='http://a.test/" + "a/" * 3500 + "'>" if kind == "a long base" else ""
    body = (base + "".join(f"<a href='{HREFS[kind](n)}'></a>" for n in range(9000))).encode()
    with pytest.raises(ExpensiveLinksError):
        parse_with_tree(
            "http://a.test/", "text/html", "", body, links_max=5000, obey_nofollow=True, bytes_max=8192, agent="x",
            join_ms_max=300,
        )  # fmt: skip
