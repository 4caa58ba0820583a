"""Jobs, their history and their next times as commands print them. Pure."""

import math
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from crawler.rules.cron import moment_of
from crawler.rules.job_runs import RunCounts
from crawler.rules.jobs import Job, JobSpec, Row
from crawler.rules.schedules import parse_duration
from crawler.terminal.tables import facts, table
from crawler.terminal.words import counted, duration, rate, size
from crawler.views.job_view import (
    Definition,
    FailedRun,
    HistoryRow,
    JobView,
    NextTime,
    RunCountsView,
    RunView,
    definition_view,
    history_row,
    run_counts,
)

SEEDS_SHOWN = 3
LIMITS = ("scope", "depth", "pages", "bytes", "urls")
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
