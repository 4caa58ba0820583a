"""Reads the index of a crawl folder: all segments merged, each (fingerprint, visit) once; or only what is new.

Of several lines with one key the smallest in byte order counts: the earliest fetch, and among fetches of the same
second the same line for every reader. Works while sessions are writing. Missing files are reported, never skipped
silently.

`new_chunks` follows the index. An open segment is read in order of arrival, up to its last complete line. When it is
sealed it is sorted, so that a place in it means nothing any more: it is read again from the start, and the caller knows
which entries it has had.
"""

import contextlib
import heapq
import mmap
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import IO

import msgspec

from crawler.archive import index, index_writer
from crawler.archive.appender import OPEN_SUFFIX
from crawler.archive.checked_lines import DamagedLine, is_right, whole_lines
from crawler.archive.folder import CrawlFolder, archive_error
from crawler.archive.index import surt, to_entry
from crawler.archive.method_query import MARK
from crawler.archive.scratch import scratch_file
from crawler.model import SITEMAP, CommitEntry

_SITEMAP = b'"label":"%b"' % SITEMAP.encode()
_SUFFIXES = (index_writer.SUFFIX, index_writer.SUFFIX + OPEN_SUFFIX)
# What is in memory of the segments that are merged: of all together, and of each.
BLOCKS_BYTES, BLOCK_MIN, BLOCK_MAX = 64 << 20, 16 << 10, 64 << 10
CHUNK_LINES = 500


class MissingFile(msgspec.Struct, frozen=True):
    """A file that is missing, unreadable or damaged; `entries` of the index need it (0: unknown)."""

    file: str  # relative to the crawl folder
    reason: str
    entries: int = 0


