"""A turn that was spent on robots.txt counts on its queue's clock, however it ended."""

from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from crawler.errors import EngineDown
from crawler.frontier.frontier import Fence, Settlement
from crawler.frontier.messages import QueueBatch
from crawler.frontier.overrides import Orders
from crawler.model import Claim
from crawler.pipeline.outcome import NotEntitledError
from crawler.pipeline.response_policy import Aftermath
from crawler.pipeline.schedule import Lane, Workbench
from crawler.pipeline.turn import Requeue, Turn, TurnEnd
from crawler.robots.cache import RobotsEntry
from crawler.robots.gate import Permits
from crawler.robots.reader import Reading
from crawler.runtime.clock import monotonic_ms
from crawler.settings import PolitenessSettings, Settings
from tests.pipeline.turn_lab import runner_of, turn_of

CLAIM = Claim(
    url="http://a.test/", fingerprint="1", visit=1, partition=1, epoch=1, token="t", domain="a.test", queue="a.test",
    depth=0, redirects=0, attempts=0, deliveries=0, seed=False,
)  # fmt: skip

AFTERMATH = Aftermath(Settings())


async def run(bench: Workbench, lane: Lane, claim: Claim, step: Callable[[Turn], Awaitable[Any]]) -> None:
    """A turn that takes this step; it ends only if the step says how."""
    turn = turn_of(bench, lane, claim)
    if isinstance(end := await step(turn), Requeue):

        async def apply(_: Turn) -> TurnEnd:
            return end

        await runner_of(bench).run(turn, apply)


class RedirectedRobots:
    """robots.txt was asked for, its redirect wants a turn elsewhere, and that fails."""

    def __init__(self, error: Exception, *, sent: bool) -> None:
        self._error = error
        self._sent = sent

    async def turn(self, claim: Claim, origin: str, before_send: Callable[[], None], *, working: Any) -> Any:
        if self._sent:
            before_send()
        raise self._error


@pytest.mark.parametrize(("sent", "wait_ms"), [(True, 1000), (False, 0)])
@pytest.mark.parametrize("error", [EngineDown("no answer"), NotEntitledError()])
async def test_robots_asked_for_in_vain_make_their_queue_wait(error: Exception, sent: bool, wait_ms: int) -> None:
    """The engine was silent when the redirect's target was to be reserved: the first request was made all the same."""
    bench: Workbench = Workbench(concurrency_per_queue=1)
    bench.put(QueueBatch(queue="a.test", delay_ms=-1, claims=(CLAIM,)))
    lane, claim = await bench.take()
    unused: Any = SimpleNamespace()
    reader: Any = RedirectedRobots(error, sent=sent)
    permits = Permits(
        unused,
        unused,
        unused,
        reader,
        AFTERMATH,
        PolitenessSettings(),
        before_send=lambda *_: None,
        orders=Orders,
    )
    began_ms = monotonic_ms()
    await run(bench, lane, claim, permits.ask)
    assert lane.active == 0
    assert lane.next_ms - began_ms >= wait_ms if wait_ms else lane.next_ms <= monotonic_ms()
    assert list(lane.waiting) == [claim]


