"""A change of jobs whose answer did not come may have been stored: its maker is told so for each job."""

from collections.abc import Sequence
from typing import Any

from crawler.engine.client import Call, Engine
from crawler.errors import EngineDown
from crawler.frontier.jobs import Jobs, StoredJob, job_id
from crawler.frontier.keys import Keys
from crawler.frontier.owner import Fence
from crawler.frontier.scripts import library
from crawler.rules.cron import Schedule
from crawler.rules.job_plan import created, plan
from crawler.rules.jobs import JobSpec

SPEC = JobSpec(schedule=Schedule(every_s=10), seeds=("http://a.test/",))


class LostAnswers(Engine):
    """An engine whose answers do not come."""

    async def run_many(self, calls: Sequence[Call]) -> list[Any]:
        raise EngineDown("no answer")


async def test_without_an_answer_each_of_many_changes_may_have_been_stored() -> None:
    jobs = Jobs(LostAnswers("redis://127.0.0.1:1", library()), Keys("main"), 8, rows_max=10)
    made = [plan(created(job_id("u", name), "u", name, SPEC, 0.0), 10.0) for name in ("a", "b")]
    answers = await jobs.change_all([(StoredJob(one.job, "n"), one, Fence(1, "me", 1, 0)) for one in made])
    assert [type(answer) for answer in answers] == [EngineDown, EngineDown]
