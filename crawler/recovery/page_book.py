"""What an archive knows: its pages and the links that lead to them, and the runs of jobs."""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from crawler.archive.scratch import open_scratch
from crawler.frontier.stats import DUPLICATE_BYTES, SEED_LED_AWAY
from crawler.model import COUNTED_AS, CommitEntry, WarcLocation
from crawler.rules.job_plan import FoundRun
from crawler.rules.job_runs import name_of

BATCH = 1000

_TABLES = """
CREATE TABLE pages (
    fp INTEGER PRIMARY KEY, depth INTEGER NOT NULL, redirects INTEGER NOT NULL, status INTEGER NOT NULL,
    bytes INTEGER NOT NULL, fetch_ms INTEGER NOT NULL, seed INTEGER NOT NULL,
    items INTEGER NOT NULL, run TEXT NOT NULL, lost TEXT NOT NULL, offset INTEGER NOT NULL,
    request TEXT NOT NULL, told TEXT NOT NULL,
    found INTEGER NOT NULL DEFAULT 0, is_there INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE elsewhere (
    fp INTEGER PRIMARY KEY, file TEXT NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL, digest TEXT NOT NULL
);
CREATE TABLE of_runs (
    file TEXT NOT NULL, offset INTEGER NOT NULL, run TEXT NOT NULL, original_file TEXT NOT NULL,
    original_offset INTEGER NOT NULL, original_length INTEGER NOT NULL, PRIMARY KEY (file, offset)
);
CREATE TABLE run_pages (fp INTEGER PRIMARY KEY);
CREATE TABLE runs (
    run TEXT PRIMARY KEY, job TEXT NOT NULL, nominal INTEGER NOT NULL, pages INTEGER NOT NULL, errors INTEGER NOT NULL,
    bytes INTEGER NOT NULL, began REAL NOT NULL, last REAL NOT NULL
);
CREATE INDEX runs_by_job ON runs (job, nominal);
CREATE TABLE seeds (fp INTEGER PRIMARY KEY);
CREATE TABLE orphans (
    id INTEGER PRIMARY KEY, fp INTEGER NOT NULL, url TEXT NOT NULL, folder INTEGER NOT NULL, file TEXT NOT NULL,
    offset INTEGER NOT NULL, length INTEGER NOT NULL
);
"""


_ADD_TO_RUN = """
INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run) DO UPDATE SET
    pages = pages + excluded.pages, errors = errors + excluded.errors, bytes = bytes + excluded.bytes,
    began = min(began, excluded.began), last = max(last, excluded.last)
"""


class KnownPage(NamedTuple):
    """The index entry of a committed page."""

    depth: int
    redirects: int
    status: int
    body_bytes: int
    fetch_ms: int
    seed_number: int = 0
    items: int = 0
    run: str = ""  # that it was fetched for; "": the crawl itself
    lost: str = ""  # why a part of it may be missing, as its commit counted it
    offset: int = -1  # of its record
    request: str = ""  # JSON; "": a plain GET
    told: str = ""  # names of the totals that its line tells of, with blanks between them

    @property
    def totals(self) -> dict[str, int]:
        """What it adds to these."""
        return {name: self.body_bytes if name == DUPLICATE_BYTES else 1 for name in self.told.split()}

    @property
    def label(self) -> str:
        """Of what is no page: its status tells, by which pages are counted."""
        return next((label for label, status in COUNTED_AS.items() if status == self.status), "")


class Orphan(NamedTuple):
    """A record that no commit names; `folder` is the caller's number for where it lies."""

    id: int
    fingerprint: str
    url: str
    folder: int
    location: WarcLocation


