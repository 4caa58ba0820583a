"""Jobs as people and clients see them."""

import math
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace

from crawler.rules.job_plan import next_time
from crawler.rules.jobs import Job, JobSpec, Row, RunCounts, State, retry_delays
from crawler.rules.schedules import Schedule, as_iso, describe, iso_duration, moment_of, parse_duration, preview
from crawler.terminal.text import counted, duration, facts, rate, size, table


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


# Jobs, their history and their next times as commands print them. Pure.


SEEDS_SHOWN = 3
LIMITS = ("scope", "depth", "pages", "bytes", "urls")
_RESULTS = {
    "queued": "queued",
    "skipped_overlap": "skipped (overlap)",
    "skipped_limit": "skipped (limit)",
    "missed_window": "missed",
    "paused": "paused",
    "failed_to_start": "failed to start",
    "unknown": "unknown",
}
_ENDINGS = {
    "finished": "It finished",
    "limited": "It has as much as it may",
    "stopped": "It was ended by hand",
    "failed": "It failed",
    "retrying": "It failed, and is repeated",
    "unknown": "The engine lost how it ended",
}
_OVERLAP = {"skip": "the next time is skipped", "queue": "the next run waits", "allow": "both runs go on"}
_REFETCH = {
    "changed": "sites are asked what has changed since an earlier run",
    "all": "each page is requested whole",
}
_CATCHUP = {
    "none": "missed times are skipped",
    "latest": "the latest of the missed times is run",
    "all": "all missed times are run",
}


def next_text(view: JobView, now_s: float) -> str:
    """Like "next in 2 h 59 m"."""
    if view.next is None:
        return "paused" if view.state == "paused" else "no further time"
    return f"next in {duration(max(0, math.ceil(moment_of(view.next) - now_s)))}"


def jobs_table(views: Sequence[JobView], now_s: float) -> str:
    """A row for each job."""
    rows = [
        (
            view.name,
            view.user,
            view.state,
            view.schedule,
            "-" if view.next is None else next_text(view, now_s).removeprefix("next "),
            str(len(view.running) or "-"),
            str(view.failed or "-"),
        )
        for view in views
    ]
    return table(("job", "user", "state", "when", "next", "running", "failed"), rows, left=5)


def with_facts(view: JobView, now_s: float, running: Mapping[str, RunCountsView]) -> JobView:
    """The same, with its sentence and facts. `running`: what has become of the URLs of its runs."""
    waiting = f"; {counted(view.waiting, 'run')} wait{'s' * (view.waiting == 1)}" if view.waiting else ""
    failed = f"; {counted(view.failed, 'failed run')} ('crawler jobs failed' tells why)" if view.failed else ""
    going_on = [(f"run {run}", _live_text(counts)) for run, counts in running.items()]
    more = len(view.running) - len(running)
    found = [
        ("job", f"{view.name} of user {view.user}, {view.state}"),
        *_definition_facts(view),
        *(going_on or [("runs", "none goes on")]),
        *([("more runs", f"{more:,} go on")] if more > 0 and running else []),
        ("revision", f"{view.revision:,}, created {view.created}"),
    ]
    sentence = f"{view.schedule[0].upper()}{view.schedule[1:]}: {next_text(view, now_s)}{waiting}{failed}."
    return replace(view, sentence=sentence, facts=found)


def job_text(view: JobView) -> str:
    """One job in full, its sentence first."""
    history = f"\n\n{history_table(view.last_rows)}" if view.last_rows else ""
    return f"{view.sentence}\n\n{facts(view.facts or ())}{history}"


def _definition_facts(d: Definition) -> list[tuple[str, str]]:
    """What a job, or a run, is to do."""
    limits = [f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}" for name, value in _limits(d)]
    delays = ", ".join(duration(parse_duration(one)) for one in d.retry_delay.split(","))
    window = "" if d.catchup == "none" else f", at most {duration(parse_duration(d.catchup_window))} back"
    return [
        ("when", d.schedule),
        ("seeds", _seeds_text(d)),
        ("limits", ", ".join(limits) or "those of the crawl"),
        ("refetch", f"{d.refetch}: {_REFETCH[d.refetch]}"),
        ("retries", f"{d.max_retry_count}, after {delays}" if d.max_retry_count else "none"),
        ("overlap", f"{d.overlap}: {_OVERLAP[d.overlap]}"),
        ("catch up", f"{d.catchup}{window}: {_CATCHUP[d.catchup]}"),
    ]


def _limits(d: Definition) -> Iterator[tuple[str, object]]:
    yield from ((name, value) for name in LIMITS if (value := getattr(d, name)) is not None)
    if d.priority:
        yield "priority", f"{d.priority:g}"


def _live_text(counts: RunCountsView) -> str:
    return f"{counted(counts.pages, 'page')}, {counted(counts.pending, 'URL')} pending"


