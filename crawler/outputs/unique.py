"""Which pages of an export are duplicates of others, and of which: `crawler export --unique`.

Two passes. The first copies the index lines of all pages that the export would have into a scratch file, with what they
are compared by in arrays; then they are grouped (`near_groups`), and the second reads the copy, so that a crawl that
goes on meanwhile changes nothing. The one of a group that is kept is the lowest by (depth, fetched, URL), whatever the
order of files.

A page takes part if it has content (`records.has_content`). All others are no duplicates of anything: their bodies say
nothing, or nobody knows all of them. `EXACT` joins pages with the same digest; `NEAR` those, and pages whose
fingerprints are near.

Memory: 52 bytes a page and some 100 MB. Scratch: the index lines, without checksums.
"""

import contextlib
import enum
import hashlib
import os
from array import array
from collections.abc import Callable, Iterable, Iterator

import msgspec

from crawler.archive.folder import CrawlFolder, archive_error
from crawler.archive.scratch import scratch_file
from crawler.model import CommitEntry
from crawler.outputs.near_groups import STEPS, Groups, join_equal, join_near
from crawler.outputs.records import has_content
from crawler.rules.progress import SILENT, Meter

PULSE_PAGES = 16
DEPTH_MAX = (1 << 12) - 1  # of an order that fits in 64 bits; what is deeper is compared in full
_TIME_MAX = (1 << 52) - 1  # microseconds: until 2112
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(CommitEntry).decode


class How(enum.StrEnum):
    EXACT = "exact"
    NEAR = "near"


class Page(msgspec.Struct, frozen=True, gc=False):
    """A page of the export: its entry, its fingerprint (0: none) and the URL whose duplicate it is ("": of none)."""

    entry: CommitEntry
    fingerprint: int = 0
    duplicate_of: str = ""


class Counts(msgspec.Struct, kw_only=True):
    """What was found."""

    groups: int = 0  # of two pages and more
    duplicates: int = 0  # all of these but one each
    without: int = 0  # pages that take part, without a fingerprint: of too little text, or unreadable
    crowded: int = 0  # pages some of whose near ones may have been missed: too many were alike


class Duplicates:
    """The pages of one export. `fingerprint`: of a page, 0 for none; only called for `NEAR`."""

    def __init__(self, folder: CrawlFolder, how: How, fingerprint: Callable[[CommitEntry], int] = lambda _: 0) -> None:
        self.how, self.counts = how, Counts()
        self._fingerprint, self._folder = fingerprint, folder
        self._offsets, self._orders, self._prints = array("Q", [0]), array("Q"), array("Q")
        try:
            self._file = scratch_file(folder.tmp)
        except OSError as error:
            raise archive_error("write", folder.tmp, error) from None

    @property
    def scratch_bytes(self) -> int:
        """How large the scratch file is."""
        return self._offsets[-1]

    def close(self) -> None:
        """Give back the room of the scratch file."""
        with contextlib.suppress(OSError):  # what a full disk did not take
            self._file.close()

    def pages(self, entries: Iterable[CommitEntry], meter: Meter = SILENT) -> Iterator[Page]:
        """All of these but sitemaps, in their order, once all were read. Raises ArchiveError when the disk is full."""
        groups = self._read(entries, meter)
        best = self._kept(groups)
        meter.begin("writing unique pages", "page", len(best))
        yield from self._written(best, meter)

    def _read(self, entries: Iterable[CommitEntry], meter: Meter) -> Groups:
        """Copy the entries, and join those that are duplicates."""
        high, low = array("Q"), array("Q")
        for entry in entries:
            if not entry.is_page:
                continue
            line, takes, one, other, fingerprint = _encode(entry), has_content(entry), 0, 0, 0
            if takes:
                one, other = _digest(entry)
                if self.how is How.NEAR:
                    fingerprint = self._fingerprint(entry)
                    self.counts.without += not fingerprint
            self._keep(line)
            self._offsets.append(self._offsets[-1] + len(line))
            self._orders.append(_order(entry))
            self._prints.append(fingerprint)
            high.append(one)
            low.append(other)
        self._keep(b"", is_last=True)
        meter.begin("comparing bodies")
        groups = Groups(len(self._orders))
        join_equal(groups, high, low)
        del high, low  # a third of the memory
        if self.how is How.NEAR:
            rows = join_equal(groups, self._prints)
            meter.begin("comparing texts", "", STEPS * len(rows))
            self.counts.crowded = join_near(groups, self._prints, rows, lambda done: meter.reached(done, done))
        return groups

    def _keep(self, line: bytes, *, is_last: bool = False) -> None:
        try:
            self._file.write(line)
            if is_last:
                self._file.flush()
        except OSError as error:
            what = f"keep a copy of the index ({self._offsets[-1]:,} bytes so far) in"
            raise archive_error(what, self._folder.tmp, error) from None

    def _kept(self, groups: Groups) -> "array[int]":
        """For each page the one of its group that is kept."""
        best = groups.firsts(self._is_before)
        sizes = groups.sizes()
        self.counts.groups = sum(size > 1 for size in sizes)
        self.counts.duplicates = len(best) - sum(size > 0 for size in sizes)
        return best

    def _is_before(self, one: int, other: int) -> bool:
        first, second = self._orders[one], self._orders[other]
        return first < second if first != second else _whole_order(self._at(one)) < _whole_order(self._at(other))

    def _written(self, best: "array[int]", meter: Meter) -> Iterator[Page]:
        for row in range(len(best)):
            kept = "" if best[row] == row else self._at(best[row]).url
            yield Page(self._at(row), self._prints[row], kept)
            if row % PULSE_PAGES == 0:
                meter.reached(row, row)

    def _at(self, row: int) -> CommitEntry:
        begin, end = self._offsets[row], self._offsets[row + 1]
        return _decode(os.pread(self._file.fileno(), end - begin, begin))


def _digest(entry: CommitEntry) -> tuple[int, int]:
    """128 bits that stand for the digest, whatever its algorithm is."""
    data = hashlib.blake2b(entry.digest.encode(), digest_size=16).digest()
    return int.from_bytes(data[:8], "little") or 1, int.from_bytes(data[8:], "little")


def _order(entry: CommitEntry) -> int:
    """(depth, fetched) as one number; entries of one number are compared by `_whole_order`."""
    if entry.depth >= DEPTH_MAX:
        return DEPTH_MAX << 52
    return entry.depth << 52 | min(max(int(entry.fetched_at * 1e6), 0), _TIME_MAX)


def _whole_order(entry: CommitEntry) -> tuple[int, float, str, str, str]:
    """(depth, fetched, URL), and what tells two visits of one URL apart."""
    return entry.depth, entry.fetched_at, entry.url, entry.run, f"{entry.fingerprint} {entry.visit}"
