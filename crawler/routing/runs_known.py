"""What this instance knows of active runs: their records, how their links are routed, which partitions they touched.

A record is read again when it is needed and a second old. So within about a second an instance refuses the URLs of a
run that has ended, or of which nothing more is to be fetched. What it fetches in this second does no harm: the links
of an ended run are dropped when their partitions are touched, or by the partitions themselves.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from crawler.frontier.runs import ActiveRun, Runs, with_roots
from crawler.model import Claim
from crawler.routing.router import Router
from crawler.routing.traps_learned import TrapMemory
from crawler.rules.job_runs import URLS, RunRecord, with_limits
from crawler.rules.scope import ScopeRules
from crawler.runtime.clocks import ENGINE_PAUSE_S, monotonic_ms
from crawler.settings.schema import JobSettings

RUNS_MAX = 4096  # known at a time; the one that was read longest ago is forgotten
IDLE_MS = 600_000  # and those that were not read for so long: most have ended
ROUTERS_MAX = 128  # at a time, with their recent URLs: some 100 KB each, 1 MB at most for URLs of usual length
ROOTS_AT_ONCE = 1000  # noted by a call
FRESH_MS = 1000
LIMITED_MS = 100  # the same for a run that may reach a limit: it may exceed it by what is fetched in this time
ENDED = "run_ended"
NO_LIMITS = JobSettings()


class _Known(msgspec.Struct):
    """`record`: None for a run that has ended. `roots`: those that were noted for it."""

    record: RunRecord | None
    roots: frozenset[str]
    read_ms: int
    touched: set[int]


class RunBook:
    """The runs that this instance has met lately.

    `router`: that of the crawl. `traps`: what was learned for runs is forgotten with them. `jobs`: limits of runs
    without others.
    """

    def __init__(self, runs: Runs, router: Router, traps: TrapMemory, jobs: JobSettings = NO_LIMITS) -> None:
        self._runs = runs
        self._jobs = jobs
        self._router = router
        self._traps = traps
        self._known: dict[str, _Known] = {}  # the one that was read last is the last
        self._routers: OrderedDict[str, tuple[Router, ScopeRules]] = OrderedDict()  # with the crawl's scope at the time
        self._wanted: set[str] = set()
        self._reading = asyncio.Lock()
        self._engine_starts = 0

    async def learn(self, runs: Collection[str]) -> None:
        """Read the records of these that are not known, or not any more; those that others want meanwhile with them.

        A run that has ended is read each time: when the engine has lost its last second, the run is triggered again.
        Raises EngineError.
        """
        if all(map(self._is_active, runs)):
            return
        self._wanted.update(runs)
        async with self._reading:
            asked = [run for run in {*self._wanted, *runs} if not self._is_active(run)]
            self._wanted.clear()
            for run in asked:
                if self._is_fresh(run):
                    del self._known[run]  # it has ended, by a read before this one, which may fail
            if asked:
                read_ms = monotonic_ms()
                for run, active in (await self._runs.look(asked)).items():
                    self._note(run, await self._with_roots(run, active), read_ms)
                self._forget_old(read_ms)

    async def learn_again(self, run: str) -> None:
        """Read its record, however new what is known of it is. Raises EngineError."""
        if run in self._known:
            self._known[run].read_ms = -FRESH_MS
        await self.learn((run,))

    def _is_active(self, run: str) -> bool:
        return self._is_fresh(run) and self._known[run].record is not None

    def _is_fresh(self, run: str) -> bool:
        known = self._known.get(run)
        if known is None:
            return False
        is_limited = known.record is not None and known.record.is_limited
        return monotonic_ms() - known.read_ms < (LIMITED_MS if is_limited else FRESH_MS)

    async def _with_roots(self, run: str, active: ActiveRun | None) -> tuple[RunRecord | None, frozenset[str]]:
        """A record and the roots that were noted for its run. These only grow, so they are read when they have."""
        if active is None:
            return None, frozenset()
        known = self._known.get(run)
        roots = known.roots if known is not None else frozenset()
        return active.record, roots if len(roots) == active.roots else await self._runs.roots(run)

    def _note(self, run: str, found: tuple[RunRecord | None, frozenset[str]], read_ms: int) -> None:
        record, roots = found
        if record is not None:
            record = with_limits(record, self._jobs)
            found = record, roots
        before = self._known.pop(run, None)
        if before is None:
            before = _Known(record, roots, read_ms, set())
        elif (before.record, before.roots) != found:
            before.record, before.roots = record, roots
            self._routers.pop(run, None)
        before.read_ms = read_ms
        self._known[run] = before

    def _forget_old(self, now_ms: int) -> None:
        gone = set[str]()
        for run, known in self._known.items():
            if len(self._known) - len(gone) <= RUNS_MAX and now_ms - known.read_ms < IDLE_MS:
                break
            gone.add(run)
        for run in gone:
            del self._known[run]
            self._routers.pop(run, None)
        if gone:
            self._traps.forget(gone)

    async def refusal_of(self, claim: Claim) -> str:
        """Why a claimed URL of a run is not to be fetched, "" if it is. Raises EngineError when that can't be read."""
        while not self._is_fresh(claim.run):
            await self.learn((claim.run,))
        record = self._known[claim.run].record
        if record is None:
            return ENDED
        if record.stopped and record.stopped != URLS:
            return f"run_{record.stopped}"
        is_too_deep = 0 <= record.spec.depth < claim.depth and not claim.is_given_sitemap
        return "run_depth" if is_too_deep else ""

    def excludes(self, url: str) -> bool:
        """Does the crawl's `exclude`, which holds for its runs as well, match a URL that waits?"""
        return self._router.scope.excludes(url)

    def forgets(self, url: str) -> bool:
        """Was the domain of a URL that waits forgotten?"""
        return self._router.scope.forgets(url)

    def is_known(self, run: str) -> bool:
        """Is it known, now, whether this run is active?"""
        return run in self._known

    def router_of(self, run: str) -> Router | None:
        """Routing for the links of a run, as far as it is known; None when it has ended, or is not known."""
        if not run:
            return self._router
        known = self._known.get(run)
        if known is None or known.record is None:
            return None
        router, scope = self._routers.get(run, (None, None))
        if router is None or scope is not self._router.scope:
            router = self._router.of_run(with_roots(known.record, known.roots))
            self._routers[run] = router, self._router.scope
            if len(self._routers) > ROUTERS_MAX:
                self._routers.popitem(last=False)
        self._routers.move_to_end(run)
        return router

    def asks_for_changes(self, run: str) -> bool:
        """Are sites to be asked whether pages of this run have changed since an earlier one?"""
        known = self._known.get(run)
        return known is not None and known.record is not None and known.record.spec.refetch == "changed"

    def may_lead_to(self, claim: Claim, url: str) -> bool:
        """May a redirect of this claim lead to that URL?"""
        router = self.router_of(claim.run)
        return router is not None and router.verdict(url, claim.depth, claim.redirects + 1).allowed

    async def touch_all(self, partitions: Mapping[str, Collection[int]]) -> set[str]:
        """Note in the engine that partitions are to get URLs of runs, unless it was noted; the runs that have ended.

        To those, nothing may be added. Raises EngineError.
        """
        ended = {run for run in partitions if (known := self._known.get(run)) is not None and known.record is None}
        new = {run: {*mine} - self._touched(run) for run, mine in partitions.items() if run not in ended}
        asked = {run: mine for run, mine in new.items() if mine}
        if not asked:
            return ended
        engine_starts = self._engine_starts
        ended_since = await self._runs.touch_all(asked)
        if engine_starts == self._engine_starts:
            for run, mine in asked.items():
                self._note_touched(run, mine, is_active=run not in ended_since)
        return ended | ended_since

    def _touched(self, run: str) -> set[int]:
        known = self._known.get(run)
        return known.touched if known else set()

    def _note_touched(self, run: str, partitions: Iterable[int], *, is_active: bool) -> None:
        known = self._known.get(run)
        if known is not None and is_active:
            known.touched.update(partitions)
        elif known is not None:
            known.record = None
            self._routers.pop(run, None)

    async def open(self, run: str, roots: Sequence[str]) -> None:
        """Note roots of its scope in the engine, which its sitemaps, or redirects of its seeds, open. What is added
        next, elsewhere, needs them. Raises EngineError.
        """
        for at in range(0, len(roots), ROOTS_AT_ONCE):
            await self._runs.touch(run, (), roots[at : at + ROOTS_AT_ONCE])
        while not await self._runs.keeps(run):  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(ENGINE_PAUSE_S)
        await self.learn_again(run)

    def forget(self) -> None:
        """The engine restarted, and may have lost what this session knows of it."""
        self._engine_starts += 1
        self._traps.forget(self._known)
        self._known.clear()
        self._routers.clear()
