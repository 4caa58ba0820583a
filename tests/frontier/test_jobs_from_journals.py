"""Jobs that are recreated from the journals of folders: none comes back that was removed, no run gets an earlier id."""

from pathlib import Path

import pytest

from crawler.archive.folder import open_or_create
from crawler.archive.job_journal import JobJournal, line_of, seed_lines
from crawler.frontier.jobs import Jobs, job_id
from crawler.model import CommitEntry
from crawler.recovery.jobs import restore_jobs
from crawler.recovery.page_book import PageBook
from crawler.rules.cron import Schedule
from crawler.rules.job_plan import created, edited, paused
from crawler.rules.job_runs import name_of, run_id
from crawler.rules.jobs import Job, JobSpec
from crawler.views import jobs as service
from tests.crawl.harness import entries_of
from tests.crawl.rebuild_lab import rebuild
from tests.frontier.door import Door
from tests.jobs.jobs_lab import ME, NAME, hasten, job_lab, linked, running
from tests.support.engine import Engine

T0 = 1_800_000_000
WEB = {("d0.test", "/"): linked()}
SPEC = JobSpec(schedule=Schedule(every_s=10, anchor_s=T0), seeds_kept=1, seeds_key="k")


def job(name: str, revision: int = 1) -> Job:
    return created(job_id("u", name), "u", name, SPEC, T0, revision=revision)


@pytest.fixture
def jobs(door: Door) -> Jobs:
    return Jobs(door.engine, door.keys, 1, rows_max=5)


@pytest.fixture
def journals(tmp_path: Path) -> tuple[JobJournal, JobJournal]:
    """Those of two machines."""
    first, second = (JobJournal(open_or_create(str(tmp_path / name)), "main", 1.0) for name in "ab")
    return first, second


def of_run(run: str, n: int) -> CommitEntry:
    return CommitEntry(
        url=f"http://a.test/{n}", fingerprint=str(n), mime="unk", status_text="200", visit=1, fetched_at=T0, run=run
    )


async def names(jobs: Jobs) -> dict[str, Job]:
    return {one.name: one for one in (await jobs.page("u", limit=10))[0]}


@pytest.mark.parametrize("is_turned", [False, True])
async def test_the_last_change_counts_whichever_folder_it_is_in(
    tmp_path: Path, jobs: Jobs, journals: tuple[JobJournal, JobJournal], *, is_turned: bool
) -> None:
    mine, others = journals
    mine.append(
        [*seed_lines("k", ["http://a.test/"]), line_of(job("gone")), line_of(job("again")), line_of(job("still"))]
    )
    others.append([line_of(job("gone"), removed=True), line_of(job("again"), removed=True)])
    others.append([line_of(paused(edited(job("still"), SPEC, T0), T0))])
    mine.append([line_of(job("again", 2))])
    with PageBook(tmp_path) as book:
        assert (await restore_jobs(jobs, journals[::-1] if is_turned else journals, book)).jobs == 2
    found = await names(jobs)
    assert {name: one.is_paused for name, one in found.items()} == {"again": False, "still": True}
    assert [block async for block in jobs.seeds(found["again"].id, "k")] == [["http://a.test/"]]


async def test_revisions_begin_above_those_of_the_journals_and_the_archive(
    tmp_path: Path, jobs: Jobs, journals: tuple[JobJournal, JobJournal]
) -> None:
    journals[0].append([line_of(job("news", 3)), line_of(job("gone", 40), removed=True)])
    runs = run_id(job("news").id, 70, T0 + 50), run_id("elsewhere0", 80, T0, is_manual=True), "no run"
    with PageBook(tmp_path) as book:
        for n, run in enumerate(runs):
            book.add_to_run(of_run(run, n))
        assert (await restore_jobs(jobs, journals, book)).jobs == 1
        assert (await restore_jobs(jobs, journals, book)).jobs == 0, "it is there"
    news = (await names(jobs))["news"]
    assert (news.revision, news.done_to) == (71, T0 + 50)
    assert await jobs.first_revision(job_id("u", "gone")) == 81, "all of a partition begin there"


async def test_after_a_rebuild_no_run_has_the_id_of_one_in_the_archive(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasten(monkeypatch)
    async with job_lab(tmp_path, engine, WEB) as lab:
        for _ in range(2):
            await lab.add(lab.url("d0.test"))
            await lab.run()
            await lab.ended()
            await service.remove_job(lab.crawl, "default", NAME, actor=ME)
        await lab.add(lab.url("d0.test"))
    # The web server and the names of the lab are gone: nothing is fetched any more.
    before = {entry.run for entry in entries_of(lab.folder)}
    names = [name for run in sorted(before) if (name := name_of(run))]
    assert [name.revision for name in names] == [1, 2]
    engine.flush()
    report = await rebuild(lab.settings)
    assert report.of_jobs.jobs == 1
    async with running(lab.settings) as crawl:
        view = await service.find_job(crawl, "default", NAME)
        assert view.revision == 3, "its own"
        assert {name.job for name in names} == {view.job_id}
        await service.remove_job(crawl, "default", NAME, actor=ME)
        assert await crawl.jobs.first_revision(view.job_id) == 4
