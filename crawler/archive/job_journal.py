"""The journal of jobs: what people defined through this folder, on disk before it is in the engine.

A rebuild takes each job as it was last defined. Its history is not in here: a rebuild knows its runs by their pages.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import msgspec

from crawler.archive.folder import (
    CrawlFolder,
    archive_error,
    open_private,
    sync_directory,
)
from crawler.errors import ArchiveError
from crawler.lazy_module import LazyModule
from crawler.rules.jobs import Job, Revision, seed_blocks

if TYPE_CHECKING:
    import sqlite3
else:
    sqlite3 = LazyModule("sqlite3")
from crawler.archive.journals import Journal, journal_path, journals_at
from crawler.archive.seed_journal import SeedLine


class JobLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A job as somebody changed it, or some of the seeds that a definition names by `seeds_key`."""

    user: str = ""
    name: str = ""
    created_at: float = 0.0
    revision: Revision | None = None
    paused: bool = False
    removed: bool = False
    seeds_key: str = ""
    seeds: tuple[str, ...] = ()


class JobJournal(Journal[JobLine]):
    """The journal of one crawl in one folder. `first_begun_at` (wall clock, s) tells crawls of one name apart."""

    def __init__(self, folder: CrawlFolder, name: str, first_begun_at: float) -> None:
        super().__init__(journal_path(folder, "jobs", name, first_begun_at), JobLine)


def journals_in(folder: CrawlFolder) -> list[Journal[SeedLine] | Journal[JobLine]]:
    """All journals of a folder, of seeds and of jobs."""
    return [
        *(Journal(path, SeedLine) for path in journals_at(folder, "seeds")),
        *(Journal(path, JobLine) for path in journals_at(folder, "jobs")),
    ]


def line_of(job: Job, *, removed: bool = False) -> JobLine:
    """A job as it is to be from now on."""
    return JobLine(
        user=job.user, name=job.name, created_at=job.created_at, revision=job.revisions[-1], paused=job.is_paused,
        removed=removed,
    )  # fmt: skip


def seed_lines(key: str, urls: Iterable[str]) -> Iterator[JobLine]:
    """Seeds that a definition names by a key."""
    return (JobLine(seeds_key=key, seeds=block) for block in seed_blocks(urls))


class WorkJournal:
    """A database that lists long work on a crawl folder: whoever finds one that is begun completes the work.

    A draft counts for nothing until it is `begun`, which gives it the name `file`. All calls raise ArchiveError.
    """

    file: ClassVar[str]

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._errors():
            os.close(open_private(path, os.O_RDWR | os.O_CREAT))
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA synchronous=FULL")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    def begun(self, folder: CrawlFolder) -> Self:
        """From here on the work is done, by whoever comes."""
        with self._errors():
            self._db.execute("COMMIT")
            self._db.close()
            self._path.rename(folder.root / self.file)
            sync_directory(folder.root)
        return type(self)(folder.root / self.file)

    def end(self) -> None:
        """All is done: remove the journal."""
        self._db.close()
        with self._errors():
            self._path.unlink()
            sync_directory(self._path.parent)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise ArchiveError(f"can't write {self._path}: {error}") from None
        except OSError as error:
            raise archive_error("write", self._path, error) from None
