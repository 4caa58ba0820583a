"""Asks the engine what became of every link, and counts its partitions again: is each URL in exactly one state?

Must not know how commits and links were found.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from crawler.audit.findings import Report
from crawler.audit.judge_robots import origins_of
from crawler.audit.ledger import Ledger, Link
from crawler.frontier.bulk import BulkLookup, Tally, UrlState
from crawler.model import CommitEntry
from crawler.rules.parts import Part
from crawler.rules.places import Fingerprints
from crawler.rules.progress import Meter
from crawler.rules.urls import origin_of
from crawler.terminal.words import counted

LOOKS_MAX = 5  # at a partition whose counters move meanwhile
NAMED_MAX = 1000  # URLs named that are gone from a partition
SEED_LOOKS_MAX, SEED_LOOK_S = 20, 0.5


class Committed(NamedTuple):
    """Commits of a partition: of the crawl itself, how many URLs these are of, and of runs of jobs."""

    commits: int = 0
    urls: int = 0
    run_pages: int = 0

    @property
    def total(self) -> int:
        return self.commits + self.run_pages


NOTHING_COMMITTED = Committed()


class FrontierJudge:
    """What the engine says of one run of a crawl."""

    def __init__(
        self,
        states: BulkLookup,
        ledger: Ledger,
        report: Report,
        *,
        fingerprints: Fingerprints,
        meter: Meter,
        part: Part | None = None,
    ) -> None:
        """`part`: only these partitions are counted."""
        self._part = part
        self._states = states
        self._meter = meter
        self._pending: tuple[int, set[str]] = (-1, set())
        self._ledger = ledger
        self._report = report
        self._fingerprints = fingerprints
        self._began: list[tuple[int, int, int]] = []
        self._tallies: list[Tally] = []
        self._forgotten_of_runs = 0

    async def begin(self) -> None:
        """Note where the counters stand, to know in the end whether the crawl was going on meanwhile."""
        self._began = await self._states.counters()

    def _of_part(self, partition: int) -> bool:
        return self._part is None or self._part.has(partition)

    async def _partitions(self) -> list[int]:
        return [partition for partition, _, _ in await self._states.counters() if self._of_part(partition)]

    async def read_log(self, add: Callable[[CommitEntry], object]) -> None:
        """Commits that are not in an index yet. To be read before the index is: they move from here to there."""
        for partition in await self._partitions():
            for entry in await self._states.undrained(partition):
                add(entry)

    async def ask_links(self) -> None:
        """The state of every link's target that no index has."""
        asked = 0
        self._meter.begin("checking links", "link")
        for batch in self._ledger.links_to_ask():
            by_run: dict[str, defaultdict[int, list[str]]] = {}
            for link in batch:
                by_run.setdefault(link.run, defaultdict(list))[link.partition].append(str(link.fp))
            for run, wanted in by_run.items():
                await self._ask(wanted, run)
            asked += len(batch)
            self._meter.reached(asked)

    async def ask_for_seeds_again(self, are_given: Callable[[], bool]) -> None:
        """A seed is in its journal before the engine has it: while a command may be adding some, those that the engine
        never saw are asked for again.
        """
        for _ in range(SEED_LOOKS_MAX):
            wanted: defaultdict[int, list[str]] = defaultdict(list)
            for batch in self._ledger.links_in(UrlState.UNSEEN):
                for link in batch:
                    if not link.parent:
                        wanted[link.partition].append(str(link.fp))
            if not wanted or not are_given():
                return
            await asyncio.sleep(SEED_LOOK_S)
            await self._ask(wanted)

    async def _ask(self, wanted: Mapping[int, Sequence[str]], run: str = "") -> None:
        states = await self._states.of(wanted, run)
        for partition, fps in wanted.items():
            ended = [fp for fp in fps if states[fp] is UrlState.ENDED] if self._of_part(partition) else ()
            pending = await self._pending_of(partition) if ended else set()
            states.update((fp, UrlState.PENDING) for fp in ended if fp in pending)
        self._ledger.set_states([(int(state), int(fp)) for fp, state in states.items()])

    async def _pending_of(self, partition: int) -> set[str]:
        """Links come by partition: the last one's pending URLs are kept."""
        if self._pending[0] != partition:
            self._pending = (partition, await self._states.pending(self._fingerprints, partition))
        return self._pending[1]

    async def count(self) -> None:
        """Count all partitions again, and see whether the crawl moves."""
        partitions = await self._partitions()
        self._meter.begin("counting URLs", "partition", len(partitions))
        for number, partition in enumerate(partitions):
            self._meter.reached(number, number)
            for _ in range(LOOKS_MAX):
                tally = await self._states.tally(partition)
                if tally.is_steady:
                    break
            self._tallies.append(tally)
        self._report.is_moving = await self._states.counters() != self._began

    @property
    def forgotten_of_runs(self) -> int:
        """How many pages of ended runs were of forgotten domains, after `judge`."""
        return self._forgotten_of_runs

    @property
    def seen_runs(self) -> dict[str, set[int]]:
        """Runs of which partitions had seen URLs when they were counted, and these partitions."""
        found: defaultdict[str, set[int]] = defaultdict(set)
        for tally in self._tallies:
            for run in tally.runs:
                found[run].add(tally.partition)
        return found

    async def judge(self) -> None:
        """Links that lead nowhere, and partitions whose URLs are not all in some state."""
        report = self._report
        report.links = self._ledger.number("SELECT count(*) FROM links WHERE parent")
        for batch in self._ledger.links_in(UrlState.UNSEEN):
            for link in batch:
                report.findings.lost.add(url=link.url, reason="the engine never saw it", **_why_known(link))
        committed = self._committed()
        for tally in self._tallies:
            report.seen += tally.seen
            report.pending += tally.pending
            report.dead += tally.dead
            report.refused += tally.refused
            report.deferred += tally.deferred
            found = committed.get(tally.partition, NOTHING_COMMITTED)
            known = with_forgotten(tally, found)
            self._forgotten_of_runs += known.run_pages - found.run_pages
            await self._judge_partition(tally, known)
        is_short = not report.lacking
        if is_short and any(
            tally.committed - tally.forgotten > committed.get(tally.partition, NOTHING_COMMITTED).total
            for tally in self._tallies
        ):
            report.notes.append("commits are in no folder given: were all folders of the crawl named with --dir?")
        unsteady = sum(not tally.is_steady for tally in self._tallies)
        if unsteady and unsteady == len(self._tallies):
            report.findings.sums.not_judged("all partitions changed at every look")
        if not self._tallies and not report.links:
            for finding in (report.findings.lost, report.findings.sums):
                finding.not_judged("no URL was added")
        if unsteady:
            report.notes.append(f"{counted(unsteady, 'partition')} changed at every look and not judged by sums")

    def _committed(self) -> dict[int, Committed]:
        """What each partition has committed, by index and log."""
        rows = self._ledger.db.execute(
            "SELECT partition, sum(visits * (run = '')), sum(run = ''), sum(visits * (run <> '')) FROM ("
            "SELECT partition, fp, run, count(DISTINCT visit) AS visits FROM commits GROUP BY partition, fp"
            ") GROUP BY partition"
        )
        return {partition: Committed(*found) for partition, *found in rows}

    async def _judge_partition(self, t: Tally, found: Committed) -> None:
        if not t.is_steady:
            return
        own, of_runs = elsewhere(t, found) if self._report.lacking else (0, 0)
        self._report.elsewhere += own + of_runs
        missing = missing_of(t, found.urls) - own
        if missing > 0:
            await self._say_lost(t, missing)
        known = found._replace(commits=found.commits + own, run_pages=found.run_pages + of_runs)
        for wrong in disagreements(t, known, exactly=not self._report.is_moving):
            self._report.findings.sums.add(0, partition=t.partition, reason=wrong)
        self._report.findings.sums.count = len({one["partition"] for one in self._report.findings.sums.examples})

    async def _say_lost(self, t: Tally, missing: int) -> None:
        """URLs that were seen and are in no state; the suspects are links that ended and that robots.txt allows."""
        lost = self._report.findings.lost
        reason = "seen, and not pending, deferred, committed, dead or refused"
        suspects = await self._suspects(t.partition)
        for link in suspects[:missing]:
            lost.add(url=link.url, reason=reason, **_why_known(link))
        if left := missing - len(suspects[:missing]):
            which = f"{left:,} of {t.seen:,} URLs seen, which no link names"
            lost.add(
                left, partition=t.partition, reason=f"{which}, are not pending, deferred, committed, dead or refused"
            )

    async def _suspects(self, partition: int) -> list[Link]:
        rules = {known.url: known.rules for known in await origins_of(self._states, partition)}
        found: list[Link] = []
        for batch in self._ledger.links_in(UrlState.ENDED, partition):
            for link in batch:
                known = rules.get(origin_of(link.url))
                if (known is None or known.allows(link.url)) and len(found) < NAMED_MAX:
                    found.append(link)
        return found


