"""Bodies and parameters of requests about jobs; answers are those of views/job_view.py."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from crawler.rules.jobs import FAILED_MAX, ID_MAX, NAME_MAX, JobPatch, SchedulePatch
from crawler.rules.schedules import PREVIEW_MAX
from crawler.views.commands import UserView

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
