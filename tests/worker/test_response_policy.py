"""What the end of a request means, as the fetch stage puts the rules together; test_charges.py has the table."""

import pytest
from msgspec.structs import replace

from crawler.hosts.robots_reader import RobotsResult
from crawler.model import FailureKind
from crawler.rules.origin_health import HostAction
from crawler.rules.pace import UNMEASURED
from crawler.worker import response_policy
from crawler.worker.response_policy import PROBE_MS, Recall, ResponsePolicy
from crawler.worker.schedule import QueueSlot
from tests.worker.policy_lab import HERE, OTHER, SETTLED, Clock, answer, claim_at, failure, policy_with, unreadable

CONNECT = FailureKind.CONNECT
HOUR = 3_600_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def slot() -> QueueSlot:
    return QueueSlot("a.test", delay_ms=1000)


def silence(policy: ResponsePolicy, slot: QueueSlot, origin: str = HERE, times: int = 5) -> None:
    """Connections to an origin fail, until it is set aside."""
    for n in range(times):
        policy.of_page(slot, claim_at(origin, n), failure(CONNECT))


def health_ms(policy: ResponsePolicy, origin: str = HERE) -> int:
    """When it is probed."""
    return dict(policy.silent())[origin].health.probe_ms


# --- waits ---


def test_a_failed_url_waits_longer_than_its_origin_rests(clock: Clock, slot: QueueSlot) -> None:
    policy = policy_with(hosts__failures=1)
    for attempts in range(2):
        clock.now += 10**6
        policy.of_page(slot, claim_at(HERE), failure(CONNECT))
        failed = policy.failed(replace(claim_at(HERE), attempts=attempts), CONNECT, "", SETTLED)
        assert failed.retry_in_ms > health_ms(policy) - clock.now


def test_retry_after_holds_for_its_url_and_no_other_origin_or_queue(clock: Clock, slot: QueueSlot) -> None:
    policy, busy = policy_with(), answer(503, retry_after_ms=HOUR)
    assert policy.of_page(slot, claim_at(HERE), busy) == (1001, None)
    judged = policy.judged(claim_at(HERE), busy, SETTLED)
    assert judged is not None
    assert (judged.kind, judged.detail, judged.retry_in_ms) == ("server_busy", "status 503", HOUR)
    assert health_ms(policy) == clock.now + 60_000
    assert policy.action_for(claim_at(OTHER)) is HostAction.FETCH


def test_an_incomplete_body_is_retried_and_finally_kept() -> None:
    policy, one, cut = policy_with(), claim_at(HERE), answer(truncated="disconnect")
    judged = policy.judged(one, cut, SETTLED)
    assert judged is not None
    assert (judged.kind, judged.retry_in_ms > 0) == ("body", True)
    assert policy.judged(replace(one, attempts=1), cut, SETTLED) is None
    assert policy.judged(one, answer(404), SETTLED) is None


def test_an_unreadable_robots_txt_sets_its_origin_aside_and_answers_end_that(clock: Clock, slot: QueueSlot) -> None:
    policy, one = policy_with(), claim_at(HERE)
    assert policy.of_robots(slot, one, unreadable(clock, for_ms=90_000), delay_ms=1000) == (1001, None)
    assert (policy.action_for(one), policy.has_failed(HERE)) == (HostAction.WAIT, True)
    policy.of_robots(slot, one, RobotsResult(None, is_requested=True), delay_ms=1000)
    assert policy.has_failed(HERE), "its redirect says nothing yet"
    read = unreadable(clock).entry
    assert read is not None
    readable = replace(read, rules=object())  # type: ignore[arg-type]
    policy.of_robots(slot, one, RobotsResult(readable, is_requested=False), delay_ms=1000)
    assert policy.has_failed(HERE), "read by another queue's request"
    policy.of_robots(slot, one, RobotsResult(readable, is_requested=True), delay_ms=1000)
    assert not policy.has_failed(HERE)


