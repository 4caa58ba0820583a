"""A turn that was spent on robots.txt counts on its queue's clock, however it ended."""

from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from crawler.errors import EngineDown
from crawler.frontier.messages import QueueBatch
from crawler.frontier.operator import Overrides
from crawler.frontier.owner import Fence, Settlement
from crawler.hosts.robots_cache import RobotsEntry
from crawler.hosts.robots_gate import RobotsGate
from crawler.hosts.robots_reader import RobotsResult
from crawler.hosts.sessions import NotEntitledError
from crawler.model import Claim
from crawler.runtime.clocks import monotonic_ms
from crawler.settings import PolitenessSettings, Settings
from crawler.worker.before_page import RobotsTurns
from crawler.worker.open_claims import OpenClaims
from crawler.worker.response_policy import ResponsePolicy
from crawler.worker.schedule import QueueSlot, Scheduler
from crawler.worker.turn import Requeue, Turn, TurnEnd
from tests.worker.turn_lab import held_with, hosts_of, runner_of, turn_of

CLAIM = Claim(
    url="http://a.test/", fingerprint="1", visit=1, partition=1, epoch=1, token="t", domain="a.test", queue="a.test",
    depth=0, redirects=0, attempts=0, deliveries=0, seed=False,
)  # fmt: skip

POLICY = ResponsePolicy(Settings())


def turns_of(frontier: Any, held: Any, cache: Any, reader: Any, *, delay_s: float = 1.0) -> RobotsTurns:
    gate = RobotsGate(frontier, held, cache, reader, PolitenessSettings(delay_s=delay_s), overrides=Overrides)
    return RobotsTurns(gate, hosts_of(POLICY), before_send=lambda *_: None, on_sent=lambda *_: None)


async def run(scheduler: Scheduler, slot: QueueSlot, claim: Claim, step: Callable[[Turn], Awaitable[Any]]) -> None:
    """Run a turn with this step; the turn ends only if the step returns an end."""
    turn = turn_of(scheduler, slot, claim)
    if isinstance(end := await step(turn), Requeue):

        async def apply(_: Turn) -> TurnEnd:
            return end

        await runner_of(scheduler).run(turn, apply)


class RedirectedRobots:
    """robots.txt was asked for, its redirect wants a turn elsewhere, and that fails."""

    def __init__(self, error: Exception, *, sent: bool) -> None:
        self._error = error
        self._sent = sent

    async def read(self, claim: Claim, origin: str, before_send: Callable[[], None], *, working: Any) -> Any:
        if self._sent:
            before_send()
        raise self._error


@pytest.mark.parametrize(("sent", "wait_ms"), [(True, 1000), (False, 0)])
@pytest.mark.parametrize("error", [EngineDown("no answer"), NotEntitledError()])
async def test_robots_asked_for_in_vain_make_their_queue_wait(error: Exception, sent: bool, wait_ms: int) -> None:
    """The engine was silent when the redirect's target was to be reserved: the first request was made all the same."""
    scheduler: Scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(QueueBatch(queue="a.test", delay_ms=-1, claims=(CLAIM,)))
    slot, claim = await scheduler.next()
    unused: Any = SimpleNamespace()
    reader: Any = RedirectedRobots(error, sent=sent)
    turns = turns_of(unused, unused, unused, reader)
    began_ms = monotonic_ms()
    await run(scheduler, slot, claim, turns.read)
    assert slot.active == 0
    assert slot.next_ms - began_ms >= wait_ms if wait_ms else slot.next_ms <= monotonic_ms()
    assert list(slot.waiting) == [claim]


