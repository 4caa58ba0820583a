"""What an instance does while its queues wait: nothing more often than it has to."""

import asyncio
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest

from crawler.frontier.operator import EVERYWHERE, Overrides
from crawler.frontier.owner import Awake
from crawler.frontier.series import FINE, Sample
from crawler.instance import series
from crawler.instance.series import Sampler
from crawler.runtime import clocks, ticks
from crawler.runtime.ticks import until_tick
from crawler.worker import claim
from crawler.worker.claim import SWEEP_MAX, SWEEPS, Claimer
from crawler.worker.counters import Counters
from crawler.worker.open_claims import OpenClaims
from tests.support.patience import others_run
from tests.worker.turn_lab import claimer_with, held_with

# (every s, seconds since the phase, seconds until the tick)
TICKS = (
    (1.0, 0.0, 1.0),
    (1.0, 0.3, 0.7),
    (1.0, 0.749, 0.251),
    (1.0, 0.751, 1.249),  # the next one is too near
    (1.0, 0.9999, 1.0001),  # a timer that came a little early does not come twice
    (1.0, 1000.003, 0.997),
    (0.5, 0.0, 0.5),
    (0.5, 0.3, 0.2),
    (0.5, 0.999, 0.501),
    (10.0, 9.0, 11.0),
    (10.0, 7.0, 3.0),
    (1 / 7, 1.0, 1 / 7),  # a heartbeat of tests
)


@pytest.mark.parametrize(("every_s", "since_s", "wait_s"), TICKS)
@pytest.mark.parametrize("phase", [0.0, 0.377])
async def test_loops_of_one_interval_tick_together(
    every_s: float, since_s: float, wait_s: float, phase: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ticks.asyncio, "get_running_loop", lambda: SimpleNamespace(time=lambda: phase + since_s))
    token = ticks.PHASE.set(phase)
    found = until_tick(every_s)
    ticks.PHASE.reset(token)
    assert found == pytest.approx(wait_s, abs=1e-6)


class Swept:
    """A frontier that notes what a sweep reads, and how often it is claimed from."""

    session = "s"

    def __init__(self) -> None:
        self.looks: list[list[int]] = []
        self.claims = 0
        self.found: list[Awake] = []

    async def awake(self, partitions: Any) -> list[Awake]:
        self.looks.append(list(partitions))
        return self.found

    async def claim(self, wanted: Any) -> list[Any]:
        self.claims += 1
        raise AssertionError("nothing is due")


def claimer_of(frontier: Any, held: int, counters: Counters | None = None) -> Claimer:
    return claimer_with(frontier, held_with(*range(held)), counters or Counters(OpenClaims(1000)))[0]