def test_no_turn_fails_by_a_cached_unreachable_robots_txt(clock: Clock, slot: QueueSlot) -> None:
    """Its origin is set aside until the entry has expired, even where the back-off is shorter."""
    policy, reading = policy_with(retry__connect__backoff_s=0.01), unreadable(clock, is_requested=True)
    assert reading.entry is not None
    policy.of_robots(slot, claim_at(HERE), reading, delay_ms=0)
    assert health_ms(policy) >= reading.entry.expires_ms


# --- the delay of the queue ---


def test_the_adaptive_delay_is_optional_and_never_below_the_queues_own(slot: QueueSlot) -> None:
    ends = [answer(), answer(429), answer(), answer(fetch_ms=900), *[answer()] * 30]
    waits = {}
    for adaptive in (False, True):
        policy = policy_with(politeness__adaptive=adaptive)
        slot = QueueSlot("a.test", delay_ms=3000)
        waits[adaptive] = [policy.of_page(slot, claim_at(HERE), end)[0] - 1 for end in ends]
    assert waits[False][:5] == [3000, 6000, 5250, 4687, 4265]
    assert waits[True][:5] == [3000, 6000, 5700, 11_400, 11_100]
    for of in waits.values():
        assert of[-1] == min(of) == 3000


def test_the_adapted_delay_stops_at_its_cap() -> None:
    policy = policy_with(politeness__adaptive=True, politeness__delay_max_s=7.0)
    slot = QueueSlot("a.test", delay_ms=3000)
    for n in range(5):
        policy.of_page(slot, claim_at(HERE, n), failure(FailureKind.TIMEOUT))
    assert slot.adaptive_delay.delay_ms == 7000


def test_too_many_requests_double_the_queues_delay_once_until_it_answers(clock: Clock, slot: QueueSlot) -> None:
    policy = policy_with()
    waits = []
    for n in range(4):  # three that were open at once, then a probe
        clock.now += 60_000 * (n == 3)
        waits.append(policy.of_page(slot, claim_at(HERE, n), answer(429))[0])
    assert waits == [2001] * 4
    policy.of_page(slot, claim_at(HERE), answer())
    assert 1000 < slot.adaptive_delay.delay_ms < 2000
    assert policy.of_page(slot, claim_at(HERE), answer(429))[0] == 2 * 1750 + 1
    assert policy.of_page(slot, claim_at(OTHER), answer(429))[0] == 4 * 1750 + 1, "another one asks for the same"


def test_its_delay_stops_at_the_cap_and_answers_end_it(clock: Clock, slot: QueueSlot) -> None:
    policy = policy_with(politeness__delay_max_s=7.0)
    for n in range(9):
        policy.of_page(slot, claim_at(f"http://{n}.a.test"), answer(429))
    assert slot.adaptive_delay.delay_ms == 7000
    for n in range(20):
        policy.of_page(slot, claim_at(OTHER, n), answer(404))
    assert slot.adaptive_delay is UNMEASURED


def test_failures_without_an_answer_leave_a_doubled_delay_as_it_is(clock: Clock, slot: QueueSlot) -> None:
    policy = policy_with()
    policy.of_page(slot, claim_at(HERE), answer(429))
    silence(policy, slot, OTHER)
    assert slot.adaptive_delay.delay_ms == 2000


@pytest.mark.parametrize(
    ("ends", "delay_ms"),
    [
        ([(HERE, 503), (HERE, 503)], 0),
        ([(HERE, 503), (OTHER, 503)], 2000),
        ([(HERE, 503), (HERE, 200), (OTHER, 503)], 0),
        ([(HERE, 503), (OTHER, 200), (OTHER, 503)], 2000),
    ],
    ids=["one origin", "two", "the first one answered since", "the second one answered before"],
)
def test_a_queue_is_slowed_when_two_of_its_origins_are_busy(
    ends: list[tuple[str, int]], delay_ms: int, clock: Clock, slot: QueueSlot
) -> None:
    policy = policy_with()
    for n, (origin, status) in enumerate(ends):
        policy.of_page(slot, claim_at(origin, n), answer(status))
    assert slot.adaptive_delay.delay_ms == delay_ms


# --- probes ---


