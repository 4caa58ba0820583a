"""What the archive stage does to the event loop that it shares with heartbeats."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from crawler.errors import ArchiveError
from crawler.settings import ArchiveSettings
from crawler.worker.activity import Activity
from crawler.worker.archive import BYTES_BEFORE_YIELD, DRAIN_BYTES, RECORDS_BEFORE_YIELD, ArchiveStage, Placed
from crawler.worker.work import CommitBacklog
from tests.worker.turn_lab import content_steps, files_of, room_of, work_of

NOTHING: Any = None


def stage() -> ArchiveStage:
    archive = ArchiveSettings(warc=False)
    work = work_of(backlog=CommitBacklog(), activity=Activity(1))
    return ArchiveStage(NOTHING, work, files_of(), content_steps(), room_of(), archive, log_entries_max=9)


async def turns_between_records(body_bytes: int, pages: int) -> list[int]:
    """How many turns the loop had made when each record of a group was written."""
    archive = stage()
    turns, seen = 0, list[int]()

    async def turning() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def place(outcome: Any) -> Placed:
        seen.append(turns)
        return Placed(None, str(len(seen)))

    archive._place = place  # type: ignore[method-assign]
    outcome: Any = SimpleNamespace(
        response=SimpleNamespace(raw_body=bytes(body_bytes)),
        claim=SimpleNamespace(partition=1, fingerprint="1", url="http://a.test/"),
    )
    other = asyncio.create_task(turning())
    await asyncio.sleep(0)
    placed = await archive.store([outcome] * pages)
    other.cancel()
    assert [one.digest for one in placed] == [str(n + 1) for n in range(pages)], "in the order of the group"
    return seen


async def test_the_loop_has_a_turn_between_large_records() -> None:
    """A page of 10 MB takes 25 to 45 ms of CPU here; a group of them would keep every heartbeat for the sum."""
    seen = await turns_between_records(BYTES_BEFORE_YIELD, 3)
    assert seen == sorted(set(seen))


async def test_small_pages_are_written_in_batches() -> None:
    seen = await turns_between_records(1000, 2 * RECORDS_BEFORE_YIELD + 1)
    assert [seen.count(turn) for turn in sorted(set(seen))] == [RECORDS_BEFORE_YIELD, RECORDS_BEFORE_YIELD, 1]


async def test_much_in_the_log_does_not_wait_for_the_next_drain() -> None:
    """Thousands of pages a second with long names would fill the engine's memory in half a second."""
    archive, drained = stage(), asyncio.Event()

    async def write_index() -> None:
        drained.set()

    archive._write_index = write_index  # type: ignore[method-assign]
    archive._clear_log = write_index  # type: ignore[method-assign]
    entry: Any = SimpleNamespace(url="u" * (DRAIN_BYTES // 4), title="", redirect_to="", rights=None, request_body="")
    running = asyncio.create_task(archive.run())
    for _ in range(3):
        archive.committed(1, entry)
        await asyncio.sleep(0)
    assert not drained.is_set(), "three quarters are not much"
    archive.committed(1, entry)
    async with asyncio.timeout(0.2):
        await drained.wait()
    running.cancel()


async def test_the_error_of_a_write_is_not_lost_when_its_loop_is_cancelled() -> None:
    """A crawl ends by cancelling its loops, maybe while a disk fails."""
    archive, written, may_fail = stage(), threading.Event(), threading.Event()

    def fail() -> None:
        written.set()
        may_fail.wait(5)
        raise ArchiveError("can't write: No space left on device")

    archive._writes_warc, archive._sync = True, fail  # type: ignore[method-assign]
    storing = asyncio.create_task(archive.store([]))
    assert await asyncio.to_thread(written.wait, 5)
    storing.cancel()
    await asyncio.sleep(0)
    may_fail.set()
    with pytest.raises(ArchiveError, match="No space left"):
        await storing


class HeldUp:
    """A frontier and an index of which one step does not end before it is told to."""

    def __init__(self, step: str) -> None:
        self._step = step
        self.reached, self.may_go_on = threading.Event(), threading.Event()
        self.lines, self.cleared = list[Any](), list[Any]()
        self.add = self.lines.append

    async def written(self, partitions: Any) -> set[int]:
        await self._hold_up("written")
        return {*partitions}

    def sync(self) -> None:
        if self._step == "sync":
            self.reached.set()
            self.may_go_on.wait(5)

    async def drain_log(self, entries: Any, activity: Any) -> None:
        await self._hold_up("drain_log")
        self.cleared += [entry for _, some in entries for entry in some]

    async def _hold_up(self, step: str) -> None:
        if step == self._step:
            self.reached.set()
            while not self.may_go_on.is_set():
                await asyncio.sleep(0)


@pytest.mark.parametrize("step", ["written", "sync", "drain_log"])
async def test_a_drain_that_is_cancelled_leaves_its_entries_to_the_next_one(step: str) -> None:
    """A crawl ends by cancelling its loops: commits would stay in the engine's log until the next crawl."""
    held_up = HeldUp(step)
    held: Any = SimpleNamespace(fence_of=lambda partition: SimpleNamespace(partition=partition))
    work = work_of(backlog=CommitBacklog(), activity=Activity(1), held=held)
    files: Any = SimpleNamespace(index=held_up)
    frontier: Any = held_up
    archive = ArchiveStage(
        frontier, work, files, content_steps(), room_of(), ArchiveSettings(warc=False), log_entries_max=9
    )
    entry: Any = SimpleNamespace(url="http://a.test/", title="", redirect_to="", rights=None, request_body="")
    archive.committed(1, entry)

    draining = asyncio.create_task(archive.drain())
    assert await asyncio.to_thread(held_up.reached.wait, 5)
    draining.cancel()
    await asyncio.sleep(0)
    held_up.may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await draining

    await archive.settle(5)
    assert held_up.lines == held_up.cleared == [entry]
    assert not archive.wants_drain
