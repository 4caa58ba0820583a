"""Writes exchanges into WARC files: one gzip member per record, new files per session, never reopened."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from isal import isal_zlib

from crawler.archive.appender import Appender, end_all, finish_all
from crawler.archive.folder import CrawlFolder, digits17
from crawler.archive.warc import (
    GZIP,
    Kind,
    Original,
    duplicate_record,
    failure_record,
    payload_digest,
    record_ids,
    request_record,
    response_record,
    revisit_record,
    warcinfo,
    withheld_record,
)
from crawler.errors import ArchiveError
from crawler.model import Response, Rights, WarcLocation
from crawler.settings import ArchiveSettings

SUFFIX = ".warc.gz"
OF_EXCHANGES = "-meta"  # behind the prefix of files with what was exchanged besides pages, as wget names them
# A request has about 300 bytes: ISA-L's levels above 0 first take 7 us to clear tables.
_REQUEST_LEVEL = 0


class WarcWriter:
    """The archive of one session.

    `add` only writes to memory, and belongs to one thread; `sync` may run in another meanwhile. After an ArchiveError
    nothing more is accepted before `drop_unwritten`; `close` keeps what is durable.
    """

    def __init__(
        self,
        folder: CrawlFolder,
        *,
        prefix: str,
        session: str,
        settings: ArchiveSettings,
        software: str,
        about: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`about`: further fields of the first record of each file, as ISO 28500 6.3 names them."""
        self._folder = folder
        self._prefix = prefix
        self._session = session
        self._settings = settings
        self._software = software
        self._about = about or {}
        self._clock = clock
        self._ids = record_ids()
        self._serial = 0
        self._current: Appender | None = None
        self._full: list[Appender] = []  # rotated out, not yet synced and renamed
        self._lock = threading.Lock()
        self._failed = False
        self.last_id = ""  # of the record that was added last

    @property
    def current(self) -> str:
        """The file that the next record will be in; "": one that is not begun."""
        with self._lock:
            file = self._current
        return file.final.name if file is not None and file.size < self._settings.warc_bytes_max else ""

    def add(
        self, response: Response, fingerprint: str = "", original: "Original | None" = None
    ) -> tuple[WarcLocation, str]:
        """Append the exchange; returns the location of the response record and its payload digest. `fingerprint`: of a
        request that its URL alone does not tell. `original`: the page that the response says is unchanged.

        It is durable when `sync` has returned. Raises ArchiveError when an earlier sync failed.
        """
        identity = self.last_id = next(self._ids)
        if original is None:
            record, digest = response_record(response, identity, fingerprint)
        else:
            record, digest = revisit_record(response, original, identity, fingerprint), original.digest
        return self._add(response, identity, record), digest

    def add_duplicate(self, response: Response, original: Original, fingerprint: str = "") -> tuple[WarcLocation, str]:
        """The same for an answer to a plain GET whose body is in another record."""
        identity = next(self._ids)
        record = duplicate_record(response, original, identity, fingerprint)
        return self._add(response, identity, record), original.digest

    def add_withheld(
        self, response: Response, *, rights: Rights | None, links: Sequence[str], fingerprint: str = ""
    ) -> tuple[WarcLocation, str]:
        """The same for a page whose body is not kept, because of its rights; `response` has none."""
        identity = next(self._ids)
        record = withheld_record(response, identity, rights=rights, links=links, fingerprint=fingerprint)
        return self._add(response, identity, record), payload_digest(b"")

    def add_exchange(self, response: Response, kind: Kind) -> int:
        """The same for one that is for no page; how many bytes it takes."""
        identity = next(self._ids)
        record, _ = response_record(response, identity, kind=kind)
        return self._add(response, identity, record, kind).length

    def add_failure(self, url: str, *, at: float, fields: Mapping[str, str]) -> int:
        """Append what became of an attempt that brought no page; how many bytes it takes. `at`: wall clock, s."""
        record = failure_record(url, next(self._ids), at=at, fields=fields)
        return self._append(isal_zlib.compress(record, self._settings.compression_level, GZIP)).length

    def _add(self, response: Response, identity: str, record: bytes, kind: str = "") -> WarcLocation:
        member: bytes = isal_zlib.compress(record, self._settings.compression_level, GZIP)
        length = len(member)
        if self._settings.request_records and response.request_head:
            request = request_record(response, next(self._ids), identity, kind)
            member += isal_zlib.compress(request, _REQUEST_LEVEL, GZIP)
        return self._append(member, length)

    def _append(self, member: bytes, length: int = 0) -> WarcLocation:
        """`length`: of its first record; 0: all of it."""
        with self._lock:
            if self._failed:
                raise ArchiveError("the archive failed to write and takes nothing more")
            file = self._file()
            offset = file.add(member)
        return WarcLocation(file=file.final.name, offset=offset, length=length or len(member))

    def sync(self) -> None:
        """Make durable all that was added before. Raises ArchiveError."""
        with self._lock:
            full, current = list(self._full), self._current
        try:
            for file in full:
                file.finish()
            with self._lock:
                del self._full[: len(full)]
            if current is not None:
                current.sync()
        except ArchiveError:
            with self._lock:
                self._failed = True
            raise

    def drop_unwritten(self) -> None:
        """After a NoRoomError: end the files with what is durable. The rest has to be added again, to a new file."""
        with self._lock:
            files = [*self._full, *([self._current] if self._current else [])]
            self._current, self._full = None, []
            self._failed = False
        end_all(files)

    def close(self) -> None:
        """Sync and give all files their final names. Raises ArchiveError when that fails."""
        with self._lock:
            files = [*self._full, self._current] if self._current else self._full
            self._current, self._full = None, []
            self._failed = True
        finish_all(files)

    def _file(self) -> Appender:
        current = self._current
        if current is not None and current.size < self._settings.warc_bytes_max:
            return current
        if current is not None:
            self._full.append(current)
        self._current = self._new_file()
        return self._current

    def _new_file(self) -> Appender:
        now = self._clock()
        name = f"{self._prefix}-{digits17(now)}-{self._session}-{self._serial:05d}{SUFFIX}"
        self._serial += 1
        file = Appender(self._folder.warc / name)
        info = warcinfo(
            next(self._ids),
            filename=name,
            at=now,
            software=self._software,
            fields={"isPartOf": self._folder.crawl, "description": f"session {self._session}", **self._about},
        )
        file.add(isal_zlib.compress(info, self._settings.compression_level, GZIP))
        return file
