"""Where an audit keeps what it has read: a database in a temporary file, so that memory stays small for any crawl.

Knows commits, links and requests as rows, and the questions that need them side by side; must not know what an answer
means.
"""

import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from crawler.frontier.codec import pack_request
from crawler.model import SITEMAP, Candidate, CommitEntry, WarcLocation

BATCH = 1000
CACHE_KIB = 32 * 1024

_TABLES = """
CREATE TABLE files (id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL);
CREATE TABLE commits (
    id INTEGER PRIMARY KEY, fp INTEGER NOT NULL, visit INTEGER NOT NULL, partition INTEGER NOT NULL,
    page INTEGER NOT NULL, url TEXT NOT NULL, status INTEGER NOT NULL, depth INTEGER NOT NULL,
    redirects INTEGER NOT NULL, scope INTEGER NOT NULL, digest TEXT NOT NULL, truncated TEXT NOT NULL,
    session TEXT NOT NULL, node TEXT NOT NULL, epoch INTEGER NOT NULL, fetched REAL NOT NULL, archived REAL NOT NULL,
    file INTEGER NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL,
    late INTEGER NOT NULL, run TEXT NOT NULL, pruned INTEGER NOT NULL, label TEXT NOT NULL,
    request TEXT NOT NULL, original TEXT NOT NULL,
    found INTEGER NOT NULL DEFAULT 0,
    UNIQUE (fp, visit, session, epoch, fetched, digest, file, offset)
);
CREATE INDEX commits_by_record ON commits (file, offset);
CREATE INDEX commits_by_page ON commits (page);
CREATE TABLE orphans (file INTEGER NOT NULL, offset INTEGER NOT NULL, url TEXT NOT NULL, page INTEGER NOT NULL);
CREATE TABLE links (
    fp INTEGER PRIMARY KEY, partition INTEGER NOT NULL, url TEXT NOT NULL, parent INTEGER NOT NULL, state INTEGER,
    run TEXT NOT NULL
);
CREATE TABLE run_pages (run TEXT PRIMARY KEY, pages INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE requests (
    queue TEXT NOT NULL, partition INTEGER NOT NULL, host TEXT NOT NULL, port INTEGER NOT NULL, target TEXT NOT NULL,
    page INTEGER NOT NULL, started REAL NOT NULL, ended REAL NOT NULL, blur REAL NOT NULL, status INTEGER NOT NULL,
    agent TEXT NOT NULL
);
"""


class Commit(NamedTuple):
    """A commit as some line of an index has it; `file` is 0 when it has no record."""

    id: int
    fp: int
    visit: int
    partition: int
    url: str
    status: int
    depth: int
    redirects: int
    scope: int
    digest: str
    truncated: str
    length: int
    run: str  # of a job, "": of the crawl itself
    label: str = ""
    request: str = ""  # JSON; "": a plain GET
    original: str = ""  # where the page is that it is unchanged from: "FILE OFFSET LENGTH"; "": it is none

    @property
    def original_place(self) -> WarcLocation:
        """Raises ValueError where it is unchanged from none."""
        file, offset, length = self.original.rsplit(" ", 2)
        return WarcLocation(file=file, offset=int(offset), length=int(length))


class Link(NamedTuple):
    """A seed, or the target of a link or redirect that is in scope. `parent`: the URL of a page that leads there; "" of
    a seed.
    """

    fp: int
    partition: int
    url: str
    run: str
    parent: str


class LoggedRequest(NamedTuple):
    """A request of the web log. Times in seconds; `blur`: how much earlier or later it may have started in truth."""

    queue: str
    partition: int
    host: str
    port: int  # 0: not known
    target: str
    page: int
    started: float
    ended: float
    blur: float
    status: int
    agent: str

    @property
    def shown(self) -> str:
        """For people."""
        return f"{self.host}:{self.port}{self.target}" if self.port else f"{self.host}{self.target}"


_ADD_COMMIT = """
INSERT OR IGNORE INTO commits (
    fp, visit, partition, page, url, status, depth, redirects, scope, digest, truncated, session, node, epoch, fetched,
    archived, file, offset, length, late, run, pruned, label, request, original
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_COMMITS_AT = """
SELECT id, fp, visit, partition, url, status, depth, redirects, scope, digest, truncated, length, run, label,
    request, original
