"""A run of a job in a simulated crawl: started with it, watched for its end, ended and closed while instances go on.

Reads and writes at the engine itself, where nothing is late or lost; others come in between any two commands.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from crawler.app.crawl import OpenCrawl, make_router
from crawler.engine.client import Call, Engine
from crawler.frontier.keys import Keys
from crawler.frontier.runs import Runs
from crawler.rules import finish
from crawler.rules.finish import RunPass
from crawler.rules.runs import RunRecord, RunSpec
from crawler.seeding.run_seeder import RunSeeder
from crawler.seeding.seeder import GivenUrl
from tests.simulation.census import Census
from tests.simulation.engine import Server, command_of

RUN = "simulate.0.1"
PAUSE_S = 0.2  # between two commands, at most; for most there is none


async def start(crawl: OpenCrawl, seeds: Sequence[str]) -> None:
    """Make the run active and add its seeds."""
    runs = Runs(crawl.engine, crawl.keys, crawl.record.partitions)
    record = RunRecord(run=RUN, user="u", name="j", nominal=1, started_at=0.0, spec=RunSpec())
    key = crawl.keys.of(runs.home(RUN), "runs")
    await crawl.engine.command("HSET", key, RUN, msgspec.json.encode(record))
    assert await RunSeeder(crawl.frontier, runs, make_router(crawl), record).add_all(GivenUrl("seed", u) for u in seeds)
    seeded = msgspec.structs.replace(record, is_seeded=True)
    await crawl.engine.command("HSET", key, RUN, msgspec.json.encode(seeded))


class RunWatcher:
    """Ends the run when two passes prove that nothing of it is pending; the census tells whether that is true."""

    def __init__(
        self,
        server: Server,
        partitions: int,
        census: Census,
        rng: random.Random,
        blame: Callable[[str, str], None],
        trace: Callable[[str], None],
    ) -> None:
        self._server = server
        self._census = census
        self._rng = rng
        self._blame = blame
        self._trace = trace
        self._keys = Keys("main")
        self._runs = Runs(cast("Engine", self), self._keys, partitions)
        self.is_over = False  # ended and closed; not any more when the engine fell back

    async def watch(self) -> None:
        """Look again and again, for ever: the engine may fall back behind the end."""
        passes: list[RunPass] = []
        while True:
            await asyncio.sleep(self._rng.uniform(0.02, 0.8))
            if not self._server.is_reachable:
                passes.clear()
                continue
            engine_run_id = self._server.run_id
            record, touched = (await self._runs.read([RUN]))[RUN], await self._runs.touched(RUN)
            self.is_over = record is None and not touched
            if record is None:
                await self._close(sorted(touched))
                continue
            counts = await self._runs.counts(RUN, sorted(touched))
            passes = [*passes[-1:], RunPass(engine_run_id, record.is_seeded, counts)]
            if finish.is_run_finished(passes) and engine_run_id == self._server.run_id:
                if left := self._census.pending_of(RUN):
                    self._blame("I12", f"the run counts as finished; pending of it are {left}")
                self._trace("--- the run has finished")
                await self.command("HDEL", self._keys.of(self._runs.home(RUN), "runs"), RUN)

    async def _close(self, touched: Sequence[int]) -> None:
        if touched:
            for partition in touched:
                await self._runs.close(RUN, [partition])
            await self._runs.forget(RUN)

    # --- what it asks, as of an engine ---

    async def _ask(self, calls: Sequence[Any]) -> list[Any]:
        found = []
        for call in calls:
            if self._rng.random() < 0.3:
                await asyncio.sleep(self._rng.uniform(0.0, PAUSE_S))
            (reply,) = self._server.real.wire.ask([command_of(call)])
            if isinstance(reply, Exception):
                raise reply
            found.append(reply)
        return found

    async def commands(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        return await self._ask(commands)

    async def command(self, *command: Any) -> Any:
        return (await self._ask([command]))[0]

    async def run_all(self, calls: Sequence[Call]) -> list[Any]:
        return await self._ask(calls)
