"""Jobs by HTTP: create, change, remove, trigger; what became of their times; runs.

A token sees the jobs of its own user, and for it there are no others. A browser that opened the printed link is the
operator, and so is whoever may read without a token: they see the jobs of all users.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from crawler.api.call import Call, NoBody, NoQuery
from crawler.api.problem import ProblemError
from crawler.rules.job_names import NAME_MAX, check_job, check_user
from crawler.rules.job_runs import ID_MAX
from crawler.rules.job_text import JobPatch, SchedulePatch
from crawler.rules.jobs import FAILED_MAX
from crawler.rules.schedule_text import PREVIEW_MAX
from crawler.runtime.clocks import wall_s
from crawler.views import failed_runs, jobs
from crawler.views.failed_runs import FailedRunsChange
from crawler.views.job_view import FailedRuns, HistoryPage, JobPage, JobView, Preview, RemovedJob, RunView, preview_view
from crawler.views.users import UserView, list_users

# Bodies and parameters of requests about jobs; answers are those of views/job_view.py.

JOBS_MAX = 200  # of a page
ROWS_MAX = 50  # with each job of a page
TIMES = 10


class NewJob(JobPatch, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A job: when (one of executionInterval, cron, at), and what (seeds, sitemap or both)."""

    name: (
        Annotated[
            str,
            Meta(
                min_length=1, max_length=NAME_MAX, pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$",
                description="Made from the first host and the schedule when it is left out",
            ),
        ]
        | UnsetType
    ) = UNSET  # fmt: skip


class FailedRunsBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which failed runs: some by their ids, or all of the job."""

    runs: Annotated[list[Annotated[str, Meta(max_length=ID_MAX)]], Meta(max_length=FAILED_MAX)] = []
    all: bool = False


class UserList(msgspec.Struct, frozen=True, kw_only=True):
    """The users who have URLs that wait, or another weight than 1."""

    users: Sequence[UserView]


class JobsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`match`: a part of "USER/NAME". `rows`: how many of its last rows come with each job."""

    after: Annotated[str, Meta(max_length=2 * NAME_MAX + 1)] = ""
    limit: Annotated[int, Meta(ge=1, le=JOBS_MAX)] = 50
    match: Annotated[str, Meta(max_length=2 * NAME_MAX + 1)] = ""
    rows: Annotated[int, Meta(ge=0, le=ROWS_MAX)] = 0


class HistoryPageQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`after` is `next` of the page before."""

    after: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 50


class TimesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many times."""

    times: Annotated[int, Meta(ge=1, le=PREVIEW_MAX)] = TIMES


class ScheduleQuery(SchedulePatch, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A schedule as a job would have it from now on: one of executionInterval, cron and at."""

    times: Annotated[int, Meta(ge=1, le=PREVIEW_MAX)] = TIMES


async def all_jobs(call: Call[JobsQuery, NoBody]) -> JobPage:
    """The jobs that the sender sees, page by page: those of all users, or with a token those of its user."""
    return await _list(call, call.identity.jobs_of)


async def users(call: Call[NoQuery, NoBody]) -> UserList:
    """Who shares what the crawl can fetch, with weights; with a token its user alone. null: URLs of no job."""
    found, own = await list_users(await call.crawl()), call.identity.jobs_of
    return UserList(users=[one for one in found if own in (None, one.user)])


async def page(call: Call[JobsQuery, NoBody]) -> JobPage:
    """The jobs of a user, page by page."""
    return await _list(call, _user(call))


async def _list(call: Call[JobsQuery, NoBody], user: str | None) -> JobPage:
    query = call.query
    return await jobs.list_jobs(
        await call.crawl(), user, after=query.after, limit=query.limit, match=query.match, rows=query.rows
    )


async def create(call: Call[NoQuery, NewJob]) -> JobView:
    """Create a job. Its first time is after now."""
    user, body = _user(call), call.body
    spec = body.applied(None, int(wall_s()))
    return await jobs.add_job(await call.crawl(), user, body.name or "", spec, body.seeds or [], actor=call.actor)


async def one(call: Call[NoQuery, NoBody]) -> JobView:
    """A job: its definition, how it stands, when it runs next."""
    return await jobs.find_job(await call.crawl(), *_job(call))


async def change(call: Call[NoQuery, JobPatch]) -> JobView:
    """Change a job for times after now: what is not given stays."""
    (user, name), body, now_s = _job(call), call.body, int(wall_s())
    seeds = None if body.seeds is UNSET else body.seeds
    return await jobs.edit_job(
        await call.crawl(), user, name, lambda spec: body.applied(spec, now_s), seeds=seeds, actor=call.actor
    )


async def remove(call: Call[NoQuery, NoBody]) -> RemovedJob:
    """Remove a job with its history; its active runs end."""
    user, name = _job(call)
    return await jobs.remove_job(await call.crawl(), user, name, actor=call.actor)


async def trigger(call: Call[NoQuery, NoBody]) -> JobView:
    """Start a run now, whatever the schedule; the last of `requested` is its time."""
    return await jobs.run_job(await call.crawl(), *_job(call), actor=call.actor)


async def pause(call: Call[NoQuery, NoBody]) -> JobView:
    """Trigger a job no more until it is resumed; its active runs go on."""
    return await jobs.pause_job(await call.crawl(), *_job(call), actor=call.actor)


async def resume(call: Call[NoQuery, NoBody]) -> JobView:
    """Trigger a paused job again."""
    return await jobs.resume_job(await call.crawl(), *_job(call), actor=call.actor)


async def history(call: Call[HistoryPageQuery, NoBody]) -> HistoryPage:
    """What became of each of a job's times, newest first, page by page; a page may have a row or two more."""
    query = call.query
    return await jobs.history_of(await call.crawl(), *_job(call), before=query.after, limit=query.limit)


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
    return await jobs.preview_job(await call.crawl(), *_job(call), call.query.times)


async def schedule_preview(call: Call[ScheduleQuery, NoBody]) -> Preview:
    """The next times of a schedule that no job has yet, and the schedule in words."""
    now_s = int(wall_s())
    return preview_view(call.query.schedule(None, now_s), call.query.times, now_s)


async def run(call: Call[NoQuery, NoBody]) -> RunView:
    """A run: what became of it, and the definition that it ran with."""
    return await own_run(call, call.part("run"))


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
