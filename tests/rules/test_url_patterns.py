"""URL patterns: what matches, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.errors import UsageError
from crawler.rules.patterns import UrlPattern
from crawler.rules.urls import canonicalize

FIT = [
    ("shop.example", "https://shop.example/", True),
    ("shop.example", "http://shop.example/a/b?c=d", True),
    ("shop.example", "https://www.shop.example/", False),
    ("shop.example", "https://notshop.example/", False),
    ("SHOP.Example", "https://shop.example/", True),
    ("*.example", "https://shop.example/x", True),
    ("*.shop.example", "https://shop.example/x", True),
    ("*.shop.example", "https://a.b.shop.example/x", True),
    ("*.shop.example", "https://myshop.example/x", False),
    ("*.shop.example/product/*", "https://de.shop.example/product/7/details?x=1", True),
    ("*.shop.example/product/*", "https://de.shop.example/product", False),
    ("*.shop.example/product/*", "https://de.shop.example/a/product/7", False),
    ("*/login", "https://any.example/login?next=%2F", True),
    ("*/login", "https://any.example/login/", False),
    ("www*.shop.example", "https://www2.shop.example/", True),
    ("www*.shop.example", "https://www.x.shop.example/", False),
    ("shop.example/find?q=*", "https://shop.example/find?q=tea&page=2", True),
    ("shop.example/find?q=*", "https://shop.example/find", False),
    ("shop.example/a.b", "https://shop.example/aXb", False),
    ("http://shop.example", "https://shop.example/", False),
    ("https://shop.example:8443", "https://shop.example:8443/x", True),
    ("shop.example:8443", "https://shop.example/x", False),
    ("shop.example:65535", "https://shop.example:65535/", True),
    ("shop.example:443/x", "https://shop.example/x", True),
    ("*", "http://127.0.0.1/x", True),
    ("Bücher.example/café/*", "https://bücher.example/café/1", True),
    ("*.Bücher.example", "https://de.xn--bcher-kva.example/", True),
    ("bucher.example", "https://bücher.example/", False),
    ("shop.example/café?x=é", "https://shop.example/caf%C3%A9?x=%C3%A9", True),
    ("shop.example/café", "https://shop.example/caf%E9", False),
    ("127.0.0.1/doc/*", "http://127.0.0.1:8000/doc/index.html", True),
    ("[::1]", "http://[::1]:8000/x", True),
    ("[0:0::1]:8000/x", "http://[::1]:8000/x", True),
    ("[::1]:8000", "http://[::1]/", False),
    ("https://[2001:DB8::1]:443/x*", "https://[2001:db8::1]/xy", True),
    ("[::1]", "http://[::2]/", False),
]


@pytest.mark.parametrize(("pattern", "url", "fits"), FIT)
def test_what_fits(pattern: str, url: str, fits: bool) -> None:
    assert UrlPattern.parse(pattern).matches(canonicalize(url)) is fits


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "/product/*", "shop example/x", "a..b", "shop.example:x", "shop.example:0/", "a.b:65536", "[::1",
        "[::1]x", "[::1]x:80", "[::1]:", "[*]", "[1.2.3.4]", "me@[::1]", "::1",
    ],
)  # fmt: skip
def test_an_invalid_pattern_is_reported_in_one_line(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        UrlPattern.parse(text)
    assert "\n" not in str(raised.value)
    assert repr(text) in str(raised.value)


def test_a_long_url_does_not_make_many_stars_slow() -> None:
    pattern = UrlPattern.parse(f"a.test/{'*a' * 30}b")
    assert not pattern.matches(f"https://a.test/{'a' * 8000}")


paths = st.text(alphabet="abc/.?*-_", max_size=12)


@given(host=st.sampled_from(("a.test", "b.a.test", "c.b.a.test")), path=paths)
def test_a_pattern_without_stars_fits_its_own_url_and_one_with_a_star_all_below(host: str, path: str) -> None:
    url = canonicalize(f"https://{host}/{path.replace('*', '')}")
    assert UrlPattern.parse(url).matches(url)
    assert UrlPattern.parse("*.a.test").matches(url)
    assert UrlPattern.parse(f"{url.partition('?')[0]}*").matches(url)
    assert not UrlPattern.parse("other.test").matches(url)


@given(pattern=st.text(alphabet="a.*/?:x", max_size=12), path=paths)
def test_any_text_is_a_pattern_or_told_to_be_none(pattern: str, path: str) -> None:
    try:
        parsed = UrlPattern.parse(pattern)
    except UsageError:
        return
    assert parsed.matches(canonicalize(f"https://a.test/{path}")) in (True, False)
