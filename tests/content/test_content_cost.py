"""What is dear to parse is seen beforehand; ordinary pages are let through."""

import pytest

from crawler.content.cost import looks_expensive


@pytest.mark.parametrize(
    "body",
    [
        b"<div>" * 20_000,
        b"<ul><li>" * 10_000,
        b"<p " + b" ".join(b"a%d" % n for n in range(20_000)) + b">",
        b"<p " + b"/".join(b"a%d" % n for n in range(20_000)) + b">",
        b"<p>" + b"".join(b"<b x%d>" % n for n in range(1000)) + b"<p>x" * 1000,
        b"<html>" + b"<a href=x>" * 1_000_000,
    ],
    ids=["nested div", "nested lists", "attributes", "attributes by slash", "formatting reopened", "a million links"],
)
def test_known_dear_shapes_are_flagged(body):
    assert looks_expensive(body)


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
    assert not looks_expensive(body)
