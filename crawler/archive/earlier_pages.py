"""Finds what an earlier run of a job archived of a URL in this folder, so that its site can be asked what has changed;
and what the crawl itself archived of it as a page or as a requisite, so that the other one needs no request.

Nothing is stored for this: the index of this folder has each page of each run, and the record of a page has the headers
that it is recognised by. A page that is archived elsewhere is of no use here, for its links are in its body.

Sealed segments are searched, the newest first. Segments that are being written are in order of arrival: where the lines
of runs are in them is kept in memory, and in crawls that fetch requisites where all others are.
"""

import contextlib
import heapq
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from crawler.archive.appender import OPEN_SUFFIX
from crawler.archive.folder import CrawlFolder
from crawler.archive.index import surt, to_entry
from crawler.archive.index_reader import lines_before, segment_names
from crawler.archive.prune_journal import FILE as PRUNE_JOURNAL
from crawler.archive.prune_journal import PRUNE_LOCK
from crawler.archive.warc import Original
from crawler.archive.warc_reader import StoredResponse, read_head
from crawler.model import NO_MEDIA_TYPE, NOT_MODIFIED, CommitEntry, WarcLocation
from crawler.rules.conditional import Validators, validators_of
from crawler.rules.job_runs import job_of

SEGMENTS_MAX = 128  # sealed ones that are searched: two million pages; some 80 us each
LINES_MAX = 32  # of a URL that are looked at in each: a job of every minute has thousands
LISTED_S = 1.0  # how old the list of segments may be
OK = 200
NO_VALIDATORS = Validators("", "")


class EarlierPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page as it was archived, and what it is recognised by."""

    original: Original
    validators: Validators


class Twin(NamedTuple):
    """What is archived of a URL, as a page or as a requisite, and its commit."""

    page: EarlierPage
    entry: CommitEntry


class _Line(NamedTuple):
    """Where a line is in a segment that is being written."""

    offset: int
    length: int


class _Open:
    """A segment that is being written. `lines`: the last one of each URL and job."""

    def __init__(self, path: Path, *, keeps_own: bool) -> None:
        self._path = path
        self._read_to = 0
        self._keeps_own = keeps_own
        self._lines: dict[tuple[str, str], _Line] = {}
        self._own: dict[bytes, list[_Line]] = {}  # of the crawl itself, by the key of its URL

    def follow(self) -> None:
        """Read what was written since. Raises OSError."""
        with self._path.open("rb") as file:
            file.seek(self._read_to)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                if b'"run":"' in line and (entry := to_entry(line)) is not None and entry.run:
                    self._lines[entry.url, job_of(entry.run)] = _Line(self._read_to, len(line))
                elif self._keeps_own:
                    self._own.setdefault(line.partition(b" ")[0], []).append(_Line(self._read_to, len(line)))
                self._read_to += len(line)

    def last(self, url: str, job: str) -> CommitEntry | None:
        """Raises OSError."""
        at = self._lines.get((url, job))
        if at is None:
            return None
        with self._path.open("rb") as file:
            return to_entry(os.pread(file.fileno(), at.length, at.offset))

    def own(self, key: bytes) -> Iterator[CommitEntry]:
        """Raises OSError."""
        for at in self._own.get(key, ()):
            with self._path.open("rb") as file:
                if (entry := to_entry(os.pread(file.fileno(), at.length, at.offset))) is not None:
                    yield entry


class EarlierPages:
    """The pages of one folder. Any thread may call it; all of it blocks. `has_requisites`: does the crawl fetch any?"""

    def __init__(self, folder: CrawlFolder, *, has_requisites: bool = False) -> None:
        self._folder = folder
        self._has_requisites = has_requisites
        self._lock = threading.Lock()
        self._listed_s = -LISTED_S
        self._open: dict[str, _Open] = {}
        self._written: dict[str, int] = {}  # sealed segments; a prune that replaces one makes none newer
        self._sealed: list[Path] = []  # the newest first

    def find(self, url: str, run: str, head_digest: str) -> EarlierPage | None:
        """The newest page that a run of the same job has of a canonical URL, with a request of the same head; None when
        there is none, or when nothing tells whether it has changed.

        While files are being removed there is none: it may be among them.
        """
        if self._is_pruning():
            return None
        job, tried = job_of(run), set[WarcLocation | None]()
        with self._lock:
            self._list()
            for entry in self._lines_of(url, job):
                place = entry.content
                if place in tried or not _fits(entry, url, job, head_digest):
                    continue
                tried.add(place)
                if place is not None and (stored := read_head(self._folder, place)) is not None:
                    return _earlier(entry, place, stored)
        return None

    def twin_of(self, url: str, *, is_requisite: bool, logged: CommitEntry | None = None) -> Twin | None:
        """What the crawl itself has of a URL as a page for a requisite (`is_requisite`), and as a requisite for a page;
        None when it is not here, or not whole. `logged`: its commit, where the engine has that.
        """
        if self._is_pruning():
            return None
        with self._lock:
            if logged is not None:
                return self._as_twin(logged, url, is_requisite=is_requisite)
            for _ in range(2):  # the second time with a list of segments of now
                self._list()
                for entry in self._own_lines_of(url):
                    if (found := self._as_twin(entry, url, is_requisite=is_requisite)) is not None:
                        return found
                self._listed_s = -LISTED_S
        return None

    def _as_twin(self, entry: CommitEntry, url: str, *, is_requisite: bool) -> Twin | None:
        place = entry.content
        if place is None or entry.is_requisite is is_requisite or not _is_whole_get(entry, url):
            return None
        stored = read_head(self._folder, place)
        if stored is None or stored.digest != entry.digest:
            return None
        original = Original(
            place=place, record_id=stored.record_id, date=stored.date, digest=entry.digest,
            mime=entry.content_type or NO_MEDIA_TYPE, url=url,
        )  # fmt: skip
        return Twin(EarlierPage(original=original, validators=NO_VALIDATORS), entry)

    def _own_lines_of(self, url: str) -> Iterator[CommitEntry]:
        key = surt(url).encode()
        for one in self._open.values():
            with contextlib.suppress(OSError):  # sealed meanwhile: the next list has it
                one.follow()
                yield from one.own(key)
        for path in self._sealed:
            with contextlib.suppress(OSError, ValueError):  # removed meanwhile
                for line in lines_before(path, key + b" ", holding=b"", lines_max=LINES_MAX):
                    if (entry := to_entry(line)) is not None:
                        yield entry

    def _is_pruning(self) -> bool:
        return (self._folder.root / PRUNE_JOURNAL).exists() or self._folder.is_locked(PRUNE_LOCK)

    def _list(self) -> None:
        now_s = time.monotonic()
        if now_s - self._listed_s < LISTED_S:
            return
        self._listed_s = now_s
        names = segment_names(self._folder)
        opened = {name for name in names if name.endswith(OPEN_SUFFIX)}
        self._open = {name: self._open.get(name) or self._opened(name) for name in opened}
        written = {}
        for name in names:
            if name not in opened:
                with contextlib.suppress(OSError):
                    written[name] = self._written.get(name) or (self._folder.index / name).stat().st_mtime_ns
        self._written = written
        newest = heapq.nlargest(SEGMENTS_MAX, written, key=written.__getitem__)
        self._sealed = [self._folder.index / name for name in newest]

    def _opened(self, name: str) -> _Open:
        return _Open(self._folder.index / name, keeps_own=self._has_requisites)

    def _lines_of(self, url: str, job: str) -> Iterator[CommitEntry]:
        """Of the URL and its job, the newest first, as far as the order of the segments tells."""
        found = []
        for one in self._open.values():
            with contextlib.suppress(OSError):  # sealed meanwhile: the next list has it
                one.follow()
                if (entry := one.last(url, job)) is not None:
                    found.append(entry)
        yield from sorted(found, key=lambda entry: -entry.fetched_at)
        key, of_job = surt(url).encode() + b" ", b'"run":"%b.' % job.encode()
        for path in self._sealed:
            with contextlib.suppress(OSError, ValueError):  # removed meanwhile
                for line in lines_before(path, key, holding=of_job, lines_max=LINES_MAX):
                    if (entry := to_entry(line)) is not None:
                        yield entry


def _is_whole_get(entry: CommitEntry, url: str) -> bool:
    """Is it all of what a plain request of the crawl itself brought?"""
    is_whole = not (entry.pruned or entry.truncated or entry.decode_error or entry.is_withheld or entry.is_sitemap)
    is_plain = entry.request is None and not entry.run and entry.original is None
    return entry.status == OK and entry.url == url and is_whole and is_plain


def _fits(entry: CommitEntry, url: str, job: str, head_digest: str) -> bool:
    """Is it a page that another request of that head would bring, if it has not changed?"""
    has_own = entry.status == OK and entry.original is None  # else its headers are in another record than its body
    is_page = has_own or (entry.status == NOT_MODIFIED and entry.original is not None)
    is_whole = is_page and not (entry.pruned or entry.truncated or entry.decode_error or not entry.is_page)
    is_same = entry.url == url and job_of(entry.run) == job and entry.head_digest == head_digest
    return is_whole and is_same and entry.request is None


def _earlier(entry: CommitEntry, place: WarcLocation, stored: StoredResponse) -> EarlierPage | None:
    validators = validators_of(stored.listed("etag"), stored.listed("last-modified"))
    if not any(validators) or stored.status != OK or stored.truncated or stored.digest != entry.digest:
        return None
    original = Original(
        place=place, record_id=stored.record_id, date=stored.date, digest=entry.digest,
        mime=entry.content_type or NO_MEDIA_TYPE,
    )  # fmt: skip
    return EarlierPage(original=original, validators=validators)
