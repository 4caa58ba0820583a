"""One canonical spelling: against the URL standard's tests, and for the normalisers added to it."""

import gc
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

import ada_url
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crawler.errors import InvalidUrl
from crawler.rules.urls import JoinCache, canonicalize, host_of, join, join_all, origin_of, split

TABLE = Path(__file__).parents[3] / "shared/conformance/url.jsonl"


STRICTER_THAN_THE_STANDARD = {
    310: "invalid punycode: no such name can exist in DNS",
    311: "invalid punycode",
    313: "invalid punycode",
    314: "invalid punycode",
    315: "invalid punycode",
    316: "invalid punycode",
    917: "invalid punycode",
    346: "nothing is left of the host without its dots",
    347: "nothing is left of the host without its dots",
    890: "without its dots the host ends in a number that is no IPv4 address",
}


def _expected(href):
    """What our normalisers make of the standard's href, computed apart from the code under test."""
    scheme, _, rest = href.partition("#")[0].partition("://")
    authority, _, target = rest.partition("/")
    host, colon, port = authority.rpartition("@")[2].partition(":")
    if host.startswith("["):
        host, colon, port = authority.rpartition("@")[2], "", ""
    text = f"{scheme}://{host.rstrip('.')}{colon}{port}/{target}".removesuffix("?")
    if "%" in text:
        pieces = text.split("%")
        octets = [p[:2] for p in pieces[1:]]
        whole = all(len(o) == 2 and set(o) <= set("0123456789abcdefABCDEF") for o in octets)
        text = pieces[0]
        for piece in pieces[1:]:
            valid = len(piece) >= 2 and set(piece[:2]) <= set("0123456789abcdefABCDEF")
            character = chr(int(piece[:2], 16)) if valid else ""
            if valid and whole and (character in "-._~" or (character.isascii() and character.isalnum())):
                text += character + piece[2:]
            else:
                text += "%" + (piece[:2].upper() + piece[2:] if valid else piece)
    return text


def test_every_http_row_of_the_url_standards_tests_holds():
    if not TABLE.exists():
        pytest.skip("the conformance tables are not next to this checkout")
    rows = [json.loads(line) for line in TABLE.read_text().splitlines()]
    checked = failures = 0
    for row in rows:
        if not (row["base"] is None or row["base"].startswith("http")):
            continue
        if row["base"] is None:
            try:
                ours = canonicalize(row["input"])
            except InvalidUrl:
                ours = None
        else:
            ours = join(canonicalize(row["base"]), row["input"])
        if row["failure"] or row["protocol"] not in ("http:", "https:"):
            assert ours is None, row
            failures += 1
        elif row["i"] in STRICTER_THAN_THE_STANDARD:
            assert ours is None, row
        else:
            assert ours == _expected(row["href"]), row
            checked += 1
    assert checked > 200
    assert failures > 50


