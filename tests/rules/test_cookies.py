"""Jars of cookies: what they keep of a response, and what they send where."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.rules.cookies import COOKIES_MAX, JAR_BYTES_MAX, SENT_BYTES_MAX, Jar, cookie_of

NOW_S = 1_795_000_000.0
URL = "https://www.shop.test/a/b?c=/d"


def jar_of(*lines: str, url: str = URL) -> Jar:
    jar = Jar()
    jar.take(url, [(b"Set-Cookie", line.encode("latin-1")) for line in lines], NOW_S)
    return jar


@pytest.mark.parametrize(
    ("line", "url", "is_sent"),
    [
        ("a=1", URL, True),
        ("a=1", "https://www.shop.test/a/", True),
        ("a=1", "https://www.shop.test/a", True),
        ("a=1", "https://www.shop.test/ab", False),
        ("a=1", "https://www.shop.test/", False),
        ("a=1", "http://www.shop.test/a/b", True),
        ("a=1; Path=/", "https://www.shop.test/", True),
        ("a=1; Path=/", "https://shop.test/", False),
        ("a=1; Path=/", "https://x.www.shop.test/", False),
        ("a=1; Path=/; Domain=shop.test", "https://shop.test/", True),
        ("a=1; Path=/; Domain=.shop.test", "https://x.www.shop.test/", True),
        ("a=1; Path=/; Domain=shop.test", "https://othershop.test/", False),
        ("a=1; Path=/; Domain=test", "https://www.shop.test/", False),
        ("a=1; Path=/; Domain=other.test", "https://other.test/", False),
        ("a=1; Path=/; Secure", "http://www.shop.test/", False),
        ("a=1; Path=/; Secure", "https://www.shop.test:8443/", True),
        ("a=1; Path=/x; path=/", "https://www.shop.test/", True),
        ("a=1; Path=nowhere", "https://www.shop.test/a/z", True),
        ("a=1; Path=/; Max-Age=0", "https://www.shop.test/", False),
        ("a=1; Path=/; Max-Age=60; Expires=Thu, 01 Jan 1970 00:00:00 GMT", "https://www.shop.test/", True),
        ("a=1; Path=/; Expires=Thu, 01 Jan 1970 00:00:00 GMT", "https://www.shop.test/", False),
        ("a=1; Path=/; Expires=soon", "https://www.shop.test/", True),
    ],
)
def test_a_cookie_goes_where_browsers_send_it(line: str, url: str, is_sent: bool) -> None:
    assert jar_of(line).sent_to(url, NOW_S + 1) == ([("a", "1")] if is_sent else [])


def test_a_public_suffix_has_cookies_of_its_own_only() -> None:
    """github.io is one: its own page may set one for itself, and nobody else's gets it."""
    own = cookie_of("https://github.io/", b"a=1; Domain=github.io", NOW_S)
    assert own is not None
    assert (own.host, own.domain) == ("github.io", "")
    assert cookie_of("https://one.github.io/", b"a=1; Domain=github.io", NOW_S) is None
    here = cookie_of("http://127.0.0.1/", b"a=1; Domain=127.0.0.1", NOW_S)
    assert here is not None
    assert (here.host, here.domain) == ("127.0.0.1", "")


def test_longer_paths_first_and_then_the_older() -> None:
    jar = jar_of("a=1; Path=/", "b=2; Path=/a/b", "c=3; Path=/", "a=9; Path=/")
    assert jar.sent_to(URL, NOW_S) == [("b", "2"), ("a", "9"), ("c", "3")]


def test_a_jar_tells_whether_it_has_changed() -> None:
    jar = jar_of("a=1; Path=/")
    for line, is_change in (("a=1; Path=/", False), ("a=2; Path=/", True), ("b=1; Path=/; Max-Age=0", False)):
        assert jar.take(URL, [(b"set-cookie", line.encode())], NOW_S) == is_change
    assert jar.take(URL, [(b"Set-Cookie", b"a=; Path=/; Max-Age=-1")], NOW_S)
    assert len(jar) == 0


@pytest.mark.slow(ci=True)
def test_ten_thousand_cookies_of_4_kb_are_bounded() -> None:
    jar = Jar()
    for n in range(100):
        lines = [(b"Set-Cookie", b"n%d=%b; Path=/" % (100 * n + m, b"v" * 4000)) for m in range(100)]
        jar.take(URL, lines, NOW_S)
    assert len(jar) <= COOKIES_MAX
    assert sum(one.size for one in jar.cookies) <= JAR_BYTES_MAX
    assert sum(len(name) + len(value) for name, value in jar.sent_to(URL, NOW_S)) <= SENT_BYTES_MAX
    assert jar.cookies[-1].name == "n9999"


def test_room_is_made_by_what_has_expired_then_by_what_is_oldest() -> None:
    jar = jar_of("old=1; Path=/", "short=1; Path=/; Max-Age=5")
    later = [(b"Set-Cookie", b"n%d=1; Path=/" % n) for n in range(COOKIES_MAX - 1)]
    jar.take(URL, later, NOW_S + 10)
    names = {one.name for one in jar.cookies}
    assert "old" in names
    assert "short" not in names
    jar.take(URL, [(b"Set-Cookie", b"last=1; Path=/")], NOW_S + 10)
    assert "old" not in {one.name for one in jar.cookies}


@given(st.lists(st.binary(max_size=60), max_size=20))
def test_no_line_breaks_a_jar_or_a_request(lines: list[bytes]) -> None:
    jar = Jar()
    jar.take(URL, [(b"Set-Cookie", line) for line in lines], NOW_S)
    for name, value in jar.sent_to(URL, NOW_S):
        assert not set(f"{name}{value}") & set("\r\n\0;")
