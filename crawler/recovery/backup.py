"""What the engine has of a crawl, in one file: for another engine, of whatever product and version.

    crawler-backup 1 LF, then frames: length and CRC-32 of the payload (both u32, little-endian), payload

A payload is msgpack in zstd, one of

    ["crawl", name, record, time of the backup (s)]     the first
    ["keys", group, [[name, type, value], ...]]         entries of a partition, or of what is crawl-wide (-1)
    ["file", partition, name, data]                     a spill file that the partition names
    ["group", group, keys, digest]                      after all that belongs to a group
    ["end", groups]                                     the last: without it the file was cut
"""

import contextlib
import fcntl
import os
import shutil
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, NamedTuple
from zlib import crc32

import msgspec

from crawler import disk_sync
from crawler.archive.folder import open_private, sync_directory
from crawler.archive.spill_files import SpillFiles
from crawler.errors import ArchiveError, ConflictError, UsageError
from crawler.frontier.record import CrawlRecord, mark_in, usable_record
from crawler.recovery.arrival import Arrival, is_same, move_of
from crawler.recovery.copying import CRAWL_WIDE, Digest, Entry, name_of, read_entries
from crawler.recovery.pause import Pause
from crawler.recovery.side import NO_FOLDER, Copied, Side, changed_since, check_stopped, spill_names
from crawler.rules.progress import SILENT, Meter
from crawler.settings import MembershipSettings

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGIC = b"crawler-backup 1\n"
_HEAD = struct.Struct("<II")
FRAME_MAX = 1 << 30

ID_BYTES = 8
STDOUT = Path("-")
TRIES = 3  # while a crawl is paused, and changes nevertheless

_encode = msgspec.msgpack.Encoder().encode


class BackupWriter:
    """A file that has its name once it is complete; or standard output, which nobody can take back.

    Raises ArchiveError, also where nobody reads, and UsageError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_stream = path == STDOUT
        if self.is_stream:
            self._file = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
            self._write(MAGIC)
            return
        self._check_new()
        self._open_path = path.with_name(path.name + ".open")
        try:
            self._file = os.fdopen(open_private(self._open_path, os.O_WRONLY | os.O_CREAT), "wb")
        except OSError as error:
            raise ArchiveError(f"can't write {path}: {error.strerror}") from None
        try:
            self._lock()
            self._check_new()  # another one may just have ended, and this be its file
        except UsageError:
            self._file.close()
            raise
        self.again()  # what one that was killed has left is there

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another backup is being written to {self.path}: name another file") from None
        except OSError:
            pass  # a file system without locks

    def _check_new(self) -> None:
        if self.path.exists():  # a folder, too
            raise UsageError(f"{self.path} exists: name another file")

    def _write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise self._failed(error) from None

    def _failed(self, error: OSError) -> ArchiveError:
        where = "standard output" if self.is_stream else self.path
        return ArchiveError(f"can't write {where}: {error.strerror}: there is no backup")

    def add(self, *payload: Any) -> None:
        data = zstd.compress(_encode(payload))
        self._write(_HEAD.pack(len(data), crc32(data)) + data)

    def again(self) -> bool:
        """Begin again from the start; False where what was written can't be taken back."""
        if self.is_stream:
            return False
        try:
            self._file.seek(0)
            self._file.truncate()
        except OSError as error:
            raise self._failed(error) from None
        self._write(MAGIC)
        return True

    def finish(self) -> None:
        try:
            self._file.flush()
            if self.is_stream:
                self._file.close()
                return
            disk_sync.sync(self._file.fileno())
            self._file.close()
            self._open_path.rename(self.path)
            sync_directory(self.path.parent)
        except OSError as error:
            raise self._failed(error) from None

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()  # writes what is buffered, which a full disk does not take
        with contextlib.suppress(OSError):
            if not self.is_stream:
                self._open_path.unlink()


class _Crawl(msgspec.Struct, frozen=True, array_like=True, tag="crawl"):
    name: str
    raw: bytes
    at: float


class _Keys(msgspec.Struct, frozen=True, array_like=True, tag="keys"):
    group: int
    entries: list[Entry]


class _File(msgspec.Struct, frozen=True, array_like=True, tag="file"):
    group: int
    name: str
    data: bytes


class _Group(msgspec.Struct, frozen=True, array_like=True, tag="group"):
    group: int
    keys: int
    digest: str


