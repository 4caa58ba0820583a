"""The person who works with jobs: each act is a command of its own, with a session of its own, that may be killed."""

import random
from collections.abc import Awaitable, Callable

from crawler.crawl.opening import OpenCrawl, open_crawl
from crawler.errors import CrawlerError
from crawler.frontier.operator_log import Actor, Via
from crawler.runtime.clocks import wall_s
from crawler.views import failed_runs, jobs
from tests.simulation.job_sketches import Act
from tests.simulation.loop import VirtualLoop
from tests.simulation.machines import Fleet, Life, Node, replaced

ACTOR = Actor(who="person", via=Via.CLI)
USERS = ("ann", "ben")  # who share what the crawl can fetch


class Person:
    """Acts on jobs by the functions that the command line and the API call."""

    def __init__(self, loop: VirtualLoop, fleet: Fleet, rng: random.Random, trace: Callable[[str], None]) -> None:
        self._loop = loop
        self._fleet = fleet
        self._rng = rng
        self._trace = trace
        self._acts = 0

    def act(self, act: Act) -> "Awaitable[bool]":
        """Give a command now; was it done?"""
        self._acts += 1
        life = Life(Node(f"person{self._acts}", "seeding"), 1, self._rng)
        return self._loop.start(life, self._command(act, life))

    async def _command(self, act: Act, life: Life) -> bool:
        settings = replaced(self._fleet.settings, archive={"dir": str(self._fleet.folder / life.node.machine)})
        try:
            async with open_crawl(settings, create=True) as crawl:
                await self._do(crawl, act)
        except CrawlerError as error:
            self._trace(f"--- {act.kind} of {act.job} failed: {type(error).__name__}: {error}")
            return False
        self._trace(f"--- {act.kind} of {act.job} done")
        return True

    async def _do(self, crawl: OpenCrawl, act: Act) -> None:
        name, user = act.job, USERS[sum(act.job.encode()) % len(USERS)]
        if act.kind == "add":
            spec = act.spec_at(wall_s())
            await jobs.add_job(crawl, user, name, spec, spec.seeds, actor=ACTOR)
        elif act.kind == "edit":
            spec = act.spec_at(wall_s())
            await jobs.edit_job(crawl, user, name, lambda _: spec, actor=ACTOR)
        elif act.kind == "remove":
            await jobs.remove_job(crawl, user, name, actor=ACTOR)
        else:
            step = {"retry": _retry, "pause": jobs.pause_job, "resume": jobs.resume_job, "run": jobs.run_job}[act.kind]
            await step(crawl, user, name, actor=ACTOR)


async def _retry(crawl: OpenCrawl, user: str, name: str, *, actor: Actor) -> None:
    await failed_runs.retry(crawl, user, name, None, actor=actor)
