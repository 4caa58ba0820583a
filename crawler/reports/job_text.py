"""Jobs, their history and their next times as commands print them. Pure."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from crawler.reports.job_view import FailedRun, HistoryRow, JobView, NextTime, RunCountsView
from crawler.rules.schedules import moment_of, parse_duration
from crawler.terminal.tables import facts, table
from crawler.terminal.wording import counted, duration

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


def job_facts(view: JobView, now_s: float, running: Mapping[str, RunCountsView] = MappingProxyType({})) -> str:
    """One job in full. `running`: what has become of the URLs of its runs."""
    limits = [f"{name} {value}" for name in LIMITS if (value := getattr(view, name)) is not None]
    if view.priority:
        limits.append(f"priority {view.priority:g}")
    catching_up = "" if view.catchup == "none" else f", at most {duration(parse_duration(view.catchup_window))} back"
    pairs = [
        ("job", f"{view.name} of user {view.user}"),
        ("state", view.state),
        ("when", f"{view.schedule}, {next_text(view, now_s)}"),
        ("seeds", _seeds_text(view)),
        ("limits", ", ".join(limits) or "those of the crawl"),
        ("retries", _retries_text(view)),
        ("overlap", view.overlap),
        ("catch up", view.catchup + catching_up),
        *(("running", _run_text(run, running.get(run))) for run in view.running or ["no run"]),
    ]
    if view.waiting:
        pairs.append(("waiting", counted(view.waiting, "run")))
    if view.failed:
        pairs.append(("failed", f"{counted(view.failed, 'run')}: 'crawler jobs failed' tells why"))
    return facts(pairs)


def _retries_text(view: JobView) -> str:
    delays = ", ".join(duration(parse_duration(one)) for one in view.retry_delay.split(","))
    return f"{view.max_retry_count}, after {delays}" if view.max_retry_count else "none"


def _run_text(run: str, counts: RunCountsView | None) -> str:
    """Like "0k3v9x2m7q.1.trvm5c: 4 pages, 48 pending"."""
    return run if counts is None else f"{run}: {counted(counts.pages, 'page')}, {counts.pending:,} pending"


def _seeds_text(view: JobView) -> str:
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
            result_text(row),
            row.run,
            f"{row.pages:,}" if row.completed_at or row.failed_at else "",
            f"{row.errors:,}" if row.completed_at or row.failed_at else "",
            f"  {row.reason}" if row.reason else "",
        )
        for row in rows
    ]
    lines = table(("time", "result", "run", "pages", "errors", ""), cells, left=3).splitlines()
    return "\n".join(line.rstrip() for line in lines)


def failed_table(rows: Sequence[FailedRun]) -> str:
    """A row for each failed run, with why it failed."""
    cells = [
        (row.failed_at, f"{row.user}/{row.job}", row.nominal, row.run, str(row.attempts), row.reason) for row in rows
    ]
    return table(("failed at", "job", "time", "run", "attempts", "why"), cells, left=6)


def result_text(row: HistoryRow) -> str:
    """What became of a nominal time, in words."""
    text = _RESULTS.get(row.state, row.outcome)
    if row.attempts > 1:
        text += f", attempt {row.attempts}"
    return text + (", manual" if row.manual else "")


def preview_table(rows: Sequence[NextTime], timezone: str) -> str:
    """The next times, in UTC and by the clocks of the schedule's zone."""
    if timezone == "UTC":
        return "\n".join(["UTC", *(row.nominal for row in rows)])
    return table(("UTC", timezone, ""), [(row.nominal, row.local, row.note) for row in rows], left=3)
