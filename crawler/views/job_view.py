"""Jobs as people and clients see them."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from crawler.rules.cron import Schedule, as_iso
from crawler.rules.job_plan import next_time
from crawler.rules.job_runs import RunCounts
from crawler.rules.jobs import Job, JobSpec, Row, State, retry_delays
from crawler.rules.schedule_text import describe, preview
from crawler.rules.schedules import iso_duration
from crawler.terminal.words import counted

_RESULTS = {
    "queued": "queued",
    "skipped_overlap": "skipped (overlap)",
    "skipped_limit": "skipped (limit)",
    "missed_window": "missed",
    "paused": "paused",
    "failed_to_start": "failed to start",
    "unknown": "unknown",
}


class HistoryRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a nominal time, or (`from`, `to`, `count`) of several that were missed for one reason.

    Times are ISO 8601, in UTC. `state`: see `State` of rules/jobs.py; `outcome`: running, retrying, finished, limited,
    stopped, failed or unknown, which follows from the times of the last attempt.
    """

    nominal: str = ""
    from_: str = msgspec.field(name="from", default="")
    to: str = ""
    count: int = 0
    state: str
    result: str  # for people: what became of it
    run: str = ""
    outcome: str = ""
    manual: bool = False
    attempts: int = 0
    picked_at: str = ""
    started_at: str = ""
    completed_at: str = ""
    failed_at: str = ""
    retry_at: str = ""
    pages: int = 0
    unchanged: int = 0  # of the pages: as an earlier run archived them
    errors: int = 0
    bytes: int = 0
    reason: str = ""
    revision: int = 0


class Definition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a job is to do, and when. null: as the crawl, or none. `schedule` is in words; durations are ISO 8601."""

    schedule: str
    is_recurring: bool
    execution_interval: str | None
    cron: str | None
    at: str | None
    timezone: str
    jitter: str
    seeds: Sequence[str]  # none where there are too many to show
    seeds_total: int
    sitemap: str | None
    scope: str | None
    depth: int | None
    pages: int | None
    bytes: int | None
    urls: int | None
    priority: float
    refetch: str
    max_retry_count: int
    retry_delay: str
    overlap: str
    catchup: str
    catchup_window: str


class JobView(Definition, frozen=True, kw_only=True, rename="camel"):
    """A job: its definition, what it does now and next. Times are ISO 8601, in UTC; null where there is none."""

    user: str
    name: str
    job_id: str = msgspec.field(name="job_id")
    state: str  # active, paused or done
    created: str
    revision: int
    next: str | None
    running: Sequence[str]  # ids of runs
    waiting: int  # runs that are queued, requested or to be repeated
    requested: Sequence[str]  # times of manual runs that have not started
    failed: int  # runs that used up their retries, until they are repeated or dismissed
    last_rows: Sequence[HistoryRow] | UnsetType = UNSET  # newest first; where they were asked for
    sentence: str | UnsetType = UNSET  # for people: when, and what waits; not in lists
    facts: Sequence[tuple[str, str]] | UnsetType = UNSET  # for people: names and texts; not in lists


class RunCountsView(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of the URLs of a run that goes on."""

    added: int
    pending: int
    done: int  # committed, or refused
    dead: int
    deferred: int  # their domain is stopped
    refused: int
    retries: int
    pages: int
    unchanged: int  # of the pages: as an earlier run archived them
    statuses: dict[str, int]  # pages by the first digit of their status, from "2" on
    bytes: int
    items: int


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run: what became of it, and the definition that it ran with, if that is still kept. `counts`: until it ends."""

    run: str
    user: str
    job: str
    row: HistoryRow
    counts: RunCountsView | None
    definition: Definition | None
    sentence: str  # for people: what becomes of it
    facts: Sequence[tuple[str, str]]  # for people: names and texts


class FailedRun(HistoryRow, frozen=True, kw_only=True, omit_defaults=True):
    """A run that used up its attempts: the dead letter of a job."""

    user: str
    job: str


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs by user and name. `next` is the `after` of the page behind it; "" where there is none."""

    jobs: Sequence[JobView]
    next: str


