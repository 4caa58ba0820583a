"""Jobs as the API has them: the bodies of requests, and answers. Names of fields are in camelCase here, and only here.

Durations are ISO 8601 ("PT3H", "P1D") in answers. Requests may have 90, 10m, 2h or 1d as well.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from crawler.reports.job_view import DefinitionView, FailedRun, HistoryRow, JobView, RunCountsView
from crawler.rules.jobs import FAILED_MAX, RETRIES_MAX
from crawler.rules.names import NAME_MAX
from crawler.rules.runs import ID_MAX
from crawler.rules.schedule_text import PREVIEW_MAX, PreviewRow
from crawler.rules.schedules import AT_CHARS_MAX, as_iso
from crawler.service.command_input import DEPTH_MAX
from crawler.service.users import UserView
from crawler.settings.schema import PRIORITY_MAX

URL_CHARS_MAX = 8_192
TEXT_MAX = 200  # of a cron expression, or the name of a time zone
JOBS_MAX = 200  # of a page
ROWS_MAX = 50  # with each job of a page
TIMES = 10

Duration = Annotated[str, Meta(min_length=1, max_length=64, examples=["PT3H", "90", "10m"])]
Url = Annotated[str, Meta(max_length=URL_CHARS_MAX)]
Text = Annotated[str, Meta(min_length=1, max_length=TEXT_MAX)]
Time = Annotated[str, Meta(min_length=1, max_length=AT_CHARS_MAX)]


class JobChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a job is to become: what is not given stays. null: as the crawl, or none."""

    execution_interval: (
        Annotated[Duration, Meta(description="How often: each so many whole seconds, from 1 on")] | UnsetType
    ) = UNSET
    cron: Annotated[Text, Meta(description='When: five fields, like "0 */6 * * *", in the time zone')] | UnsetType = (
        UNSET
    )
    at: Annotated[Time, Meta(description="When, once: 2027-01-31T12:00Z; without an offset in the time zone")] | (
        UnsetType
    ) = UNSET
    is_recurring: (
        Annotated[
            bool,
            Meta(
                description="true: again and again, by executionInterval or cron. false: once, at `at`, or as long "
                "from now as executionInterval. It follows from these when it is left out, and must fit them."
            ),
        ]
        | UnsetType
    ) = UNSET
    timezone: Annotated[Text, Meta(description="Like Europe/Paris; UTC at first")] | UnsetType = UNSET
    jitter: Annotated[Duration, Meta(description="It is triggered up to this much later")] | UnsetType = UNSET
    seeds: Annotated[list[Url], Meta(description="URLs with their scheme")] | UnsetType = UNSET
    sitemap: (
        Annotated[Url, Meta(description="URL of a sitemap that is read for each run: its URLs are seeds")]
        | UnsetType
        | None
    ) = UNSET
    scope: Literal["domain", "host", "prefix", "any"] | UnsetType | None = UNSET
    depth: (
        Annotated[int, Meta(ge=0, le=DEPTH_MAX, description="Links that lead deeper are not followed")]
        | UnsetType
        | None
    ) = UNSET
    pages: Annotated[int, Meta(ge=1, le=2**53, description="A run ends after so many")] | UnsetType | None = UNSET
    priority: (
        Annotated[float, Meta(ge=-PRIORITY_MAX, le=PRIORITY_MAX, description="Higher is fetched first")] | UnsetType
    ) = UNSET
    max_retry_count: (
        Annotated[int, Meta(ge=0, le=RETRIES_MAX, description="How often a run that failed is repeated")] | UnsetType
    ) = UNSET
    retry_delay: Annotated[Duration, Meta(description="Before each repeat; PT1M at first")] | UnsetType = UNSET
    overlap: (
        Annotated[
            Literal["skip", "queue", "allow"], Meta(description="When the run before it has not ended; skip at first")
        ]
        | UnsetType
    ) = UNSET
    catchup: (
        Annotated[
            Literal["none", "latest", "all"],
            Meta(description="Which times are made up for that passed while no instance ran; none at first"),
        ]
        | UnsetType
    ) = UNSET
    catchup_window: Annotated[Duration, Meta(description="How far back catchup reaches; P1D at first")] | UnsetType = (
        UNSET
    )


