"""Jobs that an instance triggers: limits of runs, failures, overlap, pauses, removal, and replies that are lost."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from crawler.archive.session_locks import SessionLock
from crawler.cli.main import main
from crawler.crawl.opening import make_seeder, member_of_command, open_crawl
from crawler.crawl.url_input import GivenUrl
from crawler.engine.client import Engine as EngineClient
from crawler.errors import EngineDown, NotMetError
from crawler.frontier.jobs import Changed, Jobs, job_id
from crawler.jobs.runs import RunWatch
from crawler.recovery.pause import Pause
from crawler.rules.job_plan import stopped
from crawler.rules.job_runs import RunRecord, RunSpec, run_id
from crawler.rules.jobs import Outcome, State
from crawler.runtime.clocks import wall_s
from crawler.views import failed_runs, jobs
from tests.crawl.harness import crawl as crawl_all
from tests.crawl.harness import entries_of, lab_names, settings_of
from tests.crawl.rebuild_lab import audit
from tests.jobs.jobs_lab import ME, NAME, Lab, hasten, job_lab, job_web, linked, until
from tests.support.engine import Engine
from tests.support.patience import PATIENCE_S
from tests.support.serving import serve_resources
from tests.support.web import Resource

CHAIN = {
    ("d0.test", "/"): linked("/a", "/b", "http://d1.test/"),
    ("d0.test", "/a"): linked("/c"),
    ("d0.test", "/b"): linked(),
    ("d0.test", "/c"): linked("/d"),
    ("d0.test", "/d"): linked(),
}
WHOLE = {"d0.test/", "d0.test/a", "d0.test/b", "d0.test/c", "d0.test/d"}
SLOW = {("d0.test", "/"): linked("/a", "/b"), ("d0.test", "/a"): linked(delay_s=1.3), ("d0.test", "/b"): linked()}


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


async def finished(lab: Lab) -> str:
    """The one run that there is, once it has finished."""
    (row,) = await lab.ended()
    assert (row.state, row.outcome, row.attempts) == (State.STARTED, Outcome.FINISHED, 1)
    assert row.picked_at <= row.started_at + 1 <= row.ended_at + 1
    await lab.nothing_left()
    assert row.pages == len(lab.entries(row.run))
    return row.run


async def test_a_job_runs_at_each_of_its_times(tmp_path: Path, engine: Engine) -> None:
    async with job_lab(tmp_path, engine, CHAIN) as lab:
        await lab.add(lab.url("d0.test"), every="1", overlap="queue", run={"scope": "host"})
        rows = await lab.ended(2)
        await jobs.pause_job(lab.crawl, "default", NAME, actor=ME)
        await until(lambda: all_ended(lab), "all runs to end")
        await lab.nothing_left()
        rows = [row for row in await lab.rows() if row.run]
        assert {after.nominal - before.nominal for before, after in pairwise(rows)} == {1}
        for row in rows:
            assert (set(found := lab.fetched(row.run)), found.total()) == (WHOLE, len(WHOLE))
        assert lab.site.requests()[0].is_robots
        assert sum(one.is_robots for one in lab.site.requests()) == 1, "runs share what is known of a site"
    assert await audit(lab.settings) == 0


async def all_ended(lab: Lab) -> bool:
    return not any(row.outcome in ("running", "retrying") or row.state is State.QUEUED for row in await lab.rows())


@pytest.mark.parametrize(
    ("run", "pages"),
    [
        ({"scope": "host"}, WHOLE),
        ({"scope": "any", "depth": 0}, {"d0.test/"}),
        ({"scope": "domain", "depth": 1}, {"d0.test/", "d0.test/a", "d0.test/b"}),
        ({"scope": "prefix", "priority": 7.5}, WHOLE),
    ],
)
async def test_a_run_has_the_limits_of_its_job(
    tmp_path: Path, engine: Engine, run: dict[str, Any], pages: set[str]
) -> None:
    async with job_lab(tmp_path, engine, CHAIN) as lab:
        await lab.add(lab.url("d0.test"), run=run)
        await lab.run()
        assert set(lab.fetched(await finished(lab))) == pages
    assert await audit(lab.settings) == 0


async def test_a_run_ends_when_it_has_its_pages(tmp_path: Path, engine: Engine) -> None:
    many = {("d0.test", "/"): linked(*(f"/{n}" for n in range(60)))}
    many |= {("d0.test", f"/{n}"): linked(delay_s=0.02) for n in range(60)}
    async with job_lab(tmp_path, engine, many, fetch__concurrency=1) as lab:
        await lab.add(lab.url("d0.test"), run={"pages": 2})
        await lab.run()
        (row,) = await lab.ended()
        run = row.run
        assert (row.outcome, row.reason) == (Outcome.LIMITED, "limit of pages")
        assert 5 <= len(lab.entries(run)) < 60
    assert await audit(lab.settings) == 0


@pytest.mark.parametrize(
    ("limits", "outcome", "pages"),
    [
        ({"pages": 2}, Outcome.LIMITED, 2),
        ({"bytes": 30}, Outcome.LIMITED, 1),
        ({"urls": 2}, Outcome.LIMITED, 3),
        ({"pages": 4, "bytes": 10**6, "urls": 100}, Outcome.FINISHED, 4),
    ],
)
async def test_a_run_that_reaches_a_limit_is_a_success(
    tmp_path: Path, engine: Engine, limits: dict[str, int], outcome: Outcome, pages: int
) -> None:
    """One at a time, so that nothing more than the limit is under way."""
    web = {
        ("d0.test", "/"): linked("/a", "/b", "/c"),
        **{("d0.test", f"/{path}"): linked(delay_s=0.3) for path in "abc"},
    }
    async with job_lab(tmp_path, engine, web, politeness__delay_s=0.5) as lab:
        await lab.add(lab.url("d0.test"), run=limits)
        await lab.run()
        (row,) = await lab.ended()
        assert (row.outcome, row.pages) == (outcome, len(lab.entries(row.run)))
        assert pages <= row.pages <= 4, "or a few more, which were under way"
        assert row.reason == (f"limit of {next(iter(limits))}" if outcome is Outcome.LIMITED else "")
        await lab.nothing_left()
    assert await audit(lab.settings) == 0


async def test_runs_have_the_limits_of_the_settings_where_their_job_has_none(tmp_path: Path, engine: Engine) -> None:
    web = {("d0.test", "/"): linked("/a", "/b"), ("d0.test", "/a"): linked(), ("d0.test", "/b"): linked()}
    async with job_lab(tmp_path, engine, web, jobs__pages=1, politeness__delay_s=0.3) as lab:
        await lab.add(lab.url("d0.test"))
        await lab.run()
        (row,) = await lab.ended()
        assert (row.outcome, row.reason) == (Outcome.LIMITED, "limit of pages")


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(
    "budget",
    [{"pages": 2}, {"bytes": 100}, {"urls": 3}, {"hosts": 1}, {"depth": 1}, {"crawl_pages": 2}, {"crawl_bytes": 100},
     {"crawl_urls": 3}],
    ids=str,
)  # fmt: skip
async def test_budgets_are_not_for_runs(tmp_path: Path, engine: Engine, budget: dict[str, int]) -> None:
    """The budget is used up by the crawl itself before, and by two runs it would be twice."""
    web = {("d0.test", "/"): linked("/a", "/b"), ("d0.test", "/a"): linked("/c"), ("x.d0.test", "/"): linked("/y")}
    web |= {place: linked() for place in (("d0.test", "/b"), ("d0.test", "/c"), ("x.d0.test", "/y"))}
    options = {f"budget__{name}": value for name, value in budget.items()}
    async with job_lab(tmp_path, engine, web, **options) as lab:
        await make_seeder(lab.crawl).add_all([GivenUrl("seed", lab.url("d0.test"))])
        await lab.add(lab.url("d0.test"), lab.url("x.d0.test"), every="1000")
        for n in range(1, 4):
            await lab.run()
            rows = await lab.ended(n)
            assert [(row.outcome, row.pages) for row in rows] == [(Outcome.FINISHED, 6)] * n
        await lab.nothing_left()
        totals = await lab.crawl.stats.totals()
        assert totals.own_fetched <= 4, "those of the crawl itself have it"
        assert (totals.run_fetched, totals.pending) == (18, 0) or budget.keys() & {"crawl_pages", "crawl_bytes"}
    assert await audit(lab.settings) == 0


async def test_a_sitemap_is_read_for_each_run(tmp_path: Path, engine: Engine) -> None:
    async with job_lab(tmp_path, engine, CHAIN) as lab:
        await lab.add(sitemap=lab.url("d0.test", "/sitemap.xml"), retries=1, retry_delay_s=0.1)
        await lab.run()
        (row,) = await lab.ended()
        assert (row.state, row.outcome, row.attempts) == (State.FAILED_TO_START, Outcome.FAILED, 2)
        assert "sitemap.xml" in row.reason
        assert "404" in row.reason
        await lab.nothing_left()
        assert await lab.crawl.jobs.failed([job_id("default", NAME)]) == [[row]]
        asked = [one.target for one in lab.site.requests() if one.target == "/sitemap.xml"]
        assert len(asked) == 2, "once for each attempt"


async def test_a_run_without_a_valid_seed_fails_to_start(tmp_path: Path, engine: Engine) -> None:
    async with job_lab(tmp_path, engine, CHAIN, scope__exclude=["d0.test"]) as lab:
        await lab.add(lab.url("d0.test"))
        await lab.run()
        (row,) = await lab.ended()
        assert (row.state, row.outcome, row.reason) == (State.FAILED_TO_START, Outcome.FAILED, "no valid seed URL")
        await lab.nothing_left()
        assert lab.site.requests() == []


async def test_a_run_that_fails_is_repeated_after_a_delay(tmp_path: Path, engine: Engine) -> None:
    web = {("d0.test", "/"): Resource(status=404), ("d0.test", "/robots.txt"): Resource(status=404)}
    async with job_lab(tmp_path, engine, web) as lab:
        await lab.add(lab.url("d0.test"), retries=2, retry_delay_s=0.3)
        await lab.run()
        (row,) = await lab.ended()
        assert (row.outcome, row.attempts, row.errors) == (Outcome.FAILED, 3, 1)
        assert row.reason == "no usable page: 1 error page"
        await lab.nothing_left()
        asked = [one.start for one in lab.site.requests() if not one.is_robots]
        assert len(asked) == 3, "each attempt fetches the seed again"
        assert min(b - a for a, b in pairwise(asked)) > 0.3
        assert await lab.crawl.jobs.failed([job_id("default", NAME)]) == [[row]]


async def test_a_failed_run_is_repeated_by_hand_after_its_job_was_corrected(tmp_path: Path, engine: Engine) -> None:
    async with job_lab(tmp_path, engine, CHAIN) as lab:
        await lab.add(lab.url("d0.test", "/wrong"), run={"depth": 0})
        await lab.run()
        (row,) = await lab.ended()
        (failed,) = await failed_runs.failed_runs(lab.crawl, None)
        assert (failed.user, failed.job, failed.reason) == ("default", NAME, "no usable page: 1 error page")
        with pytest.raises(NotMetError, match="'x' is not a failed run of job news; nothing was changed"):
            await failed_runs.retry(lab.crawl, "default", NAME, [failed.run, "x"], actor=ME)
        await jobs.edit_job(lab.crawl, "default", NAME, lambda spec: spec, seeds=[lab.url("d0.test")], actor=ME)
        assert (await jobs.find_job(lab.crawl, "default", NAME)).failed == 1
        assert (await failed_runs.retry(lab.crawl, "default", NAME, [failed.run], actor=ME)).left == 0

        async def is_well() -> bool:
            return (await lab.rows())[0].outcome is Outcome.FINISHED

        await until(is_well, "the run to be repeated")
        (again,) = await lab.rows()
        assert (again.attempts, again.nominal, again.pages) == (2, row.nominal, 1)
        assert set(lab.fetched(again.run)) == {"d0.test/"}
        await lab.nothing_left()
        assert not await failed_runs.failed_runs(lab.crawl, None)


async def test_a_job_that_is_added_again_at_once_has_runs_of_its_own(tmp_path: Path, engine: Engine) -> None:
    async with job_lab(tmp_path, engine, CHAIN) as lab:
        for _ in range(2):
            await lab.add(lab.url("d0.test"), run={"depth": 0})
            await lab.run()
            await lab.run()
            rows = await lab.ended(2)
            await lab.nothing_left()
            assert [lab.fetched(row.run) for row in rows] == [Counter({"d0.test/": 1})] * 2
            await jobs.remove_job(lab.crawl, "default", NAME, actor=ME)
        assert len({entry.run for entry in entries_of(lab.folder)}) == 4


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(
    "overlap", ["queue", *(pytest.param(one, marks=pytest.mark.slow) for one in ("skip", "allow"))]
)
async def test_a_time_that_comes_during_a_run(tmp_path: Path, engine: Engine, overlap: str) -> None:
    async with job_lab(tmp_path, engine, SLOW) as lab:
        await lab.add(lab.url("d0.test"), every="1", overlap=overlap)
        states = {"skip": State.SKIPPED_OVERLAP, "queue": State.QUEUED, "allow": State.STARTED}

        async def has_met() -> bool:
            rows = await lab.rows()
            return len(rows) > 1 and rows[1].state is states[overlap]

        if overlap == "allow":

            async def run_at_once() -> bool:
                return len((await jobs.find_job(lab.crawl, "default", NAME)).running) > 1

            await until(run_at_once, "two runs at once")
        else:
            await until(has_met, overlap)
        await jobs.pause_job(lab.crawl, "default", NAME, actor=ME)
        await until(lambda: all_ended(lab), "all runs to end")
        await lab.nothing_left()
        rows = [row for row in await lab.rows() if row.run]
        assert {row.outcome for row in rows} == {Outcome.FINISHED}
        assert all(lab.fetched(row.run).total() == len(SLOW) for row in rows)
        spans = sorted((row.started_at, row.ended_at) for row in rows)
        meet = any(after[0] < before[1] for before, after in pairwise(spans))
        assert meet == (overlap == "allow")
    assert await audit(lab.settings) == 0


@pytest.mark.slow(ci=True)
async def test_a_run_goes_on_while_its_job_is_paused(tmp_path: Path, engine: Engine) -> None:
    async with job_lab(tmp_path, engine, SLOW) as lab:
        await lab.add(lab.url("d0.test"), every="1")
        await until(lab.rows, "a run")
        view = await jobs.pause_job(lab.crawl, "default", NAME, actor=ME)
        assert (view.state, view.next) == ("paused", None)
        await lab.ended()
        await lab.nothing_left()
        before = [row.run for row in await lab.rows() if row.run]
        await asyncio.sleep(1.2)
        assert [row.run for row in await lab.rows() if row.run] == before
        await lab.run()
        rows = await lab.ended(len(before) + 1)
        assert [row.is_manual for row in rows if row.run][-1]
        await jobs.resume_job(lab.crawl, "default", NAME, actor=ME)
        await until(lambda: resumed(lab, len(before) + 2), "a run after the pause")
        assert State.PAUSED in {row.state for row in await lab.rows()}


async def resumed(lab: Lab, count: int) -> bool:
    return sum(bool(row.run) for row in await lab.rows()) >= count


async def test_nothing_of_a_job_is_left_when_it_is_removed_during_a_run(tmp_path: Path, engine: Engine) -> None:
    many = {("d0.test", "/"): linked(*(f"/{n}" for n in range(40)))}
    many |= {("d0.test", f"/{n}"): linked(delay_s=0.1) for n in range(40)}
    async with job_lab(tmp_path, engine, many, fetch__concurrency=1) as lab:
        await lab.add(lab.url("d0.test"))
        await lab.run()

        async def is_fetching() -> bool:
            return len(lab.site.requests()) > 4

        await until(is_fetching, "pages")
        await jobs.remove_job(lab.crawl, "default", NAME, actor=ME)
        await lab.nothing_left()

        async def is_idle() -> bool:
            return (await lab.crawl.stats.totals()).pending == 0

        await until(is_idle, "its URLs to end")
        assert len(lab.site.requests()) < 40
        totals = await lab.crawl.stats.totals()
        assert totals.refused["run_ended"] > 10
        assert totals.deferred == 0
        await lab.add(lab.url("d0.test"), run={"depth": 0})
        await lab.run()
        await finished(lab)
    assert await audit(lab.settings) == 0


async def test_a_run_is_ended_by_hand_with_what_it_has_and_its_job_goes_on(tmp_path: Path, engine: Engine) -> None:
    many = {("d0.test", "/"): linked(*(f"/{n}" for n in range(400)))}  # 40 s, which nobody waits for
    many |= {("d0.test", f"/{n}"): linked(delay_s=0.1) for n in range(400)}
    async with job_lab(tmp_path, engine, many, fetch__concurrency=1) as lab:
        await lab.add(lab.url("d0.test"), retries=3)
        with pytest.raises(NotMetError, match="no run of job news is active"):
            await jobs.end_runs(lab.crawl, "default", NAME, actor=ME)
        await lab.run()

        async def is_fetching() -> bool:
            return len(lab.site.requests()) > 4

        await until(is_fetching, "pages")
        with pytest.raises(NotMetError, match="'x' is not an active run of job news; nothing was changed"):
            await jobs.end_runs(lab.crawl, "default", NAME, ["x"], actor=ME)
        done = await jobs.end_runs(lab.crawl, "default", NAME, actor=ME)
        (row,) = await lab.ended()
        assert list(done.runs) == [row.run]
        assert (row.outcome, row.state, row.reason) == (Outcome.STOPPED, State.STARTED, "")
        assert 0 < row.pages == sum(lab.fetched(row.run).values()) < 400
        await lab.nothing_left()
        totals = await lab.crawl.stats.totals()
        assert (totals.pending, totals.dead) == (0, 0)
        assert totals.refused["run_ended"] > 10
        view = await jobs.find_job(lab.crawl, "default", NAME)
        assert (view.state, view.next is not None, view.waiting) == ("active", True, 0)
    assert await audit(lab.settings) == 0


async def test_a_run_that_is_ended_while_its_seeds_are_added_ends_without_them(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, told, blocks = asyncio.Event(), asyncio.Event(), list[int]()

    async def seeds(self: RunWatch, job: str, spec: Any) -> AsyncGenerator[tuple[Sequence[str], str], None]:
        for n in range(5):
            blocks.append(n)
            yield [lab.url("d0.test", f"/{n}")], ""
            begun.set()
            await told.wait()

    monkeypatch.setattr(RunWatch, "_seeds", seeds)
    async with job_lab(tmp_path, engine, {("d0.test", f"/{n}"): linked() for n in range(5)}) as lab:
        await lab.add(lab.url("d0.test"))
        await lab.run()
        await begun.wait()
        await jobs.end_runs(lab.crawl, "default", NAME, None, actor=ME)
        told.set()
        (row,) = await lab.ended()
        assert row.outcome is Outcome.STOPPED
        assert blocks == [0, 1]
        await lab.nothing_left()
    assert await audit(lab.settings) == 0


async def test_people_start_no_run_by_changing_its_record(tmp_path: Path, engine: Engine) -> None:
    async with job_lab(tmp_path, engine, {("d0.test", "/"): linked()}) as lab:
        await lab.add(lab.url("d0.test"))
        stored = await lab.crawl.jobs.find("default", NAME)
        other = RunRecord(
            run=run_id(stored.job.id, 1, 5), user="default", name=NAME, nominal=5, started_at=5.0, spec=RunSpec()
        )
        with pytest.raises(Changed):
            await lab.crawl.jobs.change(stored, stopped(stored.job, [other], wall_s()), None)
        assert await lab.crawl.runs.active() == {}


@pytest.mark.parametrize("nth", [0, 1])
async def test_a_step_whose_reply_is_lost_happens_once(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """The first step starts the run, the second ends it. The engine has taken both."""
    whole, calls = Jobs.change_all, list[int]()

    async def change_all(self: Jobs, steps: Sequence[Any], **options: Any) -> list[Any]:
        answers = await whole(self, steps, **options)
        if any(fence is not None for _, _, fence in steps):
            calls.append(len(steps))
            if len(calls) == nth + 1:
                return [EngineDown("the reply was lost") for _ in steps]
        return answers

    monkeypatch.setattr(Jobs, "change_all", change_all)
    async with job_lab(tmp_path, engine, CHAIN) as lab:
        await lab.add(lab.url("d0.test"), run={"scope": "host"})
        await lab.run()
        run = await finished(lab)
        assert set(found := lab.fetched(run)) == WHOLE
        assert found.total() == len(WHOLE)
    assert len(calls) >= 2
    assert await audit(lab.settings) == 0


@pytest.mark.slow(ci=True)
async def test_an_engine_that_fails_in_the_middle_of_a_look_forgets_no_run(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run is to be stopped for its pages, and the engine does not take it, while others have ended."""
    failed, whole = list[str](), RunWatch._stop_at_limit

    async def fail_once(self: RunWatch, one: Any, counts: Any) -> None:
        if not failed and any(run.last is not None and run is not one for run in self._active.values()):
            failed.append(one.record.run)
            raise EngineDown("no answer")
        await whole(self, one, counts)

    monkeypatch.setattr(RunWatch, "_stop_at_limit", fail_once)
    async with job_lab(tmp_path, engine, SLOW) as lab:
        await lab.add(lab.url("d0.test"))
        for _ in range(4):
            await lab.run()
        rows = await lab.ended(4)
        assert {row.outcome for row in rows} == {Outcome.FINISHED}
        await lab.nothing_left()
    assert failed


