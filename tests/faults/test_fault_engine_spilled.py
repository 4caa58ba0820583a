"""An engine whose queues lie in files dies, forgets its last writes, or its disk is full: no URL is lost or doubled."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crawler.archive.spill_files import SpillFiles
from crawler.crawl.instance import Instance
from crawler.engine.client import Engine, Memory
from crawler.errors import ArchiveError
from crawler.frontier.spilling import Spilling
from crawler.instance import spiller
from tests.faults.engine_lab import HASTY, committed, counted, durable_engine, is_crawling, lab
from tests.faults.test_fault_engine_restarts import cut_tail
from tests.frontier.small_blocks import small_blocks

BUDGET = 1000


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Blocks of two URLs, and an engine that always has a little too much: what was moved to disk and back."""
    count = {"spilled": 0, "back": 0}
    spill, unspill = Spilling.spill, Spilling.unspill

    async def memory(self: Engine) -> Memory:
        await self.command("PING")
        return Memory(int(0.95 * BUDGET), 0.0)

    async def counted_spill(self: Spilling, *args: Any) -> int:
        blocks = await spill(self, *args)
        count["spilled"] += blocks
        return blocks

    async def counted_unspill(self: Spilling, back: Any) -> Any:
        count["back"] += len(back)
        return await unspill(self, back)

    monkeypatch.setattr(Engine, "memory", memory)
    monkeypatch.setattr(Spilling, "spill", counted_spill)
    monkeypatch.setattr(Spilling, "unspill", counted_unspill)
    monkeypatch.setattr(spiller, "SWEEP_MS", 0)
    with small_blocks():
        yield count


def overflowing(folder: Path) -> dict[str, Any]:
    return HASTY | {"frontier__memory": BUDGET, "frontier__spill_folder": str(folder / "spill")}


@pytest.mark.slow
async def test_an_engine_killed_again_and_again_finds_its_files(tmp_path: Path, moved: dict[str, int]) -> None:
    kills = 0
    with durable_engine() as engine:

        async def strike(instances: list[Instance]) -> None:
            nonlocal kills
            await committed(instances, 5)
            while is_crawling(instances):
                await engine.kill_and_restart(down_s=0.1)
                kills += 1
                await asyncio.sleep(1.5)

        async with lab(tmp_path, seed=41) as here:
            await here.crawl(engine.url, meanwhile=strike, instances=2, **overflowing(tmp_path))
            totals = await counted(engine.url)
    assert kills >= 2
    assert (totals.added, totals.fetched, totals.spilled) == (totals.done, here.pages, 0)
    assert min(moved.values()) > 20, moved


async def test_an_engine_that_lost_writes_still_finds_its_spill_files(
    tmp_path: Path, moved: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are removed soon after they are last named, but later than any write that the engine loses."""
    monkeypatch.setattr(spiller, "KEEP_MS", 10_000)
    with durable_engine() as engine:

        async def strike(instances: list[Instance]) -> None:
            for n in (200, 5_000, 20_000, 40_000):
                await committed(instances, sum(i.counters.committed for i in instances) + 10)
                await asyncio.sleep(0.7)
                await asyncio.to_thread(engine.kill)
                cut_tail(engine, n)
                await asyncio.to_thread(engine.start)

        async with lab(tmp_path, seed=42) as here:
            await here.crawl(engine.url, meanwhile=strike, instances=2, **overflowing(tmp_path))
            totals = await counted(engine.url)
    assert (totals.added, totals.fetched, totals.spilled) == (totals.done, here.pages, 0)
    assert min(moved.values()) > 0, moved  # few, where the machine is busy


async def test_a_disk_that_takes_nothing_leaves_the_urls_in_memory(
    tmp_path: Path, moved: dict[str, int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: SpillFiles, *args: Any) -> Any:
        raise ArchiveError("can't write: No space left on device")

    monkeypatch.setattr(SpillFiles, "write", full)
    with durable_engine() as engine:
        async with lab(tmp_path, seed=43) as here:
            await here.crawl(engine.url, **overflowing(tmp_path))
    assert moved == {"spilled": 0, "back": 0}
    assert [r.getMessage() for r in caplog.records].count("spill.disk_error") == 1