def test_one_url_probes_a_silent_origin_and_stays_its_probe(clock: Clock, slot: QueueSlot) -> None:
    """Its turn may be spent on robots.txt, or on a full address, and it has another one."""
    policy = policy_with()
    silence(policy, slot)
    assert policy.action_for(claim_at(HERE, 1)) is HostAction.WAIT
    clock.now = health_ms(policy)
    for _ in range(3):
        assert policy.action_for(claim_at(HERE, 1)) is HostAction.PROBE
        assert policy.action_for(claim_at(HERE, 2)) is HostAction.WAIT
        clock.now += PROBE_MS // 4


def test_another_url_is_the_probe_when_one_takes_too_long(clock: Clock, slot: QueueSlot) -> None:
    policy = policy_with()
    silence(policy, slot)
    clock.now = health_ms(policy)
    assert policy.action_for(claim_at(HERE, 1)) is HostAction.PROBE
    clock.now += PROBE_MS
    assert policy.action_for(claim_at(HERE, 2)) is HostAction.PROBE
    assert policy.action_for(claim_at(HERE, 1)) is HostAction.WAIT


def test_a_probe_that_is_set_aside_makes_room_for_another(clock: Clock, slot: QueueSlot) -> None:
    policy = policy_with()
    silence(policy, slot)
    clock.now = health_ms(policy)
    policy.action_for(claim_at(HERE, 1))
    assert policy.set_aside(claim_at(HERE, 1), clock.now + 700).due_ms == clock.now + 700
    assert policy.action_for(claim_at(HERE, 2)) is HostAction.PROBE


def test_while_an_origin_is_probed_its_urls_wait_for_the_probe(clock: Clock, slot: QueueSlot) -> None:
    policy = policy_with()
    silence(policy, slot)
    began_ms = clock.now
    assert policy.set_aside(claim_at(HERE, 3)).due_ms == health_ms(policy)
    clock.now = health_ms(policy)
    policy.action_for(claim_at(HERE, 1))
    end = policy.set_aside(claim_at(HERE, 2))
    assert (end.origin, end.due_ms, end.since_ms) == (HERE, clock.now + PROBE_MS, began_ms)


def test_a_failed_probe_puts_the_next_one_off_for_longer(clock: Clock, slot: QueueSlot) -> None:
    policy = policy_with()
    silence(policy, slot)
    rests = []
    for n in range(3):
        rests.append(health_ms(policy) - clock.now)
        clock.now = health_ms(policy)
        assert policy.action_for(claim_at(HERE, n)) is HostAction.PROBE
        clock.now += 40_000  # it takes long to fail
        assert policy.of_page(slot, claim_at(HERE, n), failure(CONNECT)) == (1001, None)
        assert policy.action_for(claim_at(HERE, 9)) is HostAction.WAIT
    assert rests == sorted(rests)
    assert rests[-1] > 2 * rests[0]


def test_an_origin_that_is_not_silent_waits_as_told_and_no_url_probes_it(clock: Clock) -> None:
    """A name that is late, a connection for which it is not the turn."""
    policy = policy_with()
    end = policy.set_aside(claim_at(HERE), clock.now + 5000)
    assert (end.due_ms, end.since_ms) == (clock.now + 5000, None)
    assert policy.action_for(claim_at(HERE, 2)) is HostAction.FETCH
    assert policy.silent() == []


def test_what_an_origin_was_promised_holds_until_it_was_tried(clock: Clock, slot: QueueSlot) -> None:
    policy, at_ms = policy_with(), clock.now + 9000
    assert policy.promised_ms(claim_at(HERE)) == 0
    assert policy.promise(claim_at(HERE), at_ms).due_ms == at_ms
    assert (policy.promised_ms(claim_at(HERE, 2)), policy.promised_ms(claim_at(OTHER))) == (at_ms, 0)
    policy.set_aside(claim_at(HERE, 3), clock.now + 500)
    assert policy.promised_ms(claim_at(HERE)) == at_ms
    policy.of_page(slot, claim_at(HERE), failure(CONNECT))
    assert policy.promised_ms(claim_at(HERE)) == 0


# --- what is set aside comes back ---


