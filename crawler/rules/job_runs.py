"""Runs of jobs: their ids, what they are to fetch, and where the engine keeps them. Pure.

A job is a crawl that runs at a time, or again and again. Each run has a seen-set and counters of its own, and shares
the queues, their politeness and robots.txt with everything else in the crawl.

The id of a run is `JOB.REVISION.NOMINAL`: which job, which revision of it, and the nominal time that it was triggered
for, all of them in base 36, the time in seconds of the wall clock. So two instances that trigger the same nominal
time name the same run, also after the engine lost its last second. Behind the time of a manual run is `-m`, and
behind a run that was repeated `.ATTEMPT`, from 2 on. An id has no character that ends a stamp (frontier/codec.py). It
never returns: a job that is removed and added again begins with a higher revision.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from crawler.rules.places import partition_of
from crawler.settings.schema import JobSettings

JOB_DIGITS = 10  # of a job's id, a hash of its user and name
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
MANUAL = "-m"
DEPTH_MAX = 255  # links from a seed
URLS = "urls"  # of a run that adds no more links, and fetches what it has
ENDED = "ended"  # of a run that people ended: nothing more is fetched
ID_MAX = 64  # characters; they have some 25


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a run fetches. Where a field has its default, the crawl's settings decide. Budgets are not for runs."""

    scope: str = ""  # domain, host, prefix or any; relative to the run's own seeds
    depth: int = -1  # links that lead deeper are refused; -1: as far as the crawl
    pages: int = 0  # with this many answers, nothing more is fetched; 0: no limit
    bytes: int = 0  # the same of their bodies
    urls: int = 0  # with this many, no more links are added
    priority: float = 0.0  # added to the order of all its URLs
    refetch: Literal["changed", "all"] = "changed"  # only what has changed since an earlier run, if its site can tell


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An active run, as the partition of its job stores it. `nominal` and `started_at`: wall clock, s."""

    run: str
    user: str
    name: str  # of the job
    nominal: int
    started_at: float
    spec: RunSpec
    sitemap: str = ""  # whose URLs are seeds of the run
    roots: tuple[str, ...] = ()  # of its scope: those of its seeds
    stopped: str = ""  # which limit was reached: "pages" or "bytes", nothing more is fetched; URLS, ENDED; "": none

    @property
    def is_limited(self) -> bool:
        """May one of its limits still be reached?"""
        spec = self.spec
        return bool(spec.pages or spec.bytes or (spec.urls and not self.stopped)) and self.stopped in ("", URLS)


class RunCounts(NamedTuple):
    """What became of the URLs of a run, in one partition or in all. The engine stores them in this order."""

    added: int = 0
    done: int = 0  # committed, or refused
    dead: int = 0
    deferred: int = 0  # in queues that are stopped, but not paused: they count as ended
    refused: int = 0
    s1: int = 0  # pages by class of their status
    s2: int = 0
    s3: int = 0
    s4: int = 0
    s5: int = 0
    bytes: int = 0
    retries: int = 0
    items: int = 0
    unchanged: int = 0  # pages that were not sent again, because they are as an earlier run archived them
    named: int = 0  # URLs of pages that its sitemaps have

    @property
    def pages(self) -> int:
        return self.s1 + self.s2 + self.s3 + self.s4 + self.s5

    @property
    def pending(self) -> int:
        return self.added - self.done - self.dead - self.deferred


def with_limits(record: RunRecord, jobs: JobSettings) -> RunRecord:
    """The record with the limits of the settings where its job has none."""
    spec = record.spec
    limits = {"pages": spec.pages or jobs.pages, "bytes": spec.bytes or jobs.bytes, URLS: spec.urls or jobs.urls}
    return replace(record, spec=replace(spec, **limits))


def reached(spec: RunSpec, counts: RunCounts) -> str:
    """The limit that a run with these counts has reached, "" for none."""
    used = {"pages": counts.pages, "bytes": counts.bytes, URLS: counts.added}
    return next((name for name, n in used.items() if 0 < getattr(spec, name) <= n), "")


def total_of(counts: Iterable[RunCounts]) -> RunCounts:
    """Their sum."""
    return RunCounts(*map(sum, zip(RunCounts(), *counts, strict=True)))


def run_id(job: str, revision: int, nominal: int, *, attempt: int = 1, is_manual: bool = False) -> str:
    """The id of a run (see above)."""
    name = f"{job}.{base36(revision)}.{base36(nominal)}{MANUAL if is_manual else ''}"
    return name if attempt == 1 else f"{name}.{base36(attempt)}"


def job_of(run: str) -> str:
    """The id of the job that a run belongs to."""
    return run.partition(".")[0]


class RunName(NamedTuple):
    """What the id of a run says. `nominal`: wall clock, s; of a manual run, when somebody wanted it."""

    job: str
    revision: int
    nominal: int
    is_manual: bool
    attempt: int


def name_of(run: str) -> RunName | None:
    """The parts of a run's id; None when it is not one."""
    parts = run.split(".")
    if len(run) > ID_MAX or not run.isascii() or len(parts) not in (3, 4):
        return None
    try:
        nominal = int(parts[2].removesuffix(MANUAL), 36)
        attempt = int(parts[3], 36) if parts[3:] else 1
        return RunName(parts[0], int(parts[1], 36), nominal, parts[2].endswith(MANUAL), attempt)
    except ValueError:
        return None


def home_of(job: str, partitions: int) -> int:
    """The partition in which a job and the records of its runs are, by the job's or a run's id."""
    return partition_of(job_of(job), partitions)


def base36(number: int) -> str:
    """A number of at least 0."""
    text = ""
    while number:
        number, digit = divmod(number, 36)
        text = _DIGITS[digit] + text
    return text or "0"