FROM commits WHERE file = ? AND offset = ?
"""
_PLACES = """
SELECT file, offset, name, max(length) FROM commits JOIN files ON files.id = file
WHERE (file, offset) > (?, ?) AND file > 0 AND NOT pruned AND NOT late
GROUP BY file, offset ORDER BY file, offset LIMIT ?
"""
_COUNT_RUN_PAGES = f"""
INSERT INTO run_pages SELECT run, count(DISTINCT fp) FROM commits
WHERE run <> '' AND label <> '{SITEMAP}' GROUP BY run
"""  # noqa: S608 - ours
_REQUEST = ", ".join(LoggedRequest._fields)


def page_of(host: str, target: str) -> int:
    """Recognises a page by what the log of a web server says of it: host without port, path and query."""
    digest = blake2b(f"{host}\0{target}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


class Ledger:
    """One audit's rows; use as a context manager. Its file goes when it is closed."""

    def __init__(self, folder: Path | None = None) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="audit-", dir=folder)
        self.db = sqlite3.connect(Path(self._home.name, "ledger.db"), isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE", f"cache_size=-{CACHE_KIB}"):
            self.db.execute(f"PRAGMA {pragma}")
        self.db.executescript(_TABLES)
        self.db.execute("BEGIN")
        self._files: dict[str, int] = {}
        self._has_run_pages = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.db.close()
        self._home.cleanup()

    def number(self, sql: str, *values: object) -> int:
        """The one number that a question has for an answer."""
        return int(self.db.execute(sql, values).fetchone()[0] or 0)

    def file_id(self, name: str) -> int:
        """Number of a WARC file, from 1."""
        known = self._files.get(name)
        if known is None:
            known = self._files[name] = len(self._files) + 1
            self.db.execute("INSERT INTO files VALUES (?, ?)", (known, name))
        return known

    def add_commit(self, entry: CommitEntry, partition: int, page: int, *, is_late: bool) -> None:
        """A commit; the same one again changes nothing. `is_late`: it came after the archive was read."""
        where = entry.warc or WarcLocation(file="", offset=0, length=0)
        row = (
            int(entry.fingerprint), entry.visit, partition, page, entry.url, entry.status, entry.depth,
            entry.redirects, entry.scope_version, entry.digest, entry.truncated, entry.session, entry.node,
            entry.epoch, entry.fetched_at, entry.times.get("archived", entry.fetched_at),
            self.file_id(where.file) if entry.warc else 0, where.offset, where.length, is_late,
            entry.run, entry.pruned, entry.label, pack_request(entry.request) if entry.request else "",
            f"{at.file} {at.offset} {at.length}" if (at := entry.original) else "",
        )  # fmt: skip
        self.db.execute(_ADD_COMMIT, row)

    def commits_at(self, location: WarcLocation) -> list[Commit]:
        """The commits that name the record at this place: one, or none."""
        rows = self.db.execute(_COMMITS_AT, (self.file_id(location.file), location.offset))
        return [Commit(*row) for row in rows]

    def places(self) -> Iterator[WarcLocation]:
        """Where the records of commits are, in the order of the files."""
        at = (0, -1)
        while rows := self.db.execute(_PLACES, (*at, BATCH)).fetchall():
            yield from (WarcLocation(file=name, offset=offset, length=length) for _, offset, name, length in rows)
            at = rows[-1][:2]

    def record_found(self, commit: Commit) -> None:
        self.db.execute("UPDATE commits SET found = 1 WHERE id = ?", (commit.id,))

    def add_orphan(self, location: WarcLocation, url: str, page: int) -> None:
        """A record that no commit names so far."""
        self.db.execute(
            "INSERT INTO orphans VALUES (?, ?, ?, ?)", (self.file_id(location.file), location.offset, url, page)
        )

    def add_links(self, candidates: Iterable[Candidate], parent: Commit) -> None:
        """URLs that must be in a known state; repeats change nothing."""
        self.db.executemany(
            "INSERT OR IGNORE INTO links (fp, partition, url, parent, run) VALUES (?, ?, ?, ?, ?)",
            [(int(c.fingerprint), c.partition, c.url, parent.id, c.run) for c in candidates],
        )

    def add_seeds(self, candidates: Iterable[Candidate]) -> None:
        """The same for seeds, which no page leads to; repeats change nothing."""
        self.db.executemany(
            "INSERT OR IGNORE INTO links (fp, partition, url, parent, run) VALUES (?, ?, ?, 0, '')",
            [(int(c.fingerprint), c.partition, c.url) for c in candidates],
        )

    def links_to_ask(self) -> Iterator[list[Link]]:
        """Targets that no index has committed, by partition, in batches."""
        yield from self._links("state IS NULL")

    def links_in(self, state: int, partition: int | None = None) -> Iterator[list[Link]]:
        """Targets that were found in a state, and that no index has committed."""
        yield from self._links(
            f"state = {int(state)}" + (f" AND partition = {partition}" if partition is not None else "")
        )

    def _links(self, condition: str) -> Iterator[list[Link]]:
        cursor = self.db.execute(
            "SELECT fp, partition, url, run, coalesce((SELECT url FROM commits WHERE id = parent), '') FROM links "  # noqa: S608 - ours
            f"WHERE {condition} AND NOT EXISTS (SELECT 1 FROM commits WHERE commits.fp = links.fp) ORDER BY partition"
        )
        while rows := cursor.fetchmany(BATCH):
            yield [Link(*row) for row in rows]

    def drop_links_of(self, run: str) -> None:
        """Forget where the pages of a run led."""
        self.db.execute("DELETE FROM links WHERE run = ?", (run,))

    def pages_of(self, run: str) -> int:
        """How many pages a run has committed."""
        if not self._has_run_pages:
            self.db.execute(_COUNT_RUN_PAGES)
            self._has_run_pages = True
        return self.number("SELECT pages FROM run_pages WHERE run = ? UNION ALL SELECT 0", run)

    def set_states(self, states: Sequence[tuple[int, int]]) -> None:
        """(state, fingerprint) of targets."""
        self.db.executemany("UPDATE links SET state = ? WHERE fp = ?", states)

    def add_requests(self, requests: Sequence[LoggedRequest]) -> None:
        self.db.executemany("INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", requests)

    def requests(self, sql: str, *values: object) -> Iterator[LoggedRequest]:
        """Requests by the rest of a question that begins "SELECT ... FROM requests"."""
        cursor = self.db.execute(f"SELECT {_REQUEST} FROM requests {sql}", values)  # noqa: S608 - ours
        while rows := cursor.fetchmany(BATCH):
            yield from (LoggedRequest(*row) for row in rows)