class PageBook:
    """One rebuild's memory; use as a context manager. Fingerprints are decimal strings, as everywhere."""

    def __init__(self, home: Path) -> None:
        self._db = open_scratch(home, "rebuild-", _TABLES)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._db.close()

    def add_page(self, fingerprint: str, page: KnownPage) -> bool:
        """Remember a committed page; False when it is known already."""
        row = (int(fingerprint), *page)
        return bool(
            self._db.execute(
                "INSERT OR IGNORE INTO pages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0)", row
            ).rowcount
        )

    def page(self, fingerprint: str) -> KnownPage | None:
        row = self._db.execute(
            "SELECT depth, redirects, status, bytes, fetch_ms, seed, items, run, lost, offset, request, told "
            "FROM pages WHERE fp = ?",
            (int(fingerprint),),
        ).fetchone()
        return KnownPage(*row) if row else None

    def add_of_run(self, at: WarcLocation, entry: CommitEntry) -> None:
        """Remember that a record was fetched for a run of a job ("": it was not), and where its body is."""
        of = entry.original or WarcLocation(file="", offset=0, length=0)
        row = (at.file, at.offset, entry.run, of.file, of.offset, of.length)
        self._db.execute("INSERT OR IGNORE INTO of_runs VALUES (?, ?, ?, ?, ?, ?)", row)

    def add_to_run(self, entry: CommitEntry) -> None:
        """Count a page of a run of a job; the same one again changes nothing."""
        name = name_of(entry.run) if entry.is_page else None
        if name and self._db.execute("INSERT OR IGNORE INTO run_pages VALUES (?)", (int(entry.fingerprint),)).rowcount:
            at = entry.fetched_at
            row = (entry.run, name.job, name.nominal, 1, entry.status >= 400, entry.body_bytes, at, at)
            self._db.execute(_ADD_TO_RUN, row)

    def jobs(self) -> list[str]:
        """Ids of jobs whose runs have pages."""
        return [job for (job,) in self._db.execute("SELECT DISTINCT job FROM runs")]

    def revision_of(self, job: str) -> int:
        """The newest revision of a job whose runs have pages; 0: none."""
        names = (name_of(run) for (run,) in self._db.execute("SELECT run FROM runs WHERE job = ?", (job,)))
        return max((name.revision for name in names if name), default=0)

    def runs_of(self, job: str, limit: int) -> list[FoundRun]:
        """The newest runs of a job that have pages, by nominal time."""
        rows = self._db.execute(
            "SELECT run, pages, errors, bytes, began, last FROM runs WHERE job = ? ORDER BY nominal DESC LIMIT ?",
            (job, limit),
        )
        return [
            FoundRun(run=run, pages=pages, errors=errors, bytes=size, began=began, last=last)
            for run, pages, errors, size, began, last in rows
        ]

    def run_at(self, at: WarcLocation) -> str:
        """The run that a record was fetched for; "" for the crawl itself."""
        row = self._db.execute("SELECT run FROM of_runs WHERE file = ? AND offset = ?", (at.file, at.offset)).fetchone()
        return str(row[0]) if row else ""

    def original_of(self, at: WarcLocation) -> WarcLocation | None:
        """Where the page is that the one of this record is unchanged from; None where it is from none."""
        row = self._db.execute(
            "SELECT original_file, original_offset, original_length FROM of_runs "
            "WHERE file = ? AND offset = ? AND original_file <> ''",
            (at.file, at.offset),
        ).fetchone()
        return WarcLocation(file=row[0], offset=row[1], length=row[2]) if row else None

    def found(self, fingerprint: str, at: WarcLocation | None = None) -> bool:
        """Note that the page was read again, from this record; False for one that was lost all the same."""
        sql = "UPDATE pages SET found = 1, is_there = max(is_there, offset = ?) WHERE fp = ? AND found >= 0"
        return bool(self._db.execute(sql, (at.offset if at else -1, int(fingerprint))).rowcount)

    def found_elsewhere(self, fingerprint: str, at: WarcLocation, digest: str) -> None:
        """Note a record of the page that is not where the index has it; there may be one there, too."""
        row = (int(fingerprint), at.file, at.offset, at.length, digest)
        self._db.execute("INSERT OR REPLACE INTO elsewhere VALUES (?, ?, ?, ?, ?)", row)

    def moved_to(self, fingerprint: str, digest: str) -> WarcLocation | None:
        """Where the page's record with this digest is, if none is where the index has it."""
        row = self._db.execute(
            "SELECT file, offset, length FROM elsewhere WHERE fp = ? AND digest = ? "
            "AND (SELECT is_there FROM pages WHERE pages.fp = elsewhere.fp) = 0",
            (int(fingerprint), digest),
        ).fetchone()
        return WarcLocation(file=row[0], offset=row[1], length=row[2]) if row else None

    def moved_from(self, at: WarcLocation) -> WarcLocation | None:
        """Where the record is that the index has at this place, if that is elsewhere in its file."""
        self._db.execute("CREATE INDEX IF NOT EXISTS pages_by_offset ON pages (offset)")
        row = self._db.execute(
            "SELECT file, elsewhere.offset, length FROM pages JOIN elsewhere USING (fp) "
            "WHERE pages.offset = ? AND file = ? AND is_there = 0",
            (at.offset, at.file),
        ).fetchone()
        return WarcLocation(file=row[0], offset=row[1], length=row[2]) if row else None

    @property
    def moved(self) -> int:
        """How many pages have their record elsewhere only."""
        sql = "SELECT count(*) FROM elsewhere JOIN pages USING (fp) WHERE is_there = 0 AND found = 1"
        return int(self._db.execute(sql).fetchone()[0])

    def led_away(self, fingerprint: str) -> None:
        """Note that the page is a seed that redirects to another site."""
        self._db.execute("UPDATE pages SET lost = ? WHERE fp = ?", (SEED_LED_AWAY, int(fingerprint)))

    def lost(self, fingerprint: str) -> None:
        """Note that a part of what is known of the page can't be read: it counts as not read, whatever else is."""
        self._db.execute("UPDATE pages SET found = -1 WHERE fp = ?", (int(fingerprint),))

    def is_lost(self, fingerprint: str) -> bool:
        return self._found(fingerprint) < 0

    def is_found(self, fingerprint: str) -> bool:
        return self._found(fingerprint) == 1

    def _found(self, fingerprint: str) -> int:
        row = self._db.execute("SELECT found FROM pages WHERE fp = ?", (int(fingerprint),)).fetchone()
        return int(row[0]) if row else 0

    def named(self, fingerprint: str) -> bool:
        """Note that the page was counted as unreadable; False when it was before."""
        sql = "UPDATE pages SET found = 2 WHERE fp = ? AND found < 1"
        return bool(self._db.execute(sql, (int(fingerprint),)).rowcount)

    def is_named(self, fingerprint: str) -> bool:
        return self._found(fingerprint) == 2

    @property
    def unfound(self) -> int:
        """How many pages were not read again."""
        return int(self._db.execute("SELECT count(*) FROM pages WHERE found < 1").fetchone()[0])

    def add_seed(self, fingerprint: str) -> None:
        self._db.execute("INSERT OR IGNORE INTO seeds VALUES (?)", (int(fingerprint),))

    def is_seed(self, fingerprint: str) -> bool:
        return self._db.execute("SELECT 1 FROM seeds WHERE fp = ?", (int(fingerprint),)).fetchone() is not None

    def add_orphan(self, fingerprint: str, url: str, folder: int, at: WarcLocation) -> None:
        self._db.execute(
            "INSERT INTO orphans (fp, url, folder, file, offset, length) VALUES (?, ?, ?, ?, ?, ?)",
            (int(fingerprint), url, folder, at.file, at.offset, at.length),
        )

    def orphans(self) -> Iterator[list[Orphan]]:
        """Those that are left, in the order in which they were added, some at a time."""
        last = 0
        while rows := self._db.execute(
            "SELECT id, fp, url, folder, file, offset, length FROM orphans WHERE id > ? ORDER BY id LIMIT ?",
            (last, BATCH),
        ).fetchall():
            last = rows[-1][0]
            yield [
                Orphan(number, str(fp), url, folder, WarcLocation(file=file, offset=offset, length=length))
                for number, fp, url, folder, file, offset, length in rows
            ]

    def drop_orphan(self, orphan: Orphan) -> None:
        self._db.execute("DELETE FROM orphans WHERE id = ?", (orphan.id,))
