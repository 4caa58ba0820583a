"""Fingerprints and partitions: frozen, since what is stored is found by them."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from crawler.rules.places import Fingerprints, partition_of

URL = "https://example.com/a?b=c"
KEY = b"0123456789abcdef"


def fingerprint(url: str, run: str = "", key: bytes = KEY) -> str:
    return Fingerprints(key, run).of(url)


def test_a_fingerprint_is_a_signed_64_bit_integer_in_decimal() -> None:
    for i in range(2000):
        text = fingerprint(f"{URL}{i}")
        assert text == str(int(text))
        assert -(2**63) <= int(text) < 2**63
    signs = Counter(fingerprint(f"{URL}{i}")[0] == "-" for i in range(2000))
    assert min(signs.values()) > 800


RUNS = st.integers(0, 10**9).map(str) | st.just("")


@given(st.text(), st.text(), RUNS, RUNS)
def test_other_urls_and_other_runs_have_other_fingerprints(a: str, b: str, run: str, other: str) -> None:
    same = (a, run) == (b, other)
    assert (fingerprint(f"http://h/{a}", run) == fingerprint(f"http://h/{b}", other)) == same


def test_another_crawl_has_other_fingerprints_of_the_same_urls() -> None:
    mine, other = [[fingerprint(f"{URL}{i}", key=key) for i in range(2000)] for key in (KEY, b"another key 1234")]
    assert not set(mine) & set(other)
    alike = [i for i in range(2000) if int(mine[i]) % 64 == int(mine[0]) % 64]  # of one bucket with one key
    assert len({int(other[i]) % 64 for i in alike}) > 10


def test_neither_changes_between_releases() -> None:
    assert (fingerprint(URL), fingerprint(URL, "7"), partition_of("example.com", 1024)) == FROZEN


FROZEN = ("-9154151054934322717", "-5996980163294840242", 126)


def test_partitions_are_spread_evenly() -> None:
    loads = Counter(partition_of(f"site-{i}.example", 64) for i in range(64_000))
    assert len(loads) == 64
    assert max(loads.values()) < 1200
    assert min(loads.values()) > 800


def test_a_session_id_is_not_part_of_a_fingerprint() -> None:
    plain = fingerprint("http://shop.test/a?b=1", 7)
    assert fingerprint("http://shop.test/a;jsessionid=0A1B2C?b=1", 7) == plain
    assert fingerprint("http://shop.test/a?PHPSESSID=0a1b2c&b=1", 7) == plain
    assert fingerprint("http://shop.test/a?session=0a1b2c&b=1", 7) != plain
