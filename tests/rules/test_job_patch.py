"""What a change of a job's schedule keeps, and what it replaces."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from crawler.errors import UsageError
from crawler.rules.cron import Schedule
from crawler.rules.job_names import names_for_job
from crawler.rules.job_runs import RunRecord, RunSpec
from crawler.rules.job_text import JobPatch, SchedulePatch, delays_of
from crawler.rules.jobs import JobSpec, check_spec
from crawler.views.job_view import definition_view

T0 = 1_800_000_000
HOURLY = Schedule(every_s=3600, anchor_s=T0 - 1800)
DAILY = Schedule(cron="30 2 * * *", timezone="Europe/Paris", jitter_s=60.0)
ONCE = Schedule(at_s=T0 + 500, timezone="Europe/Paris")


@pytest.mark.parametrize(
    ("earlier", "given", "found"),
    [
        (None, {"execution_interval": "1h"}, Schedule(every_s=3600, anchor_s=T0)),
        (None, {"execution_interval": "1h", "is_recurring": False}, Schedule(at_s=T0 + 3600)),
        (HOURLY, {}, HOURLY),
        (HOURLY, {"execution_interval": "PT1H"}, HOURLY),  # the same interval keeps its times
        (HOURLY, {"execution_interval": "2h"}, Schedule(every_s=7200, anchor_s=T0)),
        (HOURLY, {"jitter": "5"}, Schedule(every_s=3600, anchor_s=T0 - 1800, jitter_s=5.0)),
        (HOURLY, {"execution_interval": "1h", "is_recurring": False}, Schedule(at_s=T0 + 3600)),
        (DAILY, {"timezone": "UTC"}, Schedule(cron="30 2 * * *", jitter_s=60.0)),
        (DAILY, {"cron": "0 3 * * *"}, Schedule(cron="0 3 * * *", timezone="Europe/Paris", jitter_s=60.0)),
        (DAILY, {"jitter": "0"}, Schedule(cron="30 2 * * *", timezone="Europe/Paris")),
        (ONCE, {"timezone": "UTC"}, Schedule(at_s=T0 + 500)),  # the same moment, by other clocks
        (ONCE, {"cron": "0 3 * * *"}, Schedule(cron="0 3 * * *", timezone="Europe/Paris")),
    ],
)
def test_what_is_given_replaces_and_the_rest_stays(
    earlier: Schedule | None, given: dict[str, Any], found: Schedule
) -> None:
    assert SchedulePatch(**given).schedule(earlier, T0) == found


def test_a_schedule_that_is_not_valid_is_refused() -> None:
    for earlier, given in (
        (None, {}),
        (None, {"execution_interval": "1h", "cron": "0 3 * * *"}),
        (DAILY, {"jitter": "1d"}),
    ):
        with pytest.raises(UsageError):
            SchedulePatch(**given).schedule(earlier, T0)


@pytest.mark.parametrize(
    ("text", "delays"),
    [("60", 60.0), ("PT1,5M", 90.0), ("60,300,1800", (60.0, 300.0, 1800.0)), ("1m,PT5M, 30m", (60.0, 300.0, 1800.0))],
)
def test_delays_before_retries_are_one_or_several(text: str, delays: Any) -> None:
    assert JobPatch(execution_interval="1h", retry_delay=text).applied(None, T0).retry_delay_s == delays


@pytest.mark.parametrize("text", ["", ",", "60,", "60,soon", "60;300", "-1,5"])
def test_delays_that_are_not_valid_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="retryDelay: "):
        delays_of(text)


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("pages", (1, 2**53), (0, 2**53 + 1)),
        ("depth", (0, 255), (-1, 256)),
        ("priority", (-1e5, 1e5), (-100_001, 100_001)),
        ("maxRetryCount", (0, 100), (-1, 101)),
        ("retryDelay", ("1", "1" * 200), ("", "1" * 201)),
        ("cron", ("*", "*" * 200), ("", "*" * 201)),
        ("executionInterval", ("1", "1" * 64), ("", "1" * 65)),
        ("sitemap", ("x" * 8192,), ("x" * 8193,)),
    ],
)
def test_what_a_request_gives_has_limits(name: str, inside: tuple[Any, ...], outside: tuple[Any, ...]) -> None:
    for value in inside:
        msgspec.convert({name: value}, JobPatch)
    for value in outside:
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({name: value}, JobPatch)


def test_a_definition_that_is_shown_can_be_written() -> None:
    spec = JobSpec(
        schedule=DAILY, seeds=("https://a.example/",), sitemap="https://a.example/s.xml",
        run=RunSpec(scope="host", depth=2, pages=3, priority=4.0), retries=5, retry_delay_s=(6.5, 60.0),
        overlap="queue", catchup="all", catchup_window_s=7000.0,
    )  # fmt: skip
    shown = msgspec.to_builtins(definition_view(spec))
    names = {field.encode_name for field in msgspec.structs.fields(JobPatch)}
    assert names <= shown.keys(), "all that is written is shown"
    written = {name: value for name, value in shown.items() if name in names and (value or name == "depth")}
    assert msgspec.convert(written, JobPatch).applied(None, T0) == replace(spec, seeds=())
    other = replace(spec, run=RunSpec(), sitemap="", retries=0)
    reset = JobPatch(scope=None, depth=None, pages=None, priority=0.0, sitemap=None, max_retry_count=0)
    assert reset.applied(spec, T0) == other


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("docs.example", "docs.example-PT3H"),
        ("a_b.example:8443", "a_b.example-8443-PT3H"),
        ("[::1]", "1-PT3H"),
        ("bücher.example", "b-cher.example-PT3H"),
        ("---", "job-PT3H"),
        ("x" * 41, "x" * 40 + "-PT3H"),
    ],
)
def test_a_job_that_is_given_no_name_has_that_of_its_host(host: str, name: str) -> None:
    names = names_for_job(host, "PT3H")
    assert (names[0], names[1], names[-1], len(names)) == (name, f"{name}-2", f"{name}-100", 100)


LIMITED = {("pages", ""), ("bytes", ""), ("urls", ""), ("pages", "urls"), ("bytes", "urls")}


@pytest.mark.parametrize("limit", ["pages", "bytes", "urls", ""])
@pytest.mark.parametrize("stopped", ["", "urls", "pages", "bytes"])
def test_a_run_is_watched_as_long_as_a_limit_may_be_reached(limit: str, stopped: str) -> None:
    spec = RunSpec(**{limit: 1} if limit else {})
    run = RunRecord(run="a.0.0", user="", name="", nominal=0, started_at=0.0, spec=spec, stopped=stopped)
    assert run.is_limited is ((limit, stopped) in LIMITED)


SEEDED = JobSpec(schedule=HOURLY, seeds=("https://a.example/",))


@pytest.mark.parametrize(
    ("given", "inside", "outside"),
    [
        ("retries", (0, 100), (-1, 101)),
        ("retry_delay_s", (0.0, (0.0,) * 100), (-1.0, (), (1.0, -1.0), (0.0,) * 101)),
        ("catchup_window_s", (0.5,), (0.0, -1.0)),
        ("pages", (0, 2**53), (-1, 2**53 + 1)),
        ("bytes", (0, 2**53), (-1, 2**53 + 1)),
        ("urls", (0, 2**53), (-1, 2**53 + 1)),
        ("depth", (-1, 0, 255), (-2, 256)),
        ("priority", (-1e5, 1e5), (-100_000.5, 100_000.5, float("nan"))),
    ],
)
def test_the_parts_of_a_job_have_limits(given: str, inside: tuple[Any, ...], outside: tuple[Any, ...]) -> None:
    def of(value: Any) -> JobSpec:
        is_of_run = given in RunSpec.__struct_fields__
        return replace(SEEDED, **({"run": RunSpec(**{given: value})} if is_of_run else {given: value}))

    for value in inside:
        check_spec(of(value), has_seeds=False)
    for value in outside:
        with pytest.raises(UsageError):
            check_spec(of(value), has_seeds=False)


def test_a_job_needs_something_to_begin_with() -> None:
    without = replace(SEEDED, seeds=())
    with pytest.raises(UsageError, match="needs seeds"):
        check_spec(without, has_seeds=False)
    for spec, has_seeds in (
        (without, True),
        (replace(without, seeds_kept=1), False),
        (replace(without, sitemap="x"), False),
    ):
        check_spec(spec, has_seeds=has_seeds)