class HistoryPage(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a job's times, newest first. `next` is the `after` of the page behind it; "": there is none."""

    rows: Sequence[HistoryRow]
    next: str


class FailedRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that used up their retries, the last first."""

    failed: Sequence[FailedRun]


class RunDiff(msgspec.Struct, frozen=True, kw_only=True):
    """How many pages of two runs are of which kind. `unknown`: one of both was removed by a prune."""

    before: str
    after: str
    added: int
    removed: int
    changed: int
    unchanged: int
    unknown: int

    @property
    def text(self) -> str:
        """For people."""
        kinds = (
            (self.added, "added"),
            (self.removed, "removed"),
            (self.changed, "changed"),
            (self.unchanged, "unchanged"),
        )
        unknown = f"; {counted(self.unknown, 'page')} can't be compared: 'crawler prune' removed one of both"
        return f"{', '.join(f'{n:,} {what}' for n, what in kinds)}{unknown * bool(self.unknown)}"


class RemovedJob(msgspec.Struct, frozen=True, kw_only=True):
    """The name of what is gone."""

    removed: str


class NextTime(msgspec.Struct, frozen=True, kw_only=True):
    """A time that is to come, in UTC and by local clocks; `note`: about a change of the clocks, "" on other days."""

    nominal: str
    local: str
    note: str


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule in words, and its next times."""

    schedule: str
    times: Sequence[NextTime]


def job_view(job: Job, now_s: float, failed: int = 0, rows: Sequence[Row] | None = None) -> JobView:
    """How a job stands. `failed`: runs of it that used up their attempts. `rows`: the last ones of its history."""
    following = next_time(job, now_s)
    return JobView(
        **asdict(definition_view(job.spec)), user=job.user, name=job.name, job_id=job.id, state=_state(job, following),
        created=as_iso(int(job.created_at)), revision=job.revision,
        next=None if following is None else as_iso(following), running=[row.run for row in job.active],
        waiting=len(job.queued) + len(job.requested) + len(job.repeats), requested=[*map(as_iso, job.requested)],
        failed=failed, last_rows=UNSET if rows is None else [*map(history_row, rows)],
    )  # fmt: skip


def definition_view(spec: JobSpec) -> Definition:
    """A definition as people and clients see it."""
    schedule, run = spec.schedule, spec.run
    return Definition(
        schedule=describe(schedule), is_recurring=not schedule.at_s,
        execution_interval=iso_duration(schedule.every_s) if schedule.every_s else None, cron=schedule.cron or None,
        at=as_iso(schedule.at_s) if schedule.at_s else None, timezone=schedule.timezone,
        jitter=iso_duration(schedule.jitter_s), seeds=spec.seeds, seeds_total=len(spec.seeds) + spec.seeds_kept,
        sitemap=spec.sitemap or None, scope=run.scope or None, depth=run.depth if run.depth >= 0 else None,
        pages=run.pages or None, bytes=run.bytes or None, urls=run.urls or None, priority=run.priority,
        refetch=run.refetch,
        max_retry_count=spec.retries,
        retry_delay=",".join(map(iso_duration, retry_delays(spec))), overlap=spec.overlap, catchup=spec.catchup,
        catchup_window=iso_duration(spec.catchup_window_s),
    )  # fmt: skip


def preview_view(schedule: Schedule, times: int, after_s: int) -> Preview:
    """The next times of a schedule."""
    rows = preview(schedule, times, after_s)
    return Preview(
        schedule=describe(schedule),
        times=[NextTime(nominal=as_iso(row.nominal), local=row.local, note=row.note) for row in rows],
    )


def _state(job: Job, following: int | None) -> str:
    if job.is_paused:
        return "paused"
    return "active" if following is not None or job.active or job.queued or job.repeats or job.requested else "done"


def history_row(row: Row) -> HistoryRow:
    """A row as people see it."""
    times = {"nominal": as_iso(row.nominal)} if row.count == 1 else {"from_": as_iso(row.nominal), "to": as_iso(row.to)}
    return HistoryRow(
        **times, count=row.count if row.count > 1 else 0, state=row.state.value, run=row.run,
        outcome=row.outcome.value, manual=row.is_manual, attempts=row.attempts, picked_at=_iso(row.picked_at),
        started_at=_iso(row.started_at), completed_at=_iso(row.completed_at), failed_at=_iso(row.failed_at),
        retry_at=_iso(row.retry_at), pages=row.pages, unchanged=row.unchanged, errors=row.errors, bytes=row.bytes,
        reason=row.reason, revision=row.revision, result=_result_text(row),
    )  # fmt: skip


def _result_text(row: Row) -> str:
    text = _RESULTS.get(row.state.value, row.outcome.value)
    if row.attempts > 1:
        text += f", attempt {row.attempts}"
    return text + (", manual" if row.is_manual else "")


def failed_run(job: Job, row: Row) -> FailedRun:
    """A failed run as people see it."""
    return FailedRun(user=job.user, job=job.name, **asdict(history_row(row)))


def run_counts(counts: RunCounts) -> RunCountsView:
    """Counts of a run as people see them."""
    by_status = {"2": counts.s2, "3": counts.s3, "4": counts.s4, "5": counts.s5}
    return RunCountsView(
        added=counts.added, pending=counts.pending, done=counts.done, dead=counts.dead, deferred=counts.deferred,
        refused=counts.refused, retries=counts.retries, pages=counts.pages, unchanged=counts.unchanged,
        statuses={status: n for status, n in by_status.items() if n}, bytes=counts.bytes, items=counts.items,
    )  # fmt: skip


def open_pause(job: Job, now_s: float) -> HistoryRow | None:
    """What a pause that goes on has passed over by now; its row is stored when the pause ends."""
    if not job.is_paused:
        return None
    begun = max(job.pauses[-1][0], job.done_to)
    span = job.spec.schedule.span(begun, int(now_s))
    if span.first is None or span.last is None:
        return None
    row = Row(nominal=span.first, to=span.last, count=span.count, state=State.PAUSED, revision=job.revision)
    return history_row(row)


def _iso(at_s: float) -> str:
    return as_iso(int(at_s)) if at_s else ""
