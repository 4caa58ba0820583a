"""What all instances share and each follows: the crawl's record, overrides, the ring, the end of the crawl."""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

from crawler.engine.client import Call, Engine
from crawler.engine.server import Change
from crawler.errors import EngineError
from crawler.frontier.members import Member, Members
from crawler.frontier.operator import OperatorCommands, Overrides
from crawler.frontier.owner import Aside, Fence, Frontier, Settlement
from crawler.frontier.record import CrawlRecord, Crawls, PartitionCount
from crawler.frontier.runs import Runs
from crawler.model import AckOutcome, Claim
from crawler.rules.membership import COMMANDS, Pass, declared, is_finished
from crawler.rules.urls import registrable_domain
from crawler.runtime.process import ENGINE_PAUSE_S, monotonic_ms, tick
from crawler.settings import FrontierSettings
from crawler.worker.archive import ArchiveStage
from crawler.worker.response_policy import Recall
from crawler.worker.retelling import all_told
from crawler.worker.router import Router
from crawler.worker.turn import SetAside
from crawler.worker.work import Work

log = logging.getLogger(__name__)

Job = Callable[[], Coroutine[Any, Any, None]]

RETURN_TRIES = 2  # more would delay a hand-over or the end of the process when the engine is gone
RETURN_MAX = 128  # claims per call: twice as many take 7 ms in an engine with a million keys
RETURN_EVERY_S = 0.5
ASIDE_PAUSE_MS = 100  # until a queue is claimed from again whose URLs were set aside: a long row of them is no hurry
TOLD_MAX = 256  # last words on origins that are kept for an engine that may lose them
WAIT_MAX_MS = 1000  # claims due later than this, and later than the time to claim ahead, are returned


