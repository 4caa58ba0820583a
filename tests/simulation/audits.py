"""An auditor that recounts partitions while they are crawled, command by command, as `crawler audit` does."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, cast

from crawler.audit.findings import Report
from crawler.audit.judge_frontier import Committed, disagreements, missing_of
from crawler.audit.judge_jobs import judge_jobs
from crawler.engine.client import Engine
from crawler.frontier.bulk import BulkLookup, Tally
from crawler.frontier.job_audit import JobBooks
from crawler.frontier.keys import Keys
from tests.simulation.engine import Server

PAUSE_S = 0.2  # between two commands, at most; for most there is none


class Auditor:
    """Reads at the engine itself, where nothing is late or lost: what happens meanwhile is what matters."""

    def __init__(
        self, server: Server, partitions: int, rng: random.Random, blame: Callable[[str, str], None], *, has_jobs: bool
    ) -> None:
        self._server = server
        self._partitions = partitions
        self._states = BulkLookup(cast("Engine", self), Keys("main"), partitions)
        self._books = JobBooks(cast("Engine", self), Keys("main"), partitions) if has_jobs else None
        self._rng = rng
        self._blame = blame

    async def watch(self) -> None:
        """Look at one partition after another, for ever."""
        while True:
            await asyncio.sleep(self._rng.uniform(0.2, 2.0))
            generation, partition = self._server.generation, self._rng.randrange(self._partitions)
            tally = await self._states.tally(partition)
            if tally.is_steady and generation == self._server.generation:  # it has not fallen back meanwhile
                self._judge(tally)
            if self._books is not None and self._rng.random() < 0.2:
                await self._judge_jobs(self._books)

    async def _judge_jobs(self, books: JobBooks) -> None:
        generation, report = self._server.generation, Report(crawl="main")
        await judge_jobs(books, report)
        if generation == self._server.generation:
            for finding in report.findings.violations:
                self._blame("audit", f"{finding.title}: {finding.examples}")

    def _judge(self, t: Tally) -> None:
        own = t.committed - t.run_pages
        missing = missing_of(t, own)
        if missing > 0:
            self._blame("audit", f"{missing} URLs of partition {t.partition} would be called lost: {t}")
        for wrong in disagreements(t, Committed(own, own, t.run_pages), exactly=False):
            self._blame("audit", f"of partition {t.partition} would be said: {wrong}")

    # --- what it asks, as of an engine ---

    async def commands(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        found = []
        for command in commands:
            if self._rng.random() < 0.3:
                await asyncio.sleep(self._rng.uniform(0.0, PAUSE_S))
            found += self._server.real.wire.ask([command])
        return found

    def run_id_of(self, key: str) -> str:
        if not self._server.shards:
            return self._server.run_id
        shard = self._server.shards[self._server.shard_of(key)]
        return shard.run_id if shard.is_up else "nobody"  # its last writes are gone when it dies

    async def command(self, *command: Any) -> Any:
        return (await self.commands([command]))[0]
