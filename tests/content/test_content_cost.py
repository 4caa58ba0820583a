"""Expensive pages are detected before parsing; ordinary pages pass."""

import pytest

from crawler.content.parse_cost import Cost, cost_of


@pytest.mark.parametrize(
    "body",
    [
        b"<div>" * 60_000,
        b"<ul><li>" * 30_000,
        b"<p " + b" ".join(b"a%d" % n for n in range(20_000)) + b">",
        b"<p " + b"/".join(b"a%d" % n for n in range(20_000)) + b">",
        b"<p>" + b"".join(b"<b x%d>" % n for n in range(1000)) + b"<p>x" * 1000,
        b"<p>" + b"".join(b"<b x%d>" % n for n in range(1000)) + b"<p>x" * 20_000,
        b"<html>" + b"<a href=x>" * 1_000_000,
    ],
    ids=[
        "nested div", "nested lists", "attributes", "attributes by slash", "formatting reopened",
        "formatting reopened in a long page", "a million links",
    ],
)  # fmt: skip
def test_known_expensive_shapes_are_flagged(body):
    assert cost_of(body) is Cost.EXPENSIVE


@pytest.mark.parametrize(
    "body",
    [
        b"<div>" * 20_000,
        b"<ul><li>" * 10_000,
        b"<div></x>" * 20_000 + b"<div>" * 10_000,
        b"<html><body>" + b'<a class="x" href="/page/"><code>y</code></a><br>' * 10_000,
    ],
    ids=["nested div", "nested lists", "closed by others", "a long page"],
)
def test_what_may_be_nested_deeply_is_long_and_no_more(body):
    assert cost_of(body) is Cost.LONG


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"text " * 100_000,
        b"<html><body>" + b'<div class="x"><a href="/page/">link</a> <code class="y">z</code></div>' * 2000,
        b"<table>" + b"<tr><td>1<td>2<td>3" * 2000 + b"</table>",
        b"<script>" + b"var a = 1; " * 20_000 + b"</script>",
        b'<img src="data:image/png;base64,' + b"QUJDREVG" * 20_000 + b'">',
        b"<ul>" + b"<li><p>one <b>two</b> <br>" * 2000 + b"</ul>",
    ],
    ids=["empty", "text", "divs", "unclosed cells", "long script", "inline image", "unclosed items"],
)
def test_ordinary_pages_are_not_flagged(body):
    assert cost_of(body) is Cost.CHEAP