@pytest.mark.parametrize("held", [0, 1, 9, 10, 11, 1024, 4096])
async def test_each_partition_is_looked_at_in_turn_for_lost_hints(held: int) -> None:
    frontier = Swept()
    claimer = claimer_of(frontier, held)
    count = max(SWEEPS, -(-held // SWEEP_MAX))
    for _ in range(count):
        await claimer._sweep()
    assert set(chain.from_iterable(frontier.looks)) == set(range(held))
    assert max(map(len, frontier.looks), default=0) <= SWEEP_MAX


async def test_lost_partitions_are_not_looked_at() -> None:
    frontier = Swept()
    claimer = claimer_of(frontier, 20)
    await claimer._sweep()
    for partition in range(20):
        claimer._work.held.lose(partition)
    await claimer._sweep()
    assert [len(look) for look in frontier.looks] == [2]


async def test_after_a_gap_in_the_hints_all_are_looked_at_once() -> None:
    frontier = Swept()
    claimer = claimer_of(frontier, 100)
    claimer.hints_lost()
    await claimer._sweep()
    await claimer._sweep()
    assert [len(look) for look in frontier.looks] == [100, 10]


async def test_a_gap_whose_look_failed_is_looked_for_again() -> None:
    frontier = Swept()
    claimer = claimer_of(frontier, 100)
    claimer.hints_lost()
    answers, frontier.awake = frontier.awake, failing  # type: ignore[method-assign]
    with pytest.raises(claim.EngineError):
        await claimer._sweep()
    frontier.awake = answers  # type: ignore[method-assign]
    await claimer._sweep()
    assert [len(look) for look in frontier.looks] == [100]


async def failing(_: Any) -> list[Awake]:
    raise claim.EngineError("away")


@pytest.mark.parametrize("step_s", [-3600.0, -1.0, 1.0, 3600.0])
async def test_a_step_of_the_wall_clock_is_followed_everywhere(step_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """URLs are scheduled by it."""
    frontier, real = Swept(), claim.wall_s
    claimer = claimer_of(frontier, 100)
    await claimer._sweep()
    monkeypatch.setattr(claim, "wall_s", lambda: real() + step_s)
    frontier.found = [Awake(7, None, int((real() + step_s) * 1000) + 50_000)]
    await claimer._sweep()
    await claimer._sweep()
    assert [len(look) for look in frontier.looks] == [10, 100, 10]
    at_ms = claimer._work.due._due[7] - clocks.monotonic_ms()
    assert 0 < at_ms <= 50_000


WAITS = {  # why nothing is claimed although a partition is due
    "paused": {"overrides": Overrides(paused=frozenset([EVERYWHERE]))},
    "disk": {"is_disk_full": True},
    "backup": {"is_standing_still": True},
    "stopping": {"is_stopping": True},
    "pages": {"pages_max": 10, "committed": 10},
}


@pytest.mark.parametrize("why", WAITS)
async def test_who_may_not_claim_sleeps_though_partitions_are_due(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It woke a thousand times a second."""
    counters = Counters(OpenClaims(1000), **WAITS[why])
    claimer = claimer_of(Swept(), 3, counters)
    claimer._work.due.schedule(1)
    claimer._sweep_at_ms = clocks.monotonic_ms() + 60_000
    asked_s: list[float] = []
    real = asyncio.timeout
    monkeypatch.setattr(claim.asyncio, "timeout", lambda wait_s: (asked_s.append(wait_s), real(0))[1])
    assert not await claimer._round()
    await claimer._sleep()
    assert asked_s[0] > 10


async def test_who_may_claim_again_does_so_at_once() -> None:
    counters = Counters(OpenClaims(1000), **WAITS["paused"])
    claimer = claimer_of(Swept(), 3, counters)
    claimer._sweep_at_ms = clocks.monotonic_ms() + 3_600_000
    claimer._work.due.schedule(1)
    running = asyncio.create_task(claimer.run())
    await others_run()
    counters.overrides = Overrides()
    claimer._work.due.room_changed()
    with pytest.raises(AssertionError, match="nothing is due"):  # it claims
        await running


class Totals:
    """The engine as a sampler sees it."""

    def __init__(self) -> None:
        self.reads = self.asked = 0
        self.pages = 5
        self.samples: list[Sample] = []

    async def is_wanted(self, at_s: float) -> bool:
        self.asked += 1
        return not self.samples or FINE.slot_of(self.samples[-1].at_s) < FINE.slot_of(at_s)

    async def write(self, sample: Sample) -> None:
        self.samples.append(sample)

    async def progress(self) -> Any:
        self.reads += 1
        return SimpleNamespace(
            added=9, done=self.pages, fetched=self.pages, bytes=1, client_errors=0, server_errors=0, failures=0, dead=0
        )


# What all have done at each slot (None: one is at work), and how often the partitions are read by then.
SLOTS = (
    (["a", "a", "a"], 1),
    (["a", "b", "b"], 2),
    ([None, None, None], 3),
    (["a", None, "a"], 3),
    (["a", "b", "a"], 3),
    (["a"] * 13, 2),  # a minute: others may have changed something, too
)


@pytest.mark.parametrize(("work", "reads"), SLOTS)
async def test_totals_are_read_for_a_sample_only_after_work(
    work: list[str | None], reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    totals: Any = Totals()
    begin = FINE.slot_of(1_800_000_000.0) * FINE.slot_s
    now_s, now = [begin + 0.5], iter(work)
    monkeypatch.setattr(series, "wall_s", lambda: now_s[0])
    monkeypatch.setattr(series, "monotonic_ms", lambda: int(now_s[0] * 1000))
    sampler = Sampler(totals, totals, work=lambda: next(now))
    for number in range(len(work)):
        now_s[0] = begin + 0.5 + number * FINE.slot_s
        await sampler.look()
        now_s[0] += 1
        await sampler.look()  # it knows that the slot has one
    assert (totals.reads, totals.asked) == (reads, len(work))
    assert [FINE.slot_of(one.at_s) for one in totals.samples] == [
        FINE.slot_of(begin) + number for number in range(len(work))
    ]
    assert {one.pages for one in totals.samples} == {5}


async def test_open_claims_tell_when_there_are_some_and_when_none() -> None:
    claims = OpenClaims(10)
    assert (claims.some.is_set(), claims.none.is_set()) == (False, True)
    one, two = (claim_of(token) for token in "ab")
    claims.opened([])
    assert (claims.some.is_set(), claims.none.is_set()) == (False, True)
    claims.opened([one, two])
    claims.ended(one)
    assert (claims.some.is_set(), claims.none.is_set()) == (True, False)
    claims.ended(two)
    assert (claims.some.is_set(), claims.none.is_set()) == (False, True)


def claim_of(token: str) -> Any:
    return SimpleNamespace(partition=1, token=token, run="", url="http://a.test/")
