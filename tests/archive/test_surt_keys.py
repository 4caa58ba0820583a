from urllib.parse import unquote_to_bytes

import pytest

from crawler.archive.index import surt
from tests.support.growth import LINEAR_MAX, growth

# Answers of the `surt` package 0.3.1, the one that Wayback tools use.
TABLE = {
    "http://example.com/": "com,example)/",
    "https://www.example.com/A/B/?b=2&a=1": "com,example)/a/b?a=1&b=2",
    "http://1.2.3.4/x": "4,3,2,1)/x",
    "http://1.2.3.4:8080/x/": "4,3,2,1:8080)/x",
    "http://www2.Example.com:81/": "com,example:81)/",
    "http://[2001:db8::1]/x": "2001:db8::1)/x",
    "http://[2001:db8::1]:8080/x": "2001:db8::1:8080)/x",
    "http://example.com/a%20b%C3%A9?": "com,example)/a%20b%c3%a9",
    "http://example.com/?": "com,example)/",
    "http://example.com/a//b/": "com,example)/a/b",
    "http://example.com/a?q=x%2Fy&r=&r": "com,example)/a?q=x/y&r&r=",
    "http://localhost/": "localhost)/",
    "http://example.com/x/?a": "com,example)/x?a",
    "http://www.com/": "com)/",
    "http://example.com/a?x=1/": "com,example)/a?x=1/",
    "http://e.com/a?&b": "com,e)/a?&b",
    "http://e.com/~a/b%7Ec": "com,e)/~a/b~c",
    "http://e.com/a?b=2&a=1&a": "com,e)/a?a&a=1&b=2",
    "http://e.com/a?b=%e9+c": "com,e)/a?b=%e9+c",
}


@pytest.mark.parametrize(("url", "key"), TABLE.items())
def test_keys_are_those_of_the_wayback_tools(url: str, key: str) -> None:
    assert surt(url).lower() == key


@pytest.mark.parametrize("url", TABLE)
def test_keys_agree_with_the_surt_package(url: str) -> None:
    package = pytest.importorskip("surt", reason="the surt package is not installed")
    assert surt(url) == package.surt(url)


def test_a_key_never_has_blanks_or_line_breaks() -> None:
    key = surt("http://e.com/a b\nc?d e%20f%0A")
    assert not any(c.isspace() for c in key)


def test_hosts_of_one_domain_sort_together() -> None:
    urls = ["http://a.com/", "http://b.org/", "http://x.a.com/", "http://c.com/"]
    assert sorted(map(surt, urls)) == ["com,a)/", "com,a,x)/", "com,c)/", "org,b)/"]


def test_an_escape_of_an_escape_of_an_escape_is_undone_in_one_pass():
    def repeated(text: str) -> str:
        raw = text.encode()
        while (plain := unquote_to_bytes(raw)) != raw:
            raw = plain
        return raw.decode("latin-1")

    for text in ("%2525252541", "%%34%31", "%2%35", "%25zz%2", "%254%31", "a%%%25%32%35b"):
        assert surt(f"http://a.test/{text}") == f"test,a)/{repeated(text)}".lower().replace("%", "%25")
    assert growth(surt, "http://a.test/%" + "25" * 2000, "http://a.test/%" + "25" * 20_000) < LINEAR_MAX