@pytest.mark.parametrize(
    ("slot_ms", "crawl_delay_s", "waits"), [(-1, 5, True), (2000, 5, True), (-1, None, False), (5000, 2, False)]
)
async def test_a_delay_longer_than_the_turns_own_takes_another_turn(
    slot_ms: int, crawl_delay_s: float | None, waits: bool
) -> None:
    """Its robots.txt was read by a borrower, whose request the turn was not waited for by that delay."""
    paced = []

    class FakeFrontier:
        async def book_request(self, fence: Fence, queue: str, settled: Settlement) -> None:
            paced.append(
                (queue, settled.next_fetch_ms - fence.now_ms if settled.next_fetch_ms else 0, settled.delay_ms)
            )

    scheduler: Scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(QueueBatch(queue="a.test", delay_ms=slot_ms, claims=(CLAIM,)))
    slot, claim = await scheduler.next()
    frontier: Any = FakeFrontier()
    unused: Any = SimpleNamespace()
    entry = SimpleNamespace(crawl_delay_s=crawl_delay_s)
    turns = turns_of(frontier, held_with(1, clock_ms=50_000), unused, unused)
    began_ms = monotonic_ms()
    await run(scheduler, slot, claim, lambda turn: turns.learn_delay(turn, entry))  # type: ignore[arg-type]
    delay_ms = max(1000, int((crawl_delay_s or 0) * 1000))
    assert paced == [("a.test", delay_ms + 1 if waits else 0, delay_ms)]
    assert slot.delay_ms == delay_ms
    assert slot.active == (0 if waits else 1)
    assert list(slot.waiting) == ([claim] if waits else [])
    assert slot.next_ms - began_ms > delay_ms


async def test_shared_robots_txt_is_read_only_for_queues_with_a_delay() -> None:
    """Its delay was stored with the first: a queue without has none, and its first contact costs a call less."""
    asked: list[str] = []

    class Cache:
        def known(self, origin: str) -> None:
            return None

        async def shared(self, partition: int, origin: str) -> None:
            asked.append(origin)

    unused: Any = SimpleNamespace()
    cache: Any = Cache()
    gate = RobotsGate(unused, unused, cache, unused, PolitenessSettings(), overrides=Overrides)
    for is_known, origins in ((False, []), (True, ["http://a.test"])):
        assert await gate.known(CLAIM, is_delay_known=is_known) is None
        assert asked == origins


async def test_an_operators_delay_stands_for_what_robots_txt_and_settings_say() -> None:
    unused: Any = SimpleNamespace()
    for ms in (0, 400, 90_000):
        overrides = partial(Overrides, delays_ms={"a.test": ms})
        gate = RobotsGate(unused, unused, unused, unused, PolitenessSettings(), overrides=overrides)
        assert gate.delay_of(CLAIM, SimpleNamespace(crawl_delay_s=7)) == ms  # type: ignore[arg-type]
        assert gate.delay_of(replace(CLAIM, domain="b.test"), SimpleNamespace(crawl_delay_s=7)) == 7000  # type: ignore[arg-type]


async def test_a_robots_txt_that_cant_be_read_says_nothing_of_the_delay() -> None:
    """A delay stored as none would let borrowers send requests next to our next attempt, which may learn of a delay."""
    paced = []

    class FakeFrontier:
        async def read(self, *_: Any, working: Any) -> RobotsResult:
            return RobotsResult(RobotsEntry(rules=None, expires_ms=0, expires_at=0), is_requested=True)

        async def book_request(
            self, fence: Fence, queue: str, settled: Settlement, *, origin: str, robots: bytes
        ) -> None:
            paced.append((settled.delay_ms, origin))

    scheduler: Scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(QueueBatch(queue="a.test", delay_ms=-1, claims=(CLAIM,)))
    slot, claim = await scheduler.next()
    frontier: Any = FakeFrontier()
    unused: Any = SimpleNamespace()
    turns = turns_of(frontier, held_with(1), unused, frontier, delay_s=0)
    entry = await turns.read(turn_of(scheduler, slot, claim))
    assert isinstance(entry, RobotsEntry)
    assert (paced, slot.delay_ms) == ([(-1, "")], -1)
