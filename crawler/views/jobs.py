"""Jobs of a crawl: added, changed, listed, their runs and failures."""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from crawler.archive.job_journal import JobJournal, JobLine, line_of, seed_lines
from crawler.crawl.opening import OpenCrawl
from crawler.errors import ConflictError, InvalidUrl, NotMetError, UsageError
from crawler.frontier.jobs import LIST_SEPARATOR, Changed, NameTaken, job_id
from crawler.frontier.operator_log import Actor
from crawler.jobs.clock_check import ClockCheck
from crawler.rules import job_plan
from crawler.rules.cron import Schedule
from crawler.rules.job_names import check_job, check_user, names_for_job
from crawler.rules.job_plan import next_time, stopped
from crawler.rules.job_runs import RunCounts, name_of, total_of
from crawler.rules.jobs import SEEDS_INLINE_BYTES, SEEDS_INLINE_MAX, Job, JobSpec, Outcome, Row, check_spec
from crawler.rules.schedule_text import describe
from crawler.rules.schedules import iso_duration
from crawler.rules.urls import canonicalize, host_of, refuse_credentials, refuse_fields, without_comment
from crawler.runtime.clocks import wall_s
from crawler.terminal.words import counted
from crawler.views.job_lines import run_view, with_facts
from crawler.views.job_view import (
    HistoryPage,
    JobPage,
    JobView,
    Preview,
    RemovedJob,
    RunView,
    history_row,
    job_view,
    open_pause,
    preview_view,
    run_counts,
)

ROWS_SHOWN = 5  # of the history, with a job
RUNS_COUNTED = 5  # of those that go on
TRIES = 20  # of a change, while others change the same job
SEARCH_STEP, SEARCHED_MAX = 500, 10_000  # jobs that one page of a search looks at


async def add_job(
    crawl: OpenCrawl, user: str, name: str, spec: JobSpec, seeds: Iterable[str], *, actor: Actor
) -> JobView:
    """Create a job with these seeds, as given. Raises UsageError, InvalidUrl, NameTaken.

    Without a name it gets one that is free, from its first host and its schedule.
    """
    check_user(user)
    if name:
        check_job(name)
    spec, urls = _checked(spec, has_seeds=bool(seeds)), _canonical_urls(seeds)
    now_s = await checked_s(crawl)
    names = [name] if name else names_for_job(host_of([*urls, *spec.seeds, spec.sitemap][0]), _brief(spec.schedule))
    for one in names:
        with contextlib.suppress(NameTaken):
            return await _add(crawl, user, one, spec, urls, now_s, actor)
    raise NameTaken(user, names[-1])


def _brief(schedule: Schedule) -> str:
    return iso_duration(schedule.every_s) if schedule.every_s else "cron" if schedule.cron else "once"


async def _add(
    crawl: OpenCrawl, user: str, name: str, spec: JobSpec, urls: Sequence[str], now_s: float, actor: Actor
) -> JobView:
    number = job_id(user, name)
    with contextlib.suppress(NotMetError):
        await crawl.jobs.find(user, name)
        raise NameTaken(user, name)
    await crawl.operator_log.add(actor, "jobs add", target(user, name), describe(spec.schedule))
    spec = await _with_seeds(crawl, number, spec, urls)
    try:
        job = await _create(crawl, user, name, spec, now_s)
    except ConflictError:
        await crawl.jobs.drop_seeds(number, filter(None, [spec.seeds_key]))
        raise
    await crawl.jobs.notify()
    return await _view_of(crawl, job, now_s)


async def _create(crawl: OpenCrawl, user: str, name: str, spec: JobSpec, now_s: float) -> Job:
    number = job_id(user, name)
    for _ in range(TRIES):
        revision = await crawl.jobs.first_revision(number)
        job = job_plan.created(number, user, name, spec, now_s, revision=revision)
        await _note(crawl, line_of(job))
        with contextlib.suppress(Changed):  # another was removed meanwhile
            await crawl.jobs.create(job, due=_first_look(job))
            return job
    raise contended(name)


async def checked_s(crawl: OpenCrawl) -> float:
    """What time it is, for a change of a job. Raises ConflictError if this machine's clock is wrong."""
    return await ClockCheck(crawl.engine).checked_s()


def _first_look(job: Job) -> float | None:
    following = job.spec.schedule.next_after(job.done_to)
    return None if following is None else float(following)


