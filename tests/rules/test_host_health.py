"""An origin that does not answer: it is set aside, probed, brought back, or given up."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.model import FailureKind
from crawler.rules.origin_health import AGAINST, AT_ONCE, GOOD, HostAction, HostHealth, HostHealthRules
from crawler.settings import HostsSettings, RetrySettings

HOSTS = HostsSettings(failures=3, probe_s=60, probe_max_s=200, give_up_s=600)
RULES = HostHealthRules(RetrySettings(), HOSTS)
CONNECT = FailureKind.CONNECT
ANSWERS = [None, *sorted(set(FailureKind) - AGAINST)]
kinds = st.sampled_from([None, *FailureKind])
rules = st.builds(
    HostHealthRules,
    st.just(RetrySettings()),
    st.builds(
        HostsSettings,
        failures=st.integers(1, 6),
        probe_s=st.floats(0.001, 100),
        probe_max_s=st.floats(100, 1e4),
        give_up_s=st.floats(0.001, 1e4),
    ),
)


def down(n: int, *, at_ms: int = 0) -> HostHealth:
    """After n refused connections in a row, each as soon as it may be."""
    health = GOOD
    for _ in range(n):
        health = RULES.after(health, CONNECT, now_ms=max(at_ms, health.probe_ms))
    return health


# The table: what a failure does to an origin, by its kind and the state of the origin. All times in ms; it is NOW.
NOW = 1_000_000
SINCE = 900_000
STATES = {
    "good": GOOD,
    "failed once": HostHealth(1, SINCE),
    "failed twice": HostHealth(2, SINCE),
    "set aside": HostHealth(3, SINCE, NOW + 1),
    "due": HostHealth(3, SINCE, NOW),
}
COUNTED = {  # those that count one by one
    "good": HostHealth(1, NOW),
    "failed once": HostHealth(2, SINCE),
    "failed twice": HostHealth(3, SINCE, NOW + 60_000),
    "set aside": STATES["set aside"],  # the request was open when it was set aside
    "due": HostHealth(4, SINCE, NOW + 120_000),
}
# Those that set it aside at once rest as a URL with that failure does, and at most until the first probe.
BUSY = COUNTED | {
    "good": HostHealth(1, NOW, NOW + 10_000),
    "failed once": HostHealth(2, SINCE, NOW + 40_000),
}
UNREADABLE = COUNTED | {
    "good": HostHealth(1, NOW, NOW + 2_000),
    "failed once": HostHealth(2, SINCE, NOW + 8_000),
}
TABLE = {
    FailureKind.DNS_ERROR: COUNTED,
    FailureKind.CONNECT: COUNTED,
    FailureKind.TLS: COUNTED,
    FailureKind.TIMEOUT: COUNTED,
    FailureKind.DISCONNECTED: COUNTED,
    FailureKind.SERVER_BUSY: BUSY,
    FailureKind.ROBOTS_UNREACHABLE: UNREADABLE,
    FailureKind.CHALLENGED: COUNTED,
}
ANSWERED = dict.fromkeys(STATES, GOOD)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", [None, *FailureKind], ids=str)
def test_what_a_request_does_to_its_origin_is_a_table(kind: FailureKind | None, state: str) -> None:
    wanted = TABLE.get(kind, ANSWERED) if kind else ANSWERED
    assert RULES.after(STATES[state], kind, now_ms=NOW) == wanted[state]


def test_the_table_names_what_counts_against_an_origin() -> None:
    assert set(TABLE) == AGAINST
    assert {kind for kind, row in TABLE.items() if row is not COUNTED} == AT_ONCE


@pytest.mark.parametrize("kind", sorted(AGAINST))
def test_a_probe_counts_though_another_one_is_not_due_yet(kind: FailureKind) -> None:
    """It may have taken longer than its successor has to wait."""
    aside = STATES["set aside"]
    assert RULES.after(aside, kind, now_ms=NOW, is_probe=True) == HostHealth(4, SINCE, NOW + 120_000)


@pytest.mark.parametrize("kind", sorted(AGAINST))
def test_a_wait_for_all_urls_sets_the_origin_aside_for_as_long(kind: FailureKind) -> None:
    """Its robots.txt could not be read: until then, each URL would fail by that."""
    assert RULES.after(GOOD, kind, now_ms=NOW, wait_min_ms=90_000) == HostHealth(1, NOW, NOW + 90_000)


def test_an_origin_rests_longer_with_each_failure_and_is_set_aside_at_the_limit() -> None:
    states = [down(n, at_ms=1000) for n in range(7)]
    assert [s.is_set_aside for s in states] == [False, False, False, True, True, True, True]
    assert [RULES.backoff_ms(s, CONNECT) // 1000 for s in states] == [0, 5, 20, 60, 120, 200, 200]
    assert [s.probe_ms for s in states[3:]] == [61_000, 181_000, 381_000, 581_000]
    assert {s.since_ms for s in states[1:]} == {1000}


def test_set_aside_it_gives_a_probe_when_one_is_due_and_none_before() -> None:
    aside = down(3)
    turns = {0: HostAction.WAIT, 59_999: HostAction.WAIT, 60_000: HostAction.PROBE, 10**9: HostAction.PROBE}
    assert {now: RULES.action_for(aside, now_ms=now) for now in turns} == turns
    assert RULES.action_for(down(2), now_ms=0) is HostAction.FETCH


def test_after_too_long_a_silence_its_urls_are_given_up_but_for_probes() -> None:
    aside = HostHealth(5, since_ms=0, probe_ms=700_000)
    turns = {
        599_999: HostAction.WAIT,
        600_000: HostAction.GIVE_UP,
        699_999: HostAction.GIVE_UP,
        700_000: HostAction.PROBE,
    }
    assert {now: RULES.action_for(aside, now_ms=now) for now in turns} == turns


def test_any_answer_brings_it_back_at_once() -> None:
    assert {RULES.after(down(9), kind, now_ms=5) for kind in ANSWERS} == {GOOD}


def test_a_health_is_kept_in_a_few_bytes() -> None:
    packed = msgspec.msgpack.encode(HostHealth(12, 1_000_000, 4_600_000))
    assert len(packed) <= 16
    assert msgspec.msgpack.decode(packed, type=HostHealth) == HostHealth(12, 1_000_000, 4_600_000)


@given(rules, st.lists(st.tuples(kinds, st.integers(0, 10**6), st.floats(0, 1), st.booleans()), max_size=30))
def test_an_origin_is_set_aside_while_its_last_requests_all_failed(
    own: HostHealthRules, ends: list[tuple[FailureKind | None, int, float, bool]]
) -> None:
    health, now_ms, in_a_row, since_ms, is_aside = GOOD, 0, 0, 0, False
    for kind, after_ms, jitter, is_probe in ends:
        now_ms += after_ms
        before = health
        health = own.after(health, kind, now_ms=now_ms, jitter=jitter, is_probe=is_probe)
        if kind in AGAINST and now_ms < before.probe_ms and not is_probe:
            assert health is before
            continue
        if kind in AGAINST:
            since_ms = since_ms if in_a_row else now_ms
            in_a_row += 1
            is_aside = is_aside or kind in AT_ONCE or in_a_row >= own.hosts.failures
        else:
            in_a_row, since_ms, is_aside = 0, 0, False
        assert (health.failures, health.since_ms, health.is_set_aside) == (in_a_row, since_ms, is_aside)
        if health.is_set_aside:
            assert now_ms < health.probe_ms <= now_ms + own.hosts.probe_max_s * 1000
            assert own.action_for(health, now_ms=health.probe_ms) is HostAction.PROBE


@given(rules, st.integers(1, 40))
def test_an_origin_never_rests_shorter_after_one_more_failure(own: HostHealthRules, failures: int) -> None:
    waits = [own.backoff_ms(HostHealth(n), CONNECT) for n in (failures, failures + 1)]
    assert waits == sorted(waits)


@given(rules, st.integers(1, 40), kinds.filter(bool), st.floats(0, 1))
def test_below_the_limit_an_origin_rests_no_longer_than_until_a_probe(
    own: HostHealthRules, failures: int, kind: FailureKind, jitter: float
) -> None:
    rest_ms = own.backoff_ms(HostHealth(failures), kind, jitter=jitter)
    assert failures >= own.hosts.failures or rest_ms <= own.hosts.probe_s * 1000
