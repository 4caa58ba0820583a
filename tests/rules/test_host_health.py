"""A host that does not answer: its queue is set aside, probed, brought back, or given up."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from crawler.model import FailureKind
from crawler.rules.host_health import AGAINST, GOOD, SILENT, HostAction, HostHealth, HostHealthRules
from crawler.settings import HostsSettings, RetrySettings

HOSTS = HostsSettings(failures=3, probe_s=60, probe_factor=2, probe_max_s=200, give_up_s=600)
RULES = HostHealthRules(RetrySettings(), HOSTS)
CONNECT = FailureKind.CONNECT
ANSWERS = [None, *sorted(set(FailureKind) - AGAINST - SILENT)]
kinds = st.sampled_from([None, *FailureKind])
rules = st.builds(
    HostHealthRules,
    st.just(RetrySettings()),
    st.builds(
        HostsSettings,
        failures=st.integers(1, 6),
        probe_s=st.floats(0.001, 100),
        probe_factor=st.floats(1, 10),
        probe_max_s=st.floats(100, 1e4),
        give_up_s=st.floats(0.001, 1e4),
    ),
)


def down(n: int, *, at_ms: int = 0) -> HostHealth:
    """After n refused connections in a row, each as soon as it may be."""
    standing = GOOD
    for _ in range(n):
        standing = RULES.after(standing, CONNECT, now_ms=max(at_ms, standing.probe_ms))
    return standing


def test_the_queue_waits_longer_with_each_failure_and_is_set_aside_at_the_limit() -> None:
    states = [down(n, at_ms=1000) for n in range(7)]
    assert [s.is_set_aside for s in states] == [False, False, False, True, True, True, True]
    assert [RULES.backoff_ms(s, CONNECT) // 1000 for s in states] == [0, 5, 20, 60, 120, 200, 200]
    assert [s.probe_ms for s in states[3:]] == [61_000, 181_000, 381_000, 581_000]
    assert {s.since_ms for s in states[1:]} == {1000}


def test_set_aside_it_gives_one_url_each_time_a_probe_is_due_and_none_before() -> None:
    aside = down(3)
    turns = {0: HostAction.WAIT, 59_999: HostAction.WAIT, 60_000: HostAction.PROBE, 10**9: HostAction.PROBE}
    assert {now: RULES.action_for(aside, now_ms=now) for now in turns} == turns
    assert RULES.action_for(down(2), now_ms=0) is HostAction.FETCH


def test_after_too_long_a_silence_its_urls_are_given_up_but_for_one_to_probe_it() -> None:
    aside = HostHealth(5, since_ms=0, probe_ms=700_000)
    turns = {
        599_999: HostAction.WAIT,
        600_000: HostAction.GIVE_UP,
        699_999: HostAction.GIVE_UP,
        700_000: HostAction.PROBE,
    }
    assert {now: RULES.action_for(aside, now_ms=now) for now in turns} == turns


def test_requests_that_were_under_way_when_it_was_set_aside_do_not_count() -> None:
    aside = down(3)
    assert RULES.after(aside, CONNECT, now_ms=59_999) is aside
    assert RULES.after(aside, CONNECT, now_ms=60_000).failures == 4
    assert RULES.after(aside, None, now_ms=1) == GOOD


def test_any_answer_brings_it_back_at_once() -> None:
    assert {RULES.after(down(9), kind, now_ms=5) for kind in ANSWERS} == {GOOD}


def test_a_refusal_without_a_request_changes_nothing() -> None:
    aside = down(4)
    assert RULES.after(aside, FailureKind.ADDRESS_REFUSED, now_ms=5) is aside


def test_a_longer_retry_after_puts_the_probe_off() -> None:
    standing = RULES.after(down(2), FailureKind.SERVER_BUSY, now_ms=0, retry_after_ms=90_000)
    assert standing.probe_ms == 90_000


def test_a_standing_is_kept_in_a_few_bytes() -> None:
    packed = msgspec.msgpack.encode(HostHealth(12, 1_000_000, 4_600_000))
    assert len(packed) <= 16
    assert msgspec.msgpack.decode(packed, type=HostHealth) == HostHealth(12, 1_000_000, 4_600_000)


@given(rules, st.lists(st.tuples(kinds, st.integers(0, 10**6), st.floats(0, 1)), max_size=30))
def test_a_queue_is_set_aside_while_its_last_requests_all_failed(
    own: HostHealthRules, ends: list[tuple[FailureKind | None, int, float]]
) -> None:
    standing, now_ms, in_a_row, since_ms, probe_ms = GOOD, 0, 0, 0, 0
    for kind, after_ms, jitter in ends:
        now_ms += after_ms
        standing = own.after(standing, kind, now_ms=now_ms, jitter=jitter)
        if kind in AGAINST and now_ms < probe_ms:
            continue
        if kind in AGAINST:
            since_ms = since_ms if in_a_row else now_ms
            in_a_row += 1
        elif kind not in SILENT:
            in_a_row = since_ms = 0
        assert (standing.failures, standing.since_ms) == (in_a_row, since_ms)
        assert standing.is_set_aside == (in_a_row >= own.hosts.failures)
        probe_ms = standing.probe_ms
        if standing.is_set_aside and kind in AGAINST:
            assert now_ms < standing.probe_ms <= now_ms + own.hosts.probe_max_s * 1000
            assert own.action_for(standing, now_ms=standing.probe_ms) is HostAction.PROBE


@given(rules, st.integers(1, 40))
def test_a_queue_never_waits_shorter_after_one_more_failure(own: HostHealthRules, failures: int) -> None:
    waits = [own.backoff_ms(HostHealth(n), CONNECT) for n in (failures, failures + 1)]
    assert waits == sorted(waits)
