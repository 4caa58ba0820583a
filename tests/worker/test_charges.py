"""What a failure is charged to: a table of what failed, and its URL, its origin, its queue, and other origins of it."""

from typing import NamedTuple

import pytest
from msgspec.structs import replace

from crawler.hosts.robots_reader import RobotsResult
from crawler.model import OURS, Failure, FailureKind, FetchResult
from crawler.rules.origin_health import HostAction
from crawler.worker.response_policy import ResponsePolicy
from crawler.worker.schedule import QueueSlot
from tests.worker.policy_lab import HERE, OTHER, SETTLED, Clock, answer, claim_at, failure, policy_with, unreadable

DELAY_MS = 1000
GOOD, COUNTED, ASIDE = "good", "counted", "set aside"  # the origin's health
ENDS = -1  # the URL gets no further attempt
RESULT = None  # the URL has a result


class Cell(NamedTuple):
    """`url_ms`: how long the URL waits at least, and less than a third more; `aside_ms`: the same of its origin."""

    end: FetchResult | FailureKind
    url_ms: int | None
    origin: str = GOOD
    aside_ms: int = 0
    queue_ms: int = DELAY_MS


def busy(status: int, retry_after_ms: int = 0) -> FetchResult:
    return answer(status, retry_after_ms=retry_after_ms)


def challenge(status: int) -> FetchResult:
    return replace(answer(status), challenge="Cloudflare")


K = FailureKind
HOUR = 3_600_000
TABLE = {
    "200": Cell(answer(), RESULT),
    "404": Cell(answer(404), RESULT),
    "500": Cell(answer(500), 1500),
    "500 with Retry-After": Cell(answer(500, retry_after_ms=HOUR), HOUR),
    "503": Cell(busy(503), 12_500, ASIDE, 7500),
    "503 with Retry-After": Cell(busy(503, HOUR), HOUR, ASIDE, 60_000),
    "429": Cell(busy(429), 12_500, ASIDE, 7500, 2 * DELAY_MS),
    "429 with Retry-After": Cell(busy(429, HOUR), HOUR, ASIDE, 60_000, 2 * DELAY_MS),
    "a challenge": Cell(challenge(200), 75_000, COUNTED, queue_ms=2 * DELAY_MS),
    "a challenge, 403": Cell(challenge(403), 75_000, COUNTED, queue_ms=2 * DELAY_MS),
    "a challenge, 503": Cell(challenge(503), 75_000, COUNTED, queue_ms=2 * DELAY_MS),
    "body cut off": Cell(answer(truncated="disconnect"), 1500),
    "dns_not_found": Cell(failure(K.DNS_NOT_FOUND), ENDS),
    "address_refused": Cell(failure(K.ADDRESS_REFUSED), ENDS),
    "port_refused": Cell(failure(K.PORT_REFUSED), ENDS),
    "dns_error": Cell(failure(K.DNS_ERROR), 6250, COUNTED),
    "connect": Cell(failure(K.CONNECT), 6250, COUNTED),
    "tls": Cell(failure(K.TLS), 2500, COUNTED),
    "timeout": Cell(failure(K.TIMEOUT), 6250, COUNTED),
    "disconnected": Cell(failure(K.DISCONNECTED), 2500, COUNTED),
    "protocol": Cell(failure(K.PROTOCOL), 1500),
    "headers_too_large": Cell(failure(K.HEADERS_TOO_LARGE), ENDS),
    "a stale connection": Cell(replace(failure(K.DISCONNECTED), stale_connection=True), 1500),
    # Of robots.txt, whose entry is valid for two minutes.
    "robots.txt: connect": Cell(K.CONNECT, 6250, ASIDE, 120_000),
    "robots.txt: dns_error": Cell(K.DNS_ERROR, 6250, ASIDE, 120_000),
    "robots.txt: tls": Cell(K.TLS, 2500, ASIDE, 120_000),
    "robots.txt: timeout": Cell(K.TIMEOUT, 6250, ASIDE, 120_000),
    "robots.txt: disconnected": Cell(K.DISCONNECTED, 2500, ASIDE, 120_000),
    "robots.txt: server_busy": Cell(K.SERVER_BUSY, 12_500, ASIDE, 120_000),
    "robots.txt: 500": Cell(K.ROBOTS_UNREACHABLE, 2500, ASIDE, 120_000),
    "robots.txt: dns_not_found": Cell(K.DNS_NOT_FOUND, ENDS),
    "robots.txt: address_refused": Cell(K.ADDRESS_REFUSED, ENDS),
    # Not of a request: after the answer, and without one.
    "parse": Cell(K.PARSE, ENDS),
    "no_sitemap": Cell(K.NO_SITEMAP, ENDS),
    "handler": Cell(K.HANDLER, 1500),
    "handler_retry": Cell(K.HANDLER_RETRY, 1500),
    "outcome_unknown": Cell(K.OUTCOME_UNKNOWN, ENDS),
    "redirect_with_body": Cell(K.REDIRECT_WITH_BODY, ENDS),
    "login_required": Cell(K.LOGIN_REQUIRED, ENDS),
    "ends_session": Cell(K.ENDS_SESSION, ENDS),
    "internal": Cell(K.INTERNAL, ENDS),
    "poison_url": Cell(K.POISON_URL, ENDS),
    "host_dead": Cell(K.HOST_DEAD, ENDS),
}
AFTERWARDS = {
    "parse", "no_sitemap", "handler", "handler_retry", "outcome_unknown", "redirect_with_body", "login_required",
    "ends_session", "internal", "poison_url", "host_dead",
}  # fmt: skip


