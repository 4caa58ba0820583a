"""Jobs by HTTP: create, change, remove, trigger; what became of their times; runs.

A token sees the jobs of its own user, and for it there are no others. A browser that opened the printed link is the
operator, and so is whoever may read without a token: they see the jobs of all users.
"""

from http import HTTPStatus
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from crawler.api.call import Call, NoBody, NoQuery
from crawler.api.job_types import (
    FailedRuns,
    FailedRunsBody,
    HistoryPageQuery,
    JobAnswer,
    JobChange,
    JobHistory,
    JobList,
    JobsQuery,
    NewJob,
    Preview,
    RemovedJob,
    RunAnswer,
    ScheduleQuery,
    TimesQuery,
    UserList,
    definition_of,
    job_answer,
    preview_answer,
)
from crawler.api.problem import ProblemError
from crawler.errors import UsageError
from crawler.reports.job_view import RunView
from crawler.rules.durations import parse_duration
from crawler.rules.jobs import JobSpec
from crawler.rules.names import check_job, check_user
from crawler.rules.schedule_text import describe, preview
from crawler.rules.schedules import Schedule
from crawler.runtime.clock import wall_s
from crawler.service import failed_runs, jobs
from crawler.service.failed_runs import FailedRunsChange
from crawler.service.job_schedule import changed_schedule
from crawler.service.users import list_users


async def all_jobs(call: Call[JobsQuery, NoBody]) -> JobList:
    """The jobs that the sender sees, page by page: those of all users, or with a token those of its user."""
    return await _list(call, call.identity.jobs_of)


async def users(call: Call[NoQuery, NoBody]) -> UserList:
    """Who shares what the crawl can fetch, with weights; with a token its user alone. null: URLs of no job."""
    found, own = await list_users(await call.crawl()), call.identity.jobs_of
    return UserList(users=[one for one in found if own in (None, one.user)])


async def page(call: Call[JobsQuery, NoBody]) -> JobList:
    """The jobs of a user, page by page."""
    return await _list(call, _user(call))


async def _list(call: Call[JobsQuery, NoBody], user: str | None) -> JobList:
    crawl, query = await call.crawl(), call.query
    found = await jobs.list_jobs(crawl, user, after=query.after, limit=query.limit, match=query.match)
    rows = await jobs.last_rows(crawl, found.jobs, query.rows) if query.rows else [None] * len(found.jobs)
    answers = [job_answer(view, some) for view, some in zip(found.jobs, rows, strict=True)]
    return JobList(jobs=answers, next=found.after or "")


async def create(call: Call[NoQuery, NewJob]) -> JobAnswer:
    """Create a job. Its first time is after now."""
    user, body = _user(call), call.body
    spec = _changed(body, None)
    seeds = [] if body.seeds is UNSET else body.seeds
    return job_answer(await jobs.add_job(await call.crawl(), user, body.name, spec, seeds, actor=call.actor))


async def one(call: Call[NoQuery, NoBody]) -> JobAnswer:
    """A job: its definition, how it stands, when it runs next."""
    return job_answer(await jobs.find_job(await call.crawl(), *_job(call)))


async def change(call: Call[NoQuery, JobChange]) -> JobAnswer:
    """Change a job for times after now: what is not given stays."""
    user, name = _job(call)
    seeds = None if call.body.seeds is UNSET else call.body.seeds
    view = await jobs.edit_job(
        await call.crawl(), user, name, lambda spec: _changed(call.body, spec), seeds=seeds, actor=call.actor
    )
    return job_answer(view)


async def remove(call: Call[NoQuery, NoBody]) -> RemovedJob:
    """Remove a job with its history; its active runs end."""
    user, name = _job(call)
    await jobs.remove_job(await call.crawl(), user, name, actor=call.actor)
    return RemovedJob(removed=name)


async def trigger(call: Call[NoQuery, NoBody]) -> JobAnswer:
    """Start a run now, whatever the schedule; the last of `requested` is its time."""
    return job_answer(await jobs.run_job(await call.crawl(), *_job(call), actor=call.actor))


async def pause(call: Call[NoQuery, NoBody]) -> JobAnswer:
    """Trigger a job no more until it is resumed; its active runs go on."""
    return job_answer(await jobs.pause_job(await call.crawl(), *_job(call), actor=call.actor))


async def resume(call: Call[NoQuery, NoBody]) -> JobAnswer:
    """Trigger a paused job again."""
    return job_answer(await jobs.resume_job(await call.crawl(), *_job(call), actor=call.actor))


async def history(call: Call[HistoryPageQuery, NoBody]) -> JobHistory:
    """What became of each of a job's times, newest first, page by page; a page may have a row or two more."""
    query = call.query
    found = await jobs.history_of(await call.crawl(), *_job(call), before=query.after, limit=query.limit)
    return JobHistory(rows=found.rows, next="" if found.before is None else str(found.before))


async def failed(call: Call[NoQuery, NoBody]) -> FailedRuns:
    """The runs of a job that used up their retries, the last first; they are its newest hundred."""
    user, name = _job(call)
    return FailedRuns(failed=await failed_runs.failed_runs(await call.crawl(), user, name))