async def test_a_crawl_without_jobs_makes_no_call_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine
) -> None:
    called, whole = list[tuple[Any, ...]](), EngineClient._pipeline

    async def pipeline(self: EngineClient, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        called.extend(commands)
        return await whole(self, commands)

    monkeypatch.setattr(EngineClient, "_pipeline", pipeline)
    with serve_resources(CHAIN) as site:
        async with lab_names() as dns:
            given = {"frontier__redis": engine.url, "dns__nameservers": [dns], "crawl__partitions": 16}
            done = await crawl_all(settings_of(tmp_path / "c", **given), [site.url("d0.test")])
    assert len(done.entries) == len(WHOLE)
    names = (":jobs", ":jobdue", ":runs", ":closing", ":touched", ":roots")
    words = [str(word) for command in called for word in command]
    assert len(called) > 20
    assert called.count(("TIME",)) == 1, "the check of the rights that the engine's user has"
    assert [word for word in words if word.endswith(("change_job", "touch_run", "close_run"))] == []
    assert [word for word in words if word.startswith("{main:") and word.endswith(names)] == []


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("budget", [{}, {"pages": 2}, {"crawl_pages": 2}, {"urls": 2}], ids=str)
async def test_a_crawl_ends_beside_a_job_that_never_rests(
    tmp_path: Path, engine: Engine, budget: dict[str, int]
) -> None:
    """Of its own pages, and of runs that were active then; a budget may leave some, on the site of the runs, too."""
    web = {
        ("d0.test", "/"): linked("/a", "/b"), ("d0.test", "/a"): linked(delay_s=1.2),
        ("d0.test", "/b"): linked(delay_s=0.4),
    }  # fmt: skip
    options = {f"budget__{name}": value for name, value in budget.items()}
    async with job_web(tmp_path, engine, web, **options) as (site, settings):
        async with open_crawl(settings, create=True) as crawl:
            lab = Lab(site, engine, settings, crawl)
            await lab.add(lab.url("d0.test"), every="1", overlap="allow")
            await lab.run()
            await lab.run()
        done = await asyncio.wait_for(crawl_all(settings, [site.url("d0.test")]), PATIENCE_S)
        own = [entry for entry in done.entries if not entry.run]
        assert len(own) == (2 if budget else 3)
        async with open_crawl(settings, create=False) as crawl:
            job = (await crawl.jobs.find("default", NAME)).job
            rows = await crawl.jobs.history(job.id, limit=1000)
            assert job.active == ()
            assert {row.outcome for row in rows if row.run} == {Outcome.FINISHED}
            assert len([row for row in rows if row.is_manual]) == 2
            assert await jobs.going_on(crawl) == ["job news goes on at its next time: keep 'crawler run'"]
    assert await audit(settings) == 0


@pytest.mark.slow(ci=True)
async def test_a_run_that_goes_on_is_shown_with_its_counts(
    tmp_path: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    async with job_lab(tmp_path, engine, SLOW | {("d0.test", "/a"): linked(delay_s=4.0)}) as lab:
        await lab.add(lab.url("d0.test"))
        await lab.run()

        async def is_shown() -> bool:
            words = ["jobs", "show", NAME, "--redis", engine.url]
            await asyncio.to_thread(main, words)
            return f"run {lab_run}  2 pages, 1 URL pending" in capsys.readouterr().out

        await until(lab.rows, "the run")
        lab_run = (await lab.rows())[0].run
        await until(is_shown, "its counts")
        await finished(lab)


@pytest.mark.slow(seconds=6)
async def test_a_job_that_falls_due_while_a_backup_is_written_runs_after_it(tmp_path: Path, engine: Engine) -> None:
    """Nothing of it starts meanwhile, and each of its times has one row afterwards."""
    async with job_lab(tmp_path, engine, CHAIN) as lab:
        await lab.add(lab.url("d0.test"), every="1", overlap="queue", run={"scope": "host"})
        await lab.ended(1)
        with contextlib.closing(SessionLock(lab.crawl.folder, "pauser")) as lock:
            member = member_of_command("pauser", "backup", lock)
            async with Pause(lab.crawl.members, member, lab.settings.membership).held():
                requests, rows = len(lab.site.requests()), await lab.rows()
                held_at = wall_s()
                await until(lambda: passed(held_at, 2.5), "two of its times")
                assert (len(lab.site.requests()), await lab.rows()) == (requests, rows)
        await lab.ended(len(rows) + 2)
        await jobs.pause_job(lab.crawl, "default", NAME, actor=ME)
        await until(lambda: all_ended(lab), "all runs to end")
        nominal = [row.nominal for row in await lab.rows()]
        assert {after - before for before, after in pairwise(nominal)} == {1}
        for row in await lab.rows():
            assert lab.fetched(row.run).total() == (len(WHOLE) if row.run else 0)


async def passed(since_s: float, seconds: float) -> bool:
    return wall_s() >= since_s + seconds
