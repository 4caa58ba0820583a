"""A crawl moves to another engine, or into a file and back. Nothing may run on it meanwhile.

The record decides where a crawl is. A move first puts a mark in its place, so that nobody goes on in the old engine,
and another mark in the new one. It copies the keys by partition, compares each copy's digest with what was read, and
notes it there (`moving`). The record comes last; from then on the crawl is in the new engine. A move that was
interrupted anywhere goes on from the last partition that was noted.
"""

import secrets
import shutil
import time
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from crawler.archive.spill_files import SpillFiles
from crawler.errors import ConflictError, EngineError, EngineFull, NoCrawlError, UsageError
from crawler.frontier.crawls import CrawlList
from crawler.frontier.record import (
    ARRIVING,
    MOVED,
    REMOVED,
    CrawlRecord,
    Crawls,
    Mark,
    mark_in,
    plain_record,
    record_of,
    usable_record,
)
from crawler.recovery.arrival import Arrival, move_of
from crawler.recovery.copying import CRAWL_WIDE, Digest, read_entries
from crawler.recovery.side import NO_FOLDER, Copied, Side, changed_since, check_stopped, spill_names
from crawler.rules.progress import SILENT, Meter
from crawler.settings import MembershipSettings

MOVE_ID_BYTES = 8

_encode = msgspec.json.Encoder().encode


class Departure:
    """The end that a crawl leaves, towards a place."""

    def __init__(self, side: Side, goes_to: str, membership: MembershipSettings) -> None:
        self.side = side
        self._to = goes_to
        self._membership = membership

    async def begin(self) -> Mark:
        """The mark that is in the place of the record now. Raises NoCrawlError, and ConflictError when the crawl
        can't leave.
        """
        side, name = self.side, self.side.keys.crawl_name
        raw = await side.raw()
        if raw is None:
            raise NoCrawlError(f"{side.place} has no crawl {name!r}")
        if mark := self.mark_of_this(raw):
            await side.engine.confirm([side.keys.crawl])
            return mark
        record = usable_record(name, raw)
        await check_stopped(side, self._membership)
        await self._end_leases(record.partitions)
        mark = Mark(
            layout=MOVED, was=raw.decode(), place=self._to, move=secrets.token_hex(MOVE_ID_BYTES), at=time.time()
        )
        await side.replace(raw, _encode(mark))
        try:
            await check_stopped(side, self._membership)  # nobody joined meanwhile
        except ConflictError:
            await side.replace(_encode(mark), raw)
            raise
        await side.engine.confirm([side.keys.crawl])
        return mark

    async def _end_leases(self, partitions: int) -> None:
        """An instance that sleeps, and wakes when its crawl is elsewhere, commits nothing here: the target would fetch
        and commit it again. Whoever is next takes its partitions over as those of a dead one.
        """
        engine, metas = self.side.engine, [self.side.keys.meta(p) for p in range(partitions)]
        held = await engine.commands([("HGET", meta, "session") for meta in metas])
        await engine.commands([("HINCRBY", m, "epoch", 1) for m, session in zip(metas, held, strict=True) if session])

    def mark_of_this(self, raw: bytes | None) -> Mark | None:
        """The mark of a move to this place that is not finished, if that is what stands there."""
        mark = mark_in(raw) if raw else None
        return mark if mark and mark.layout == MOVED and not mark.is_done and mark.place == self._to else None

    async def under_way(self) -> Mark:
        """The mark of the move that is under way. Raises ConflictError when there is none, or when it has arrived."""
        raw = await self.side.raw()
        if mark := self.mark_of_this(raw):
            return mark
        name, mark = self.side.keys.crawl_name, mark_in(raw) if raw else None
        if mark and mark.layout == MOVED and mark.place == self._to:
            raise _arrived(self._to)
        raise ConflictError(f"no move of the crawl {name!r} to {self._to} is under way")

    async def check(self, mark: Mark) -> None:
        """Raises ConflictError when the mark is not there any more."""
        raw = await self.side.raw()
        if raw != _encode(mark):
            there = mark_in(raw) if raw else None
            if there and there.is_done and there.move == mark.move:  # by another command
                raise _arrived(self._to)
            raise ConflictError(
                f"the mark of this move is gone from {self.side.place}: the move was taken back, or that engine was "
                f"set back to an older state. Remove what is in {self._to}, and move again"
            )

    async def finish(self, mark: Mark) -> None:
        """Nobody goes on here any more. Raises ConflictError when the mark is not there any more."""
        await self.check(mark)
        done = Mark(layout=MOVED, was=mark.was, place=self._to, is_done=True, move=mark.move, at=mark.at)
        await self.side.replace(_encode(mark), _encode(done))
        await self.side.engine.confirm([self.side.keys.crawl])

    async def take_back(self, mark: Mark, record: bytes | None = None) -> None:
        """The record is in its place again; or another one, of the same crawl."""
        await self.side.replace(_encode(mark), mark.was.encode() if record is None else record)
        await self.side.engine.confirm([self.side.keys.crawl])