async def retry(call: Call[NoQuery, FailedRunsBody]) -> FailedRunsChange:
    """Repeat failed runs now, as the job is defined now."""
    return await failed_runs.retry(await call.crawl(), *_job(call), _wanted(call.body), actor=call.actor)


async def dismiss(call: Call[NoQuery, FailedRunsBody]) -> FailedRunsChange:
    """Take failed runs off the list; the history keeps them."""
    return await failed_runs.dismiss(await call.crawl(), *_job(call), _wanted(call.body), actor=call.actor)


def _wanted(body: FailedRunsBody) -> list[str] | None:
    if bool(body.runs) == body.all:
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, 'choose which: "runs", or "all": true')
    return body.runs or None


async def next_times(call: Call[TimesQuery, NoBody]) -> Preview:
    """The next times of a job, with notes about daylight saving."""
    crawl, (user, name) = await call.crawl(), _job(call)
    view = await jobs.find_job(crawl, user, name)
    return preview_answer(view.schedule, await jobs.preview_job(crawl, user, name, call.query.times))


async def schedule_preview(call: Call[ScheduleQuery, NoBody]) -> Preview:
    """The next times of a schedule that no job has yet, and the schedule in words."""
    query, now_s = call.query, int(wall_s())
    found = changed_schedule(
        None, every=query.execution_interval, cron=query.cron, at=query.at, timezone=query.timezone,
        jitter_s=_seconds("jitter", query.jitter) if query.jitter else None, is_once=query.is_recurring is False,
        now_s=now_s,
    )  # fmt: skip
    _check_recurring(query.is_recurring, found)
    return preview_answer(describe(found), preview(found, query.times, now_s))


async def run(call: Call[NoQuery, NoBody]) -> RunAnswer:
    """A run: what became of it, and the definition that it ran with."""
    view = await own_run(call, call.part("run"))
    return RunAnswer(
        run=view.run, user=view.user, job=view.job, row=view.row,
        counts=view.counts, definition=None if view.definition is None else definition_of(view.definition),
    )  # fmt: skip


# Who.


async def own_run(call: Call[Any, Any], run: str) -> RunView:
    """A run of a job that the sender sees. Raises NotMetError."""
    view = await jobs.find_run(await call.crawl(), run)
    if call.identity.jobs_of not in (None, view.user):
        raise jobs.no_run(run)
    return view


def _user(call: Call[Any, Any]) -> str:
    """The user in the path, if the sender sees their jobs. Raises ProblemError: names of others are not told."""
    user, own = check_user(call.part("user")), call.identity.jobs_of
    if own not in (None, user):
        raise ProblemError(
            HTTPStatus.NOT_FOUND, f"this token is of user {own}: its jobs are under /v1/users/{own}/jobs"
        )
    return user


def _job(call: Call[Any, Any]) -> tuple[str, str]:
    return _user(call), check_job(call.name)


# What.


def _changed(body: JobChange, earlier: JobSpec | None) -> JobSpec:
    """A definition with what was given. Raises UsageError."""
    spec = JobSpec(schedule=_schedule(body, None)) if earlier is None else earlier
    run = {name: getattr(body, name) for name in ("priority", "scope", "depth", "pages")}
    none: dict[str, Any] = {"scope": "", "depth": -1, "pages": 0}
    limits = {name: none[name] if value is None else value for name, value in run.items() if value is not UNSET}
    given: dict[str, Any] = {
        "run": replace(spec.run, **limits), "sitemap": UNSET if body.sitemap is UNSET else body.sitemap or "",
        "retries": body.max_retry_count, "overlap": body.overlap, "catchup": body.catchup,
    }  # fmt: skip
    if body.retry_delay is not UNSET:
        given["retry_delay_s"] = _seconds("retryDelay", body.retry_delay)
    if body.catchup_window is not UNSET:
        given["catchup_window_s"] = _seconds("catchupWindow", body.catchup_window)
    if earlier is not None:
        given["schedule"] = _schedule(body, earlier.schedule)
    return replace(spec, **{name: value for name, value in given.items() if value is not UNSET})


def _schedule(body: JobChange, earlier: Schedule | None) -> Schedule:
    when = [text for text in (body.execution_interval, body.cron, body.at) if text is not UNSET]
    if len(when) > 1 or not (when or earlier):
        raise UsageError('give one of "executionInterval", "cron" and "at"')
    is_recurring = None if body.is_recurring is UNSET else body.is_recurring
    found = changed_schedule(
        earlier, every=body.execution_interval or "", cron=body.cron or "", at=body.at or "",
        timezone=body.timezone or "", jitter_s=None if body.jitter is UNSET else _seconds("jitter", body.jitter),
        is_once=is_recurring is False, now_s=int(wall_s()),
    )  # fmt: skip
    _check_recurring(is_recurring, found)
    return found


def _check_recurring(is_recurring: bool | None, found: Schedule) -> None:
    """Raises UsageError when it does not fit the schedule."""
    is_once = bool(found.at_s)
    if is_recurring and is_once:
        raise UsageError('"isRecurring": true does not fit "at", which is one time; use "executionInterval" or "cron"')
    if is_recurring is False and not is_once:
        raise UsageError('"isRecurring": false needs "at", or "executionInterval" for how long from now')


def _seconds(name: str, text: str) -> float:
    try:
        return parse_duration(text)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None
