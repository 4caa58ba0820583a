"""Jobs in the engine: a step is stored once or not at all, by the owner of the partition."""

from typing import Any

import pytest

from crawler.engine.client import Engine
from crawler.errors import ConflictError, NotMetError
from crawler.frontier.jobs import Changed, Jobs, StoredJob, job_id
from crawler.frontier.keys import Keys
from crawler.frontier.owner import Fence
from crawler.frontier.scripts import library
from crawler.rules.cron import schedule_of
from crawler.rules.job_plan import (
    Plan,
    RunResult,
    created,
    dismissed,
    edited,
    ended,
    paused,
    plan,
    requested,
    retried,
)
from crawler.rules.jobs import Job, JobSpec, Outcome, State
from tests.frontier.door import Door
from tests.support.engine import Engine as Server
from tests.support.proxy import tcp_proxy

T0 = 1_800_000_000
ROWS_MAX = 5


@pytest.fixture
def jobs(door: Door) -> Jobs:
    return Jobs(door.engine, door.keys, 1, rows_max=ROWS_MAX)


def job(name: str = "news", user: str = "ann", **spec: Any) -> Job:
    definition = JobSpec(schedule=schedule_of(every="10", now_s=T0), seeds=("http://a.test/",), **spec)
    return created(job_id(user, name), user, name, definition, T0)


async def stored(jobs: Jobs, **given: Any) -> StoredJob:
    one = job(**given)
    await jobs.create(one, due=T0 + 10.0)
    return await jobs.find(one.user, one.name)


async def test_a_job_is_found_by_its_name_and_listed(jobs: Jobs) -> None:
    for user, name in (("ann", "b"), ("bob", "a"), ("ann", "a"), ("ann2", "c")):
        await jobs.create(job(name, user), due=None)
    assert (await jobs.find("ann", "b")).job == job("b", "ann")
    names = [(one.user, one.name) for one in (await jobs.page(None, limit=10))[0]]
    assert names == [("ann", "a"), ("ann", "b"), ("ann2", "c"), ("bob", "a")]
    first, after = await jobs.page("ann", limit=1)
    second, behind = await jobs.page("ann", after=after, limit=1)
    assert [one.name for one in (*first, *second)] == ["a", "b"]
    assert behind == ""
    with pytest.raises(NotMetError, match="no job 'x' of user ann"):
        await jobs.find("ann", "x")
    with pytest.raises(ConflictError, match="already"):
        await jobs.create(job("b", "ann"), due=None)


async def test_a_step_of_two_who_read_the_same_is_stored_once(jobs: Jobs, door: Door) -> None:
    one = await stored(jobs)
    made = plan(one.job, T0 + 10)
    answers = await jobs.change_all([(one, made, door.fence), (one, made, door.fence)])
    assert isinstance(answers[1], Changed)
    assert len(await jobs.history(one.job.id, limit=10)) == 1
    assert await door.engine.command("HLEN", door.keys.of(0, "runs")) == 1


async def test_a_former_owner_triggers_nothing(jobs: Jobs, door: Door) -> None:
    one = await stored(jobs)
    made = plan(one.job, T0 + 10)
    for fence in (Fence(0, "bob", door.epoch, 0), Fence(0, "ann", door.epoch + 1, 0), None):
        with pytest.raises(Changed):
            await jobs.change(one, made, fence)
    assert await jobs.history(one.job.id, limit=10) == []
    assert await door.engine.command("EXISTS", door.keys.of(0, "runs")) == 0


async def test_the_run_of_a_time_is_named_alike_by_all(jobs: Jobs, door: Door) -> None:
    one = await stored(jobs)
    first, again = plan(one.job, T0 + 10), plan(one.job, T0 + 12.5)
    assert first.starts[0].run == again.starts[0].run


async def test_the_end_of_a_run_is_stored_with_its_row(jobs: Jobs, door: Door) -> None:
    one = await stored(jobs)
    one = await jobs.change(one, plan(one.job, T0 + 10), door.fence)
    (row,) = one.job.active
    made = ended(one.job, RunResult(run=row.run, is_success=True, pages=3), T0 + 15)
    one = await jobs.change(one, made, door.fence)
    (row,) = await jobs.history(one.job.id, limit=10)
    assert (row.outcome, row.pages, row.ended_at) == (Outcome.FINISHED, 3, T0 + 15)
    assert await door.engine.command("EXISTS", door.keys.of(0, "runs")) == 0
    assert await door.engine.command("SMEMBERS", door.keys.of(0, "closing")) in ({row.run.encode()}, [row.run.encode()])