class PartitionRebalance:
    """Implements ownership's `RebalanceListener`. `run` does the work that ownership must not wait for."""

    def __init__(
        self,
        frontier: Frontier,
        work: Work,
        archive: ArchiveStage,
        *,
        overtaken: Callable[[Sequence[Claim], SetAside], Recall | None],
        store_sessions: Callable[[int], Awaitable[None]],
    ) -> None:
        """`overtaken`: what happened to an origin while claims of it were on their way into its row. `store_sessions`:
        store what has changed in those of a partition; raises EngineError.
        """
        self._frontier = frontier
        self._work = work
        self._archive = archive
        self._overtaken = overtaken
        self._store_sessions = store_sessions
        self._recalls: dict[str, tuple[Claim, Recall]] = {}  # the last one of an origin, until the engine has taken it
        self._told: OrderedDict[str, tuple[Claim, Recall]] = OrderedDict()  # the last ones, kept for a while
        self._to_repeat: set[str] = set()  # origins whose last one the engine may not have
        self._jobs: asyncio.Queue[Job] = asyncio.Queue()
        self._working = 0  # jobs, and returns of claims

    async def run(self) -> None:
        """Run the jobs that the methods below queue, concurrently, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                job = await self._jobs.get()
                group.create_task(self._done(job))

    async def _done(self, job: Job) -> None:
        self._working += 1
        try:
            await job()
        finally:
            self._working -= 1

    @property
    def owes(self) -> bool:
        """Are there calls that the engine has not answered, or that are to be made?"""
        return bool(self._working or self._recalls or self._jobs.qsize())

    def acquired(self, partition: int, *, log_entries: int, pending: int) -> None:
        """A partition is ours: claim from it, and index what its last owner left in the log."""
        if pending:
            self._work.due.schedule(partition)
        if log_entries:
            self._jobs.put_nowait(partial(self._adopt_log, partition))
        if partition in self._work.unsaved.by_partition:
            self._jobs.put_nowait(partial(self._save_clocks_or_lose, partition))
        for origin in self._to_repeat & self._told.keys():
            claim, what = self._told[origin]
            if claim.partition == partition:
                self._to_repeat.discard(origin)
                self._jobs.put_nowait(partial(self.recall, claim, what))
        self._to_repeat &= self._told.keys()

    def engine_restarted(self) -> None:
        """The engine may have lost what it was told last of an origin, whose URLs would then wait for another probe: it
        is told again when the partition is acquired.
        """
        self._to_repeat = set(self._told)

    async def _adopt_log(self, partition: int) -> None:
        try:
            await self._archive.adopt(partition)
        except EngineError:
            self._work.held.lose(partition)  # it is acquired again and retried then

    async def _save_clocks_or_lose(self, partition: int) -> None:
        try:
            await self._save_clocks(partition)
        except EngineError:
            self._work.held.lose(partition)  # it is acquired again and retried then

    async def _save_clocks(self, partition: int) -> None:
        """Store the clocks and delays of queues that were ours when the partition was lost, because an engine that fell
        back may have older ones. Others may have sent requests with a shorter delay, so each queue waits for its own.

        Raises EngineError.
        """
        fence, queues = self._work.held.fence_of(partition), self._work.unsaved.by_partition.get(partition, ())
        if fence is None or not queues:
            return
        calls = []
        for queue in queues:
            delay_ms = self._work.scheduler.delay_of(queue)
            next_ms = fence.now_ms + max(self._work.scheduler.wait_of(queue), delay_ms)
            calls.append(self._frontier.pace_call(fence, queue, Settlement(next_fetch_ms=next_ms, delay_ms=delay_ms)))
        for reply in await self._frontier.end(calls):
            if isinstance(reply, EngineError):
                raise reply
        self._work.unsaved.by_partition.pop(partition, None)

    def drain(self, partition: int) -> None:
        """Start nothing more; return the waiting claims at once."""
        self._work.due.drop([partition])
        self._jobs.put_nowait(partial(self.return_claims, self._work.scheduler.remove([partition])))

    def is_idle(self, partition: int) -> bool:
        """Is nothing of the partition in flight or unacked?"""
        has_calls = any(claim.partition == partition for claim, _ in self._recalls.values())
        has_backlog = self._work.backlog.has_any(partition) and not self._archive.refuses  # the next owner indexes it
        is_open = self._work.open_claims.has_any(partition) or has_backlog
        return not is_open and not has_calls

    def set_back(self, pages: int) -> None:
        """The engine lost so many pages of ours."""
        self._work.counters.set_back(pages)

    async def give_back(self, partition: int) -> None:
        """Return the waiting claims of a partition; save its clocks and sessions. Raises EngineError if that fails."""
        await self.return_claims(self._work.scheduler.remove([partition]))
        await self._save_clocks(partition)
        await self._store_sessions(partition)

    async def set_aside(self, claims: list[Claim], end: SetAside) -> None:
        """Return claims of one origin into its row; repeated until the engine answers."""
        self._told.pop(end.origin, None)
        left = await self._return(claims, aside=end)
        if left:
            self._jobs.put_nowait(partial(self._set_aside_later, left, claims, end))
        else:
            await self._recall_overtaken(claims, end)

    async def _set_aside_later(self, calls: list[Call], claims: list[Claim], end: SetAside) -> None:
        while calls:
            calls = await self._send(calls)
        await self._recall_overtaken(claims, end)

    async def _recall_overtaken(self, claims: list[Claim], end: SetAside) -> None:
        if (recall := self._overtaken(claims, end)) is not None:
            await self.recall(claims[0], recall)

    async def recall(self, claim: Claim, what: Recall) -> None:
        """Put what was set aside of the claim's origin back. It is repeated until the engine answers, or a later one of
        the origin replaces it.
        """
        self._recalls[what.origin] = self._told[what.origin] = claim, what
        if len(self._told) > TOLD_MAX:
            self._told.popitem(last=False)
        if error := await self._try_recall(claim, what):
            log.warning("origin.not_recalled", extra={"origin": what.origin, "error": str(error)})
            self._jobs.put_nowait(partial(self._recall_later, claim, what))

    async def _recall_later(self, claim: Claim, what: Recall) -> None:
        while self._is_open(what):
            await asyncio.sleep(ENGINE_PAUSE_S)
            await self._try_recall(claim, what)

    def _is_open(self, what: Recall) -> bool:
        """Is this the last recall of its origin, and not taken yet?"""
        return self._recalls.get(what.origin, (None, None))[1] is what

    async def _try_recall(self, claim: Claim, what: Recall) -> EngineError | None:
        """None when nothing is left to do: the engine has answered, or the partition is not ours (any more, or yet)."""
        fence = self._work.held.fence_of(claim.partition)
        if fence is not None:
            try:
                due_ms = max(1, what.due_ms + fence.now_ms - monotonic_ms()) if what.due_ms else 0
                await self._frontier.recall(fence, claim.queue, what.origin, is_good=what.is_good, due_ms=due_ms)
            except EngineError as error:
                return error
            self._work.due.schedule(claim.partition, what.due_ms)
        else:
            self._to_repeat.add(what.origin)
        if self._is_open(what):
            del self._recalls[what.origin]
        return None

    async def return_claims(self, claims: list[Claim], *, started: bool = False) -> None:
        """Return claims; their queues are due when they would have been due here.

        `started`: their requests were sent, so their queues wait at least their delay.
        """
        await self._return(claims, started=started)

    async def _return(self, claims: list[Claim], *, started: bool = False, aside: SetAside | None = None) -> list[Call]:
        """As `return_claims`, or with `aside` into the row of their origin. Returns what the engine did not take."""
        if not claims:
            return []
        by_partition: dict[int, list[tuple[Claim, int]]] = {}
        for claim in claims:
            by_partition.setdefault(claim.partition, []).append((claim, self._wait_ms(claim, started=started)))
            self._work.open_claims.ended(claim)
        calls = []
        for partition, mine in by_partition.items():
            fence = self._work.held.fence_of(partition)
            if fence is not None:
                calls += self._return_calls(fence, mine, aside)
        self._working += 1
        try:
            left = await self._send(calls)
        finally:
            self._working -= 1
        now_ms = monotonic_ms()
        for partition, mine in by_partition.items():
            if self._work.held.is_open(partition):
                self._work.due.schedule(partition, now_ms + min(wait_ms for _, wait_ms in mine))
        return left

    async def _send(self, calls: list[Call]) -> list[Call]:
        """Returns what the engine does not take after some tries: claims that come back after their visibility timeout,
        unless they are sent again.
        """
        for _ in range(RETURN_TRIES):
            try:
                replies: Sequence[AckOutcome | EngineError] = await self._frontier.end(calls)
            except EngineError as error:
                replies = [error] * len(calls)
            calls = [call for call, reply in zip(calls, replies, strict=True) if isinstance(reply, EngineError)]
            if not calls:
                return []
            await asyncio.sleep(ENGINE_PAUSE_S)
        log.warning("return.engine_error", extra={"calls": len(calls)})
        return calls

    def _return_calls(self, fence: Fence, mine: Sequence[tuple[Claim, int]], end: SetAside | None = None) -> list[Call]:
        given, aside = [(claim, fence.now_ms + wait_ms if wait_ms else 0) for claim, wait_ms in mine], None
        if end is not None:
            later_ms = fence.now_ms - monotonic_ms()
            since_ms = -1 if end.since_ms is None else max(0, end.since_ms + later_ms)
            aside = Aside(end.origin, max(1, end.due_ms + later_ms), since_ms)
            given = [(claim, max(at_ms, fence.now_ms + ASIDE_PAUSE_MS)) for claim, at_ms in given]
        return [
            self._frontier.return_claims(fence, given[start : start + RETURN_MAX], aside=aside)
            for start in range(0, len(given), RETURN_MAX)
        ]

    def _wait_ms(self, claim: Claim, *, started: bool) -> int:
        wait_ms = self._work.scheduler.wait_of(claim.queue)
        return max(wait_ms, self._work.scheduler.slot_of(claim.queue).delay_ms) if started else wait_ms

    async def return_stale(self, settings: FrontierSettings) -> None:
        """Return claims that are not due soon, until cancelled: their queue has to wait, or has too many."""
        half_ms = int(settings.visibility_timeout_s * 500)
        wait_max_ms = max(WAIT_MAX_MS, int(settings.claim_ahead_s * 1000))
        while True:
            await tick(RETURN_EVERY_S)
            await self.return_claims(self._work.scheduler.take_stale(wait_max_ms=wait_max_ms, age_max_ms=half_ms))
            self._work.scheduler.forget_idle()


# Applies an operator's overrides in this instance: returns stopped claims, takes over delays and boosts.
#
# Reads overrides only when their version has changed. The stops themselves are in the engine; this covers what they
# leave open: claims that are in memory, and queues that the operator's command did not know.


class OverrideFollower:
    """Updates `counters.overrides`, which the stages check before they start anything."""

    def __init__(
        self,
        operator: OperatorCommands,
        work: Work,
        rebalance: PartitionRebalance,
        *,
        default_delay_ms: int,
    ) -> None:
        self._operator = operator
        self._work = work
        self._rebalance = rebalance
        self._default_delay_ms = default_delay_ms
        self._delays_changed: list[str] = []  # domains whose delay is not stored in the engine yet

    async def follow(self, version: int = -1) -> None:
        """Take over the overrides, unless this version is known. Raises EngineError."""
        if version != self._work.counters.overrides.version:
            await self._take_over()
        while self._delays_changed:
            await self._set_delay(self._delays_changed[-1])
            self._delays_changed.pop()

    async def _take_over(self) -> None:
        before, overrides = self._work.counters.overrides, await self._operator.overrides()
        self._work.counters.overrides = overrides
        log.info("overrides.changed", extra={"paused": overrides.is_paused, "overrides_version": overrides.version})
        self._take_over_delays(before, overrides)
        self._take_over_boosts(before, overrides)
        stopped = self._work.scheduler.take_out(lambda claim: overrides.holds_back(claim.domain))
        await self._rebalance.return_claims(stopped)
        self._work.due.room_changed()

    def _take_over_delays(self, before: Overrides, overrides: Overrides) -> None:
        """A shorter delay applies at once; a longer one with the next turn of each queue, and so does the Crawl-delay
        when an override is removed.
        """
        taken_back = before.delays_ms.keys() - overrides.delays_ms.keys()
        wanted = dict.fromkeys(taken_back, self._default_delay_ms) | dict(overrides.delays_ms)
        changed = {domain: ms for domain, ms in wanted.items() if before.delays_ms.get(domain) != ms}
        self._delays_changed += changed
        for slot in self._work.scheduler.slots() if changed else ():
            delay_ms = changed.get(registrable_domain(slot.queue))
            if delay_ms is not None:
                self._work.scheduler.shorten_delay(slot, delay_ms)

    def _take_over_boosts(self, before: Overrides, overrides: Overrides) -> None:
        changed = {domain for domain, _ in before.boosts.items() ^ overrides.boosts.items()}
        if changed:
            self._work.scheduler.set_boosts(overrides.boosts)
        for domain in changed:
            self._work.due.hint(self._operator.partition_of(domain))

    async def _set_delay(self, domain: str) -> None:
        """Store the delay again for queues in memory: turns from before the override was known stored another one."""
        partition = self._operator.partition_of(domain)
        fence = self._work.held.fence_of(partition)
        queues = [slot.queue for slot in self._work.scheduler.slots() if registrable_domain(slot.queue) == domain]
        if fence is not None and queues:
            due_ms = {queue: fence.now_ms + self._work.scheduler.wait_of(queue) for queue in queues}
            await self._operator.set_delay(partition, due_ms, self._work.counters.overrides.delays_ms.get(domain))
            self._work.due.hint(partition)

    async def return_stopped(self, claim: Claim) -> None:
        """Return a claim of a stopped domain, and stop its queue if it is not stopped."""
        if self._work.counters.overrides.stop_of(claim.domain):
            with contextlib.suppress(EngineError):  # otherwise the next claim of the queue does it
                await self._operator.carry_out(claim.domain, [claim.queue])
        await self._rebalance.return_claims([claim])


# Follows what others change while a crawl runs: operator overrides, scope rules and roots.


NO_VERSION = -1
FOLLOW_S = 1.0  # an operator's overrides take effect within two seconds


class SharedRecord:
    """The crawl's record as last read."""

    def __init__(
        self,
        crawls: Crawls,
        record: CrawlRecord,
        override_follower: OverrideFollower,
        router: Router,
        *,
        follow_jobs: Callable[[int], None],
        every_s: float,
    ) -> None:
        """`follow_jobs`: called with the version of the crawl's jobs each time."""
        self._crawls = crawls
        self._record = record
        self._override_follower = override_follower
        self._router = router
        self._follow_jobs = follow_jobs
        self._every_s = min(every_s, FOLLOW_S)
        self._is_doubtful = False

    def noticed(self, change: Change) -> None:
        """What was changed may be lost: the same counters may then stand for other changes, so all is read again."""
        self._is_doubtful |= change.may_have_lost and change.affects(self._crawls.keys.crawl)

    async def run(self) -> None:
        """Follow until cancelled. Raises ConflictError when the crawl is gone."""
        while True:
            await tick(self._every_s)
            with contextlib.suppress(EngineError):
                await self.follow()

    async def follow(self) -> None:
        """Read what has changed. Raises EngineError, ConflictError."""
        was_doubtful, self._is_doubtful = self._is_doubtful, False
        try:
            version, overrides, jobs = await self._crawls.versions(self._record)
            if was_doubtful:
                self._follow_jobs(NO_VERSION)
            self._follow_jobs(jobs)
            await self._override_follower.follow(NO_VERSION if was_doubtful else overrides)
            if version == self._record.version and not was_doubtful:
                return
            self._record, roots = await self._crawls.shared()
            self._router.follow(self._record, roots)
            self._router.recent.clear()  # URLs that were out of scope may be in scope now
        except EngineError:
            self._is_doubtful |= was_doubtful
            raise

    async def check_still_there(self) -> None:
        """Raises ConflictError when the crawl is gone or replaced by another one."""
        await self._crawls.still(self._record)


