"""Whose fault it is that nobody answers: tables of who answered before, who does now, and when."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from crawler.rules.outage import (
    ASKED_MAX,
    CHECK_MS,
    KNOWN_MS,
    WITNESSES_MAX,
    NetworkHealth,
    Way,
)

NOW = 10_000_000


class Known(NamedTuple):
    """An origin that answered `ago_ms` before NOW."""

    domain: str
    ago_ms: int = 1000
    is_name: bool = True
    host: str = ""


def health_with(known: Sequence[Known], delay_ms: int = 1000) -> NetworkHealth:
    health = NetworkHealth()
    for one in sorted(known, key=lambda one: -one.ago_ms):
        health.answered(
            one.domain, f"http://{one.host or one.domain}", is_name=one.is_name, delay_ms=delay_ms,
            now_ms=NOW - one.ago_ms,
        )  # fmt: skip
    return health


A, B, C = Known("a.test"), Known("b.test"), Known("c.test")
# Who answered before, and how many of them are asked about names and about hosts before it is taken for our network.
WITNESSES: dict[str, tuple[list[Known], int, int]] = {
    "nobody: at the very start": ([], 0, 0),
    "one domain": ([A], 0, 0),
    "two domains": ([A, B], 0, 0),
    "three": ([A, B, C], 3, 3),
    "four hundred": ([Known(f"{n}.test") for n in range(400)], ASKED_MAX, ASKED_MAX),
    "a hundred hosts of one domain": ([Known("a.test", host=f"{n}.a.test") for n in range(100)], 0, 0),
    "the third one long ago": ([A, B, Known("c.test", KNOWN_MS + 1)], 0, 0),
    "a fourth one long ago": ([A, B, C, Known("d.test", KNOWN_MS + 1)], 4, 4),
    "the third one just in time": ([A, B, Known("c.test", KNOWN_MS)], 3, 3),
    "two names and an address": ([A, B, Known("192.0.2.1", is_name=False)], 0, 3),
    "addresses alone": ([Known(f"192.0.2.{n}", is_name=False) for n in range(5)], 0, 5),
}


@pytest.mark.parametrize("case", WITNESSES)
def test_only_three_domains_that_answered_lately_are_evidence(case: str) -> None:
    known, names, hosts = WITNESSES[case]
    health = health_with(known)
    for way, asked in ((Way.NAMES, names), (Way.HOSTS, hosts)):
        is_evidence = health.check_wait_ms(way, now_ms=NOW) is not None
        assert (len(health.to_check(way, now_ms=NOW)) if is_evidence else 0) == asked
    assert not health.is_any_away


def test_one_way_may_fail_and_the_other_work() -> None:
    health = health_with([A, B, C])
    health.checked(Way.NAMES, answered=None, now_ms=NOW)
    assert (health.is_away(Way.NAMES), health.is_away(Way.HOSTS)) == (True, False)
    assert health.wait_ms(Way.HOSTS, now_ms=NOW) == 0 < health.wait_ms(Way.NAMES, now_ms=NOW)
    health.answered("a.test", "http://a.test", is_name=True, delay_ms=0, now_ms=NOW + 1)
    assert health.is_away(Way.NAMES), "its name was known"


def test_an_answer_of_a_host_ends_an_outage_at_once() -> None:
    health = health_with([A, B, C])
    health.checked(Way.HOSTS, answered=None, now_ms=NOW)
    health.answered("d.test", "http://d.test", is_name=True, delay_ms=0, now_ms=NOW + 1)
    assert not health.is_any_away
    assert health.wait_ms(Way.HOSTS, now_ms=NOW + 1) == 0


def test_probes_come_at_growing_intervals_and_never_end() -> None:
    health = health_with([A, B, C], delay_ms=0)
    health.checked(Way.NAMES, answered=None, now_ms=NOW)
    at_ms, waits = NOW, []
    for _ in range(7):
        waits.append(health.wait_ms(Way.NAMES, now_ms=at_ms))
        assert health.to_probe(Way.NAMES, now_ms=at_ms + waits[-1] - 1) is None
        at_ms += waits[-1]
        probe = health.to_probe(Way.NAMES, now_ms=at_ms)
        assert probe is not None
        probe.asked_ms = at_ms
        health.checked(Way.NAMES, answered=None, now_ms=at_ms)
    assert waits == [1000, 2000, 4000, 8000, 15_000, 15_000, 15_000]
    assert health.to_probe(Way.NAMES, now_ms=at_ms + 100 * KNOWN_MS) is not None, "however long that takes"


def test_nobody_is_probed_before_its_own_delay_is_over() -> None:
    health = health_with([A, B, C], delay_ms=60_000)
    health.checked(Way.HOSTS, answered=None, now_ms=NOW)
    asked: list[tuple[str, int]] = []
    for at_ms in range(NOW, NOW + 180_000, 1000):
        if probe := health.to_probe(Way.HOSTS, now_ms=at_ms):
            probe.asked_ms = at_ms
            asked.append((probe.origin, at_ms))
            health.checked(Way.HOSTS, answered=None, now_ms=at_ms)
    assert {origin for origin, _ in asked} == {"http://a.test", "http://b.test", "http://c.test"}
    for origin in ("http://a.test", "http://b.test", "http://c.test"):
        times = [at_ms for one, at_ms in asked if one == origin]
        assert all(later - earlier >= 60_000 for earlier, later in itertools.pairwise(times))


def test_after_a_check_that_finds_nothing_wrong_the_next_one_waits() -> None:
    """So ten thousand dead hosts, which answer nothing at the end of a crawl, cost the witnesses next to nothing."""
    health = health_with([A, B, C], delay_ms=30_000)
    first = health.to_check(Way.HOSTS, now_ms=NOW)[0]
    first.asked_ms = NOW
    health.checked(Way.HOSTS, answered=first, now_ms=NOW)
    assert health.check_wait_ms(Way.HOSTS, now_ms=NOW) is None, "so long nobody waits: hosts are at fault"
    assert health.check_wait_ms(Way.HOSTS, now_ms=NOW + 9_500) == 500
    assert first not in health.to_check(Way.HOSTS, now_ms=NOW + 10_000)[:2]
    health.checked(Way.NAMES, answered=first, now_ms=NOW)
    assert health.check_wait_ms(Way.NAMES, now_ms=NOW) == CHECK_MS, "a question to a DNS server needs no delay"


def test_the_witnesses_of_one_are_not_all_that_are_asked() -> None:
    """Someone whose domains answered last, and then die together, has not everybody who is asked."""
    others = [Known(f"other{n}.test", ago_ms=60_000) for n in range(100)]
    evil = [Known(f"evil{n}.test", ago_ms=10) for n in range(100)]
    asked = health_with(others + evil).to_check(Way.HOSTS, now_ms=NOW)
    assert sum("other" in one.origin for one in asked) >= 3


def test_every_other_attempt_is_for_somebody_who_waits() -> None:
    """Those that answered may be one owner's, and dead; those that wait can't choose who is tried."""
    health = health_with([A, B, C], delay_ms=0)
    health.checked(Way.HOSTS, answered=None, now_ms=NOW)
    waiting = [f"http://w{n}.test" for n in range(100)]
    for n, origin in enumerate(waiting):
        health.waits(f"w{n % 50}.test", origin, is_name=True)
    asked, at_ms = [], NOW
    for _ in range(20):
        at_ms += health.wait_ms(Way.HOSTS, now_ms=at_ms)
        probe = health.to_probe(Way.HOSTS, now_ms=at_ms)
        assert probe is not None
        probe.asked_ms = at_ms
        asked.append(probe.origin)
        health.checked(Way.HOSTS, answered=None, now_ms=at_ms)
    tried = [origin for origin in asked if origin in waiting]
    assert len(tried) == len(set(tried)) == 10
    assert set(tried) <= set(waiting[:50]), "one of each domain"


def test_who_waited_and_can_be_reached_ends_it_and_is_a_witness() -> None:
    health = health_with([A, B, C], delay_ms=60_000)
    health.checked(Way.HOSTS, answered=None, now_ms=NOW)
    health.waits("w.test", "http://w.test", is_name=True)
    probe = health.to_probe(Way.HOSTS, now_ms=NOW + 1000)
    assert probe is not None
    assert probe.origin == "http://w.test"
    health.checked(Way.HOSTS, answered=probe, now_ms=NOW + 1000)
    assert not health.is_any_away
    assert health.check_wait_ms(Way.HOSTS, now_ms=NOW + 1000) == CHECK_MS
    assert probe in health.to_check(Way.HOSTS, now_ms=NOW + 2000)


def test_those_that_answered_long_ago_are_asked_as_well() -> None:
    """At the end of a crawl only three sites may be left, and they may die together."""
    health = health_with([A, B, C, *(Known(f"old{n}.test", ago_ms=2 * KNOWN_MS) for n in range(50))])
    assert sum("old" in one.origin for one in health.to_check(Way.HOSTS, now_ms=NOW)) >= 3


def test_memory_is_bounded() -> None:
    health = health_with([Known(f"{n}.test") for n in range(2 * WITNESSES_MAX)])
    assert len(health._witnesses) == WITNESSES_MAX
    health.checked(Way.HOSTS, answered=None, now_ms=NOW)
    for n in range(2 * WITNESSES_MAX):
        health.waits(f"w{n}.test", f"http://w{n}.test", is_name=True)
    assert len(health._states[Way.HOSTS].waiting) == WITNESSES_MAX