@pytest.mark.parametrize(
    ("raw", "canonical"),
    [
        ("HTTP://Example.COM", "http://example.com/"),
        ("http://example.com:80/", "http://example.com/"),
        ("https://example.com:443/", "https://example.com/"),
        ("http://example.com:00080/", "http://example.com/"),
        ("http://example.com:/", "http://example.com/"),
        ("http://example.com:0/", "http://example.com:0/"),
        ("http://example.com./a", "http://example.com/a"),
        ("http://example.com..:8080/a", "http://example.com:8080/a"),
        ("http://127.0.0.1./", "http://127.0.0.1/"),
        ("http://1../", "http://0.0.0.1/"),
        ("http://0177.0.0.1/", "http://127.0.0.1/"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://2130706433/", "http://127.0.0.1/"),
        ("http://127.1/", "http://127.0.0.1/"),
        ("http://１２７.0.0.1/", "http://127.0.0.1/"),
        ("http://[::FFFF:127.0.0.1]/", "http://[::ffff:7f00:1]/"),
        ("http://ex%61mple.com/", "http://example.com/"),
        ("http://faß.de/", "http://xn--fa-hia.de/"),
        ("http://Bücher.example/ü?ü", "http://xn--bcher-kva.example/%C3%BC?%C3%BC"),
        ("http://good.com@evil.com/", "http://evil.com/"),
        ("http://u:p@example.com:81/x@y", "http://example.com:81/x@y"),
        ("http://a.test/#frag", "http://a.test/"),
        ("http://a.test/?", "http://a.test/"),
        ("http://a.test/??", "http://a.test/??"),
        ("http://a.test/?a?", "http://a.test/?a?"),
        ("http://a.test/a/../../b/./c//d", "http://a.test/b/c//d"),
        ("http://a.test/a/%2e%2E/b", "http://a.test/b"),
        ("http://a.test/..%2f", "http://a.test/..%2F"),
        ("http://a.test/%41%7e%e9", "http://a.test/A~%E9"),
        ("http://a.test/%2541", "http://a.test/%2541"),
        ("http://a.test/%zz%41%e9", "http://a.test/%zz%41%E9"),
        ("http://a.test/%%34%31", "http://a.test/%%34%31"),
        ("http://a.test/100%", "http://a.test/100%"),
        ("http://a.test/^?^", "http://a.test/%5E?^"),
        ("http://a.test/?b=2&a=1&utm_x=", "http://a.test/?b=2&a=1&utm_x="),
        ('http://a.test/a b<>"{}|^`', "http://a.test/a%20b%3C%3E%22%7B%7D|%5E%60"),
        ("  http://a.te\nst/a\tb ", "http://a.test/ab"),
        ("http:\\\\a.test\\b", "http://a.test/b"),
        ("http://a.test/\ud800", "http://a.test/%EF%BF%BD"),
        ("http://a.test/\ud83d\ude00", "http://a.test/%F0%9F%98%80"),
    ],
)
def test_all_spellings_land_on_one_key(raw, canonical):
    assert canonicalize(raw) == canonical
    assert canonicalize(canonical) == canonical
    assert join("http://x.test/", raw) == canonical


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("", "not a URL"),
        ("example.com", "not a URL"),
        ("/path", "not a URL"),
        ("http://", "not a URL"),
        ("http://a.test:65536/", "not a URL"),
        ("http://[fe80::1%25eth0]/", "not a URL"),
        ("http://[v1.x]/", "not a URL"),
        ("http://a<b>.test/", "not a URL"),
        ("http://xn--a/", "not a URL"),
        ("http://a\0b.test/", "not a URL"),
        ("http://./", "no host"),
        ("http://.../x", "no host"),
        ("http://" + "a" * 254 + "/", "no host"),
        ("http://user@" + ".".join(["abc"] * 1000) + ":8080/x?y", "no host"),
        ("ftp://a.test/", "not http or https"),
        ("file:///etc/passwd", "not http or https"),
        ("javascript:alert(1)", "not http or https"),
        ("mailto:a@b.test", "not http or https"),
        ("http://a.test/" + "a" * 8192, "too long"),
        ("http://a.test/" + "ü" * 3000, "too long"),
        ("http://a.test/" + "a" * 2_000_000, "too long"),
    ],
)
def test_what_cannot_be_crawled_is_refused_with_its_reason(raw, reason):
    with pytest.raises(InvalidUrl) as refused:
        canonicalize(raw)
    assert refused.value.reason == reason


def test_a_long_fragment_does_not_count():
    assert canonicalize("http://a.test/#" + "x" * 10_000) == "http://a.test/"


def test_the_length_limit_is_that_of_the_canonical_url():
    assert len(canonicalize("http://a.test/" + "a" * 86, bytes_max=100)) == 100
    longest = "http://" + ".".join(["a" * 63] * 4)[:253] + "/"
    assert (canonicalize(longest), join("http://a.test/", longest)) == (longest, longest)
    assert join("http://a.test/", "http://" + "a" * 254 + "/") is None
    assert canonicalize("http://a" + "." * 300 + "/") == "http://a/"
    with pytest.raises(InvalidUrl):
        canonicalize("http://a.test/" + "a" * 87, bytes_max=100)


PIECES = [*"ab.:/?#[]@%2e4F1\\ \t~;=&xüı。．０", "http:", "//", "%41", "%%"]
URLISH = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


@pytest.mark.slow(ci=True)
@given(st.one_of(URLISH.map(lambda tail: "http://" + tail), URLISH, st.text(max_size=40)))
@example("http://%%34%31")
@example("http://a/%%34%31%25%34%31")
@example("http://1../")
def test_canonicalising_twice_changes_nothing(raw):
    try:
        once = canonicalize(raw)
    except InvalidUrl:
        return
    assert canonicalize(once) == once
    assert once.isascii()
    parts = split(once)
    assert parts.origin + parts.target == once
    assert parts.host
    assert not parts.host.endswith(".")


