"""Adds the seeds of a run of a job to the frontier, each counted as new, seen, out of scope or invalid.

Unlike those of the crawl itself they are in no journal and have no numbers: who starts a run again knows its seeds.
Nothing here says when a run starts, or that all its seeds were added.
"""

from collections.abc import Iterable, Sequence

from crawler.errors import EngineError
from crawler.frontier.jobs import Runs
from crawler.frontier.owner import Frontier
from crawler.model import AddOutcome, Candidate
from crawler.pipeline.router import Router
from crawler.rules.jobs import RunRecord
from crawler.rules.order import Signals
from crawler.seeding.seeder import BATCH, INVALID_SHOWN_MAX, GivenUrl, SeedReport


class RunSeeder:
    """Adds the seeds of one run; `router`: that of the crawl. Repeating is safe, and counts what is there as seen."""

    def __init__(self, frontier: Frontier, runs: Runs, router: Router, run: RunRecord) -> None:
        self._frontier = frontier
        self._runs = runs
        self._router = router.of_run(run)
        self._run = run.run
        self.report = SeedReport()

    async def add_all(self, given: Iterable[GivenUrl]) -> bool:
        """Add in batches; False when the run ended meanwhile. Raises EngineError when the engine does not take them."""
        batch: list[tuple[str, Signals]] = []
        for one in given:
            url = self.report.canonical(one)
            if url is not None:
                batch.append((url, one.signals))
            if len(batch) >= BATCH:
                if not await self._add(batch):
                    return False
                batch = []
        return await self._add(batch)

    async def _add(self, batch: Sequence[tuple[str, Signals]]) -> bool:
        """The partitions and roots of a batch are noted before its URLs are added."""
        if not batch:
            return True
        scope = self._router.scope
        opened = frozenset(scope.seed_root(url) for url, _ in batch) - scope.roots
        self._router.scope = scope.with_roots(opened)
        by_partition = self._candidates(batch)
        if not await self._runs.touch(self._run, by_partition, opened):
            return False
        for reply in (await self._frontier.add(by_partition)).values():
            if isinstance(reply, EngineError):
                raise reply
            if AddOutcome.ENDED in reply.outcomes:
                return False
            new = sum(outcome is AddOutcome.NEW for outcome in reply.outcomes)
            self.report.new += new
            self.report.seen += len(reply.outcomes) - new
        return True

    def _candidates(self, batch: Sequence[tuple[str, Signals]]) -> dict[int, list[Candidate]]:
        by_partition: dict[int, list[Candidate]] = {}
        for url, signals in batch:
            verdict = self._router.verdict(url, 0)
            if verdict.allowed:
                candidate = self._router.candidate(url, depth=0, seed=True, signals=signals)
                by_partition.setdefault(candidate.partition, []).append(candidate)
                continue
            self.report.out_of_scope += 1
            if len(self.report.out_of_scope_rules) < INVALID_SHOWN_MAX:
                self.report.out_of_scope_rules.append((url, verdict.rule))
        return by_partition