async def test_what_is_due_is_read_by_time(jobs: Jobs, door: Door) -> None:
    one = await stored(jobs)
    await jobs.create(job("later"), due=T0 + 500.0)
    assert await jobs.first_due([0]) == {0: T0 + 10.0}
    assert [found.job.name for found in await jobs.due([0], T0 + 11)] == ["news"]
    await jobs.change(one, plan(one.job, T0 + 10), door.fence)
    assert await jobs.first_due([0]) == {0: T0 + 20.0}


async def test_history_is_newest_first_and_bounded(jobs: Jobs, door: Door) -> None:
    one = await stored(jobs, overlap="allow")
    for n in range(1, ROWS_MAX + 4):
        one = await jobs.change(one, plan(one.job, T0 + 10 * n), door.fence)
    rows = await jobs.history(one.job.id, limit=10)
    assert [row.nominal - T0 for row in rows] == [80, 70, 60, 50, 40]
    assert [row.nominal - T0 for row in await jobs.history(one.job.id, before=T0 + 60, limit=1)] == [50]


async def test_a_command_with_other_settings_shortens_no_history(jobs: Jobs, door: Door) -> None:
    one = await stored(jobs, overlap="allow")
    for n in range(1, ROWS_MAX + 1):
        one = await jobs.change(one, plan(one.job, T0 + 10 * n), door.fence)
    others = Jobs(door.engine, door.keys, 1, rows_max=1)
    await others.change(one, Plan(job=paused(one.job, T0 + 60), due=T0 + 60.0), None)
    assert len(await jobs.history(one.job.id, limit=10)) == ROWS_MAX


async def test_a_row_of_misses_grows_in_place(jobs: Jobs, door: Door) -> None:
    one = await stored(jobs)
    for n in range(1, 9):
        one = await jobs.change(one, plan(one.job, T0 + 10 * n), door.fence)
    gap, first = await jobs.history(one.job.id, limit=10)
    assert (first.state, gap.state, gap.count) == (State.STARTED, State.SKIPPED_OVERLAP, 7)


async def test_a_run_without_attempts_left_is_kept_as_failed(jobs: Jobs, door: Door) -> None:
    one = await stored(jobs)
    one = await jobs.change(one, plan(one.job, T0 + 10), door.fence)
    made = ended(one.job, RunResult(run=one.job.active[0].run, is_success=False, reason="2 errors"), T0 + 11)
    await jobs.change(one, made, door.fence)
    ((failed,),) = await jobs.failed([one.job.id])
    assert (failed.attempts, failed.reason) == (1, "2 errors")
    assert await jobs.failed_counts([one.job.id, "other"]) == [1, 0]
    await jobs.remove(await jobs.find("ann", "news"))
    assert await jobs.failed_counts([one.job.id]) == [0]


async def test_a_failed_run_leaves_the_list_when_it_is_repeated_or_dismissed(jobs: Jobs, door: Door) -> None:
    one = await stored(jobs, overlap="allow")
    for at in (10, 20):
        one = await jobs.change(one, plan(one.job, T0 + at), door.fence)
        made = ended(one.job, RunResult(run=one.job.active[0].run, is_success=False), T0 + at + 1)
        one = await jobs.change(one, made, door.fence)
    ((second, first),) = await jobs.failed([one.job.id])
    one = await jobs.change(one, retried(one.job, [first], T0 + 25), None)
    assert await jobs.failed([one.job.id]) == [[second]]
    one = await jobs.change(one, plan(one.job, T0 + 25), door.fence)
    assert [row.attempts for row in await jobs.history(one.job.id, limit=5)] == [1, 2]
    made = ended(one.job, RunResult(run=one.job.active[0].run, is_success=False), T0 + 26)
    one = await jobs.change(one, made, door.fence)
    ((_, again),) = await jobs.failed([one.job.id])
    assert (again.attempts, again.run) == (2, f"{first.run}.2")
    await jobs.change(one, dismissed(one.job, [second], T0 + 27), None)
    assert await jobs.failed([one.job.id]) == [[again]]


