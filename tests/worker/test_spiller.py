"""The spiller keeps the engine within its memory: what it moves, what it logs, and which files it removes."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from crawler.archive.spill_files import SpillFiles
from crawler.engine.client import Memory
from crawler.frontier.owner import Fence
from crawler.frontier.spilling import Spilling, Stub, urls_of
from crawler.instance import spiller
from crawler.instance.spiller import KEEP_MS, Spiller
from crawler.settings import load
from crawler.worker.counters import Counters
from crawler.worker.open_claims import OpenClaims
from tests.frontier.door import DELAY_MS, Door, found
from tests.support.engine import Engine
from tests.worker.turn_lab import work_of

BUDGET = 10_000
QUEUE = "a.test"


class FakeHeld:
    """Holds partition 0 with the fence of the test's frontier."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self.held = {0}

    def __iter__(self) -> Iterator[int]:
        return iter(self.held)

    def is_open(self, partition: int) -> bool:
        return partition in self.held

    def fence_of(self, partition: int) -> Fence | None:
        return self._door.fence if partition in self.held else None


class FakeDuePartitions:
    """Records which partitions are scheduled."""

    def __init__(self) -> None:
        self.scheduled: list[int] = []

    def hint(self, partition: int, user: str) -> None:
        self.scheduled.append(partition)

    def room_changed(self) -> None:
        """Nothing claims here."""


class Lab:
    """A spiller over a real engine; the test sets its memory and its time."""

    def __init__(self, door: Door, folder: Path) -> None:
        self.door, self.held, self.due = door, FakeHeld(door), FakeDuePartitions()
        self.counters = Counters(OpenClaims(8))
        self.used: list[int] = [0]
        self.now_ms = 0
        self.files = SpillFiles(folder, door.session)
        self.calls = Spilling(door.engine, door.keys, default_delay_ms=DELAY_MS)
        door.engine.memory = self._memory  # type: ignore[method-assign]
        self.spiller = self.new_spiller()

    def new_spiller(self) -> Spiller:
        held: Any = self.held
        due: Any = self.due
        settings = load(environment={}, options={"frontier.memory": BUDGET})
        work = work_of(held=held, due=due, counters=self.counters)
        return Spiller(self.door.engine, self.calls, self.files, work, settings)

    async def _memory(self) -> Memory:
        return Memory(self.used.pop(0) if len(self.used) > 1 else self.used[0], 0.0)

    async def fill(self, urls: int) -> None:
        for start in range(0, urls, 250):
            await self.door.add(*(found(i, score=-i / 4096) for i in range(start, min(urls, start + 250))))

    async def look(self, *used: int, after_ms: int = 0) -> None:
        self.used = [*used]
        self.now_ms += after_ms
        await self.spiller._check()

    async def spilled(self) -> int:
        return int(await self.door.engine.command("HGET", self.door.keys.meta(0), "spilled") or 0)

    async def bring_all_back(self) -> None:
        names = await self.door.engine.command("ZRANGE", self.door.keys.of(0, f"t:{QUEUE}"), 0, -1)
        for stub in filter(None, (Stub.of(name.decode()) for name in names)):
            (packed,) = self.files.read(0, [stub.place])
            await self.calls.unspill([(0, QUEUE, stub, urls_of(packed))])


@pytest.fixture
async def lab(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lab]:
    door = Door(engine.url, [engine])
    await door.open()
    monkeypatch.setattr(spiller, "ROUND_PAUSE_S", 0)
    made: list[Lab] = []
    monkeypatch.setattr(spiller, "monotonic_ms", lambda: made[0].now_ms if made else 0)
    made.append(Lab(door, tmp_path / "spill"))
    yield made[0]
    await door.close()


async def test_nothing_moves_below_nine_tenths_and_then_until_eight_tenths(lab: Lab) -> None:
    await lab.fill(30_000)
    await lab.look(9_000)
    assert await lab.spilled() == 0
    await lab.look(9_001, 8_500, 8_000)
    assert await lab.spilled() == 2 * 64 * 128 - 80  # two rounds; the last block of the queue was not full
    assert not lab.counters.is_engine_full