@pytest.mark.parametrize(
    ("lane_ms", "crawl_delay_s", "waits"), [(-1, 5, True), (2000, 5, True), (-1, None, False), (5000, 2, False)]
)
async def test_a_delay_longer_than_the_turns_own_takes_another_turn(
    lane_ms: int, crawl_delay_s: float | None, waits: bool
) -> None:
    """Its robots.txt was read by a guest, whose request the turn was not waited for by that delay."""
    paced = []

    class Door:
        async def pace(self, fence: Fence, queue: str, settled: Settlement) -> None:
            paced.append(
                (queue, settled.next_fetch_ms - fence.now_ms if settled.next_fetch_ms else 0, settled.delay_ms)
            )

    bench: Workbench = Workbench(concurrency_per_queue=1)
    bench.put(QueueBatch(queue="a.test", delay_ms=lane_ms, claims=(CLAIM,)))
    lane, claim = await bench.take()
    door: Any = Door()
    ownership: Any = SimpleNamespace(fence_of=lambda _: Fence(1, "ann", 1, 50_000))
    unused, entry = SimpleNamespace(), SimpleNamespace(crawl_delay_s=crawl_delay_s)
    permits = Permits(
        door,
        ownership,
        unused,
        unused,
        AFTERMATH,
        PolitenessSettings(),
        before_send=lambda *_: None,
        orders=Orders,
    )  # type: ignore[arg-type]
    began_ms = monotonic_ms()
    await run(bench, lane, claim, lambda turn: permits.learn_delay(turn, entry))  # type: ignore[arg-type]
    delay_ms = max(1000, int((crawl_delay_s or 0) * 1000))
    assert paced == [("a.test", delay_ms + 1 if waits else 0, delay_ms)]
    assert lane.delay_ms == delay_ms
    assert lane.active == (0 if waits else 1)
    assert list(lane.waiting) == ([claim] if waits else [])
    assert lane.next_ms - began_ms > delay_ms


async def test_the_engine_is_asked_for_a_robots_txt_only_where_a_queue_has_read_one() -> None:
    """Its delay was stored with the first: a queue without has none, and its first contact costs a call less."""
    asked: list[str] = []

    class Cache:
        def known(self, origin: str) -> None:
            return None

        async def shared(self, partition: int, origin: str) -> None:
            asked.append(origin)

    unused: Any = SimpleNamespace()
    cache: Any = Cache()
    permits = Permits(
        unused, unused, cache, unused, AFTERMATH, PolitenessSettings(), before_send=lambda *_: None,
        orders=Orders,
    )  # fmt: skip
    for delay_ms, origins in ((-1, []), (0, ["http://a.test"]), (1000, ["http://a.test"] * 2)):
        assert await permits.known(Lane("a.test", delay_ms=delay_ms), CLAIM) is None
        assert asked == origins


async def test_an_operators_delay_stands_for_what_robots_txt_and_settings_say() -> None:
    unused: Any = SimpleNamespace()
    for ms in (0, 400, 90_000):
        permits = Permits(
            unused, unused, unused, unused, AFTERMATH, PolitenessSettings(), before_send=lambda *_: None,
            orders=partial(Orders, delays_ms={"a.test": ms}),
        )  # fmt: skip
        assert permits.delay_of(CLAIM, SimpleNamespace(crawl_delay_s=7)) == ms  # type: ignore[arg-type]
        assert permits.delay_of(replace(CLAIM, domain="b.test"), SimpleNamespace(crawl_delay_s=7)) == 7000  # type: ignore[arg-type]


async def test_a_robots_txt_that_cant_be_read_says_nothing_of_the_delay() -> None:
    """Stored as none, it would let guests ask beside our next attempt, which may learn of one."""
    paced = []

    class Door:
        async def turn(self, *_: Any, working: Any) -> Reading:
            return Reading(RobotsEntry(rules=None, expires_ms=0, expires_at=0), is_asked=True)

        async def pace(self, fence: Fence, queue: str, settled: Settlement, *, origin: str, robots: bytes) -> None:
            paced.append((settled.delay_ms, origin))

    bench: Workbench = Workbench(concurrency_per_queue=1)
    bench.put(QueueBatch(queue="a.test", delay_ms=-1, claims=(CLAIM,)))
    lane, claim = await bench.take()
    door: Any = Door()
    ownership: Any = SimpleNamespace(fence_of=lambda _: Fence(1, "ann", 1, 0), holds=lambda _: True)
    unused: Any = SimpleNamespace()
    settings = PolitenessSettings(delay_s=0)
    permits = Permits(door, ownership, unused, door, AFTERMATH, settings, before_send=lambda *_: None, orders=Orders)
    entry = await permits.ask(turn_of(bench, lane, claim))
    assert isinstance(entry, RobotsEntry)
    assert (paced, lane.delay_ms) == ([(-1, "")], -1)
