"""A crawl moves to another engine, or into a file and back. Nothing may run on it meanwhile.

The record decides where a crawl is. A move first puts a mark in its place, so that nobody goes on in the old engine,
and another mark in the new one. It copies the keys by partition, compares each copy's digest with what was read, and
notes it there (`moving`). The record comes last; from then on the crawl is in the new engine. A move that was
interrupted anywhere goes on from the last partition that was noted.
"""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from crawler.archive.folder import archive_error, make_private
from crawler.archive.spill_files import SpillFiles
from crawler.engine.client import Engine
from crawler.errors import ConflictError, EngineError, NoCrawlError, UsageError
from crawler.frontier.codec import pairs_of
from crawler.frontier.members import Members
from crawler.frontier.record import (
    ARRIVING,
    CRAWLS,
    MOVED,
    CrawlList,
    CrawlRecord,
    Crawls,
    Keys,
    Mark,
    mark_in,
    record_of,
    usable_record,
)
from crawler.membership.peers import check_no_instance_runs, is_lock_free
from crawler.recovery.copying import (
    CRAWL_WIDE,
    RECORD,
    Digest,
    Entry,
    KeyNames,
    digest_of,
    read_entries,
    tagged,
    write_entries,
)
from crawler.rules.text import SILENT, Meter
from crawler.settings import MembershipSettings

NO_FOLDER = (
    "URLs of this crawl are in files: name a folder for them that all machines can reach, with --set "
    "frontier.spill_folder=DIR"
)

_encode = msgspec.json.Encoder().encode


class Copied(NamedTuple):
    """What a move, a backup or a restore has copied since it was started or went on."""

    partitions: int
    keys: int
    spill_files: int


@dataclass(frozen=True, kw_only=True)
class Side:
    """An engine at one end. `place`: as people are told it; `spill_folder`: where its crawls keep URLs on disk, or None
    when no folder is named; `spill_before`: where they may have kept them until now; `work`: a folder for files of this
    move.
    """

    engine: Engine
    keys: Keys
    place: str
    spill_folder: Path | None
    work: Path
    spill_before: Path | None = None

    async def raw(self) -> bytes | None:
        """What is stored in the place of the record."""
        found: bytes | None = await self.engine.command("HGET", self.keys.crawl, "record")
        return found

    async def replace(self, seen: bytes, record: bytes) -> None:
        await CrawlList(self.engine).replace(self.keys.crawl_name, seen, record)

    def files(self, record: CrawlRecord) -> SpillFiles | None:
        if self.spill_folder is None:
            return None
        return SpillFiles(SpillFiles.root_of(self.spill_folder, self.keys.crawl_name, record.begun_at), "")

    def files_now(self, record: CrawlRecord) -> SpillFiles | None:
        """Where the files are that a crawl has already."""
        before = self.spill_before
        if before is not None and (root := SpillFiles.root_of(before, self.keys.crawl_name, record.begun_at)).is_dir():
            return SpillFiles(root, "")
        return self.files(record)

    async def names(self, record: CrawlRecord) -> KeyNames:
        """Of all keys of the crawl. Raises ConflictError, EngineError and ArchiveError."""
        shutil.rmtree(self.work, ignore_errors=True)
        names = KeyNames(self.keys, self.work)
        try:
            make_private(self.work, parents=True)
            await names.read(self.engine, record.partitions)
        except OSError as error:
            raise archive_error("write", self.work, error) from None
        return names

    async def spilling(self, record: CrawlRecord) -> bool:
        """Are URLs of the crawl in files?"""
        asked = [("EXISTS", self.keys.of(p, "files")) for p in range(record.partitions)]
        return any(await self.engine.commands(asked))


def spill_names(entries: Iterable[Entry]) -> list[str]:
    """The spill files that a partition's entries name."""
    return [name.decode() for entry in entries if entry.name == b"files" for name, _ in entry.value]


async def check_stopped(side: Side, membership: MembershipSettings) -> None:
    """Raises ConflictError while an instance or a command that adds seeds works on the crawl."""
    await check_no_instance_runs(Members(side.engine, side.keys), is_lock_free, membership, may_seed=False)


async def changed_since(
    side: Side, record: CrawlRecord, digests: Mapping[int, str], meter: Meter
) -> tuple[KeyNames, list[int]]:
    """All names as they are now, and the groups whose digests are others. Raises as `names`."""
    meter.begin("comparing", "partition", len(digests))
    names, changed = await side.names(record), list[int]()
    for i, (group, before) in enumerate(digests.items(), 1):
        if (await digest_of(side.engine, side.keys, group, names.of(group))).text != before:
            changed.append(group)
        meter.reached(i, i)
    return names, changed