@given(URLISH, URLISH, URLISH)
@example("q/r?s", "http:?x", "")
@example("q/r?s", "http:#", "http:?://")
@example("q/r?s", " #", "a #x")
@example("q/r?s", "a", "a\n?b")
@example("q/../r//", "//a#", "..#")
def test_joining_many_gives_what_joining_each_gives(tail, one, two):
    """The cache must never change a result: the same references are joined in two documents of one folder."""
    cache = JoinCache()
    for name in ("x.html?a/b", "y.html", tail.replace("#", "")):
        try:
            base = canonicalize("http://h.test/d/" + name)
        except InvalidUrl:
            continue
        for hrefs in ([one], [two], [one, two, one], [one]):
            each = [join(base, href) for href in hrefs]
            found, dropped = join_all(base, hrefs, cache=cache)
            assert found == list(dict.fromkeys(url for url in each if url))
            assert dropped <= each.count(None)
            assert (dropped == 0) == (None not in each)


def test_links_of_a_page_are_joined_deduplicated_and_counted():
    found, dropped = join_all(
        "https://docs.test/3/library/os.html",
        ["#a", "", "os.html#b", "../x.html#1", "../x.html#2", "/y", "?q", "//z.test", "mailto:a@b",
         "javascript:void(0)", "data:,x", "http://[", "https://z.test/", "HTTP://Z.test/#f", " ../x.html "],
    )  # fmt: skip
    assert found == [
        "https://docs.test/3/library/os.html",
        "https://docs.test/3/x.html",
        "https://docs.test/y",
        "https://docs.test/3/library/os.html?q",
        "https://z.test/",
        "http://z.test/",
    ]
    assert dropped == 4


def test_the_cache_of_joins_is_bounded():
    cache = JoinCache(500)
    for n in range(300):
        folder = f"http://a.test/{n}/"
        assert join_all(folder, ["x", "y", "z"], cache=cache)[0] == [folder + name for name in "xyz"]
        assert sum(len(joins) + 1 for joins in cache._folders.values()) <= 500


def test_a_length_limit_holds_for_cached_joins_too():
    cache = JoinCache()
    assert join_all("http://a.test/", ["abcdefghij"], cache=cache)[1] == 0
    assert join_all("http://a.test/", ["abcdefghij"], bytes_max=20, cache=cache) == ([], 1)


@pytest.mark.parametrize(
    ("href", "scheme", "host", "port", "target"),
    [
        ("http://a.test/", "http", "a.test", 80, "/"),
        ("https://a.test/b?c=http://d/", "https", "a.test", 443, "/b?c=http://d/"),
        ("https://a.test:8443/b", "https", "a.test", 8443, "/b"),
        ("http://[::1]/", "http", "[::1]", 80, "/"),
        ("http://[::1]:81/x", "http", "[::1]", 81, "/x"),
        ("http://x/", "http", "x", 80, "/"),
    ],
)
def test_a_canonical_url_is_taken_apart(href, scheme, host, port, target):
    parts = split(href)
    assert (parts.scheme, parts.host, parts.port, parts.target) == (scheme, host, port, target)
    assert host_of(href) == host
    assert origin_of(href) == parts.origin
    assert parts.origin + parts.target == href


def test_two_threads_can_share_a_cache_of_joins():
    """Long pages are parsed in a thread, at the same time as pages of the same folder."""
    cache = JoinCache()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as threads:
            bases = ("http://h.test/d/one", "http://h.test/d/two")
            found = list(threads.map(partial(_joined_often, cache), bases))
    finally:
        sys.setswitchinterval(before)
    assert found == [{("http://h.test/d/one", "http://h.test/d/x")}, {("http://h.test/d/two", "http://h.test/d/x")}]


def _joined_often(cache: JoinCache, base: str) -> set[tuple[str, ...]]:
    return {tuple(join_all(base, ["#a", "x"], cache=cache)[0]) for _ in range(20_000)}


def test_joining_leaves_nothing_for_the_garbage_collector() -> None:
    """It runs seldom in a crawl: a cycle for each page would stay in memory for long."""
    hrefs = ["a", "../b", "//c.test/", "http://d.test/", "http://fa\xdf.de/", "http://xn--fa-hia.de/"]
    cache = JoinCache()
    join_all("http://a.test/x/", hrefs, cache=cache)
    gc.collect()
    gc.disable()
    try:
        for number in range(20):
            join_all(f"http://a{number}.test/{number}/", hrefs, cache=cache)
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_dot_segments_are_gone_wherever_they_are():
    """The parser left them in a path that had a hidden folder before: /a/.b/../c."""
    segments = ("/.h", "/..r", "/..", "/.", "/y", "/", "/%2e", "/.%2E", "/%")
    for length in range(1, 5):
        for parts in product(segments, repeat=length):
            raw = "http://o.test" + "".join(parts) + "?/../x"
            assert canonicalize(raw) == canonicalize(ada_url.normalize_url(raw)), raw
            assert canonicalize(canonicalize(raw)) == canonicalize(raw), raw
