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
import os
import shutil
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any
from zlib import crc32

import msgspec

from crawler.archive.folder import open_private, sync_directory
from crawler.errors import ArchiveError, ConflictError, UsageError
from crawler.frontier.record import record_of, usable_record
from crawler.recovery.copying import CRAWL_WIDE, Digest, Entry, read_entries
from crawler.recovery.move import NO_FOLDER, Arrival, Copied, Side, changed_since, check_stopped, spill_names
from crawler.rules.text import SILENT, Meter
from crawler.settings import MembershipSettings

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGIC = b"crawler-backup 1\n"
_HEAD = struct.Struct("<II")
FRAME_MAX = 1 << 30

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class BackupWriter:
    """A file that has its name once it is complete. Raises ArchiveError and UsageError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open_path = path.with_name(path.name + ".open")
        if path.exists():
            raise UsageError(f"{path} exists: name another file")
        try:
            self._file = os.fdopen(open_private(self._open_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb")
            self._file.write(MAGIC)
        except OSError as error:
            raise ArchiveError(f"can't write {path}: {error.strerror}") from None

    def add(self, *payload: Any) -> None:
        data = zstd.compress(_encode(payload))
        try:
            self._file.write(_HEAD.pack(len(data), crc32(data)) + data)
        except OSError as error:
            raise ArchiveError(f"can't write {self.path}: {error.strerror}") from None

    def finish(self) -> None:
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._open_path.rename(self.path)
            sync_directory(self.path.parent)
        except OSError as error:
            raise ArchiveError(f"can't write {self.path}: {error.strerror}") from None

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()  # writes what is buffered, which a full disk does not take
        with contextlib.suppress(OSError):
            self._open_path.unlink()


def payloads(path: Path) -> Iterator[list[Any]]:
    """What a backup has, from the beginning. Raises UsageError for what is none, and for one that is cut or damaged."""
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise UsageError(f"{path} is not a backup of this program")
            while head := file.read(_HEAD.size):
                yield _payload(path, file, head)
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror}") from None


def _payload(path: Path, file: IO[bytes], head: bytes) -> list[Any]:
    damaged = UsageError(f"{path} is damaged at byte {file.tell() - len(head)}: nothing is restored from it")
    if len(head) < _HEAD.size:
        raise damaged
    length, crc = _HEAD.unpack(head)
    data = file.read(length) if length <= FRAME_MAX else b""
    if len(data) != length or crc32(data) != crc:
        raise damaged
    found: list[Any] = _decode(zstd.decompress(data))
    return found


def check_whole(path: Path) -> list[Any]:
    """The first payload of a backup of which all is there. Raises UsageError."""
    first: list[Any] | None = None
    last: list[Any] = [""]
    for last in payloads(path):
        first = first or last
    if first is None or first[0] != "crawl" or last[0] != "end":
        raise UsageError(f"{path} is cut: nothing is restored from it")
    return first


async def back_up(side: Side, path: Path, membership: MembershipSettings, meter: Meter = SILENT) -> Copied:
    """Write a crawl that nothing runs on into a new file.

    Raises ConflictError when something does, EngineError, ArchiveError, UsageError for a file that exists.
    """
    raw = await side.raw()
    if raw is None:
        raise UsageError(f"{side.place} has no crawl {side.keys.crawl_name!r}")
    record = usable_record(side.keys.crawl_name, raw)
    await check_stopped(side, membership)
    if side.files_now(record) is None and await side.spilling(record):
        raise UsageError(NO_FOLDER)
    writer, keys, files, digests = BackupWriter(path), 0, 0, dict[int, str]()
    try:
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
        if (await changed_since(side, record, digests, meter))[1]:
            raise ConflictError("the crawl changed while it was copied: stop what works on it, and try again")
        writer.add("end", len(groups))
        writer.finish()
    except BaseException:
        writer.discard()
        raise
    finally:
        shutil.rmtree(side.work, ignore_errors=True)
    return Copied(record.partitions, keys, files)


async def restore(path: Path, target: Arrival, meter: Meter = SILENT) -> Copied:
    """Bring back the crawl of a backup, or go on where that was interrupted.

    Raises UsageError for a file that can't be used, ConflictError when the engine has a crawl of that name, EngineError
    and ArchiveError.
    """
    _, name, raw, _ = check_whole(path)
    side = target.side
    if name != side.keys.crawl_name:
        raise UsageError(f"{path} has the crawl {name!r}: add --name {name}")
    record = record_of(msgspec.json.decode(raw))
    spilled, files, names, digest = side.files(record), 0, list[bytes](), Digest()
    if await side.raw() is not None and await target.check(raw) is None:
        raise ConflictError(f"{side.place} has this crawl already: remove it there first ('crawler crawls rm {name}')")
    await target.begin(raw)
    meter.begin("restoring", "partition", record.partitions + 1)  # and what belongs to none
    for kind, group, *rest in payloads(path):
        if kind == "keys" and group not in target.done:
            entries = [Entry(*one) for one in rest[0]]
            digest.add(entries)
            names += [entry.name for entry in entries]
            await target.write(group, entries)
        elif kind == "file" and group not in target.done:
            if spilled is None:
                raise UsageError(NO_FOLDER)
            spilled.store(group, *rest)
            files += 1
        elif kind == "group":
            if group not in target.done:
                await target.note(group, names, digest)
            names, digest = [], Digest()
            meter.reached(len(target.done), len(target.done))
    await target.finish(raw)
    return Copied(record.partitions, target.keys, files)
