"""What this instance knows of active runs: their records, how their links are routed, which partitions they touched.

A record is read again when it is needed and a second old. So within about a second an instance refuses the URLs of a
run that has ended, or of which nothing more is to be fetched. What it fetches in this second does no harm: the links of
an ended run are dropped when their partitions are touched, or by the partitions themselves.
"""

import asyncio
from collections.abc import Collection, Iterable

import msgspec

from crawler.frontier.runs import Runs
from crawler.model import Claim
from crawler.pipeline.router import Router
from crawler.rules.runs import RunRecord
from crawler.rules.scope import ScopeRules
from crawler.runtime.clock import monotonic_ms

RUNS_MAX = 4096  # known at a time; the one that was used longest ago is forgotten. Some KB each
FRESH_MS = 1000
ENDED = "run_ended"


class _Known(msgspec.Struct):
    """`record`: None for a run that has ended. `router`: made when it is needed, by the crawl's scope at that time."""

    record: RunRecord | None
    read_ms: int
    touched: set[int]
    router: Router | None = None
    scope: ScopeRules | None = None


class RunBook:
    """The runs that this instance has met. `router`: that of the crawl itself."""

    def __init__(self, runs: Runs, router: Router) -> None:
        self._runs = runs
        self._router = router
        self._known: dict[str, _Known] = {}  # the one that was used last is the last
        self._wanted: set[str] = set()
        self._reading = asyncio.Lock()
        self._engine_starts = 0

    async def learn(self, runs: Collection[str]) -> None:
        """Read the records of these that are not known, or not any more; those that others want meanwhile with them.

        Raises EngineError.
        """
        if all(map(self._is_fresh, runs)):
            return
        self._wanted.update(runs)
        async with self._reading:
            asked = [run for run in {*self._wanted, *runs} if not self._is_fresh(run)]
            self._wanted.clear()
            if asked:
                read_ms = monotonic_ms()
                for run, record in (await self._runs.read(asked)).items():
                    self._note(run, record, read_ms)

    async def learn_again(self, run: str) -> None:
        """Read its record, however new what is known of it is. Raises EngineError."""
        if run in self._known:
            self._known[run].read_ms = -FRESH_MS
        await self.learn((run,))

    def _is_fresh(self, run: str) -> bool:
        known = self._known.get(run)
        return known is not None and monotonic_ms() - known.read_ms < FRESH_MS

    def _note(self, run: str, record: RunRecord | None, read_ms: int) -> None:
        before = self._known.pop(run, None)
        if before is None:
            before = _Known(record, read_ms, set())
        elif before.record != record:
            before.record, before.router = record, None
        before.read_ms = read_ms
        self._known[run] = before
        while len(self._known) > RUNS_MAX:
            del self._known[next(iter(self._known))]

    async def refusal_of(self, claim: Claim) -> str:
        """Why a claimed URL of a run is not to be fetched, "" if it is. Raises EngineError when that can't be read."""
        while not self._is_fresh(claim.run):
            await self.learn((claim.run,))
        record = self._known[claim.run].record
        if record is None:
            return ENDED
        if record.stopped:
            return f"run_{record.stopped}"
        return "run_depth" if 0 <= record.spec.depth < claim.depth else ""

    def router_of(self, run: str) -> Router | None:
        """Routing for the links of a run, as far as it is known; None when it has ended, or is not known."""
        if not run:
            return self._router
        known = self._known.get(run)
        if known is None or known.record is None:
            return None
        if known.router is None or known.scope is not self._router.scope:
            known.router, known.scope = self._router.of_run(known.record), self._router.scope
        return known.router

    def may_lead_to(self, claim: Claim, url: str) -> bool:
        """May a redirect of this claim lead to that URL?"""
        router = self.router_of(claim.run)
        return router is not None and router.verdict(url, claim.depth, claim.redirects + 1).allowed

    async def touch(self, run: str, partitions: Iterable[int], roots: Collection[str] = ()) -> bool:
        """Note in the engine that partitions are to get URLs of a run, unless it was noted; and roots of its scope.

        False when the run has ended: nothing may be added. Raises EngineError.
        """
        known = self._known.get(run)
        new = set(partitions) - (known.touched if known else set())
        if known is not None and known.record is None:
            return False
        if not new and not roots:
            return True
        engine_starts = self._engine_starts
        is_active = await self._runs.touch(run, new, roots)
        known = self._known.get(run)
        if known is None or engine_starts != self._engine_starts:
            return is_active
        if not is_active:
            known.record = known.router = None
        elif known.record is not None:
            known.touched |= new
            if more := {*roots} - {*known.record.roots}:
                known.record = msgspec.structs.replace(known.record, roots=tuple(sorted({*known.record.roots, *more})))
                known.router = None
        return is_active

    def forget(self) -> None:
        """The engine restarted, and may have lost what this session knows of it."""
        self._engine_starts += 1
        self._known.clear()