def _checked(spec: JobSpec, *, has_seeds: bool) -> JobSpec:
    """The definition with a canonical sitemap, if it is valid. `has_seeds`: it is to get some."""
    check_spec(spec, has_seeds=has_seeds)
    return replace(spec, sitemap=spec.sitemap and _canonical(spec.sitemap))


async def _with_seeds(crawl: OpenCrawl, job: str, spec: JobSpec, urls: Sequence[str]) -> JobSpec:
    """The definition with canonical seeds: a few in it, many beside it."""
    if len(urls) <= SEEDS_INLINE_MAX and sum(map(len, urls)) <= SEEDS_INLINE_BYTES:
        return replace(spec, seeds=tuple(urls), seeds_kept=0, seeds_key="")
    key = secrets.token_hex(4)
    await _note(crawl, *seed_lines(key, urls))
    kept = await crawl.jobs.keep_seeds(job, key, urls)
    return replace(spec, seeds=(), seeds_kept=kept, seeds_key=key)


def _canonical_urls(given: Iterable[str]) -> list[str]:
    """Each once. Raises InvalidUrl."""
    return list(dict.fromkeys(_canonical(url) for url in given))


def _canonical(text: str) -> str:
    try:
        refuse_credentials(text)
        refuse_fields(without_comment(text))
        return canonicalize(without_comment(text))
    except InvalidUrl as error:
        raise InvalidUrl(text, error.reason) from None


async def edit_job(
    crawl: OpenCrawl,
    user: str,
    name: str,
    change: Callable[[JobSpec], JobSpec],
    *,
    seeds: Sequence[str] | None = None,
    actor: Actor,
) -> JobView:
    """Give a job another definition, in force for nominal times after now. `seeds`: None keeps those that it has."""
    now_s = await checked_s(crawl)
    await _note_order(crawl, actor, "jobs edit", user, name)
    for _ in range(TRIES):
        stored = await crawl.jobs.find(user, name)
        spec = change(stored.job.spec)
        if seeds is not None:
            spec = replace(spec, seeds=(), seeds_kept=0, seeds_key="")
        spec = _checked(spec, has_seeds=bool(seeds))
        if seeds is not None:
            spec = await _with_seeds(crawl, stored.job.id, spec, _canonical_urls(seeds))
        job = job_plan.edited(stored.job, spec, now_s)
        try:
            await _note(crawl, line_of(job))
            await crawl.jobs.change(stored, job_plan.Plan(job=job, due=now_s), None, new_revision=True)
        except Changed:
            if spec.seeds_key != stored.job.spec.seeds_key:
                await crawl.jobs.drop_seeds(job.id, filter(None, [spec.seeds_key]))
            continue
        await crawl.jobs.drop_old(job)
        await crawl.jobs.notify()
        return await _view_of(crawl, job, now_s)
    raise contended(name)


async def pause_job(crawl: OpenCrawl, user: str, name: str, *, actor: Actor) -> JobView:
    """Trigger it no more until it is resumed; runs that are active go on. Raises ConflictError when it is paused."""
    return await _change(crawl, user, name, "jobs pause", job_plan.paused, actor)


async def resume_job(crawl: OpenCrawl, user: str, name: str, *, actor: Actor) -> JobView:
    """Trigger it again. What was passed over becomes one row of its history."""
    return await _change(crawl, user, name, "jobs resume", job_plan.resumed, actor)


async def run_job(crawl: OpenCrawl, user: str, name: str, *, actor: Actor) -> JobView:
    """Start a run now, whatever its schedule, and also while it is paused or another run is active."""
    return await _change(crawl, user, name, "jobs run", job_plan.requested, actor)


async def _change(
    crawl: OpenCrawl, user: str, name: str, action: str, step: Callable[[Job, float], Job], actor: Actor
) -> JobView:
    now_s = await checked_s(crawl)
    await _note_order(crawl, actor, action, user, name)
    for _ in range(TRIES):
        stored = await crawl.jobs.find(user, name)
        job = step(stored.job, now_s)
        try:
            if job.is_paused != stored.job.is_paused:
                await _note(crawl, line_of(job))
            await crawl.jobs.change(stored, job_plan.Plan(job=job, due=now_s), None)
        except Changed:
            continue
        await crawl.jobs.notify()
        return await _view_of(crawl, job, now_s)
    raise contended(name)


