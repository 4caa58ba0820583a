"""Budgets of the whole crawl: how much an instance may still admit and claim, and when a limit is reached."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from crawler.errors import ArchiveError
from crawler.frontier.deferred import DeferredRow
from crawler.frontier.messages import BudgetReached
from crawler.frontier.stats import Totals
from crawler.instance import usage as usage_of_budgets
from crawler.instance.crawl_budget import BudgetAdmission
from crawler.instance.deferred_share import DeferredShare
from crawler.instance.usage import UNRELEASED_MS, BudgetUsage
from crawler.settings import load
from crawler.worker.counters import Counters
from crawler.worker.open_claims import OpenClaims
from tests.worker.test_schedule import claim
from tests.worker.turn_lab import held_with, work_of


class FakeEngine:
    """The crawl's totals as a test sets them, its flag, and the URLs deferred for lack of room."""

    def __init__(self) -> None:
        self.now = Totals()
        self.budget_reached: BudgetReached | None = None
        self.deferred = 0
        self.open = 0  # claims of all instances
        self.hinted: list[int] = []
        self.is_readable = True

    async def totals(self) -> Totals:
        return self.now

    async def claimed(self) -> int:
        return self.open

    async def note_budget_reached(self, budget_reached: BudgetReached | None) -> None:
        self.budget_reached = budget_reached

    async def release(self, partition: int, queue: str, reason: str, n: int) -> int:
        if not self.is_readable:
            raise ArchiveError("the folder of spilled URLs is not there")
        self.deferred -= n
        self.now = replace(self.now, taken_in=self.now.taken_in + n, beyond=self.now.beyond - n)
        return n

    async def survey(self, partitions: Any) -> list[Any]:
        found = [DeferredRow(partition=0, queue="a.test", reason="crawl:urls", urls=self.deferred)]
        return [(0, {}, found)] if self.deferred and 0 in partitions else []


def usage_of(
    engine: FakeEngine,
    *,
    sharers: int = 1,
    claiming: str = "a",
    on_room: Callable[[], None] = lambda: None,
    **options: int,
) -> tuple[BudgetUsage, Counters, Callable[[], bool]]:
    """The usage of budgets, the counters it updates, and whether one more URL is admitted."""
    settings = load(environment={}, options={k.replace("__", "."): v for k, v in options.items()})
    counters, held = Counters(OpenClaims(1000)), held_with(0)
    deferred_urls: Any = engine
    admission = BudgetAdmission(settings.budget.crawl_urls, DeferredShare(deferred_urls, 4))
    due: Any = SimpleNamespace(hint=engine.hinted.append, room_changed=on_room)
    work = work_of(held=held, counters=counters, due=due)
    usage = BudgetUsage(deferred_urls, deferred_urls, admission, work, settings, sharers=lambda: frozenset(claiming))
    return usage, counters, lambda: admission.admits(sharers)


async def test_each_instance_admits_its_share_between_two_counts() -> None:
    engine = FakeEngine()
    usage, _, admits_urls = usage_of(engine, sharers=2, budget__crawl_urls=100)
    engine.now = Totals(taken_in=80)
    await usage.prepare()
    assert [admits_urls() for _ in range(11)] == [True] * 10 + [False]
    await usage.count()
    assert [admits_urls() for _ in range(6)] == [True] * 5 + [False], "what was let in may not be there yet"
    engine.now = Totals(taken_in=98)
    await usage.count()
    await usage.count()
    assert [admits_urls() for _ in range(2)] == [True, False]


async def test_new_urls_go_behind_deferred_ones() -> None:
    engine = FakeEngine()
    usage, _, admits_urls = usage_of(engine, budget__crawl_urls=100)
    engine.now, engine.deferred = Totals(taken_in=80, beyond=3), 3
    await usage.prepare()
    assert not admits_urls()
    assert await usage.has_more()
    engine.now = Totals(taken_in=100, beyond=3)
    assert not await usage.has_more(), "there is no room"
    engine.now, engine.deferred = Totals(taken_in=80, beyond=3), 0
    assert not await usage.has_more(), "they are blocked: no instance will release them"


async def test_deferred_urls_with_room_are_released_and_claimed_at_once() -> None:
    """No hint tells an owner what it released itself: it would look again when the partition is due, a minute later."""
    engine = FakeEngine()
    usage, *_ = usage_of(engine, budget__crawl_urls=100)
    engine.now, engine.deferred = Totals(taken_in=80, beyond=30), 30
    await usage.prepare()
    running = asyncio.create_task(usage.run())
    while not engine.hinted:
        await asyncio.sleep(0.01)
    running.cancel()
    assert (engine.deferred, engine.now.taken_in, engine.hinted) == (10, 100, [0])