def test_what_is_set_aside_is_recalled_when_its_origin_answers(clock: Clock, slot: QueueSlot) -> None:
    policy = policy_with()
    silence(policy, slot)
    policy.set_aside(claim_at(HERE, 7))
    clock.now = health_ms(policy)
    probe = claim_at(HERE, 1)
    policy.action_for(probe)
    assert policy.of_page(slot, claim_at(OTHER), answer())[1] is None
    assert policy.of_page(slot, probe, answer(404))[1] == Recall(HERE, is_good=True)
    assert policy.of_page(slot, probe, answer())[1] is None, "once"
    assert policy.action_for(claim_at(HERE, 2)) is HostAction.FETCH


def test_what_arrives_in_its_row_after_the_recall_is_recalled_too(clock: Clock, slot: QueueSlot) -> None:
    """The origin answered, or the request of its probe failed, while the URLs were on their way."""
    for result, expected in (
        (answer(), Recall(HERE, is_good=True)),
        (failure(CONNECT), Recall(HERE, due_ms=-1)),
    ):
        policy = policy_with()
        silence(policy, slot)
        clock.now = health_ms(policy)
        policy.action_for(claim_at(HERE, 1))
        end = policy.set_aside(claim_at(HERE, 2))
        assert policy.overtaken([claim_at(HERE, 2)], end) is None, "the probe is open"
        policy.of_page(slot, claim_at(HERE, 1), result)
        if expected.due_ms:
            expected = replace(expected, due_ms=health_ms(policy))
        assert policy.overtaken([claim_at(HERE, 2)], end) == expected


def test_what_arrives_in_its_row_after_its_origin_was_given_up_is_recalled(clock: Clock, slot: QueueSlot) -> None:
    policy = policy_with(hosts__give_up_s=100)
    silence(policy, slot)
    end = policy.set_aside(claim_at(HERE, 7))
    clock.now = max(health_ms(policy), clock.now + 100_000)
    policy.action_for(claim_at(HERE, 1))
    policy.of_page(slot, claim_at(HERE, 1), failure(CONNECT))
    assert policy.overtaken([claim_at(HERE, 7)], end) == Recall(HERE)


def test_a_probe_that_is_set_aside_with_others_makes_room_for_another(clock: Clock, slot: QueueSlot) -> None:
    """It had waited for its name, or for robots.txt, and another claim's turn took it along."""
    policy = policy_with()
    silence(policy, slot)
    clock.now = health_ms(policy)
    policy.action_for(claim_at(HERE, 1))
    claims, end = [claim_at(HERE, 2), claim_at(HERE, 1)], policy.set_aside(claim_at(HERE, 2))
    assert end.due_ms == clock.now + PROBE_MS
    assert policy.overtaken(claims, end) == Recall(HERE, due_ms=clock.now)
    assert policy.action_for(claim_at(HERE, 3)) is HostAction.PROBE


def test_what_waits_as_told_is_not_recalled_by_itself(clock: Clock, slot: QueueSlot) -> None:
    """A name that is late, no room: of an origin that is not silent, of a resting one, and of its probe."""
    policy, one = policy_with(), claim_at(HERE, 1)
    assert policy.overtaken([one], policy.set_aside(one, clock.now + 700)) is None
    policy = policy_with()
    silence(policy, slot)
    assert policy.overtaken([one], policy.set_aside(one)) is None
    clock.now = health_ms(policy)
    policy.action_for(one)
    assert policy.overtaken([one], policy.set_aside(one, clock.now + 700)) is None


def test_nothing_is_recalled_of_an_origin_without_urls_set_aside(clock: Clock, slot: QueueSlot) -> None:
    policy = policy_with()
    silence(policy, slot)
    assert policy.of_page(slot, claim_at(HERE), answer())[1] is None


def test_what_waited_without_a_silence_is_recalled_by_an_answer_too(clock: Clock, slot: QueueSlot) -> None:
    policy = policy_with()
    policy.set_aside(claim_at(HERE), clock.now + 5000)
    assert policy.of_page(slot, claim_at(HERE, 2), answer())[1] == Recall(HERE, is_good=True)


