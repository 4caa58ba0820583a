"""The journal of jobs: what people defined through this folder, on disk before it is in the engine.

A rebuild takes each job as it was last defined. Its history is not in here: a rebuild knows its runs by their pages.
"""

from collections.abc import Iterable, Iterator

import msgspec

from crawler.archive.crawl_folder import CrawlFolder
from crawler.archive.journal import Journal, journal_path, journals_at
from crawler.archive.seed_journal import SeedLine
from crawler.rules.jobs import Job, Revision, seed_blocks


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
