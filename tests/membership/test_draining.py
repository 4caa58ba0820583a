"""When a commit gets its index line, and when it leaves the engine's log."""

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

from crawler.errors import EngineDown
from crawler.model import CommitEntry
from crawler.settings import ArchiveSettings
from crawler.worker.activity import Activity
from crawler.worker.archive import ArchiveStage
from crawler.worker.work import CommitBacklog
from tests.worker.turn_lab import content_steps, files_of, room_of, work_of


def entry(n: int) -> CommitEntry:
    return CommitEntry(
        url=f"http://a.test/{n}", fingerprint=str(n), visit=1, mime="unk", status_text="200", fetched_at=1.0
    )


class Disk:
    """An index: lines added, and how many of them were synced."""

    def __init__(self) -> None:
        self.lines: list[CommitEntry] = []
        self.synced = 0

    def add(self, line: CommitEntry) -> None:
        self.lines.append(line)

    def sync(self) -> None:
        self.synced = len(self.lines)


class FakeEngine:
    """An engine's log, and whether what it answered is with the kernel."""

    def __init__(self) -> None:
        self.is_written, self.down = True, False
        self.cleared: list[CommitEntry] = []
        self.activity: list[dict[int, bytes]] = []

    async def written(self, partitions: Collection[int]) -> set[int]:
        return set(partitions) if self.is_written else set()

    async def drain_log(self, fenced: Any, activity: dict[int, bytes]) -> None:
        if self.down:
            raise EngineDown("no answer")
        self.activity.append(activity)
        self.cleared += [e for _, entries in fenced for e in entries]


def stage() -> tuple[ArchiveStage, Disk, FakeEngine]:
    disk, engine = Disk(), FakeEngine()
    held: Any = SimpleNamespace(fence_of=lambda partition: SimpleNamespace(partition=partition))
    work, files = work_of(held=held, backlog=CommitBacklog(), activity=Activity(1)), files_of(index=disk)
    archive = ArchiveStage(engine, work, files, content_steps(), room_of(), ArchiveSettings(), log_entries_max=9)  # type: ignore[arg-type]
    return archive, disk, engine


async def test_a_commit_that_a_killed_engine_could_forget_gets_no_line_yet() -> None:
    """The page would be fetched again, and the index would have two commits of it."""
    archive, disk, engine = stage()
    engine.is_written = False
    archive.committed(0, entry(1))
    await archive.drain()
    assert (disk.lines, engine.cleared) == ([], [])
    assert archive._work.backlog.has_any(0)
    engine.is_written = True
    await archive.drain()
    assert (disk.synced, engine.cleared) == (1, [entry(1)])
    assert not archive._work.backlog.has_any(0)
    assert not archive.wants_drain


async def test_an_index_line_is_written_once_despite_failed_drains() -> None:
    archive, disk, engine = stage()
    engine.down = True
    for n in range(3):
        archive.committed(0, entry(n))
        await archive.drain()
    engine.down = False
    await archive.drain()
    assert disk.lines == [entry(0), entry(1), entry(2)]
    assert engine.cleared == disk.lines


async def test_commits_during_an_index_write_come_with_the_next_drain() -> None:
    archive, disk, engine = stage()
    archive.committed(0, entry(1))
    plain = engine.written

    async def meanwhile(partitions: Collection[int]) -> set[int]:
        archive.committed(0, entry(2))
        archive.committed(1, entry(3))
        return await plain(partitions)

    engine.written = meanwhile  # type: ignore[method-assign]
    await archive.drain()
    assert disk.lines == [entry(1)]
    engine.written = plain  # type: ignore[method-assign]
    await archive.drain()
    assert disk.lines == [entry(1), entry(2), entry(3)]


async def test_partitions_that_were_lost_are_their_new_owners_to_index() -> None:
    archive, disk, _ = stage()
    archive.committed(0, entry(1))
    archive._work.backlog.drop([0])
    await archive.drain()
    assert disk.lines == []
    assert not archive.wants_drain


async def test_activity_that_could_not_be_sent_is_not_sent_again() -> None:
    """It would count twice where the call had come through and its reply was lost."""
    archive, _, engine = stage()
    archive._work.activity.failure(3, "a.test", "timeout")
    archive._work.activity.end()
    engine.down = True
    await archive.drain()
    engine.down = False
    archive._work.activity.failure(4, "b.test", "timeout")
    await archive.drain()
    assert [list(sent) for sent in engine.activity] == [[4]]