def run_view(job: Job, row: Row, counts: RunCounts | None, spec: JobSpec | None, now_s: float) -> RunView:
    """A run with its sentence and facts. `counts`: while it goes on. `spec`: as it was then, if that is still kept."""
    shown, live = history_row(row), None if counts is None else run_counts(counts)
    begun, end = row.started_at or row.picked_at, row.completed_at or row.failed_at or (now_s if live else 0.0)
    took_s = max(0.0, end - begun) if begun and end else 0.0
    speed = f", {rate((live or row).pages / took_s)} pages/s" if took_s >= 1 else ""
    if live:
        sentence = f"It is running: {_live_text(live)}{speed}, for {duration(round(took_s))}."
    else:
        what = _ENDINGS.get(row.outcome.value, shown.result)
        took = f" in {duration(round(took_s))}" if took_s else ""
        sentence = f"{what}: {counted(row.pages, 'page')}{took}{f'; {row.reason}' if row.reason else ''}."
    times = (
        ("scheduled for", shown.nominal),
        ("picked", shown.picked_at),
        ("started", shown.started_at),
        ("completed", shown.completed_at),
        ("failed", shown.failed_at),
        ("repeated", shown.retry_at),
        ("reason", row.reason),
    )
    definition = None if spec is None else definition_view(spec)
    kept = [("definition", "not kept: the job has changed too often since")]
    found = [
        ("job", f"{job.name} of user {job.user}, revision {row.revision:,}"),
        ("result", shown.result),
        *((name, text) for name, text in times if text),
        *(_counts_facts(live, speed) if live else _row_facts(row, speed)),
        *(kept if definition is None else _definition_facts(definition)),
    ]
    return RunView(
        run=row.run, user=job.user, job=job.name, row=shown, counts=live, definition=definition, sentence=sentence,
        facts=found,
    )  # fmt: skip


def _row_facts(row: Row, speed: str) -> list[tuple[str, str]]:
    unchanged = [("unchanged", f"{row.unchanged:,}")] if row.unchanged else []
    return [("pages", f"{row.pages:,}{speed}"), *unchanged, ("errors", f"{row.errors:,}"), ("size", size(row.bytes))]


def _counts_facts(c: RunCountsView, speed: str) -> list[tuple[str, str]]:
    statuses = ", ".join(f"{status}xx {n:,}" for status, n in c.statuses.items())
    return [
        ("pages", f"{c.pages:,}{f' ({statuses})' if statuses else ''}{speed}"),
        *([("unchanged", f"{c.unchanged:,}")] if c.unchanged else []),
        ("URLs", f"{c.added:,}, of them {c.pending:,} pending"),
        *((name, f"{n:,}") for name, n in (("refused", c.refused), ("dead letters", c.dead), ("deferred", c.deferred))),
        ("retries", f"{c.retries:,}"),
        ("size", size(c.bytes)),
        *([("items", f"{c.items:,}")] if c.items else []),
    ]


def _seeds_text(view: Definition) -> str:
    shown = list(view.seeds[:SEEDS_SHOWN])
    more = view.seeds_total - len(shown)
    if more:
        shown.append(f"{more:,} more" if shown else counted(more, "URL"))
    if view.sitemap:
        shown.append(f"sitemap {view.sitemap}")
    return ", ".join(shown)


def history_table(rows: Sequence[HistoryRow]) -> str:
    """A row for each nominal time, or range of them. Figures of a run are known when it has ended."""
    cells = [
        (
            row.nominal or f"{row.from_} to {row.to} ({row.count:,})",
            row.result,
            row.run,
            _pages_text(row) if row.completed_at or row.failed_at else "",
            f"{row.errors:,}" if row.completed_at or row.failed_at else "",
            f"  {row.reason}" if row.reason else "",
        )
        for row in rows
    ]
    lines = table(("time", "result", "run", "pages", "errors", ""), cells, left=3).splitlines()
    return "\n".join(line.rstrip() for line in lines)


def _pages_text(row: HistoryRow) -> str:
    return f"{row.pages:,} ({row.unchanged:,} unchanged)" if row.unchanged else f"{row.pages:,}"


def failed_table(rows: Sequence[FailedRun]) -> str:
    """A row for each failed run, with why it failed."""
    cells = [
        (row.failed_at, f"{row.user}/{row.job}", row.nominal, row.run, str(row.attempts), row.reason) for row in rows
    ]
    return table(("failed at", "job", "time", "run", "attempts", "why"), cells, left=6)


def preview_table(rows: Sequence[NextTime], timezone: str) -> str:
    """The next times, in UTC and by the clocks of the schedule's zone."""
    if timezone == "UTC":
        return "\n".join(["UTC", *(row.nominal for row in rows)])
    return table(("UTC", timezone, ""), [(row.nominal, row.local, row.note) for row in rows], left=3)
