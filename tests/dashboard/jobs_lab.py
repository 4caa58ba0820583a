"""Jobs of several users with a history, served, as if instances had triggered them for days."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from crawler.crawl.opening import OpenCrawl
from crawler.frontier.operator_log import Actor, Via
from crawler.rules.cron import schedule_of
from crawler.rules.job_plan import Plan
from crawler.rules.job_runs import RunSpec, run_id
from crawler.rules.job_text import SchedulePatch
from crawler.rules.jobs import JobSpec, Outcome, Row, State
from crawler.runtime.clocks import wall_s
from crawler.views import jobs
from tests.dashboard.dashboard_lab import HOSTILE, Dashboard, serve_crawl
from tests.support.processes import nursery

OPERATOR = Actor(who="ops", via=Via.CLI)
HOUR_S = 3600
ROWS = 60  # of the history of a job that has a long one
JOBS: dict[tuple[str, str], dict[str, Any]] = {
    ("ann", "news"): {"execution_interval": "PT3H"},
    ("ann", "prices"): {"cron": "*/15 6-20 * * 1-5", "timezone": "Europe/Paris"},
    ("bob", "docs"): {"cron": "30 2 * * *", "timezone": "Europe/Paris"},
    ("bob", "status"): {"execution_interval": "PT10M"},
    ("carol", "catalogue"): {"execution_interval": "P1D", "jitter": "10m"},
    ("carol", "launch"): {"execution_interval": "P40D", "is_recurring": False},
    ("default", "archive"): {"execution_interval": "PT1H"},
}
ROWS_OF = {"news": ROWS, "prices": 25, "docs": 12, "status": 40, "catalogue": 18, "archive": 9}
MISSED = {5: (State.MISSED_WINDOW, 12), 13: (State.SKIPPED_OVERLAP, 1), 21: (State.PAUSED, 3)}  # newest is 0
FAILED = (3, 16)


async def fill(crawl: OpenCrawl) -> None:
    """Add the jobs and their histories."""
    now = int(wall_s())
    for (user, name), given in JOBS.items():
        run = RunSpec(scope="host", depth=2)
        schedule = SchedulePatch(**given).schedule(None, now)
        spec = JobSpec(schedule=schedule, run=run, retries=2 if name == "docs" else 0)
        await jobs.add_job(crawl, user, name, spec, [f"https://{name}.example/"], actor=OPERATOR)
        stored = await crawl.jobs.find(user, name)
        rows = [_row(stored.job.id, name, now, n) for n in range(ROWS_OF.get(name, 0))]
        active = tuple(row for row in rows if row.outcome is Outcome.RUNNING)
        job = replace(stored.job, active=active)
        await crawl.jobs.change(stored, Plan(job=job, put=tuple(rows), due=now + 1e6), None)
    await jobs.pause_job(crawl, "default", "archive", actor=OPERATOR)


def _row(job: str, name: str, now: int, n: int) -> Row:
    """The row of the last time but n, of one each hour."""
    at = now - (n + 1) * HOUR_S
    kind = n + 3 * (len(name) - len("news"))  # so that they do not all look the same
    if kind in MISSED:
        state, count = MISSED[kind]
        return Row(nominal=at, to=at + 60 * (count - 1), count=count, state=state, revision=1, picked_at=float(at))
    row = Row(
        nominal=at, to=at, count=1, state=State.STARTED, revision=1, run=run_id(job, 1, at), attempts=1,
        picked_at=float(at), started_at=at + 1.0, completed_at=at + 60.0 + n,
        pages=40 + (n * 7 + len(name)) % 23, errors=n % 3, bytes=2_000_000 + n * 10_000,
    )  # fmt: skip
    if kind in FAILED:
        return replace(row, completed_at=0.0, failed_at=row.completed_at, pages=0, reason=f"no usable page: {HOSTILE}")
    if n == 0 and name in ("news", "status"):
        return replace(row, picked_at=now - 47.0, started_at=0.0, completed_at=0.0, pages=0)
    return row


async def fill_many(crawl: OpenCrawl) -> None:
    """Thirty jobs more, of one user."""
    spec = JobSpec(schedule=schedule_of(every="P1D", now_s=int(wall_s())))
    for n in range(30):
        await jobs.add_job(crawl, "zoe", f"site{n:02}", spec, [f"https://site{n}.example/"], actor=OPERATOR)


@contextlib.contextmanager
def served_jobs(folder: Path) -> Iterator[Dashboard]:
    """A crawl with these jobs, and nothing that triggers them."""
    with nursery({}) as programs:
        assert programs.crawler("seed", "https://docs.example/", "--dir", str(folder)).wait() == 0
        board = serve_crawl(programs, folder)
        board.ask(fill)
        yield board