class IndexReader:
    """One pass over the index. `missing` is complete once `entries` is exhausted."""

    def __init__(self, folder: CrawlFolder, *, heard: Callable[[CommitEntry], None] | None = None) -> None:
        """`heard`: called with each line, also with those whose page had one before."""
        self.folder = folder
        self._heard = heard
        self._segments_missing: list[MissingFile] = []
        self._archives_missing: Counter[str] = Counter()
        self._archives_found: set[str] = set()
        self.bytes_read = 0  # of `index_bytes`
        self.unchecked = 0  # lines without a checksum

    @property
    def missing(self) -> list[MissingFile]:
        """All files that could not be read so far."""
        archives = [
            MissingFile(f"{self.folder.warc.name}/{name}", "not found", count)
            for name, count in sorted(self._archives_missing.items())
        ]
        return [*self._segments_missing, *archives]

    @property
    def segments_missing(self) -> list[MissingFile]:
        """Those of the index itself."""
        return list(self._segments_missing)

    def entries(self, *, pruned: bool = False) -> Iterator[CommitEntry]:
        """All committed entries in the order of their SURT keys and times. Memory: one open segment.

        With `pruned`, also what is left of those that were removed.
        """
        names = segment_names(self.folder)
        for name in index_writer.serials_missing(self.folder, names):
            self._report(name, "not found")
        with contextlib.ExitStack() as stack:
            lines = self._merged([n for n in names if not n.endswith(OPEN_SUFFIX)], names, stack)
            yield from (entry for entry in self._first_of_each(lines) if pruned or not entry.pruned)

    def _merged(self, sealed: list[str], names: list[str], stack: contextlib.ExitStack) -> Iterator[bytes]:
        """All lines in byte order."""
        opened = [n for n in names if n.endswith(OPEN_SUFFIX)]
        sources: list[Iterable[bytes]] = [self._sorted_copy(n, stack) for n in opened]
        size = min(BLOCK_MAX, max(BLOCK_MIN, BLOCKS_BYTES // (len(sealed) or 1)))
        sources += [self._lines_of(n, size) for n in sealed]
        return heapq.merge(*sources)

    def _first_of_each(self, lines: Iterable[bytes]) -> Iterator[CommitEntry]:
        for _, group in groupby(lines, key=_key_or_line):
            seen: set[tuple[str, int]] = set()  # one URL has one SURT key, so its lines are all in this group
            for line in group:
                self.bytes_read += len(line)
                entry = index.to_entry(line)
                assert entry is not None, "damaged lines were left out"
                key = (entry.fingerprint, entry.visit)
                if self._heard is not None:
                    self._heard(entry)
                if key not in seen:
                    seen.add(key)
                    self._check_archive(entry)
                    yield entry

    def _check_archive(self, entry: CommitEntry) -> None:
        if entry.warc is None or entry.warc.file in self._archives_found:
            return
        name = entry.warc.file
        if name not in self._archives_missing and archive_path(self.folder, name) is not None:
            self._archives_found.add(name)
        else:
            self._archives_missing[name] += 1

    def _lines_of(self, name: str, size: int) -> Iterator[bytes]:
        """The lines of a sealed segment. It is open only while a block is read, because there may be more segments than
        open files. If it is replaced meanwhile, as by a prune, its lines go on behind the last one.
        """
        path, last, is_other = self.folder.index / name, b"", True
        while is_other:
            check, is_other = index.SegmentCheck(), False
            try:
                for line in self._sound(name, _blocks(path, size), check):
                    if line > last:
                        yield line
                        last = line
            except OSError as error:
                self._report(name, error.strerror or "can't be read to its end")
            except _Replaced:
                is_other = True
            else:
                if flaw := check.flaw():
                    self._report(name, flaw)

    def _sound(self, name: str, lines: Iterable[bytes], check: index.SegmentCheck) -> Iterator[bytes]:
        """The lines of a segment that have an entry; damaged ones are reported."""
        offset = 0
        for number, line in enumerate(lines, 1):
            if check.is_entry(line):
                proof = is_right(line[:-1]) if line.endswith(b"}\n") else False
                if proof or (proof is None and to_entry(line) is not None):
                    self.unchecked += proof is None
                    yield line
                else:
                    self._report(name, str(DamagedLine(number, offset, line)))
            offset += len(line)

    def _sorted_copy(self, name: str, stack: contextlib.ExitStack) -> Iterable[bytes]:
        """An open segment, sorted; its final file if it was sealed meanwhile."""
        try:
            lines = index_writer.written_lines(self.folder.index / name)
            return self._temporary(sorted(self._sound(name, lines, index.SegmentCheck())), stack)
        except FileNotFoundError:
            return self._lines_of(name.removesuffix(OPEN_SUFFIX), BLOCK_MAX)
        except OSError as error:
            self._report(name, error.strerror or "can't be read")
            return ()

    def _temporary(self, lines: Iterable[bytes], stack: contextlib.ExitStack) -> IO[bytes]:
        file = stack.enter_context(scratch_file(self.folder.tmp))
        file.writelines(lines)
        file.seek(0)
        return file

    def _report(self, name: str, reason: str) -> None:
        self._segments_missing.append(MissingFile(f"{self.folder.index.name}/{name}", reason))


class _Replaced(Exception):
    """The file is another one than before."""


def _blocks(path: Path, size: int) -> Iterator[bytes]:
    """The lines of a file, of which a block of this size is read at a time. Raises OSError, _Replaced."""
    offset, inode = 0, 0
    while True:
        with path.open("rb", buffering=size) as file:
            found = os.fstat(file.fileno()).st_ino
            if inode not in (0, found):
                raise _Replaced
            inode = found
            file.seek(offset)
            lines = file.readlines(size)
        if not lines:
            return
        offset += sum(map(len, lines))
        yield from lines


def read_entries(folder: CrawlFolder) -> Iterator[CommitEntry]:
    """All committed entries, each (fingerprint, visit) once."""
    return IndexReader(folder).entries()


def find_url(folder: CrawlFolder, url: str) -> list[CommitEntry]:
    """The entries of one canonical URL, one per visit, oldest first. Binary search in the sorted segments.

    Answers to other requests than GET are among the lines of all queries of its path: their names are sorted.
    """
    key = surt(url).encode()
    prefixes = {key + b" ": b"", key.partition(b"?")[0] + b"?": MARK}
    lines: list[bytes] = []
    for name in segment_names(folder):
        path = folder.index / name
        with contextlib.suppress(OSError):
            if name.endswith(OPEN_SUFFIX):
                written, wanted = index_writer.sorted_lines(path), prefixes.items()
                lines += [
                    one for one in written if any(one.startswith(begin) and mark in one for begin, mark in wanted)
                ]
            else:
                lines += _lines_with(path, prefixes)
    found: dict[tuple[str, int], CommitEntry] = {}
    for line in sorted(lines):
        entry = index.to_entry(line)
        if entry is not None and entry.url == url:
            found.setdefault((entry.fingerprint, entry.visit), entry)
    return sorted(found.values(), key=lambda entry: entry.fetched_at)


def sitemaps_beside(folder: CrawlFolder, url: str) -> list[CommitEntry]:
    """The sitemaps that were fetched from the host of a canonical URL, the newest first; those in closed segments."""
    host = surt(url).encode().partition(b"/")[0] + b"/"
    lines: list[bytes] = []
    for name in segment_names(folder):
        if not name.endswith(OPEN_SUFFIX):
            with contextlib.suppress(OSError):
                lines += _lines_with(folder.index / name, {host: _SITEMAP})
    found = [entry for line in lines if (entry := index.to_entry(line)) is not None and entry.is_sitemap]
    return sorted(found, key=lambda entry: -entry.fetched_at)


def archive_path(folder: CrawlFolder, name: str) -> Path | None:
    """The path of the WARC file with this final name, which may still be open; None when it can't be found."""
    for candidate in (folder.warc / name, folder.warc / (name + OPEN_SUFFIX), folder.warc / name):
        if candidate.exists():  # tried twice, because it may be renamed in between
            return candidate
    return None


def unchecked_text(lines: int) -> str:
    """What is said, once, of an index that earlier releases wrote."""
    return f"{lines:,} lines of the index have no checksum (an earlier release wrote them): damage may go unnoticed"


def segment_names(folder: CrawlFolder) -> list[str]:
    """File names of all segments, open and sealed. Lists until two listings agree, because one may be renamed."""
    before: list[str] = []
    while True:
        names = sorted(name for name in os.listdir(folder.index) if name.endswith(_SUFFIXES))  # noqa: PTH208 (of 30,000 names)
        if names == before:
            return names
        before = names


def index_bytes(folder: CrawlFolder) -> int:
    """The size of all segments: what a reader has before it."""
    found = 0
    for name in segment_names(folder):
        with contextlib.suppress(OSError):
            found += (folder.index / name).stat().st_size
    return found


def sessions_of(folder: CrawlFolder) -> frozenset[str]:
    """The sessions that wrote an index, and so their records, into this folder."""
    stems = (name.removesuffix(OPEN_SUFFIX).removesuffix(index_writer.SUFFIX) for name in segment_names(folder))
    return frozenset(stem.rpartition("-")[0] for stem in stems)


def _key_or_line(line: bytes) -> bytes:
    return line.partition(b" ")[0]


def lines_before(path: Path, prefix: bytes, *, holding: bytes, lines_max: int) -> Iterator[bytes]:
    """Lines of a sorted file that begin with the prefix and have these bytes, the last first; among so many lines with
    the prefix. Raises OSError, and ValueError for an empty file.
    """
    with path.open("rb") as file, _mapped(file) as data:
        end = _place_of(data, prefix[:-1] + bytes([prefix[-1] + 1]))
        for _ in range(lines_max):
            start = data.rfind(b"\n", 0, max(0, end - 1)) + 1
            line = data[start:end]
            if not line.startswith(prefix):
                return
            if holding in line:
                yield line
            end = start


def _mapped(file: IO[bytes]) -> mmap.mmap:
    """A file for a binary search: without this advice, each look at another place reads 128 KB."""
    data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    data.madvise(mmap.MADV_RANDOM)
    return data


def _place_of(data: mmap.mmap, key: bytes) -> int:
    """Where the first line begins that is not before the key, in lines that are sorted."""
    low, high = 0, len(data)
    while low < high:  # both at the start of a line
        middle = data.rfind(b"\n", low, (low + high) // 2) + 1 or low
        end = data.find(b"\n", middle) + 1 or len(data)
        if data[middle : min(end, middle + len(key))] < key:
            low = end
        else:
            high = middle
    return low


def _lines_with(path: Path, prefixes: Mapping[bytes, bytes]) -> Sequence[bytes]:
    """Lines of a sorted file that begin with one of the prefixes, and have the bytes that are given with it."""
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            return []
        with _mapped(file) as data:
            found = []
            for prefix, holding in prefixes.items():
                data.seek(_place_of(data, prefix))
                while (line := data.readline()).startswith(prefix):
                    if holding in line:
                        found.append(line)
            return found


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """How far a segment has been read: bytes of its open or its sealed file. `is_done`: read completely."""

    offset: int = 0
    is_sealed: bool = False
    is_done: bool = False


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of one segment, by its final name, and the place after them. `damaged`: lines, or the segment itself."""

    segment: str
    entries: list[CommitEntry]
    place: Place
    damaged: int = 0


def new_chunks(folder: CrawlFolder, places: Mapping[str, Place]) -> Iterator[Chunk]:
    """The entries after these places, in chunks, one segment after the other; not those that were pruned.

    Raises ArchiveError. Damaged lines are left out and counted: exports and audits report them. A sealed segment is
    read from its first line to its footer, so that it counts as damaged when it is not what was written.
    """
    names = segment_names(folder)
    sealed = {name for name in names if not name.endswith(OPEN_SUFFIX)}
    for name in sorted(sealed | {name.removesuffix(OPEN_SUFFIX) for name in names}):
        place = places.get(name, Place())
        if not place.is_done:
            yield from _chunks_of(folder, name, place, is_sealed=name in sealed)


def _chunks_of(folder: CrawlFolder, name: str, place: Place, *, is_sealed: bool) -> Iterator[Chunk]:
    path = folder.index / (name if is_sealed else name + OPEN_SUFFIX)
    offset = place.offset if not is_sealed and not place.is_sealed else 0
    check = index.SegmentCheck()
    try:
        with path.open("rb") as file:
            file.seek(offset)
            whole = whole_lines(file)
            while lines := list(islice(whole, CHUNK_LINES)):
                offset += sum(map(len, lines))
                lines = list(filter(check.is_entry, lines))
                found = [entry for entry in map(to_entry, lines) if entry is not None]
                place, damaged = Place(offset=offset, is_sealed=is_sealed), len(lines) - len(found)
                entries = [entry for entry in found if not entry.pruned]
                yield Chunk(segment=name, entries=entries, place=place, damaged=damaged)
    except FileNotFoundError:
        return  # sealed meanwhile: the next call finds it
    except OSError as error:
        raise archive_error("read", path, error) from None
    if is_sealed:
        place, damaged = Place(offset=offset, is_sealed=True, is_done=True), int(bool(check.flaw()))
        yield Chunk(segment=name, entries=[], place=place, damaged=damaged)