class NewJob(JobChange, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A job: its name, when (one of executionInterval, cron, at), and what (seeds, sitemap or both)."""

    name: Annotated[str, Meta(min_length=1, max_length=NAME_MAX, pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class Definition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a job is to do, and when. null: as the crawl, or none. `schedule` is in words."""

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
    priority: float
    max_retry_count: int
    retry_delay: str
    overlap: str
    catchup: str
    catchup_window: str


class JobAnswer(Definition, frozen=True, kw_only=True, rename="camel"):
    """A job. `running` has ids of runs, `requested` the times of manual runs that have not started."""

    user: str
    name: str
    id: str
    state: str  # active, paused or done
    created: str
    revision: int
    next: str | None
    running: Sequence[str]
    waiting: int  # runs that are queued, requested or to be repeated
    requested: Sequence[str]
    failed: int  # runs that used up their retries, until they are repeated or dismissed
    last_rows: Sequence[HistoryRow] | UnsetType = UNSET  # newest first; where they were asked for


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs by user and name. `next` is the `after` of the page behind it; "" where there is none."""

    jobs: Sequence[JobAnswer]
    next: str


class JobHistory(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a job's times, newest first. `next` is the `after` of the page behind it; "": there is none."""

    rows: Sequence[HistoryRow]
    next: str


class FailedRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that used up their retries, the last first."""

    failed: Sequence[FailedRun]


class FailedRunsBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which failed runs: some by their ids, or all of the job."""

    runs: Annotated[list[Annotated[str, Meta(max_length=ID_MAX)]], Meta(max_length=FAILED_MAX)] = []
    all: bool = False


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


class RunAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A run: what became of it, and the definition that it ran with, if that is still kept. `counts`: until it ends."""

    run: str
    user: str
    job: str
    row: HistoryRow
    counts: RunCountsView | None
    definition: Definition | None


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


class ScheduleQuery(TimesQuery, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A schedule as a job would have it from now on: one of executionInterval, cron and at."""

    execution_interval: Annotated[str, Meta(max_length=64)] = ""
    cron: Annotated[str, Meta(max_length=TEXT_MAX)] = ""
    at: Annotated[str, Meta(max_length=AT_CHARS_MAX)] = ""
    is_recurring: bool | None = None
    timezone: Annotated[str, Meta(max_length=TEXT_MAX)] = ""
    jitter: Annotated[str, Meta(max_length=64)] = ""


def definition_of(view: DefinitionView) -> Definition:
    """A definition as answers have it."""
    return Definition(**_definition(view))


def job_answer(view: JobView, rows: Sequence[HistoryRow] | None = None) -> JobAnswer:
    """A job as answers have it."""
    return JobAnswer(
        **_definition(view), user=view.user, name=view.name, id=view.id, state=view.state, created=view.created,
        revision=view.revision, next=view.next, running=view.running, waiting=view.waiting, requested=view.requested,
        failed=view.failed, last_rows=UNSET if rows is None else rows,
    )  # fmt: skip


def _definition(view: DefinitionView) -> dict[str, Any]:
    return {
        "schedule": view.schedule, "is_recurring": view.at is None,
        "execution_interval": iso_duration(view.every_s) if view.every_s else None, "cron": view.cron, "at": view.at,
        "timezone": view.timezone, "jitter": iso_duration(view.jitter_s), "seeds": view.seeds,
        "seeds_total": view.seeds_total, "sitemap": view.sitemap, "scope": view.scope, "depth": view.depth,
        "pages": view.pages, "priority": view.priority, "max_retry_count": view.retries,
        "retry_delay": iso_duration(view.retry_delay_s), "overlap": view.overlap, "catchup": view.catchup,
        "catchup_window": iso_duration(view.catchup_window_s),
    }  # fmt: skip


def preview_answer(schedule: str, rows: Sequence[PreviewRow]) -> Preview:
    """The next times as answers have them."""
    times = [NextTime(nominal=as_iso(row.nominal), local=row.local, note=row.note) for row in rows]
    return Preview(schedule=schedule, times=times)


def iso_duration(seconds: float) -> str:
    """Seconds in ISO 8601, in days, hours, minutes and seconds: "PT3H", "P1DT30M", "PT0.5S"."""
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    date = f"{days:.0f}D" if days else ""
    time = "".join(f"{n:.0f}{unit}" for n, unit in ((hours, "H"), (minutes, "M")) if n)
    if rest or not (date or time):
        time += f"{f'{rest:.3f}'.rstrip('0').rstrip('.')}S"
    return f"P{date}{'T' if time else ''}{time}"
