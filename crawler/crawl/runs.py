"""Everything that an instance does for jobs, put together: triggers, runs, the comparison of clocks.

While the crawl has no job, nothing of it reads or writes anything.
"""

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from crawler.crawl.seed import BATCH
from crawler.crawl.url_input import INVALID_KEPT_MAX, GivenUrl, SeedReport
from crawler.errors import EngineError
from crawler.frontier.dead_letters import DeadLetters
from crawler.frontier.owner import Frontier
from crawler.frontier.runs import Runs
from crawler.jobs.clock_check import ClockCheck
from crawler.jobs.runs import JobStore, RunWatch
from crawler.jobs.triggers import Triggers
from crawler.membership.held import HeldPartitions
from crawler.model import SITEMAP, AddOutcome, Candidate, FailureKind, Followed
from crawler.routing.router import Router
from crawler.rules.job_plan import Plan
from crawler.rules.job_runs import RunRecord
from crawler.runtime.tasks import Loop
from crawler.runtime.ticks import tick
from crawler.settings.schema import JobSettings
from crawler.terminal.words import failure_text

# Adds the seeds of a run of a job to the frontier, each counted as new, seen, out of scope or invalid.
#
# Unlike those of the crawl itself they are in no journal and have no numbers: who starts a run again knows its seeds.
# Nothing here says when a run starts, or that all its seeds were added.


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
        batch: list[tuple[str, GivenUrl]] = []
        for one in given:
            url = self.report.canonical(one)
            if url is not None:
                batch.append((url, one))
            if len(batch) >= BATCH:
                if not await self._add(batch):
                    return False
                batch = []
        return await self._add(batch)

    async def _add(self, batch: Sequence[tuple[str, GivenUrl]]) -> bool:
        """The partitions and roots of a batch are noted before its URLs are added."""
        if not batch:
            return True
        scope = self._router.scope
        named = (url for url, given in batch if given.label != SITEMAP and not scope.forgets(url))
        opened = frozenset(map(scope.seed_root, named)) - scope.roots
        self._router.scope = scope.with_roots(opened)
        by_partition = self._candidates(batch)
        if not await self._runs.touch(self._run, by_partition, opened):
            return False
        for reply in (await self._frontier.add(by_partition, hints_us=True)).values():
            if isinstance(reply, EngineError):
                raise reply
            if AddOutcome.ENDED in reply.outcomes:
                return False
            new = sum(outcome is AddOutcome.NEW for outcome in reply.outcomes)
            self.report.new += new
            self.report.seen += len(reply.outcomes) - new
        return True

    def _candidates(self, batch: Sequence[tuple[str, GivenUrl]]) -> dict[int, list[Candidate]]:
        by_partition: dict[int, list[Candidate]] = {}
        for url, given in batch:
            if given.label == SITEMAP and not self._router.scope.forgets(
                url
            ):  # it opens nothing, and may be where the job has no pages
                candidate = self._router.candidate(url, depth=1, followed=Followed(url, SITEMAP))
                by_partition.setdefault(candidate.partition, []).append(candidate)
                continue
            verdict = self._router.verdict(url, 0)
            if verdict.allowed:
                candidate = self._router.candidate(url, depth=0, seed=True, signals=given.signals)
                by_partition.setdefault(candidate.partition, []).append(candidate)
                continue
            self.report.out_of_scope += 1
            if len(self.report.out_of_scope_rules) < INVALID_KEPT_MAX:
                self.report.out_of_scope_rules.append((url, verdict.rule))
        return by_partition


log = logging.getLogger(__name__)

CHECK_S = 1.0


class JobRunner:
    """The jobs of the partitions that a session holds. `follow` is called with the version of the crawl's jobs."""

    def __init__(
        self,
        store: JobStore,
        frontier: Frontier,
        router: Router,
        held: HeldPartitions,
        settings: JobSettings,
        is_told: Callable[[], Awaitable[bool]],
    ) -> None:
        """`router`: that of the crawl itself. `is_told`: as of `RunWatch`."""
        self._runs = store.runs
        self._frontier = frontier
        self._router = router
        self.clock = ClockCheck(store.engine)
        self.watch = RunWatch(
            store, held, seed=self._seed, why_unread=self._why_unread, on_plan=self._stored,
            clock=self.clock, settings=settings, safe_of=frontier.dependable, is_told=is_told,
        )  # fmt: skip
        self._engine = store.engine
        self._triggers = Triggers(
            store.jobs, held, on_plan=self._stored, on_unknown=self.watch.uncertain,
            is_clock_right=lambda: self.clock.is_right, settings=settings, pause=store.pause,
        )  # fmt: skip
        self._jobs = store.jobs
        self._letters = DeadLetters(frontier, router.record.partitions)
        self.follow = self._triggers.follow

    @property
    def is_used(self) -> bool:
        """Has the crawl ever had a job?"""
        return self._triggers.is_used

    def start_no_runs(self) -> None:
        """The crawl is done, and this instance ends with the runs that are active."""
        self._triggers.is_ending = self.watch.is_ending = True

    def description(self) -> dict[str, float]:
        """For the member list; names as in `Member`."""
        is_off = self.clock.is_known and not self.clock.is_right
        return {
            "clock_off_s": self.clock.offset_s if is_off else 0.0,
            "next_job_at": 0.0 if is_off else self._triggers.next_at,
        }

    def loops(self) -> dict[str, Loop]:
        """What has to run, by name."""
        return {"triggers": self._triggers.run, "job checks": self._check, **self.watch.loops()}

    async def _check(self) -> None:
        """Compare clocks, and find the runs of partitions that were acquired."""
        while True:
            await tick(CHECK_S)
            if self._triggers.is_used:
                await self.clock.measure()
                with contextlib.suppress(EngineError):
                    await self.watch.find()

    def _stored(self, plan: Plan) -> None:
        revisions = {row.run: row.revision for row in plan.job.active}
        for record in plan.starts:
            self.watch.begun(record, plan.job.spec_of(revisions[record.run]))
        self._triggers.look_again(self._jobs.home_of(plan.job.id))

    async def _seed(self, record: RunRecord, urls: Sequence[str], label: str) -> int:
        seeder = RunSeeder(self._frontier, self._runs, self._router, record)
        await seeder.add_all([GivenUrl("seed", url, label=label) for url in urls])
        return seeder.report.usable

    async def _why_unread(self, record: RunRecord) -> str:
        """Why the sitemap of a run was given up; "" if it was not. Raises EngineError."""
        partition = self._router.placement.of(record.sitemap)[2]
        fingerprint = self._router.fingerprints.of_run(record.run).of(record.sitemap)
        found = await self._letters.find(partition, fingerprint)
        if found is None:
            return ""
        reason, detail = found.letter.reason, found.letter.detail
        why = detail if reason == FailureKind.NO_SITEMAP else failure_text(reason, detail)
        return f"can't read the sitemap {record.sitemap}: {why}"