class Arrival:
    """The end where a crawl arrives, from a place. `done`: the digest of each group that is here already."""

    def __init__(self, side: Side, came_from: str) -> None:
        self.side = side
        self._from = came_from
        self.done: dict[int, str] = {}
        self.keys = 0

    async def check(self, was: bytes) -> Mark | None:
        """The mark that stands here, or None for nothing or the crawl itself. Raises ConflictError for another crawl,
        and for one that is not to come here.
        """
        side = self.side
        if (raw := await side.raw()) is None:
            return None
        mark = mark_in(raw)
        if not _is_same(mark.was.encode() if mark else raw, was):
            raise ConflictError(
                f"{side.place} has another crawl {side.keys.crawl_name!r}: take another engine, or remove it there"
            )
        if mark and mark.layout != ARRIVING and not (mark.layout == MOVED and mark.is_done):
            raise ConflictError(f"the crawl {side.keys.crawl_name!r} of {side.place} {mark.why(side.keys.crawl_name)}")
        return mark

    async def begin(self, was: bytes) -> bool:
        """Put a mark here; False when the crawl has arrived already. Raises ConflictError as `check`."""
        side, engine = self.side, self.side.engine
        mark = await self.check(was)
        arriving = _encode(Mark(layout=ARRIVING, was=was.decode(), place=self._from))
        await engine.commands([("SADD", CRAWLS, side.keys.crawl_name), ("HSETNX", side.keys.crawl, "record", arriving)])
        if mark and mark.layout == MOVED:  # it comes back
            await self._clear()
            await side.replace(_encode(mark), arriving)
        raw = await side.raw()
        if raw is None or (mark_in(raw) is None and not _is_same(raw, was)):
            raise ConflictError(f"the record of crawl {side.keys.crawl_name!r} was changed at this moment: try again")
        if mark_in(raw) is None:  # it was interrupted after that
            await engine.command("UNLINK", side.keys.moving)
            return False
        found = await engine.command("HGETALL", side.keys.moving)
        self.done = {int(group): digest.decode() for group, digest in pairs_of(found)}
        return True

    async def _clear(self) -> None:
        """Delete what is left of the time before the crawl moved away from here, but for the mark."""
        engine, keys = self.side.engine, self.side.keys
        async for some in engine.scan(keys.pattern):
            await engine.commands([("UNLINK", key) for key in some if key != keys.crawl.encode()])
        fields = [field for field, _ in pairs_of(await engine.command("HGETALL", keys.crawl)) if field != RECORD[1]]
        if fields:
            await engine.command("HDEL", keys.crawl, *fields)

    async def write(self, group: int, entries: Sequence[Entry]) -> None:
        await write_entries(self.side.engine, self.side.keys, group, entries)

    async def drop(self, group: int, names: Sequence[bytes]) -> None:
        """Delete keys of a group that is to be copied again; what is crawl-wide is only overwritten."""
        if group != CRAWL_WIDE:
            await self.side.engine.commands([("UNLINK", tagged(self.side.keys, group, name)) for name in names])

    async def note(self, group: int, names: Sequence[bytes], read: Digest) -> None:
        """A group is here as it was read. Raises EngineError when it is not."""
        here = await digest_of(self.side.engine, self.side.keys, group, names)
        if (here.text, here.keys) != (read.text, read.keys):
            what = "what is crawl-wide" if group == CRAWL_WIDE else f"partition {group}"
            raise EngineError(f"the copy of {what} differs from what was read: try again")
        await self.side.engine.command("HSET", self.side.keys.moving, group, read.text)
        self.done[group] = read.text
        self.keys += read.keys

    async def finish(self, was: bytes) -> None:
        """From here on the crawl is in this engine, if all of it is."""
        side = self.side
        record = record_of(msgspec.json.decode(was))
        lacking = {CRAWL_WIDE, *range(record.partitions)} - self.done.keys()
        if lacking:
            raise EngineError(f"{len(lacking)} partitions have not been copied")
        await Crawls(side.engine, side.keys).mark_partitions(record.partitions)
        raw = await side.raw()
        if raw is None or mark_in(raw) is None:
            raise ConflictError(f"the record of crawl {side.keys.crawl_name!r} was changed at this moment: try again")
        await side.replace(raw, was)
        await side.engine.command("UNLINK", side.keys.moving)