async def move(source: Departure, target: Arrival, meter: Meter = SILENT) -> Copied:
    """Move the crawl, or go on with a move that was interrupted.

    Raises ConflictError, EngineError, NoCrawlError, UsageError when no folder is known for URLs on disk, ArchiveError.
    """
    await _check(source, target)
    mark = await source.begin()
    was, copied = mark.was.encode(), Copied(0, 0, 0)
    if await target.begin(was, mark.move):
        record = record_of(msgspec.json.decode(was))
        meter.begin("listing keys")
        names, files = await source.side.names(record), dict[int, int]()
        left = [group for group in (*range(record.partitions), CRAWL_WIDE) if group not in target.done]
        while True:
            meter.begin("copying", "partition", len(left))
            for i, group in enumerate(left, 1):
                files[group] = await _copy(source.side, target, record, group, names.of(group))
                meter.reached(i, i)
            names, left = await changed_since(source.side, record, target.done, meter)  # a command had it open
            if left:
                await target.drop(record, left)
            else:
                left = await target.lost(record, meter)
            if not left:
                break
        copied = Copied(record.partitions, target.keys, sum(files.values()))
        await source.check(mark)
        await target.finish(was, mark.move)
        shutil.rmtree(source.side.work, ignore_errors=True)
    await source.finish(mark)
    await target.forget(mark.move)
    return copied


async def undo(source: Departure, target: Arrival) -> None:
    """Take back a move that is not finished. Raises ConflictError when it is, or when there is none."""
    mark, side, name = await source.under_way(), target.side, target.side.keys.crawl_name
    if raw := await side.raw():
        there = mark_in(raw)
        if move_of(plain_record(raw)) == mark.move and (there is None or there.layout == MOVED):
            raise _arrived(side.place)
        is_removed = there is not None and there.layout == REMOVED  # by this, which was interrupted
        arriving = mark_in(there.was.encode()) if there and is_removed else there
        if arriving and arriving.layout == ARRIVING and arriving.move == mark.move:
            if not is_removed:
                removed = _encode(Mark(layout=REMOVED, was=raw.decode()))
                try:
                    await side.replace(raw, removed)
                except EngineFull:  # often why it is taken back
                    await target.clear()
                    await side.replace(raw, removed)
            await CrawlList(side.engine).erase(name)
    await source.take_back(mark)


async def undo_without_target(source: Departure, bind: Callable[[CrawlRecord], None]) -> CrawlRecord:
    """Take back a move whose target is gone: the crawl gets a new begin, so that nobody takes what is there for it,
    should it come back. `bind`: binds the crawl folder to it. Raises ConflictError when no move is under way.

    Interrupted anywhere, it does the same again: the new begin is when the move began.
    """
    mark, side = await source.under_way(), source.side
    was = record_of(msgspec.json.decode(mark.was))
    record = replace(was, begun_at=max(mark.at, was.begun_at + 1), origin=was.first_begun_at, move="")
    files = side.files_now(was)
    if files is None and await side.spilling(was):
        raise UsageError(NO_FOLDER)
    if files is not None and files.root.is_dir():
        files.root.rename(SpillFiles.root_of(files.root.parent, side.keys.crawl_name, record.begun_at))
    bind(record)
    await source.take_back(mark, _encode(record))
    return record


def _arrived(place: str) -> ConflictError:
    return ConflictError(f"the crawl has arrived at {place}: 'crawler move' from there brings it back")


async def _check(source: Departure, target: Arrival) -> None:
    """Before anything is marked: may the crawl go there?"""
    side = source.side
    if raw := await side.raw():
        if raw == await target.side.raw() and side.engine.run_id == target.side.engine.run_id:
            raise UsageError(f"{target.side.place} is the engine that the crawl is in")
        mark, was = source.mark_of_this(raw), plain_record(raw)
        if mark is None:
            usable_record(side.keys.crawl_name, raw)
        try:
            await target.stand(was, mark.move if mark else "")
        except ConflictError as error:
            raise ConflictError(f"{error}{await _compared(side, target.side)}") from None
        if target.side.spill_folder is None and await side.spilling(record_of(msgspec.json.decode(was))):
            raise UsageError(NO_FOLDER)


async def _compared(one: Side, other: Side) -> str:
    """What both have of the crawl, for people; "" where that can't be told."""
    figures = []
    for side in (one, other):
        raw = await side.raw()
        if raw is None or mark_in(raw) is not None:
            return ""
        try:
            record = usable_record(side.keys.crawl_name, raw)
            counts = await Crawls(side.engine, side.keys).counts(record.partitions)
        except (ConflictError, EngineError):
            return ""
        figures.append(
            f"{side.place} has {sum(c.done for c in counts):,} of {sum(c.added for c in counts):,} URLs done"
        )
    return f". {figures[0]}; {figures[1]}"


async def _copy(source: Side, target: Arrival, record: CrawlRecord, group: int, names: Sequence[bytes]) -> int:
    """Copy a group, and the spill files that it names; how many of those."""
    read, files = Digest(), list[str]()
    await target.write(group, ())  # the mark of one without keys
    async for entries in read_entries(source.engine, source.keys, group, names):
        read.add(entries)
        await target.write(group, entries)
        files += spill_names(entries)
    if files:
        _copy_files(source.files_now(record), target.side.files(record), group, files)
    await target.note(group, read)
    return len(files)


def _copy_files(here: SpillFiles | None, there: SpillFiles | None, partition: int, names: Sequence[str]) -> None:
    if here is None or there is None:
        raise UsageError(NO_FOLDER)
    if here.root != there.root:
        for name in names:
            there.store(partition, name, here.data(partition, name))