def _why_known(link: Link) -> dict[str, Any]:
    return {"linked_from": link.parent} if link.parent else {"noted_in": "the journal of seeds"}


def with_forgotten(t: Tally, found: Committed) -> Committed:
    """With pages of forgotten domains, which the totals count and no index has: of the crawl, or of ended runs."""
    own = min(max(0, t.committed - t.run_pages - found.commits), t.forgotten)
    return Committed(found.commits + own, found.urls + own, found.run_pages + t.forgotten - own)


def missing_of(t: Tally, urls: int) -> int:
    """URLs of a partition that were seen and are in no state, where `urls` of the crawl are known to be committed."""
    return t.seen - (t.pending + t.deferred + urls + t.run_pages + t.dead + t.refused)


def elsewhere(t: Tally, found: Committed) -> tuple[int, int]:
    """Commits that only another folder can have: of the crawl, and of runs."""
    return max(0, t.committed - t.run_pages - found.commits), max(0, t.run_pages - found.run_pages)


def disagreements(t: Tally, found: Committed, *, exactly: bool) -> Iterable[str]:
    """What does not add up. While a crawl goes on, more commits may be known than had been counted; those of ended runs
    are not counted by a rebuild.
    """
    if t.added - t.revived - t.released != t.seen or t.seen != t.seen_counter:
        again = f", {t.revived:,} of them once more" if t.revived else ""
        yield f"{t.added:,} URLs added{again}, {t.seen_counter:,} counted as seen, {t.seen:,} in the seen-set"
    if t.added - t.done != t.pending:
        yield f"{t.added - t.done:,} URLs pending by the counters, {t.pending:,} records of them"
    if t.done != t.committed + t.dead_counter + t.refused + t.revived + t.deferrals:
        back = f", {t.revived:,} put back" if t.revived else ""
        yield f"{t.done:,} URLs done: {t.committed:,} committed, {t.dead_counter:,} dead, {t.refused:,} refused{back}"
    if t.dead != t.dead_counter:
        yield f"{t.dead_counter:,} dead letters counted, {t.dead:,} stored"
    own = t.committed - t.run_pages
    if found.commits < own or (exactly and found.commits != own):
        yield f"{own:,} commits counted, {found.commits:,} in the index and in the engine's log"
    if found.run_pages < t.run_pages:
        yield f"{t.run_pages:,} pages of runs counted, {found.run_pages:,} in the index and in the engine's log"