async def test_what_its_owner_does_not_release_another_instance_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by the simulation: the owner had begun without budgets and did not count; the crawl never ended."""
    engine, now_ms = FakeEngine(), 10_000
    monkeypatch.setattr(usage_of_budgets, "monotonic_ms", lambda: now_ms)
    usage, *_ = usage_of(engine, budget__crawl_urls=100)
    engine.now, engine.deferred = Totals(taken_in=80, beyond=3), 3
    await usage.prepare()
    assert await usage.has_more()
    now_ms += 2 * UNRELEASED_MS  # it was not asked meanwhile: there was work
    for _ in range(6):
        assert await usage.has_more()
        assert engine.deferred == 3
        now_ms += UNRELEASED_MS // 5
    now_ms += 1
    assert await usage.has_more()
    assert (engine.deferred, engine.hinted) == (0, [0])
    assert not await usage.has_more()


async def test_urls_in_an_unreadable_file_stay_deferred_and_the_crawl_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = FakeEngine()
    usage, *_ = usage_of(engine, budget__crawl_urls=100)
    engine.now, engine.deferred, engine.is_readable = Totals(taken_in=80, beyond=30), 30, False
    await usage.prepare()
    running = asyncio.create_task(usage.run())
    while await usage.has_more():
        await asyncio.sleep(0.01)
    assert not running.done()
    assert [(r.getMessage(), r.__dict__["queue"]) for r in caplog.records] == [("budget.unreadable", "a.test")]
    engine.is_readable = True
    while engine.deferred > 10:
        await asyncio.sleep(0.01)
    assert engine.hinted
    running.cancel()
    assert (engine.deferred, engine.now.taken_in) == (10, 100)


async def test_the_engines_total_decides_whether_a_budget_is_reached() -> None:
    """An engine that fell back has fewer pages than this instance was told that it had committed."""
    engine = FakeEngine()
    usage, counters, _ = usage_of(engine, budget__crawl_pages=10)
    await usage.prepare()
    counters.committed = counters.own_committed = 10
    assert (counters.pages_left(), counters.is_limit_near) == (0, True)
    engine.now = Totals(fetched=7)
    await usage.count()
    assert (usage.limit, counters.pages_left()) == ("", 3)
    engine.now, counters.committed, counters.own_committed = Totals(fetched=10), 13, 13
    await usage.count()
    assert (usage.limit, engine.budget_reached) == ("budget", BudgetReached(reason="crawl:pages", budget=10))


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"crawl__pages_max": 5}, "pages"),
        ({"crawl__pages_max": 5, "budget__crawl_pages": 9}, "pages"),
        ({"crawl__pages_max": 9, "budget__crawl_pages": 5}, "budget"),
        ({"budget__crawl_bytes": 1000}, "budget"),
        ({"budget__crawl_bytes": 1001, "budget__crawl_pages": 6, "crawl__pages_max": 6}, ""),
    ],
)
async def test_whichever_is_reached_first_ends_the_crawl(options: dict[str, int], limit: str) -> None:
    engine = FakeEngine()
    usage, counters, _ = usage_of(engine, **options)
    engine.now = Totals(fetched=5, bytes=1000)
    await usage.prepare()
    assert (usage.limit, engine.budget_reached is not None) == (limit, limit == "budget")
    assert (counters.pages_left() == 0) == bool(limit)


async def test_a_larger_budget_takes_the_flag_away() -> None:
    engine = FakeEngine()
    engine.now, engine.budget_reached = Totals(fetched=5), BudgetReached(reason="crawl:pages", budget=5)
    usage, *_ = usage_of(engine, budget__crawl_pages=6)
    await usage.prepare()
    assert engine.budget_reached is None


@pytest.mark.parametrize("limit", ["crawl__pages_max", "budget__crawl_pages"])
async def test_each_instance_claims_its_share_of_the_pages_that_are_left(limit: str) -> None:
    """Also of those that others have claimed, and not fetched yet."""
    engine = FakeEngine()
    usage, counters, _ = usage_of(engine, claiming="ab", **{limit: 100})

    def pages_left() -> int | None:
        return counters.pages_left(lambda room, _: room // 2)

    engine.now, engine.open = Totals(status={"2": 30}, fetched=30), 20
    await usage.prepare()
    assert pages_left() == 25
    counters.open_claims.opened([claim(n) for n in range(25)])
    assert (pages_left(), counters.is_limit_near) == (0, False)
    engine.open += 25
    await usage.count()
    assert pages_left() == 12
    engine.open += 25
    await usage.count()
    assert (pages_left(), counters.is_limit_near, counters.counted_for) == (0, False, {"a", "b"})
    engine.now, engine.open = Totals(fetched=100), 0
    await usage.count()
    assert (pages_left(), usage.limit) == (0, "pages" if limit == "crawl__pages_max" else "budget")


async def test_more_room_wakes_who_waits_for_it() -> None:
    engine, woken = FakeEngine(), list[int]()
    usage, counters, _ = usage_of(engine, on_room=lambda: woken.append(1), crawl__pages_max=10)
    await usage.prepare()
    assert (counters.pages_left(), woken) == (10, [1])
    engine.now = Totals(fetched=10)
    await usage.count()
    assert woken == [1]
