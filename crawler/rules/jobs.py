"""Jobs: what one is, and what the engine keeps of it and of each of its nominal times. Pure.

A nominal time is one that the schedule names. Each is decided once, in order, and gets a row in the history of its job:
a run was started, or why not. Successive misses of one kind share a row. `done_to` is the last nominal time that was
decided: nothing at or before it is ever decided again, whatever happens to clocks, schedules or instances.

Each change of a job's definition is a revision. A nominal time belongs to the revision in force at that time, so an
edit neither repeats the past nor forgets it.
"""

import enum
import itertools
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from crawler.errors import UsageError
from crawler.rules.cron import Schedule
from crawler.rules.job_runs import DEPTH_MAX, ENDED, RunSpec
from crawler.settings.schema import COUNT_MAX, PRIORITY_MAX

SEEDS_INLINE_MAX, SEEDS_INLINE_BYTES = 32, 4096  # with more, the engine keeps them beside the job, in blocks

SEEDS_A_BLOCK = 1_000


RETRIES_MAX = 100


FAILED_MAX = 100  # runs of a job that used up their attempts, and are kept for people to see


CATCHUP_WINDOW_S = 86_400.0


OPEN = -1  # the end of a pause that goes on


class State(enum.StrEnum):
    """What became of a nominal time."""

    STARTED = "started"
    QUEUED = "queued"  # it starts when the run before it has ended
    SKIPPED_OVERLAP = "skipped_overlap"  # the run before it had not ended
    SKIPPED_LIMIT = "skipped_limit"  # as many runs were active as may be
    MISSED_WINDOW = "missed_window"  # decided too late: no instance ran, or it caught up with later ones only
    PAUSED = "paused"
    FAILED_TO_START = "failed_to_start"  # no valid seed, a sitemap that can't be read
    UNKNOWN = "unknown"  # the engine lost it, and the archive has no page of it


class Outcome(enum.StrEnum):
    """How far the run of a row is; "" where there is none."""

    NONE = ""
    RUNNING = "running"
    RETRYING = "retrying"  # it failed, and is repeated
    FINISHED = "finished"
    LIMITED = "limited"  # finished, because it has as much as it may
    STOPPED = "stopped"  # people ended it; what it has counts
    FAILED = "failed"
    UNKNOWN = "unknown"  # the engine lost it; the figures are those of the archive


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as people define it. Seeds are canonical.

    `seeds_kept`: how many the engine keeps beside the job, and `seeds_key` under which name.
    """

    schedule: Schedule
    seeds: tuple[str, ...] = ()
    seeds_kept: int = 0
    seeds_key: str = ""
    sitemap: str = ""
    run: RunSpec = RunSpec()
    retries: int = 0
    retry_delay_s: float | tuple[float, ...] = 60.0  # before each repeat: the first, the second, ...; the last stays
    overlap: Literal["skip", "queue", "allow"] = "skip"
    catchup: Literal["none", "latest", "all"] = "none"
    catchup_window_s: float = CATCHUP_WINDOW_S


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """A definition, in force for nominal times after `since` (wall clock, s)."""

    number: int
    since: int
    spec: JobSpec


class Row(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A nominal time and what became of it, or a range of them (`to`, `count`) that were missed for one reason.

    `nominal`, `to`: wall clock, s; the other times too, 0 where it has not happened. A manual run has the time when
    somebody wanted it. Times and figures are those of the last attempt; `pages` are answers of any status. The state of
    a run follows from its times.
    """

    nominal: int
    to: int
    count: int
    state: State
    revision: int
    is_manual: bool = False
    run: str = ""
    attempts: int = 0
    picked_at: float = 0.0  # an owner decided; 0 of a run that a rebuild found in the archive
    started_at: float = 0.0  # its first seeds are added
    completed_at: float = 0.0
    failed_at: float = 0.0
    retry_at: float = 0.0  # the next attempt; 0: there is none
    limit: str = ""  # which one it reached; ENDED: none, people ended it
    pages: int = 0
    errors: int = 0
    bytes: int = 0
    reason: str = ""
    unchanged: int = 0

    @property
    def ended_at(self) -> float:
        return self.completed_at or self.failed_at

    @property
    def outcome(self) -> Outcome:
        """How far its run is."""
        if not self.run:
            return Outcome.NONE
        if self.failed_at:
            return Outcome.RETRYING if self.retry_at else Outcome.FAILED
        if not self.completed_at:
            return Outcome.RUNNING
        if not self.picked_at:
            return Outcome.UNKNOWN
        if self.limit == ENDED:
            return Outcome.STOPPED
        return Outcome.LIMITED if self.limit else Outcome.FINISHED

    @property
    def place(self) -> float:
        """Its place in the history, which no other row has: a manual run is behind the nominal time of its second."""
        return self.nominal + 0.5 if self.is_manual else float(self.nominal)