async def test_a_row_takes_the_place_of_the_one_of_its_time_whatever_that_has(jobs: Jobs, door: Door) -> None:
    """As when an earlier release wrote it, with fewer fields."""
    one = await stored(jobs, overlap="allow")
    one = await jobs.change(one, Plan(job=requested(one.job, T0 + 10), due=T0 + 10.0), None)
    one = await jobs.change(one, plan(one.job, T0 + 10), door.fence)
    key = door.keys.of(0, f"ledger:{one.job.id}")
    for raw in await door.engine.command("ZRANGE", key, 0, -1):
        place = await door.engine.command("ZSCORE", key, raw)
        await door.engine.command("ZREM", key, raw)
        await door.engine.command("ZADD", key, place, raw.replace(b',""]', b"]"))
    runs = [row.run for row in one.job.active]
    assert len(runs) == 2, "a manual run, and that of the same second"
    for run in runs:
        one = await jobs.change(one, ended(one.job, RunResult(run=run, is_success=True), T0 + 11), door.fence)
    rows = await jobs.history(one.job.id, limit=10)
    assert [(row.is_manual, row.outcome) for row in rows] == [(True, "finished"), (False, "finished")]


async def test_a_job_that_is_added_again_has_a_revision_that_none_had(jobs: Jobs, door: Door) -> None:
    one = await stored(jobs)
    number = one.job.id
    assert await jobs.first_revision(number) == 1
    edit = edited(one.job, one.job.spec, T0 + 5)
    one = await jobs.change(one, Plan(job=edit), None, new_revision=True)
    await jobs.remove(one)
    assert await jobs.first_revision(number) == 3
    with pytest.raises(Changed):
        await jobs.create(job(), due=None)
    await jobs.create(created(number, "ann", "news", one.job.spec, T0, revision=3), due=None)
    await jobs.note_removed({number: 9, "a": 7, "b": 2})  # the first is there
    assert await jobs.first_revision(number) == 8


async def test_kept_seeds_come_back_in_order(jobs: Jobs) -> None:
    urls = [f"http://a.test/{n}" for n in range(2500)]
    assert await jobs.keep_seeds("x", "k", urls) == 2500
    assert [url async for block in jobs.seeds("x", "k") for url in block] == urls
    await jobs.drop_seeds("x", ["k"])
    assert [block async for block in jobs.seeds("x", "k")] == []


async def test_nothing_is_left_of_a_removed_job_but_its_runs_to_close(jobs: Jobs, door: Door) -> None:
    one = await stored(jobs, seeds_kept=1, seeds_key="k")
    await jobs.keep_seeds(one.job.id, "k", ["http://a.test/1"])
    one = await jobs.change(one, plan(requested(one.job, T0), T0 + 10), door.fence)
    with pytest.raises(Changed):
        await jobs.remove(StoredJob(one.job, "other"))
    await jobs.remove(one)
    left = {name: await door.engine.command("EXISTS", door.keys.of(0, name)) for name in names_of(one.job.id)}
    assert not any(left.values())
    assert len(await door.engine.command("SMEMBERS", door.keys.of(0, "closing"))) == 1
    assert (await jobs.page(None, limit=10))[0] == []


def names_of(job: str) -> tuple[str, ...]:
    return ("jobs", "jobdue", f"ledger:{job}", f"revisions:{job}", f"seeds:{job}:k", "runs")


async def test_a_manual_run_is_started_by_the_owner_alone(jobs: Jobs, door: Door) -> None:
    one = await stored(jobs)
    one = await jobs.change(one, Plan(job=requested(one.job, T0 + 3), due=T0 + 3.0), None)
    assert await jobs.first_due([0]) == {0: T0 + 3.0}
    one = await jobs.change(one, plan(one.job, T0 + 3.5), door.fence)
    (row,) = await jobs.history(one.job.id, limit=5)
    assert (row.is_manual, row.nominal) == (True, T0 + 3)


async def test_a_change_whose_reply_is_lost_is_made_once(engine: Server) -> None:
    """Made, changed and removed: nobody is told of a conflict with what they did themselves."""
    with tcp_proxy(engine.url) as proxy:
        opened = Engine(proxy.url, library())
        jobs, of = Jobs(opened, Keys("t"), 1, rows_max=ROWS_MAX), b"_change_job"
        await opened.connect()
        await jobs.note_removed({"none": 0})  # the script is loaded
        proxy.drop_reply(of=of)
        await jobs.create(job(), due=T0 + 10.0)
        first = await jobs.find("ann", "news")
        proxy.drop_reply(of=of)
        changed = await jobs.change(first, Plan(job=requested(first.job, T0), due=T0), None)
        again = await jobs.find("ann", "news")
        assert again == changed != first
        proxy.drop_reply(of=of)
        await jobs.remove(again)
        with pytest.raises(NotMetError):
            await jobs.find("ann", "news")
        assert await jobs.first_revision(first.job.id) == first.job.revision + 1
        with pytest.raises(Changed):
            await jobs.change(again, Plan(job=again.job, due=None), None)
        await opened.close()
    assert proxy.lost == 3