# Detects the end of a crawl: checked when this instance has nothing to do, judged by rules/membership.py.
#
# A crawl is counted apart from the runs of its jobs. When it is done, this instance starts no further run, and waits
# for the ends of those that are active then: jobs go on where `crawler run` is kept.

BUSY_PAUSE_S = 0.05
LOOK_ALONE_MS = 15_000  # without a look of the session that should: it seems to be unable to
REFUTING_MAX = 8  # partitions that are read before all are: one with pending URLs is enough
QUIET_PAUSE_S = 0.05  # between the two passes that prove the end
PENDING_PAUSES_S = (0.1, 2.0)  # first and longest pause while others work or URLs wait for their time


def _is_pending(count: PartitionCount, *, has_jobs: bool) -> bool:
    added, done = count.own if has_jobs else (count.added, count.done)
    return added != done


async def busy_pause() -> None:
    await asyncio.sleep(BUSY_PAUSE_S)


def digest_of(found: Pass) -> str:
    return blake2b(repr(found.state).encode(), digest_size=12).hexdigest()


class FinishWatcher:
    """Reads the counters of all partitions in passes, if no other session does."""

    def __init__(
        self,
        crawls: Crawls,
        runs: Runs,
        members: Members,
        engine: Engine,
        archive: ArchiveStage,
        *,
        record: CrawlRecord,
        session: str,
        digest: Callable[[], str],
    ) -> None:
        """`digest`: as `Member.engine`."""
        self._digest = digest
        self._session = session
        self.looks = 0
        self._seen = ("", 0)  # who else looks, and how often it did
        self._seen_ms = 0
        self._pending: list[int] = []  # partitions that had URLs pending at the last pass
        self._refuted = ""  # a proof of the end that another pass contradicted
        self._crawls = crawls
        self._runs = runs
        self._members = members
        self._engine = engine
        self._archive = archive
        self._record = record

    async def wait(
        self,
        *,
        is_locally_quiet: Callable[[], bool],
        limit: Callable[[], str],
        has_more: Callable[[], Awaitable[bool]],
        alive: Callable[[], Mapping[str, Member]],
        has_jobs: Callable[[], bool],
        start_no_runs: Callable[[], None],
        until_calm: Callable[[], Awaitable[None]] = busy_pause,
    ) -> str:
        """Return "finished", or the limit that was reached. Raises ConflictError when the crawl is gone.

        `has_more` is called when nothing is pending: a quota may have room for URLs that it deferred. `start_no_runs`:
        called when the crawl itself is done. `until_calm`: awaited while it is not quiet.
        """
        reason = await self._until_done(is_locally_quiet, limit, has_more, alive, has_jobs, until_calm)
        if reason == "pages" or not has_jobs():  # --pages is of this command: what is left waits for the next one
            return reason
        start_no_runs()
        await self._until_runs_end()
        return reason

    async def _until_runs_end(self) -> None:
        """Wait for the runs that are active now."""
        active: set[str] | None = None
        pause_s, longest_s = PENDING_PAUSES_S
        while active or active is None:
            with contextlib.suppress(EngineError):
                found = await self._active_runs()
                active = found if active is None else active & found
            if active or active is None:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, longest_s)
        await self._archive.drain()

    async def _active_runs(self) -> set[str]:
        return {*await self._runs.active()}

    async def _until_done(
        self,
        is_locally_quiet: Callable[[], bool],
        limit: Callable[[], str],
        has_more: Callable[[], Awaitable[bool]],
        alive: Callable[[], Mapping[str, Member]],
        has_jobs: Callable[[], bool],
        until_calm: Callable[[], Awaitable[None]],
    ) -> str:
        passes: list[Pass] = []
        pause_s, longest_s = PENDING_PAUSES_S
        while True:
            if reached := limit():
                return reached
            if not is_locally_quiet():
                passes.clear()
                pause_s = PENDING_PAUSES_S[0]
                await until_calm()
                continue
            try:
                if self._leaves_it_to_others(alive()):
                    if await self._is_proven(alive, has_jobs=has_jobs()):
                        return "finished"
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, longest_s)
                    continue
                if await self._is_refuted(has_jobs=has_jobs()):
                    passes.clear()
                else:
                    passes = [*passes[-1:], await self._pass(alive, has_jobs=has_jobs())]
                if passes and is_finished(passes):
                    await self._crawls.note_end(digest_of(passes[-1]))
                    return "finished"
                if passes and passes[-1].is_quiet and await has_more():  # between the two passes that prove the end
                    passes.clear()
            except EngineError:
                passes.clear()
            if passes and passes[-1].is_quiet:
                await asyncio.sleep(QUIET_PAUSE_S)
                continue
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)  # a pass reads every partition: not often while others are busy

    def _leaves_it_to_others(self, alive: Mapping[str, Member]) -> bool:
        """Is it another session that reads all partitions? If all did, calls would grow with sessions x partitions."""
        first = min((m for m in alive.values() if m.looks >= 0), key=lambda m: m.session, default=None)
        if first is None or first.session == self._session:
            return False
        seen = first.session, first.looks
        if first.in_flight or seen != self._seen:  # with something in flight there, it is not the end
            self._seen, self._seen_ms = seen, monotonic_ms()
        return monotonic_ms() - self._seen_ms < LOOK_ALONE_MS

    async def _is_proven(self, alive: Callable[[], Mapping[str, Member]], *, has_jobs: bool) -> bool:
        """Has another session proved the end, and does one more pass find the same? The proof may be an earlier one."""
        proof = await self._crawls.end()
        if not proof or proof == self._refuted:
            return False
        found = await self._pass(alive, has_jobs=has_jobs)
        if found.is_quiet and digest_of(found) == proof:
            return True
        self._refuted = proof
        return False

    async def _is_refuted(self, *, has_jobs: bool) -> bool:
        """Has one of the partitions URLs pending that had some at the last pass? Then that is not the end."""
        self.looks += 1
        counts = await self._crawls.counts_of(self._pending)
        return any(_is_pending(count, has_jobs=has_jobs) for count in counts)

    def _is_untold(self, members: Mapping[str, Member]) -> bool:
        """May a shard of a cluster lack what somebody sent there?"""
        return not all_told(self._digest(), members)

    async def _pass(self, alive: Callable[[], Mapping[str, Member]], *, has_jobs: bool) -> Pass:
        """With jobs, the log may always have entries of runs: it is drained when these have ended."""
        self.looks += 1
        await self._archive.drain()
        counts = await self._crawls.counts(self._record.partitions)
        pending = [p for p, count in enumerate(counts) if _is_pending(count, has_jobs=has_jobs)]
        self._pending = pending[:REFUTING_MAX]
        members = await self._members.read()
        await self._crawls.still(self._record)  # read last: the counts were those of this crawl
        return Pass(
            engine_run_id=self._engine.run_id,
            counts=tuple((*c.own, 0) if has_jobs else (c.added, c.done, c.log_entries) for c in counts),
            streams_open=any(declared(m.state) in COMMANDS and m.session in alive() for m in members.values())
            or self._is_untold(members),
        )