class _End(msgspec.Struct, frozen=True, array_like=True, tag="end"):
    groups: int


_Payload = _Crawl | _Keys | _File | _Group | _End
_decode = msgspec.msgpack.Decoder(_Payload).decode


class BackupReader:
    """A backup that is open. Raises UsageError for what is none, and for one that is cut or damaged."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path = path
        self._file = file

    def payloads(self) -> Iterator[_Payload]:
        """All, from the beginning."""
        try:
            self._file.seek(0)
            if self._file.read(len(MAGIC)) != MAGIC:
                raise UsageError(f"{self.path} is not a backup of this program")
            while head := self._file.read(_HEAD.size):
                yield self._payload(head)
        except OSError as error:
            raise UsageError(f"can't read {self.path}: {error.strerror}") from None

    def _payload(self, head: bytes) -> _Payload:
        at = self._file.tell() - len(head)
        if len(head) == _HEAD.size:
            length, crc = _HEAD.unpack(head)
            data = self._file.read(length) if length <= FRAME_MAX else b""
            if len(data) == length and crc32(data) == crc:
                with contextlib.suppress(zstd.ZstdError, msgspec.MsgspecError):
                    found: _Payload = _decode(zstd.decompress(data))
                    return found
        raise self.unfit(f"is damaged at byte {at}")

    def unfit(self, why: str) -> UsageError:
        return UsageError(f"{self.path} {why}: nothing is restored from it")


class Backup(NamedTuple):
    """What a backup has, all of which was checked. `id`: no other backup has it."""

    name: str
    raw: bytes  # the record
    record: CrawlRecord
    digests: Mapping[int, str]  # by group
    has_files: bool
    id: str


def check_whole(reader: BackupReader) -> Backup:
    """Read all: each group of the crawl is there once, with the keys, the digest and the files that it names.

    Raises UsageError, and ConflictError for a crawl of another release.
    """
    found = reader.payloads()
    crawl = next(found, None)
    if not isinstance(crawl, _Crawl):
        raise reader.unfit("is cut")
    record = usable_record(crawl.name, crawl.raw)
    digests, digest, group, has_files = dict[int, str](), Digest(), None, False
    named, given, last = list[str](), list[str](), None
    for one in found:
        last = one
        if isinstance(one, _End):
            break
        if isinstance(one, _Crawl) or one.group in digests or group not in (None, one.group):
            raise reader.unfit("has parts that do not belong together")
        group = one.group
        match one:
            case _Keys():
                digest.add(one.entries)
                named += spill_names(one.entries)
            case _File():
                given.append(one.name)
            case _Group():
                if (one.keys, one.digest, named) != (digest.keys, digest.text, given):
                    raise reader.unfit(f"lacks a part of {name_of(group)}")
                digests[group], has_files = digest.text, has_files or bool(given)
                digest, group, named, given = Digest(), None, [], []
    if not isinstance(last, _End) or next(found, None) is not None or group is not None:
        raise reader.unfit("is cut")
    if digests.keys() != {CRAWL_WIDE, *range(record.partitions)}:
        raise reader.unfit(f"has {len(digests)} of {record.partitions + 1} parts of the crawl")
    identity = blake2b(_encode((crawl, sorted(digests.items()))), digest_size=ID_BYTES).hexdigest()
    return Backup(crawl.name, crawl.raw, record, digests, has_files, identity)


async def back_up(
    side: Side, path: Path, membership: MembershipSettings, meter: Meter = SILENT, *, pause: Pause | None = None
) -> Copied:
    """Write a crawl that nothing runs on, or whose instances `pause` has stand still, into a new file or to standard
    output. What it is compared with at the end proves that nothing changed meanwhile.

    Raises ConflictError when something did, EngineError, ArchiveError, UsageError for a file that exists.
    """
    raw = await side.raw()
    if raw is None:
        raise UsageError(f"{side.place} has no crawl {side.keys.crawl_name!r}")
    record = usable_record(side.keys.crawl_name, raw)
    if pause is None:
        try:
            await check_stopped(side, membership)
        except ConflictError as error:
            raise ConflictError(f"{error}, or add --pause") from None
    if side.files_now(record) is None and await side.spilling(record):
        raise UsageError(NO_FOLDER)
    writer = BackupWriter(path)
    try:
        async with pause.held(meter) if pause else contextlib.nullcontext():
            for _ in range(TRIES if pause else 1):
                copied, digests = await _copy(side, record, raw, writer, meter)
                if not (changed := (await changed_since(side, record, digests, meter))[1]):
                    break
                if pause:
                    await pause.settle()  # a command wrote, or an instance left: once more
                if not writer.again():
                    break
        if changed:
            raise ConflictError("the crawl changed while it was copied: stop what works on it, and try again")
        writer.add("end", len(digests))
        writer.finish()
    except BaseException:
        writer.discard()
        raise
    finally:
        shutil.rmtree(side.work, ignore_errors=True)
    return copied


async def _copy(
    side: Side, record: CrawlRecord, raw: bytes, writer: BackupWriter, meter: Meter
) -> tuple[Copied, dict[int, str]]:
    """Write all groups; their digests."""
    keys, files, digests = 0, 0, dict[int, str]()
    meter.begin("listing keys")
    names, spilled = await side.names(record), side.files_now(record)
    writer.add("crawl", side.keys.crawl_name, raw, time.time())
    groups = [*range(record.partitions), CRAWL_WIDE]
    meter.begin("copying", "partition", len(groups))
    for i, group in enumerate(groups, 1):
        digest = Digest()
        async for entries in read_entries(side.engine, side.keys, group, names.of(group)):
            digest.add(entries)
            writer.add("keys", group, entries)
            for name in spill_names(entries) if spilled else ():
                writer.add("file", group, name, spilled.data(group, name) if spilled else b"")
                files += 1
        writer.add("group", group, digest.keys, digest.text)
        digests[group] = digest.text
        keys += digest.keys
        meter.reached(i, i)
    return Copied(record.partitions, keys, files), digests


async def restore(path: Path, target: Arrival, meter: Meter = SILENT, *, renames: bool = False) -> Copied:
    """Bring back the crawl of a backup, or go on where that was interrupted. Nothing is written before all is checked.
    `renames`: under the name of the target, whatever it was called.

    Raises UsageError for a file that can't be used, ConflictError when the engine has a crawl of that name, or a part
    of another backup, EngineError and ArchiveError.
    """
    side = target.side
    with _opened(path) as reader:
        backup = check_whole(reader)
        if backup.name != side.keys.crawl_name and not renames:
            raise UsageError(
                f"{path} has the crawl {backup.name!r}: add --name {backup.name}, or another name for the copy"
            )
        files = side.files(backup.record)
        if files is None and backup.has_files:
            raise UsageError(NO_FOLDER)
        there = await side.raw()
        if there is not None and mark_in(there) is None and move_of(there) != backup.id:
            which, name = "this" if is_same(there, backup.raw) else "another", side.keys.crawl_name
            raise ConflictError(
                f"{side.place} has {which} crawl already: remove it there first ('crawler crawls rm {name}')"
            )
        if not await target.begin(backup.raw, backup.id):  # all but the last word was written
            await target.forget(backup.id)
            return Copied(0, 0, 0)
        left, stored = [group for group in backup.digests if group not in target.done], dict[int, int]()
        while True:
            meter.begin("restoring", "partition", len(left))
            stored |= await _write(reader, backup, target, files, {*left}, meter)
            if not (left := await target.lost(backup.record, meter)):
                break
        await target.finish(backup.raw, backup.id)
    await target.forget(backup.id)
    return Copied(backup.record.partitions, target.keys, sum(stored.values()))


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BackupReader]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror}") from None
    with file:
        yield BackupReader(path, file)


async def _write(
    reader: BackupReader, backup: Backup, target: Arrival, files: SpillFiles | None, wanted: set[int], meter: Meter
) -> dict[int, int]:
    """Write these groups; the number of files of each."""
    digest, stored, number = Digest(), dict[int, int](), 0
    for one in reader.payloads():
        if isinstance(one, _Crawl | _End) or one.group not in wanted:
            continue
        match one:
            case _Keys():
                digest.add(one.entries)
                await target.write(one.group, one.entries)
            case _File() if files is not None:
                files.store(one.group, one.name, one.data)
                stored[one.group] = stored.get(one.group, 0) + 1
            case _Group():
                if digest.text != backup.digests[one.group]:
                    raise UsageError(f"{reader.path} changed while it was read: restore a copy that nobody writes to")
                await target.write(one.group, ())  # the mark of one without keys
                await target.note(one.group, digest)
                digest, number = Digest(), number + 1
                meter.reached(number, number)
    return stored
