"""What the end of a request means for its queue and its URL, as the fetch stage puts the rules together."""

from msgspec.structs import replace

from crawler.frontier.frontier import Settlement
from crawler.model import Failure, FailureKind, FetchResult, Response
from crawler.pipeline.response_policy import ResponsePolicy
from crawler.pipeline.schedule import QueueSlot
from crawler.robots.cache import RobotsEntry
from crawler.robots.reader import RobotsResult
from crawler.rules.host_health import HostHealth
from crawler.runtime.clock import monotonic_ms, wall_s
from crawler.settings import load
from tests.pipeline.test_schedule import claim

SETTLED = Settlement(next_fetch_ms=0)


def policy_with(**options: object) -> ResponsePolicy:
    return ResponsePolicy(load(environment={}, options={k.replace("__", "."): v for k, v in options.items()}))


def answer(status: int = 200, *, fetch_ms: int = 80, retry_after_ms: int = 0, truncated: str = "") -> FetchResult:
    response = Response(
        url="http://a.test/", status=status, reason="", http_version="1.1", headers=(), raw_body=b"", body=b"",
        truncated=truncated, request_head=b"", remote_ip="", started_at=0.0, fetch_ms=fetch_ms,
    )  # fmt: skip
    return FetchResult(url=response.url, response=response, fetch_ms=fetch_ms, retry_after_ms=retry_after_ms)


def failure(kind: FailureKind) -> FetchResult:
    return FetchResult(url="http://a.test/", failure=Failure(kind=kind, detail="as it is"))


def unreachable(*, is_requested: bool) -> RobotsResult:
    entry = RobotsEntry(
        rules=None, failure=FailureKind.CONNECT, expires_ms=monotonic_ms() + 2000, expires_at=wall_s() + 2
    )
    return RobotsResult(entry, is_requested=is_requested)


def test_only_failures_of_the_host_delay_its_queue() -> None:
    policy = policy_with()
    for kind in FailureKind:
        wait_ms = policy.of_page(QueueSlot("a.test", delay_ms=1000), failure(kind))
        held = kind.startswith(("dns", "connect", "tls", "timeout", "disconnected", "server_busy", "robots"))
        assert (wait_ms > 1001) == held, kind


def test_a_failed_url_waits_longer_than_its_queue() -> None:
    policy, slot = policy_with(), QueueSlot("a.test", delay_ms=1000)
    for attempts in range(2):
        queue_ms = policy.of_page(slot, failure(FailureKind.CONNECT))
        failed = policy.failed(slot, replace(claim(1), attempts=attempts), FailureKind.CONNECT, "", SETTLED)
        assert failed.retry_in_ms > queue_ms


def test_retry_after_holds_for_the_queue_and_for_the_url() -> None:
    policy, slot = policy_with(), QueueSlot("a.test", delay_ms=1000)
    busy = answer(503, retry_after_ms=90_000)
    assert policy.of_page(slot, busy) == 90_001
    judged = policy.judged(slot, claim(1), busy, SETTLED)
    assert judged is not None
    assert (judged.kind, judged.detail, judged.retry_in_ms) == ("server_busy", "status 503", 90_000)


def test_an_incomplete_body_is_retried_and_finally_kept() -> None:
    policy, slot, cut = policy_with(), QueueSlot("a.test"), answer(truncated="disconnect")
    judged = policy.judged(slot, claim(1), cut, SETTLED)
    assert judged is not None
    assert (judged.kind, judged.retry_in_ms > 0) == ("body", True)
    assert policy.judged(slot, replace(claim(1), attempts=1), cut, SETTLED) is None
    assert policy.judged(slot, claim(1), answer(404), SETTLED) is None


def test_an_unreadable_robots_txt_counts_against_the_requested_queue() -> None:
    policy, slot = policy_with(), QueueSlot("a.test", delay_ms=1000)
    assert policy.of_robots(slot, unreachable(is_requested=True), delay_ms=1000) > 3000
    assert slot.health.failures == 1
    policy.of_robots(slot, unreachable(is_requested=False), delay_ms=1000)
    assert slot.health.failures == 1
    policy.of_robots(slot, RobotsResult(None, is_requested=True), delay_ms=1000)
    assert slot.health.failures == 0


def test_no_turn_fails_by_a_cached_unreachable_robots_txt() -> None:
    """Its queue waits until the entry has expired, even where the back-off is shorter."""
    policy, slot = policy_with(retry__connect__backoff_s=0.01), QueueSlot("a.test", delay_ms=0)
    reading = unreachable(is_requested=True)
    assert reading.entry is not None
    wait_ms = policy.of_robots(slot, reading, delay_ms=0)
    assert monotonic_ms() + wait_ms >= reading.entry.expires_ms


def test_the_adaptive_delay_is_optional_and_never_below_the_queues_own() -> None:
    ends = [answer(), answer(429), answer(), answer(fetch_ms=900), *[answer()] * 30]
    waits = {}
    for adaptive in (False, True):
        policy = policy_with(politeness__adaptive=adaptive, retry__server_busy__backoff_s=0.0)
        slot = QueueSlot("a.test", delay_ms=3000)
        waits[adaptive] = [policy.of_page(slot, end) - 1 for end in ends]
    assert set(waits[False]) == {3000}
    assert waits[True][:5] == [3000, 6000, 5700, 11_400, 11_100]
    assert waits[True][-1] == min(waits[True]) == 3000


def test_the_adapted_delay_stops_at_its_cap() -> None:
    policy, slot = (
        policy_with(politeness__adaptive=True, politeness__delay_max_s=7.0),
        QueueSlot("a.test", delay_ms=3000),
    )
    for _ in range(5):
        policy.of_page(slot, failure(FailureKind.TIMEOUT))
    assert slot.adaptive_delay.delay_ms == 7000


def test_after_too_long_a_silence_a_failed_attempt_is_the_last() -> None:
    policy, slot = policy_with(hosts__failures=1, hosts__give_up_s=0.001), QueueSlot("a.test", delay_ms=1000)
    policy.of_page(slot, failure(FailureKind.CONNECT))
    slot.health = HostHealth(9, slot.health.since_ms - 1000, slot.health.probe_ms)
    assert policy.failed(slot, claim(1), FailureKind.CONNECT, "", SETTLED).retry_in_ms == -1
    abandoned = policy.abandoned(slot, claim(2))
    assert (abandoned.kind, abandoned.retry_in_ms) == ("host_dead", -1)
