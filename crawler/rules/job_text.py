"""A job as people and clients write it: what is given replaces what there was, and the rest stays. Pure.

The command line and the body of a request are this one record. Names are in camelCase outside. UNSET is not given;
None is as the crawl, or none.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from crawler.errors import UsageError
from crawler.rules.cron import AT_CHARS_MAX, Schedule, as_iso, interval_of, schedule_of
from crawler.rules.job_runs import DEPTH_MAX, RunSpec
from crawler.rules.jobs import RETRIES_MAX, JobSpec
from crawler.rules.schedules import parse_duration
from crawler.settings.schema import COUNT_MAX, PRIORITY_MAX

URL_CHARS_MAX = 8_192
TEXT_MAX = 200  # of a cron expression, or the name of a time zone

Duration = Annotated[str, Meta(min_length=1, max_length=64, examples=["PT3H", "90", "10m"])]
Url = Annotated[str, Meta(max_length=URL_CHARS_MAX)]
Text = Annotated[str, Meta(min_length=1, max_length=TEXT_MAX)]
Time = Annotated[str, Meta(min_length=1, max_length=AT_CHARS_MAX)]
Limit = Annotated[int, Meta(ge=1, le=COUNT_MAX)]


class SchedulePatch(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """When: at most one of executionInterval, cron and at."""

    execution_interval: (
        Annotated[Duration, Meta(description="How often: each so many whole seconds, from 1 on")] | UnsetType
    ) = UNSET
    cron: Annotated[Text, Meta(description='Five fields, like "0 */6 * * *", in the time zone')] | UnsetType = UNSET
    at: Annotated[Time, Meta(description="Once: 2027-01-31T12:00Z; without an offset in the time zone")] | UnsetType = (
        UNSET
    )
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

    def schedule(self, earlier: Schedule | None, now_s: int) -> Schedule:
        """A schedule of what is given, and otherwise of the earlier one. Raises UsageError.

        An interval that is as it was keeps its times.
        """
        every, cron, at = self.execution_interval or "", self.cron or "", self.at or ""
        given = bool(every) + bool(cron) + bool(at)
        if given > 1 or not (given or earlier):
            raise UsageError('give one of "executionInterval", "cron" and "at"')
        timezone = self.timezone or (earlier.timezone if earlier else "UTC")
        jitter_s = _seconds("jitter", self.jitter, earlier.jitter_s if earlier else 0.0)
        if every and self.is_recurring is False:
            every, at = "", as_iso(now_s + interval_of(every))
        if earlier and not given and (timezone, jitter_s) == (earlier.timezone, earlier.jitter_s):
            found = earlier
        else:
            if earlier and not given:
                every, cron = f"{earlier.every_s}" if earlier.every_s else "", earlier.cron
                at = as_iso(earlier.at_s) if earlier.at_s else ""
            found = schedule_of(every=every, cron=cron, at=at, timezone=timezone, jitter_s=jitter_s, now_s=now_s)
            if earlier and found.every_s and found.every_s == earlier.every_s:
                found = replace(found, anchor_s=earlier.anchor_s)
        if self.is_recurring is True and found.at_s:
            raise UsageError(
                '"isRecurring": true does not fit "at", which is one time; use "executionInterval" or "cron"'
            )
        if self.is_recurring is False and not found.at_s:
            raise UsageError('"isRecurring": false needs "at", or "executionInterval" for how long from now')
        return found


class JobPatch(SchedulePatch, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a job is to become: what is not given stays. null: as the crawl, or none."""

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
    pages: Annotated[Limit, Meta(description="A run ends after so many")] | UnsetType | None = UNSET
    bytes: Annotated[Limit, Meta(description="A run ends after so many, of bodies")] | UnsetType | None = UNSET
    urls: Annotated[Limit, Meta(description="A run adds no more links after so many URLs")] | UnsetType | None = UNSET
    priority: (
        Annotated[float, Meta(ge=-PRIORITY_MAX, le=PRIORITY_MAX, description="Higher is fetched first")] | UnsetType
    ) = UNSET
    refetch: (
        Annotated[
            Literal["changed", "all"],
            Meta(
                description="changed: ask sites whether pages have changed since an earlier run, and take the archived "
                "body where they have not. all: request every page whole"
            ),
        ]
        | UnsetType
    ) = UNSET
    max_retry_count: (
        Annotated[int, Meta(ge=0, le=RETRIES_MAX, description="How often a run that failed is repeated")] | UnsetType
    ) = UNSET
    retry_delay: (
        Annotated[
            str,
            Meta(
                min_length=1, max_length=TEXT_MAX, examples=["PT1M", "60,300,1800"],
                description="Before each repeat; several with commas: before the first, the second, and so on, the "
                "last for all others. PT1M at first",
            ),
        ]
        | UnsetType
    ) = UNSET  # fmt: skip
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

    def applied(self, earlier: JobSpec | None, now_s: int) -> JobSpec:
        """The definition with what is given, but for its seeds. Raises UsageError."""
        spec = JobSpec(schedule=self.schedule(earlier.schedule if earlier else None, now_s))
        spec = spec if earlier is None else replace(earlier, schedule=spec.schedule)
        none = RunSpec()
        run = {name: getattr(self, name) for name in RunSpec.__struct_fields__}
        limits = {name: getattr(none, name) if value is None else value for name, value in _given(run).items()}
        others = {
            "sitemap": "" if self.sitemap is None else self.sitemap, "retries": self.max_retry_count,
            "overlap": self.overlap, "catchup": self.catchup,
        }  # fmt: skip
        return replace(
            spec, run=replace(spec.run, **limits),
            retry_delay_s=delays_of(self.retry_delay) if self.retry_delay else spec.retry_delay_s,
            catchup_window_s=_seconds("catchupWindow", self.catchup_window, spec.catchup_window_s), **_given(others),
        )  # fmt: skip


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not UNSET}


def delays_of(text: str) -> float | tuple[float, ...]:
    """Seconds before the first repeat, the second, and so on: "60", or "60,300,1800". Raises UsageError."""
    try:
        return parse_duration(text)  # a comma is a decimal point in ISO 8601
    except UsageError:
        found = tuple(_seconds("retryDelay", one, 0.0) for one in text.split(","))
    return found if len(found) > 1 else found[0]


def _seconds(name: str, text: str | UnsetType, otherwise: float) -> float:
    try:
        return otherwise if text is UNSET else parse_duration(text)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None