class After(NamedTuple):
    policy: ResponsePolicy
    slot: QueueSlot
    wait_ms: int
    retry_in_ms: int | None


def after(name: str, policy: ResponsePolicy, slot: QueueSlot, clock: Clock) -> After:
    """It happens to a URL of HERE."""
    end, claim, wait_ms = TABLE[name].end, claim_at(HERE), DELAY_MS + 1
    if isinstance(end, FetchResult):
        wait_ms, _ = policy.of_page(slot, claim, end)
        failed = policy.judged(claim, end, SETTLED)
    else:
        if name not in AFTERWARDS:
            read: RobotsResult = unreadable(clock, end, for_ms=120_000)
            wait_ms, _ = policy.of_robots(slot, claim, read, delay_ms=DELAY_MS)
        failed = policy.failed(claim, end, "", SETTLED)
    return After(policy, slot, wait_ms, failed.retry_in_ms if failed else None)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture(params=TABLE)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_kind_of_failure_is_in_the_table() -> None:
    named = set()
    for cell in TABLE.values():
        known = cell.end.failure if isinstance(cell.end, FetchResult) else Failure(kind=cell.end, detail="")
        named |= {known.kind} if known else set()
    # Those of a proxy and of our own network are no attempts, and never judged here.
    assert named | {K.SERVER_ERROR, K.BODY, K.CHALLENGED, *OURS} == set(FailureKind)


def test_what_it_costs_its_url(name: str, clock: Clock) -> None:
    found, wanted = after(name, policy_with(), QueueSlot("a.test", delay_ms=DELAY_MS), clock), TABLE[name].url_ms
    if wanted is None or wanted < 0:
        assert found.retry_in_ms == wanted
    else:
        assert found.retry_in_ms is not None
        assert wanted <= found.retry_in_ms <= wanted * 4 // 3


def test_what_it_costs_its_origin(name: str, clock: Clock) -> None:
    policy, cell = after(name, policy_with(), QueueSlot("a.test", delay_ms=DELAY_MS), clock).policy, TABLE[name]
    action = policy.action_for(claim_at(HERE, 2))
    assert policy.has_failed(HERE) == (cell.origin != GOOD)
    assert action is (HostAction.WAIT if cell.origin == ASIDE else HostAction.FETCH)
    rests_ms = [one.health.probe_ms - clock.now for _, one in policy.silent()]
    assert len(rests_ms) == (cell.origin == ASIDE)
    assert all(cell.aside_ms <= rest_ms <= cell.aside_ms * 4 // 3 for rest_ms in rests_ms)


def test_what_it_costs_its_queue(name: str, clock: Clock) -> None:
    found = after(name, policy_with(), QueueSlot("a.test", delay_ms=DELAY_MS), clock)
    assert found.wait_ms == TABLE[name].queue_ms + 1
    assert max(found.slot.delay_ms, found.slot.adaptive_delay.delay_ms) == TABLE[name].queue_ms


@pytest.mark.parametrize("before", [0, 1, 5])
def test_it_costs_other_origins_nothing(name: str, before: int, clock: Clock) -> None:
    """Whatever the other origin's own health is: an origin that fails as often, alone, has the same."""
    with_it, alone = ((policy_with(), QueueSlot("a.test", delay_ms=DELAY_MS)) for _ in range(2))
    for policy, slot in (with_it, alone):
        for n in range(before):
            policy.of_page(slot, claim_at(OTHER, n), failure(K.CONNECT))
    for _ in range(3):
        after(name, *with_it, clock)
    for of in (lambda p: p.has_failed(OTHER), lambda p: dict(p.silent()).get(OTHER), action_at_other, retry_at_other):
        assert of(with_it[0]) == of(alone[0])


def action_at_other(policy: ResponsePolicy) -> HostAction:
    return policy.action_for(claim_at(OTHER, 9))


def retry_at_other(policy: ResponsePolicy) -> int:
    return policy.failed(claim_at(OTHER, 9), K.CONNECT, "", SETTLED).retry_in_ms
