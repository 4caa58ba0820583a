"""Jobs that the engine lost come back from the folder: definitions, seeds, pauses, and runs by their pages."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from crawler.crawl.opening import open_crawl
from crawler.rules.cron import schedule_of
from crawler.rules.job_runs import RunSpec
from crawler.rules.jobs import SEEDS_INLINE_MAX, JobSpec, Outcome, State
from crawler.views import jobs
from tests.crawl.rebuild_lab import audit, opened, rebuild
from tests.jobs.jobs_lab import ME, NAME, Lab, hasten, job_web, linked, running, until
from tests.support.engine import Engine

WEB = {
    ("d0.test", "/"): linked("/a", "/gone"), ("d0.test", "/a"): linked(), ("d1.test", "/"): linked(),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


@pytest.mark.slow(ci=True)
async def test_a_lost_job_has_its_runs_in_its_history_again(tmp_path: Path, engine: Engine) -> None:
    async with job_web(tmp_path, engine, WEB) as (site, settings):
        async with running(settings) as crawl:
            lab = Lab(site, engine, settings, crawl)
            await lab.add(lab.url("d0.test"), every="1", overlap="queue", run={"scope": "host"})
            await lab.ended(2)
            await lab.run()
            await lab.ended(4)
            await jobs.pause_job(crawl, "default", NAME, actor=ME)

            async def is_idle() -> bool:
                return not any(r.outcome == "running" or r.state is State.QUEUED for r in await lab.rows())

            await until(is_idle, "the runs to end")
            before = {row.run: row for row in await lab.rows() if row.run}
        engine.flush()
        report = await rebuild(settings)
        assert (report.of_jobs.jobs, report.of_jobs.runs) == (1, len(before))
        async with opened(settings) as crawl:
            lab = Lab(site, engine, settings, crawl)
            rows = await lab.rows()
            assert {row.run for row in rows if row.run} == before.keys()
            for row in rows:
                if row.run:
                    was = before[row.run]
                    assert row == replace(was, started_at=row.started_at, completed_at=row.completed_at, picked_at=0.0)
                    assert (row.pages, row.errors, row.outcome) == (3, 1, Outcome.UNKNOWN)
                else:
                    assert row.state is State.UNKNOWN
            assert (await jobs.find_job(crawl, "default", NAME)).state == "paused"
        again = await rebuild(settings)
        assert (again.of_jobs.jobs, again.of_jobs.runs) == (0, 0)
        async with running(settings) as crawl:
            lab = Lab(site, engine, settings, crawl)
            await jobs.resume_job(crawl, "default", NAME, actor=ME)
            await lab.run()
            await lab.ended(1)
            assert all(len(lab.entries(run)) == 3 for run in before), "none was fetched again"
        assert await audit(settings) == 0


async def test_definitions_come_back_as_they_were_last(tmp_path: Path, engine: Engine) -> None:
    async with job_web(tmp_path, engine, WEB) as (site, settings):
        many = [site.url("d0.test", f"/{n}") for n in range(SEEDS_INLINE_MAX + 1)]
        once = schedule_of(at="2099-01-31T12:00Z", now_s=1)
        async with open_crawl(settings, create=True) as crawl:
            for name in ("edited", "removed", "twice", "plain"):
                await jobs.add_job(crawl, "ann", name, JobSpec(schedule=once), [site.url("d1.test")], actor=ME)
            await jobs.edit_job(
                crawl, "ann", "edited", lambda spec: replace(spec, run=RunSpec(depth=3)), seeds=many, actor=ME
            )
            for name in ("removed", "twice"):
                await jobs.remove_job(crawl, "ann", name, actor=ME)
            await jobs.add_job(crawl, "ann", "twice", JobSpec(schedule=once, retries=7), many[:1], actor=ME)
            await jobs.pause_job(crawl, "ann", "plain", actor=ME)
            before = (await jobs.list_jobs(crawl, None)).jobs
        engine.flush()
        assert (await rebuild(settings)).of_jobs.jobs == 3
        async with opened(settings) as crawl:
            assert (await jobs.list_jobs(crawl, None)).jobs == before
            (edited,) = [job for job in before if job.name == "edited"]
            (stored,) = await crawl.jobs.read([edited.job_id])
            assert stored is not None
            kept = [url async for some in crawl.jobs.seeds(edited.job_id, stored.job.spec.seeds_key) for url in some]
            assert kept == many


async def test_changes_that_an_older_backup_lacks_are_made_again(tmp_path: Path, engine: Engine) -> None:
    async with job_web(tmp_path, engine, WEB) as (site, settings):
        once = schedule_of(at="2099-01-31T12:00Z", now_s=1)
        async with open_crawl(settings, create=True) as crawl:
            for name in ("edited", "removed", "paused", "resumed"):
                await jobs.add_job(crawl, "ann", name, JobSpec(schedule=once), [site.url("d1.test")], actor=ME)
            await jobs.pause_job(crawl, "ann", "resumed", actor=ME)
        with engine.client() as client:
            backup = {key: client.dump(key) for key in client.keys("*")}
        async with open_crawl(settings, create=False) as crawl:
            await jobs.edit_job(crawl, "ann", "edited", lambda spec: replace(spec, retries=5), actor=ME)
            await jobs.remove_job(crawl, "ann", "removed", actor=ME)
            await jobs.pause_job(crawl, "ann", "paused", actor=ME)
            await jobs.resume_job(crawl, "ann", "resumed", actor=ME)
            await jobs.add_job(crawl, "ann", "new", JobSpec(schedule=once), [site.url("d1.test")], actor=ME)
            before = (await jobs.list_jobs(crawl, None)).jobs
        with engine.client() as client:
            client.flushall()
            for key, value in backup.items():
                client.restore(key, 0, value)
        assert (await rebuild(settings)).of_jobs.jobs == 1
        async with opened(settings) as crawl:
            assert (await jobs.list_jobs(crawl, None)).jobs == before