class Departure:
    """The end that a crawl leaves, towards a place."""

    def __init__(self, side: Side, goes_to: str, membership: MembershipSettings) -> None:
        self.side = side
        self._to = goes_to
        self._membership = membership

    async def begin(self) -> bytes:
        """The record, in whose place the mark is now. Raises NoCrawlError, and ConflictError when it can't leave."""
        side, name = self.side, self.side.keys.crawl_name
        raw = await side.raw()
        if raw is None:
            raise NoCrawlError(f"{side.place} has no crawl {name!r}")
        mark = mark_in(raw)
        if mark and mark.layout == MOVED and not mark.is_done and mark.place == self._to:
            return mark.was.encode()
        usable_record(name, raw)
        await check_stopped(side, self._membership)
        marked = _encode(Mark(layout=MOVED, was=raw.decode(), place=self._to))
        await side.replace(raw, marked)
        try:
            await check_stopped(side, self._membership)  # nobody joined meanwhile
        except ConflictError:
            await side.replace(marked, raw)
            raise
        return raw

    async def finish(self, was: bytes) -> None:
        """Nobody goes on here any more."""
        raw = await self.side.raw()
        if raw is not None and (mark := mark_in(raw)) and not mark.is_done:
            await self.side.replace(raw, _encode(Mark(layout=MOVED, was=was.decode(), place=self._to, is_done=True)))

    async def take_back(self) -> None:
        """The record is in its place again. Raises ConflictError when no move is under way."""
        raw = await self.side.raw()
        mark = mark_in(raw) if raw else None
        if raw is None or mark is None or mark.layout != MOVED or mark.is_done or mark.place != self._to:
            raise ConflictError(f"no move of the crawl {self.side.keys.crawl_name!r} to {self._to} is under way")
        await self.side.replace(raw, mark.was.encode())


async def move(source: Departure, target: Arrival, meter: Meter = SILENT) -> Copied:
    """Move the crawl, or go on with a move that was interrupted.

    Raises ConflictError, EngineError, NoCrawlError, UsageError when no folder is known for URLs on disk, ArchiveError.
    """
    await _check(source.side, target)
    was = await source.begin()
    copied = Copied(0, 0, 0)
    if await target.begin(was):
        record = record_of(msgspec.json.decode(was))
        meter.begin("listing keys")
        names, groups, files = await source.side.names(record), [*range(record.partitions), CRAWL_WIDE], 0
        left = [group for group in groups if group not in target.done]
        meter.begin("copying", "partition", len(left))
        for i, group in enumerate(left, 1):
            files += await _copy(source.side, target, record, group, names.of(group))
            meter.reached(i, i)
        while (found := await changed_since(source.side, record, target.done, meter))[1]:  # a command had it open
            names, there = found[0], await target.side.names(record)
            for group in found[1]:
                await target.drop(group, there.of(group))
                await _copy(source.side, target, record, group, names.of(group))
        copied = Copied(record.partitions, target.keys, files)
        shutil.rmtree(source.side.work, ignore_errors=True)
        await target.finish(was)
    await source.finish(was)
    return copied


async def undo(source: Departure, target: Arrival) -> None:
    """Take back a move that is not finished. Raises ConflictError when it is, or when there is none."""
    raw = await target.side.raw()
    mark = mark_in(raw) if raw else None
    here = await source.side.raw()
    left = mark_in(here) if here else None
    if left and raw and mark is None and _is_same(raw, left.was.encode()):
        raise ConflictError(f"the crawl has arrived at {target.side.place}: 'crawler move' from there brings it back")
    if left and mark and mark.layout == ARRIVING and _is_same(mark.was.encode(), left.was.encode()):
        crawls, name = CrawlList(target.side.engine), target.side.keys.crawl_name
        await crawls.mark(name)
        await crawls.erase(name)
    await source.take_back()


async def _check(source: Side, target: Arrival) -> None:
    """Before anything is marked: may the crawl go there?"""
    if raw := await source.raw():
        if raw == await target.side.raw() and source.engine.run_id == target.side.engine.run_id:
            raise UsageError(f"{target.side.place} is the engine that the crawl is in")
        mark = mark_in(raw)
        was = mark.was.encode() if mark else raw
        await target.check(was)
        if target.side.spill_folder is None and await source.spilling(record_of(msgspec.json.decode(was))):
            raise UsageError(NO_FOLDER)


async def _copy(source: Side, target: Arrival, record: CrawlRecord, group: int, names: Sequence[bytes]) -> int:
    """Copy a group, and the spill files that it names; how many of those."""
    read, files = Digest(), list[str]()
    async for entries in read_entries(source.engine, source.keys, group, names):
        read.add(entries)
        await target.write(group, entries)
        files += spill_names(entries)
    if files:
        _copy_files(source.files_now(record), target.side.files(record), group, files)
    await target.note(group, names, read)
    return len(files)


def _copy_files(here: SpillFiles | None, there: SpillFiles | None, partition: int, names: Sequence[str]) -> None:
    if here is None or there is None:
        raise UsageError(NO_FOLDER)
    if here.root != there.root:
        for name in names:
            there.store(partition, name, here.data(partition, name))


def _is_same(one: bytes, other: bytes) -> bool:
    """Are these records of the same crawl?"""
    first, second = msgspec.json.decode(one), msgspec.json.decode(other)
    return bool(first.get("begun_at") == second.get("begun_at") and first.get("hash_key") == second.get("hash_key"))
