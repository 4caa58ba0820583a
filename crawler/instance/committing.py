"""Stages four to six: archive, route, ack, in this order and in groups; then the index, then the log is drained.

A crash between any two steps repeats a fetch and never loses a URL: the record is on disk and the children are in
the frontier before their parent is acked, and the index line is on disk before the commit entry leaves the engine.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crawler.archive.index import IndexWriter
from crawler.archive.warc import WarcWriter
from crawler.errors import EngineError
from crawler.frontier.client import Call
from crawler.frontier.crawls import Crawls
from crawler.frontier.frontier import Ack, AckReply, AddReply, Frontier
from crawler.frontier.records import DeadLetter
from crawler.instance.claimer import Claimer
from crawler.instance.clock import monotonic_ms, wall_s
from crawler.instance.outcome import Committable, Failed, Outcome, Refused
from crawler.instance.ownership import Ownership
from crawler.instance.routing import Router
from crawler.instance.state import Flow
from crawler.model import AckOutcome, Candidate, CommitEntry, WarcLocation
from crawler.settings import Settings

log = logging.getLogger(__name__)

ACK_ITEMS_MAX = 256
ENGINE_PAUSE_S = 0.2
DRAIN_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Sinks:
    """Where results go."""

    frontier: Frontier
    ownership: Ownership
    claimer: Claimer
    router: Router
    flow: Flow
    warc: WarcWriter
    index: IndexWriter
    crawls: Crawls


class Committer:
    """Gathers outcomes and commits them in groups; one group at a time."""

    def __init__(self, sinks: Sinks, settings: Settings, *, node: str, is_quiet: "asyncio.Event") -> None:
        self._s = sinks
        self._settings = settings
        self._node = node
        self._quiet = is_quiet
        self._waiting: list[Outcome] = []
        self._arrived = asyncio.Event()
        self._undrained: defaultdict[int, list[CommitEntry]] = defaultdict(list)
        self._drained_ms = 0
        self.in_hand = 0

    def deliver(self, outcome: Outcome) -> None:
        """Take an outcome in; it is committed within `archive.sync_s`."""
        self._waiting.append(outcome)
        self.in_hand += 1
        self._arrived.set()

    async def run(self) -> None:
        """Commit groups until cancelled. Raises ArchiveError when the disk fails."""
        while True:
            await self._gather()
            await self.flush()

    async def _gather(self) -> None:
        """Wait for a group: full, or old enough, or nothing more is coming."""
        a = self._settings.archive
        if not self._waiting:
            self._arrived.clear()
            try:
                async with asyncio.timeout(DRAIN_EVERY_S if self._undrained else None):
                    await self._arrived.wait()
            except TimeoutError:
                return
        deadline = monotonic_ms() + int(a.sync_s * 1000)
        while len(self._waiting) < a.sync_pages and monotonic_ms() < deadline and not self._quiet.is_set():
            await asyncio.sleep(0.005)

    async def flush(self) -> None:
        """Commit all that waits now, and drain the log when it is time."""
        group, self._waiting = self._waiting, []
        commits = [o for o in group if isinstance(o, Committable)]
        try:
            if commits:
                await self._commit(commits)
            ended = [o for o in group if not isinstance(o, Committable)]
            if ended:
                await self._end(ended)
        finally:
            self.in_hand -= len(group)
        if self._undrained and (monotonic_ms() - self._drained_ms >= DRAIN_EVERY_S * 1000 or self._quiet.is_set()):
            await self.drain()

    async def _commit(self, group: list[Committable]) -> None:
        placed = await self._archive(group)
        items = await self._route(group)
        acks = self._acks(group, placed, items)
        replies = await self._until_acked([ack for _, ack in acks])
        for (outcome, ack), reply in zip(acks, replies, strict=True):
            self._acked(outcome, ack, reply)
        for outcome in group:
            self._s.flow.ended(outcome.claim.partition)
        self._s.claimer.room_changed()

    async def _archive(self, group: list[Committable]) -> list[tuple[WarcLocation | None, str]]:
        if not self._settings.archive.warc:
            return [(None, "")] * len(group)
        placed: list[tuple[WarcLocation | None, str]] = [self._s.warc.add(o.response) for o in group]
        await asyncio.to_thread(self._s.warc.sync)
        return placed

    async def _open_scope(self, group: list[Committable]) -> None:
        """What a seed redirects to belongs to the crawl, as the seed did."""
        scope = self._s.router.scope
        roots = {
            scope.root_of(o.redirect_to) for o in group if o.claim.seed and o.redirect_to and not scope.allows(o.redirect_to)
        }
        if roots:
            await self._s.crawls.add_roots(roots)
            self._s.router.scope = scope.with_roots(roots)

    async def _route(self, group: list[Committable]) -> list[list[Candidate]]:
        """Out-links of other partitions are added here; those of the page's own partition are left for its ack."""
        await self._open_scope(group)
        own: list[list[Candidate]] = []
        away: defaultdict[int, list[Candidate]] = defaultdict(list)
        taken: set[str] = set()
        for outcome in group:
            candidates = self._candidates(outcome)
            fresh = [c for c in candidates if c.url not in taken]
            taken.update(c.url for c in fresh)
            mine = [c for c in fresh if c.partition == outcome.claim.partition][:ACK_ITEMS_MAX]
            kept = {c.url for c in mine}
            for candidate in fresh:
                if candidate.url not in kept:
                    away[candidate.partition].append(candidate)
            own.append(mine)
        if away:
            await self._add(dict(away))
        return own

    def _candidates(self, outcome: Committable) -> list[Candidate]:
        router, claim = self._s.router, outcome.claim
        found = router.links(claim, outcome.page.links, outcome.refused) if outcome.page.links else []
        if outcome.redirect_to:
            target = router.redirect(claim, outcome.redirect_to, outcome.refused)
            if target is not None:
                found.append(target)
        return found

    async def _add(self, away: dict[int, list[Candidate]]) -> None:
        """Add until every partition has taken its URLs: the acks of their parents wait for this."""
        while away:
            try:
                replies = await self._s.frontier.add(away)
            except EngineError as error:
                log.warning("route.engine_error", extra={"error": str(error)})
                await asyncio.sleep(ENGINE_PAUSE_S)
                continue
            refused: dict[int, list[Candidate]] = {}
            for partition, candidates in away.items():
                reply = replies[partition]
                if isinstance(reply, AddReply):
                    self._added(partition, candidates, reply.woken)
                else:
                    refused[partition] = candidates
                    log.warning("route.refused", extra={"error": str(reply)})
            away = refused
            if away:
                await asyncio.sleep(ENGINE_PAUSE_S)

    def _added(self, partition: int, candidates: Sequence[Candidate], woken: int) -> None:
        recent = self._s.router.recent
        for candidate in candidates:
            recent.add(candidate.url, candidate.depth)
        if woken and self._s.ownership.is_open(partition):
            self._s.claimer.schedule(partition)

    def _acks(
        self,
        group: list[Committable],
        placed: list[tuple[WarcLocation | None, str]],
        items: list[list[Candidate]],
    ) -> list[tuple[Committable, Ack]]:
        acks = []
        for outcome, (location, digest), own in zip(group, placed, items, strict=True):
            claim = outcome.claim
            fence = self._s.ownership.fence_of(claim.partition)
            if fence is None or fence.epoch != claim.epoch:
                self._s.flow.fenced += 1
                continue
            entry = self._entry(outcome, location, digest)
            acks.append(
                (
                    outcome,
                    Ack(
                        claim=claim,
                        fence=fence,
                        entry=entry,
                        items=own,
                        settlement=outcome.settlement,
                        refused=outcome.refused,
                    ),
                )
            )
        return acks

    def _entry(self, outcome: Committable, location: WarcLocation | None, digest: str) -> CommitEntry:
        claim, response = outcome.claim, outcome.response
        return CommitEntry(
            url=claim.url,
            fingerprint=claim.fingerprint,
            visit=claim.visit,
            status=response.status,
            fetched_at=response.started_at,
            content_type=response.content_type,
            body_bytes=len(response.body),
            title=outcome.page.title,
            depth=claim.depth,
            redirects=claim.redirects,
            digest=digest,
            redirect_to=outcome.redirect_to,
            truncated=response.truncated,
            noindex=outcome.page.noindex,
            node=self._node,
            session=self._s.frontier.session,
            epoch=claim.epoch,
            warc=location,
            fetch_ms=response.fetch_ms,
            times={
                "claimed": outcome.claimed_at,
                "started": response.started_at,
                "finished": outcome.finished_at,
                "archived": wall_s(),
            },
        )

    async def _until_acked(self, acks: list[Ack]) -> list[AckReply]:
        """Repeat until each ack has an answer: repeating one is safe, an unknown outcome is not."""
        answers: dict[int, AckReply] = {}
        while len(answers) < len(acks):
            missing = [i for i in range(len(acks)) if i not in answers]
            try:
                replies = await self._s.frontier.ack([acks[i] for i in missing])
            except EngineError as error:
                log.warning("ack.engine_error", extra={"error": str(error)})
                replies = []
            for i, reply in zip(missing, replies, strict=False):
                if isinstance(reply, AckReply):
                    answers[i] = reply
                else:
                    log.warning("ack.refused", extra={"error": str(reply)})
            if len(answers) < len(acks):
                await asyncio.sleep(ENGINE_PAUSE_S)
        return [answers[i] for i in range(len(acks))]

    def _acked(self, outcome: Committable, ack: Ack, reply: AckReply) -> None:
        flow, partition = self._s.flow, outcome.claim.partition
        if reply.outcome is AckOutcome.FENCED:
            flow.fenced += 1
            self._s.ownership.fenced(partition)
            return
        if reply.outcome is AckOutcome.GONE:
            flow.fenced += 1
            log.warning("ack.gone", extra={"url": outcome.claim.url})
            return
        self._added(partition, ack.items, reply.woken)
        flow.committed += 1
        flow.by_domain[outcome.claim.domain] += 1
        self._s.index.add(ack.entry)
        self._undrained[partition].append(ack.entry)
        self._wake_queue(partition, ack.settlement.next_fetch_ms)

    def _wake_queue(self, partition: int, next_fetch_ms: int) -> None:
        """The queue may be claimed from again at its next fetch time."""
        if self._s.ownership.is_open(partition):
            wait_ms = max(0, next_fetch_ms - self._s.ownership.now_of(partition))
            self._s.claimer.schedule(partition, monotonic_ms() + wait_ms)

    async def drain(self) -> None:
        """Sync the index, then clear what it holds from the engine's logs."""
        self._drained_ms = monotonic_ms()
        undrained, self._undrained = self._undrained, defaultdict(list)
        await asyncio.to_thread(self._s.index.sync)
        for partition, entries in undrained.items():
            fence = self._s.ownership.fence_of(partition)
            if fence is None:
                continue  # the next owner finds them in the log, and the index has them twice: the first line counts
            try:
                await self._s.frontier.drain(fence, entries)
            except EngineError as error:
                log.warning("drain.engine_error", extra={"error": str(error)})
                self._undrained[partition].extend(entries)

    def has_undrained(self, partition: int) -> bool:
        """Are commit entries of this partition still in the engine's log by our doing?"""
        return partition in self._undrained

    def forget(self, partitions: Iterable[int]) -> None:
        """These partitions are not ours: their new owners drain their logs."""
        for partition in partitions:
            self._undrained.pop(partition, None)

    async def settle(self) -> None:
        """Wait until all that was delivered is committed."""
        while self.in_hand:
            await asyncio.sleep(0.01)

    async def adopt_log(self, partition: int) -> None:
        """Index what a dead session had committed in this partition and not yet indexed."""
        entries = await self._s.frontier.undrained(partition)
        for entry in entries:
            self._s.index.add(entry)
        self._undrained[partition].extend(entries)
        self._arrived.set()

    async def _end(self, ended: list[Failed | Refused]) -> None:
        """Retries, dead letters and refusals; repeated until each has an answer."""
        left = list(ended)
        while left:
            asked = [(o, call) for o in left if (call := self._ending(o)) is not None]
            try:
                replies = await self._s.frontier.end([call for _, call in asked])
            except EngineError as error:
                log.warning("end.engine_error", extra={"error": str(error)})
                await asyncio.sleep(ENGINE_PAUSE_S)
                continue
            left = []
            for (outcome, _), reply in zip(asked, replies, strict=True):
                if isinstance(reply, EngineError):
                    left.append(outcome)
                else:
                    self._ended(outcome, reply)
            if left:
                await asyncio.sleep(ENGINE_PAUSE_S)
        for outcome in ended:
            self._s.flow.ended(outcome.claim.partition)
        self._s.claimer.room_changed()

    def _ending(self, outcome: Failed | Refused) -> Call | None:
        """The script call that ends this claim; None when it is not ours to end any more."""
        claim, frontier = outcome.claim, self._s.frontier
        fence = self._s.ownership.fence_of(claim.partition)
        if fence is None or fence.epoch != claim.epoch:
            self._s.flow.fenced += 1
            return None
        if isinstance(outcome, Refused):
            return frontier.refuse(fence, claim, outcome.reason)
        if outcome.retry_in_ms >= 0:
            due_ms = fence.now_ms + outcome.retry_in_ms
            return frontier.retry(fence, claim, outcome.settlement, due_ms=due_ms, kind=outcome.kind)
        letter = DeadLetter(
            url=claim.url,
            queue=claim.queue,
            domain=claim.domain,
            depth=claim.depth,
            reason=outcome.kind,
            detail=outcome.detail[:500],
            attempts=claim.attempts + 1,
            failed_at=wall_s(),
            seed=claim.seed,
        )
        return frontier.dead(fence, claim, outcome.settlement, letter)

    def _ended(self, outcome: Failed | Refused, reply: AckOutcome) -> None:
        partition = outcome.claim.partition
        if reply is AckOutcome.FENCED:
            self._s.flow.fenced += 1
            self._s.ownership.fenced(partition)
            return
        if isinstance(outcome, Failed):
            self._s.flow.errors += 1
            self._wake_queue(partition, outcome.settlement.next_fetch_ms)
            if outcome.retry_in_ms >= 0 and self._s.ownership.is_open(partition):
                self._s.claimer.schedule(partition, monotonic_ms() + outcome.retry_in_ms)
        else:
            self._wake_queue(partition, 0)