async def _note_order(crawl: OpenCrawl, actor: Actor, action: str, user: str, name: str, detail: str = "") -> None:
    """In the operator log, before it is done. Raises NotMetError for a job that there is not."""
    await crawl.jobs.find(user, name)
    await crawl.operator_log.add(actor, action, target(user, name), detail)


class StoppedRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that were told to end."""

    job: str
    runs: Sequence[str]


async def end_runs(
    crawl: OpenCrawl, user: str, name: str, runs: Sequence[str] | None = (), *, actor: Actor
) -> StoppedRuns:
    """Have active runs of a job end, which goes on. What they have fetched counts; what waits is refused.

    `runs`: none for the only one, None for all. An instance notes the end when open requests are done, within seconds.
    Raises NotMetError for a run that is not active, ConflictError when it is not clear which one is meant.
    """
    now_s = await checked_s(crawl)
    await _note_order(crawl, actor, "jobs end", user, name, _detail(runs) if runs != () else "")
    for _ in range(TRIES):
        stored = await crawl.jobs.find(user, name)
        active = [row.run for row in stored.job.active]
        if runs == () and len(active) > 1:
            raise ConflictError(
                f"{len(active)} runs of job {name} are active: name them ({', '.join(active)}), or --all"
            )
        wanted = list(dict.fromkeys(runs or active))
        if missing := {*wanted} - {*active}:
            raise NotMetError(f"{min(missing)[:80]!r} is not an active run of job {name}; nothing was changed")
        if not wanted:
            raise NotMetError(f"no run of job {name} is active")
        found = [one.record for one in (await crawl.runs.look(wanted)).values() if one is not None]
        with contextlib.suppress(Changed):
            await crawl.jobs.change(stored, stopped(stored.job, found, now_s), None)
            await crawl.jobs.notify()
            return StoppedRuns(job=name, runs=wanted)
    raise contended(name)


async def remove_job(crawl: OpenCrawl, user: str, name: str, *, actor: Actor) -> RemovedJob:
    """Remove a job with its history. Its active runs end: what is queued of them is not fetched."""
    await _note_order(crawl, actor, "jobs rm", user, name)
    for _ in range(TRIES):
        stored = await crawl.jobs.find(user, name)
        try:
            await _note(crawl, line_of(stored.job, removed=True))
            await crawl.jobs.remove(stored)
        except Changed:
            continue
        await crawl.jobs.notify()
        return RemovedJob(removed=name)
    raise contended(name)


async def find_job(crawl: OpenCrawl, user: str, name: str) -> JobView:
    """How a job stands, with its sentence, its facts and the last rows of its history."""
    return await _view_of(crawl, (await crawl.jobs.find(user, name)).job, wall_s())


async def _view_of(crawl: OpenCrawl, job: Job, now_s: float) -> JobView:
    (failed,) = await crawl.jobs.failed_counts([job.id])
    history = (await _history(crawl, job, limit=ROWS_SHOWN)).rows
    runs = [row.run for row in job.active[:RUNS_COUNTED]]
    counts = {run: run_counts(one) for run, one in zip(runs, await _counts(crawl, runs), strict=True)}
    return with_facts(replace(job_view(job, now_s, failed), last_rows=history), now_s, counts)


async def _counts(crawl: OpenCrawl, runs: Sequence[str]) -> list[RunCounts]:
    return [total_of(seen.values()) for seen in await crawl.runs.passes(runs)] if runs else []


async def list_jobs(
    crawl: OpenCrawl, user: str | None, *, after: str = "", limit: int = 100, match: str = "", rows: int = 0
) -> JobPage:
    """Jobs of a user, or of all (None), by user and name; `match`: those with this text in "USER/NAME". `rows`: how
    many of its last rows come with each.

    A search looks at a bounded number of jobs: its page may be short and still have one behind it.
    """
    step = SEARCH_STEP if match else limit
    place, looked, found = _place(user, after), 0, list[Job]()
    while True:
        jobs, place = await crawl.jobs.page(user, after=place, limit=step)
        found += [job for job in jobs if match.lower() in target(job.user, job.name).lower()]
        looked += step
        if not place or not match or len(found) >= limit or looked >= SEARCHED_MAX:
            break
    behind = "/".join(place.split(LIST_SEPARATOR)[:2])
    if len(found) > limit:
        del found[limit:]
        behind = target(found[-1].user, found[-1].name)
    now_s, ids = wall_s(), [job.id for job in found]
    failed, last = await crawl.jobs.failed_counts(ids), await asyncio.gather(*(_last(crawl, one, rows) for one in ids))
    views = [job_view(job, now_s, n, some) for job, n, some in zip(found, failed, last, strict=True)]
    return JobPage(jobs=views, next=behind)


async def _last(crawl: OpenCrawl, job: str, rows: int) -> list[Row] | None:
    return await crawl.jobs.history(job, limit=rows) if rows else None


async def going_on(crawl: OpenCrawl) -> list[str]:
    """A line about the jobs that have a next time, for who ends with a crawl that has jobs."""
    found, behind = await crawl.jobs.page(None, limit=SEARCH_STEP)
    names = [job.name for job in found if next_time(job, wall_s()) is not None]
    if not names:
        return []
    more = " or more" if behind else ""
    which = f"job {names[0]} goes on at its" if len(names) == 1 else f"{len(names)}{more} jobs go on at their"
    return [f"{which} next time: keep 'crawler run'"]


def _place(user: str | None, after: str) -> str:
    """Where a page begins, as the list of names has it."""
    if not after:
        return ""
    of, _, name = after.partition("/")
    if not name or (user is not None and of != user):
        raise UsageError("after: expected what the page before has for the next one")
    return LIST_SEPARATOR.join((of, name, job_id(of, name)))


async def history_of(
    crawl: OpenCrawl, user: str, name: str, *, before: int | None = None, limit: int = 100
) -> HistoryPage:
    """What became of a job's nominal times, newest first; a row or two more than `limit` may come."""
    return await _history(crawl, (await crawl.jobs.find(user, name)).job, before=before, limit=limit)