class Repeat(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A run that failed and is repeated at a time (wall clock, s)."""

    row: Row
    at: float


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as its partition keeps it."""

    id: str
    user: str
    name: str
    created_at: float
    revisions: tuple[Revision, ...]  # oldest first: those that are in force, or that a row below belongs to
    done_to: int
    pauses: tuple[
        tuple[int, int], ...
    ] = ()  # nominal times after the first and up to the second number are passed over
    newest: Row | None = None  # the newest row, if it is a gap
    active: tuple[Row, ...] = ()  # runs that have not ended
    queued: tuple[Row, ...] = ()
    repeats: tuple[Repeat, ...] = ()
    requested: tuple[int, ...] = ()  # manual runs that have not started
    requested_last: int = 0

    @property
    def spec(self) -> JobSpec:
        return self.revisions[-1].spec

    @property
    def revision(self) -> int:
        return self.revisions[-1].number

    @property
    def is_paused(self) -> bool:
        return bool(self.pauses) and self.pauses[-1][1] == OPEN

    def spec_of(self, revision: int) -> JobSpec:
        """The definition that a row belongs to."""
        return next(r.spec for r in self.revisions if r.number == revision)


def retry_delays(spec: JobSpec) -> tuple[float, ...]:
    """Before the first repeat, the second, and so on; the last holds for all further ones."""
    return spec.retry_delay_s if isinstance(spec.retry_delay_s, tuple) else (spec.retry_delay_s,)


def seed_blocks(urls: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Seeds as they are kept beside a job."""
    rest = iter(urls)
    while block := tuple(itertools.islice(rest, SEEDS_A_BLOCK)):
        yield block


def check_spec(spec: JobSpec, *, has_seeds: bool) -> None:
    """Do the parts of a definition fit together? `has_seeds`: it is to get some. Raises UsageError."""
    if not (has_seeds or spec.seeds or spec.seeds_kept or spec.sitemap):
        raise UsageError("a job needs seeds, a sitemap, or both")
    if not 0 <= spec.retries <= RETRIES_MAX:
        raise UsageError(f"the number of retries must be from 0 to {RETRIES_MAX}")
    delays = retry_delays(spec)
    if not (0 < len(delays) <= RETRIES_MAX and min(delays) >= 0):
        raise UsageError(f"give 1 to {RETRIES_MAX} delays before retries, none of them negative")
    if spec.catchup_window_s <= 0:
        raise UsageError("the catch-up window must be more than 0")
    for name in ("pages", "bytes", "urls"):
        if not 0 <= getattr(spec.run, name) <= COUNT_MAX:
            raise UsageError(f"the limit of {name} must be from 0 to {COUNT_MAX:,}")
    if not -1 <= spec.run.depth <= DEPTH_MAX:
        raise UsageError(f"the depth must be from 0 to {DEPTH_MAX}")
    if not -PRIORITY_MAX <= spec.run.priority <= PRIORITY_MAX:  # also what is not a number
        raise UsageError(f"the priority must be from {-PRIORITY_MAX:,} to {PRIORITY_MAX:,}")