async def test_the_first_two_blocks_of_a_queue_stay(lab: Lab) -> None:
    await lab.fill(1000)
    await lab.look(9_500)
    assert await lab.spilled() == 1000 - 256
    await lab.look(9_500)
    assert await lab.spilled() == 1000 - 256


async def test_claims_wait_while_the_budget_is_exceeded(lab: Lab) -> None:
    await lab.look(10_001)
    assert lab.counters.is_engine_full
    await lab.look(10_000)
    assert not lab.counters.is_engine_full


async def test_requested_blocks_are_unspilled_and_claimed(lab: Lab) -> None:
    await lab.fill(1000)
    await lab.look(9_500)
    before = await lab.spilled()
    for name in ("q", "b"):
        for key in await lab.door.engine.command("KEYS", lab.door.keys.of(0, f"{name}:*")):
            await lab.door.engine.command("DEL", key)
    await lab.door.claim()  # finds nothing
    await lab.spiller._unspill([(0, QUEUE), (1, "not.ours")])
    assert lab.due.scheduled == [0]
    assert before - await lab.spilled() == 128


async def test_a_missing_spill_file_is_logged_once_and_nothing_is_lost(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    await lab.fill(1000)
    await lab.look(9_500)
    before = await lab.spilled()
    lab.files.root.rename(lab.files.root.with_name("elsewhere"))
    (stub,) = [s for s in map(Stub.of, await names(lab)) if s][-1:]
    for _ in range(2):
        assert lab.spiller._read([(0, QUEUE, stub)]) == []
    assert [r.getMessage() for r in caplog.records] == ["spill.unreadable"]
    assert await lab.spilled() == before
    lab.files.root.with_name("elsewhere").rename(lab.files.root)
    assert len(lab.spiller._read([(0, QUEUE, stub)])) == 1


async def names(lab: Lab) -> list[str]:
    raw = await lab.door.engine.command("ZRANGE", lab.door.keys.of(0, f"t:{QUEUE}"), 0, -1)
    return [name.decode() for name in raw]


async def test_a_file_without_blocks_is_removed_after_a_while(lab: Lab) -> None:
    await lab.fill(1000)
    await lab.look(9_500)
    assert len(lab.files.names(0)) == 1
    await lab.look(0, after_ms=2 * KEEP_MS)
    assert len(lab.files.names(0)) == 1
    await lab.bring_all_back()
    await lab.look(0, after_ms=60_000)
    await lab.look(0, after_ms=KEEP_MS - 1)
    assert len(lab.files.names(0)) == 1, "an engine that forgets its last writes may want it again"
    await lab.look(0, after_ms=60_000)
    assert lab.files.names(0) == []


async def test_a_file_unknown_to_the_engine_is_removed_too(lab: Lab) -> None:
    SpillFiles(lab.files.root, "dead").write(0, 1, [b"x"])
    SpillFiles(lab.files.root, "dead").write(1, 1, [b"not ours"])
    await lab.look(0, after_ms=60_000)
    await lab.look(0, after_ms=KEEP_MS)
    assert (lab.files.names(0), lab.files.names(1)) == ([], ["1-dead-1"])


@pytest.mark.parametrize("what", ["the engine restarts", "another lease", "another process"])
async def test_the_wait_to_remove_a_file_restarts_when(lab: Lab, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first check of a partition can't know when the engine last named the file."""
    SpillFiles(lab.files.root, "dead").write(0, 1, [b"x"])
    await lab.look(0, after_ms=60_000)
    if what == "the engine restarts":
        monkeypatch.setattr(type(lab.door.engine), "run_id", "other")
    elif what == "another lease":
        await lab.door.acquire()
    else:
        lab.spiller = lab.new_spiller()
    await lab.look(0, after_ms=KEEP_MS)
    assert lab.files.names(0) == ["1-dead-1"]
    await lab.look(0, after_ms=KEEP_MS)
    await lab.look(0, after_ms=KEEP_MS)
    assert lab.files.names(0) == []