async def _history(crawl: OpenCrawl, job: Job, *, before: int | None = None, limit: int) -> HistoryPage:
    found = await crawl.jobs.history(job.id, before=before, limit=limit + 2)
    page = found[:limit]
    if len(found) > limit and found[limit].nominal == page[-1].nominal:
        page.append(found[limit])  # a manual run of the same second: the next page begins before both
    rows = [history_row(row) for row in page]
    if before is None and (pause := open_pause(job, wall_s())):
        rows.insert(0, pause)
    return HistoryPage(rows=rows, next=str(page[-1].nominal) if len(found) > len(page) else "")


async def find_run(crawl: OpenCrawl, run: str) -> RunView:
    """A run that is active, or in the history of its job. Raises NotMetError when there is none."""
    parts = name_of(run)
    (stored,) = [None] if parts is None else await crawl.jobs.read([parts.job])
    if stored is None or parts is None:
        raise no_run(run)
    job = stored.job
    rows = [*job.active, *await crawl.jobs.history(job.id, before=parts.nominal + 1, limit=2)]
    row = next((row for row in rows if row.run == run), None)
    if row is None:
        row = next((row for (rows,) in [await crawl.jobs.failed([job.id])] for row in rows if row.run == run), None)
    if row is None:
        raise no_run(run)
    revision = (await crawl.jobs.revisions(job.id)).get(row.revision)
    (counts,) = await _counts(crawl, [run]) if row.outcome is Outcome.RUNNING else [None]
    return run_view(job, row, counts, None if revision is None else revision.spec, wall_s())


def no_run(run: str) -> NotMetError:
    """There is no such run; the same for one that the sender must not know of."""
    return NotMetError(f"there is no run {run[:80]!r}: 'crawler jobs history NAME' has those of a job")


async def preview_job(crawl: OpenCrawl, user: str, name: str, times: int = 10) -> Preview:
    """The next nominal times of a job, with notes about daylight saving."""
    job = (await crawl.jobs.find(user, name)).job
    return preview_view(job.spec.schedule, times, max(int(wall_s()), job.done_to))


async def _note(crawl: OpenCrawl, *lines: JobLine) -> None:
    """In the folder's journal, before the engine has it: 'crawler rebuild' recreates jobs from there."""
    journal = JobJournal(crawl.folder, crawl.keys.crawl_name, crawl.record.first_begun_at)
    await asyncio.to_thread(journal.append, lines)


def target(user: str, name: str) -> str:
    """What the operator log calls a job."""
    return f"{user}/{name}"


def contended(name: str) -> ConflictError:
    """Others changed it at each try."""
    return ConflictError(f"job {name!r} is changed by others all the time: try again")


def _detail(runs: Sequence[str] | None) -> str:
    """What the operator log has besides."""
    return "all" if runs is None else runs[0] if len(runs) == 1 else counted(len(runs), "run")
