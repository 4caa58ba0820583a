"""What an instance measures of its own process."""

import asyncio
import contextlib
import time
from pathlib import Path

from crawler.instance import vitals
from crawler.instance.vitals import UNKNOWN, Vitals
from crawler.worker.lateness import WINDOW_MS, Recent


class Clock:
    now_ms = 5_000

    def __call__(self) -> int:
        return self.now_ms


def test_an_extreme_is_told_for_at_least_one_window_and_at_most_two() -> None:
    clock = Clock()
    largest, smallest = Recent(clock_ms=clock), Recent(min, clock_ms=clock)
    assert largest.value is None
    for value in (3.0, 9.0, -2.0):
        largest.note(value)
        smallest.note(value)
    clock.now_ms += WINDOW_MS - 1
    assert (largest.value, smallest.value) == (9.0, -2.0)
    clock.now_ms += WINDOW_MS - 1
    largest.note(4.0)
    assert (largest.value, smallest.value) == (9.0, -2.0), "scraped a whole window after the last scrape"
    clock.now_ms += WINDOW_MS
    assert (largest.value, smallest.value) == (4.0, None)
    clock.now_ms += 2 * WINDOW_MS
    assert largest.value is None


@contextlib.asynccontextmanager
async def watched(folder: Path):  # type: ignore[no-untyped-def]
    measured = Vitals(folder)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(measured.watch_loop()), group.create_task(measured.watch_disk())]
        yield measured
        for task in tasks:
            task.cancel()


async def test_a_step_that_blocks_the_loop_shows_as_its_delay(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(vitals, "LOOP_EVERY_S", 0.02)
    async with watched(tmp_path) as measured:
        await asyncio.sleep(0)  # its timer is set
        time.sleep(0.1)
        await asyncio.sleep(0.03)
        delay_s = measured.description()["loop_delay_s"]
    assert delay_s >= 0.07


async def test_disk_memory_and_cpu_time_are_those_of_the_process(tmp_path: Path) -> None:
    async with watched(tmp_path) as measured:
        while measured.description()["disk_free"] == UNKNOWN:
            await asyncio.sleep(0.001)
        found = measured.description()
    assert found["disk_free"] > 0
    assert 10 << 20 < found["resident"] < 1 << 40
    assert abs(found["cpu_s"] - time.process_time()) < 5


async def test_a_folder_that_is_gone_has_no_free_bytes(tmp_path: Path) -> None:
    assert vitals.free_bytes(tmp_path / "gone") == UNKNOWN