def test_urls_of_an_origin_that_is_given_up_are_recalled_to_end(clock: Clock, slot: QueueSlot) -> None:
    policy = policy_with(hosts__give_up_s=100)
    silence(policy, slot)
    policy.set_aside(claim_at(HERE, 7))
    clock.now += 100_000
    probe = claim_at(HERE, 1)
    assert policy.action_for(probe) is HostAction.PROBE, "given up or not, when it is due"
    assert policy.action_for(claim_at(HERE, 2)) is HostAction.WAIT, "the probe may bring it back"
    assert policy.of_page(slot, probe, failure(CONNECT))[1] == Recall(HERE, is_good=False)
    assert policy.action_for(claim_at(HERE, 2)) is HostAction.GIVE_UP
    assert policy.action_for(claim_at(OTHER, 2)) is HostAction.FETCH
    clock.now = health_ms(policy)
    assert policy.action_for(claim_at(HERE, 3)) is HostAction.PROBE
    assert policy.action_for(claim_at(HERE, 2)) is HostAction.GIVE_UP, "also while it is probed"


def test_after_too_long_a_silence_a_failed_attempt_is_the_last(clock: Clock, slot: QueueSlot) -> None:
    policy = policy_with(hosts__failures=1, hosts__give_up_s=100)
    policy.of_page(slot, claim_at(HERE), failure(CONNECT))
    clock.now += 100_000
    assert policy.failed(claim_at(HERE), CONNECT, "", SETTLED).retry_in_ms == -1
    assert policy.failed(claim_at(OTHER), CONNECT, "", SETTLED).retry_in_ms > 0
    abandoned = policy.abandoned(claim_at(HERE, 2))
    assert (abandoned.kind, abandoned.retry_in_ms) == ("host_dead", -1)
    assert abandoned.detail == "no answer from http://a.test in 1 attempts over 100 s"


# --- what other owners knew, and what is forgotten ---


def test_a_new_owner_probes_a_silent_origin_with_the_first_url(clock: Clock, slot: QueueSlot) -> None:
    policy, since_ms = policy_with(hosts__give_up_s=100), clock.now - 99_000
    policy.learn(HERE, since_ms)
    assert policy.action_for(claim_at(HERE, 1)) is HostAction.PROBE
    assert policy.action_for(claim_at(HERE, 2)) is HostAction.WAIT
    assert policy.set_aside(claim_at(HERE, 2)).since_ms == since_ms
    clock.now += 2000
    assert policy.of_page(slot, claim_at(HERE, 1), failure(CONNECT))[1] == Recall(HERE, is_good=False), (
        "as known before"
    )


def test_a_new_owner_recalls_what_is_set_aside_when_the_origin_answers(clock: Clock, slot: QueueSlot) -> None:
    for since_ms in (None, clock.now - 1000):
        policy = policy_with()
        policy.learn(HERE, since_ms)
        assert policy.of_page(slot, claim_at(HERE), answer())[1] == Recall(HERE, is_good=True)


def test_an_owner_learns_nothing_new_of_an_origin_that_it_knows(clock: Clock, slot: QueueSlot) -> None:
    policy = policy_with()
    silence(policy, slot)
    before = dict(policy.silent())[HERE].health
    policy.learn(HERE, 5)
    assert dict(policy.silent())[HERE].health == before


def test_of_too_many_silent_origins_the_oldest_is_forgotten(
    clock: Clock, slot: QueueSlot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response_policy, "ORIGINS_MAX", 3)
    policy = policy_with(hosts__failures=1)
    origins = [f"http://{n}.a.test" for n in range(5)]
    for origin in origins[:3]:
        silence(policy, slot, origin, 1)
    clock.now += 10**6
    silence(policy, slot, origins[0], 1)  # heard of again
    for origin in origins[3:]:
        silence(policy, slot, origin, 1)
    assert [origin for origin, _ in policy.silent()] == [origins[0], *origins[3:]]


def test_an_origin_that_answers_leaves_no_state(clock: Clock, slot: QueueSlot) -> None:
    policy = policy_with()
    for n in range(100):
        silence(policy, slot, f"http://{n}.a.test", 1)
        policy.of_page(slot, claim_at(f"http://{n}.a.test"), answer())
    assert not policy._silent
