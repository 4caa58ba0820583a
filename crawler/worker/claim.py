"""Step 2, claim: claims URLs of the partitions that are due, as many as the instance can hold.

A lost wake-up hint costs one sweep interval.
"""

import asyncio
import contextlib
import heapq
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

from crawler.engine.client import Engine
from crawler.errors import EngineError
from crawler.frontier.messages import ClaimReply, FetchQuota, QueueBatch
from crawler.frontier.owner import ClaimRequest, Fence, Frontier
from crawler.frontier.record import Keys
from crawler.membership.ownership import HeldPartitions
from crawler.rules.order import FairTurns
from crawler.runtime.process import ENGINE_PAUSE_S, monotonic_ms, reached, wall_s
from crawler.settings import Settings
from crawler.worker.schedule import Scheduler
from crawler.worker.watch import Counters, OpenClaims

# For whom partitions are due: where queues have boosts, or users URLs, a heap for each boost and user.
#
# What is known of a partition comes with the replies to claims. Partitions of which nothing is known, or nothing that
# is due, are due for the crawl itself.

Key = tuple[int, str]  # boost and user
PLAIN: Key = (0, "")
OUTDATED_MAX = 1024  # entries of a heap that are not valid any more, before it is rebuilt


class DueUsers:
    """`scheduled`: when each partition that is not being claimed from may be (ms); kept by the owner of this."""

    def __init__(self, scheduled: Mapping[int, int], turns: FairTurns) -> None:
        self._scheduled = scheduled
        self._turns = turns
        self._waits: dict[int, dict[Key, int]] = {}  # partition -> when a queue is due
        self._heaps: dict[Key, list[tuple[int, int]]] = {}

    def __bool__(self) -> bool:
        """Is anything known? Otherwise the plain order applies, and nothing is kept here."""
        return bool(self._waits)

    def __contains__(self, partition: int) -> bool:
        return partition in self._waits

    def replace(self, partition: int, waits: Mapping[Key, int]) -> None:
        """All that is known of a partition now; empty where there are boosts or users, but nothing is to become due."""
        self._begin()
        self._waits[partition] = dict(waits)
        self.scheduled(partition)

    def note(self, partition: int, user: str, at_ms: int) -> None:
        """A queue is due for a user at that time. The next claim will tell which boost it has."""
        self._begin()
        known = self._waits.setdefault(partition, {})
        known[0, user] = min(at_ms, known.get((0, user), at_ms))
        self.scheduled(partition)

    def drop(self, partition: int) -> None:
        """There are neither boosts nor users in this partition, or it is lost."""
        self._waits.pop(partition, None)
        if self._waits:
            self.scheduled(partition)
        else:
            self._heaps.clear()

    def _begin(self) -> None:
        if not self._waits:
            self._heaps[PLAIN] = sorted((at_ms, partition) for partition, at_ms in self._scheduled.items())

    def scheduled(self, partition: int) -> None:
        """The partition has a new due time, or more is known of it."""
        at_ms = self._scheduled.get(partition)
        if at_ms is None or not self._waits:
            return
        self._push(PLAIN, at_ms, partition)  # for what is not known to be due
        for key, due_ms in self._waits.get(partition, {}).items():
            self._push(key, due_ms, partition)

    def _push(self, key: Key, at_ms: int, partition: int) -> None:
        heap = self._heaps.setdefault(key, [])
        heapq.heappush(heap, (at_ms, partition))
        if len(heap) > 2 * len(self._scheduled) + OUTDATED_MAX:
            found = [(known[key], p) for p, known in self._waits.items() if key in known and p in self._scheduled]
            if key == PLAIN:
                found += [(due_ms, p) for p, due_ms in self._scheduled.items()]
            heap[:] = sorted(found)

    def _first(self, key: Key, now_ms: int, taken: Mapping[int, None]) -> int | None:
        """The partition that has been due for longest for this boost and user, and was not taken."""
        heap = self._heaps[key]
        while heap and heap[0][0] <= now_ms:
            at_ms, partition = heap[0]
            known, scheduled_ms = self._waits.get(partition, {}), self._scheduled.get(partition)
            is_known = known.get(key, at_ms + 1) <= at_ms
            is_plain = key == PLAIN and scheduled_ms == at_ms and not any(due <= now_ms for due in known.values())
            if scheduled_ms is None or partition in taken or not (is_known or is_plain):
                heapq.heappop(heap)
            elif scheduled_ms > now_ms:  # it gave nothing a moment ago
                heapq.heapreplace(heap, (scheduled_ms, partition))
            else:
                return partition
        return None

    def take(self, now_ms: int, most: int) -> list[int]:
        """At most `most` partitions that are due: those with the highest boost, of these one for each user in turn."""
        taken: dict[int, None] = {}
        firsts = {key: first for key in self._heaps if (first := self._first(key, now_ms, taken)) is not None}
        highest = max((boost for boost, _ in firsts), default=0)
        left = {user: first for (boost, user), first in firsts.items() if boost == highest}
        if not left:
            return []
        self._turns.advance(self._turns.next_of(left))
        turns = self._turns.copy()  # what they get is charged when it is here
        while left and len(taken) < most:
            user = turns.next_of(left)
            turns.advance(user)
            turns.charge(user, 1)
            taken[left[user]] = None
            for one in [one for one, partition in left.items() if partition in taken]:
                following = self._first((highest, one), now_ms, taken)
                if following is None:
                    del left[one]
                else:
                    left[one] = following
        return list(taken)


# When each held partition may be claimed from: one due time each, so that no partition is polled in vain.


SOON_MS = 500
# A queue is claimed this long before it is due: otherwise its next URL would be late by a call to the engine and some
# passes of the event loop.
LEAD_MS = 250


class DuePartitions:
    """Due times by partition (monotonic ms), in a heap that the claimer empties. `wake` is set when it should check.

    Where queues have boosts or users have URLs, it knows when those of each boost and user are due.
    """

    def __init__(self, open_claims: OpenClaims, weight_of: Callable[[str], float] = lambda _: 1.0) -> None:
        """`weight_of`: the weight of a user among others."""
        self._open_claims = open_claims
        self._turns = FairTurns(weight_of)
        self._due: dict[int, int] = {}
        self._fetches: dict[int, int] = {}  # when each one's next fetch is due, by its last claim: for people
        self._heap: list[tuple[int, int]] = []
        self._users = DueUsers(self._due, self._turns)
        self._shared: dict[int, dict[str, tuple[str, ...]]] = {}  # partition -> queue -> users that wait in it
        self.wake = asyncio.Event()

    def schedule(self, partition: int, at_ms: int = 0) -> None:
        """Claim from this partition at that time, unless an earlier one is set."""
        known = self._due.get(partition)
        if known is not None and known <= at_ms:
            return
        self._due[partition] = at_ms
        self._users.scheduled(partition)
        heapq.heappush(self._heap, (at_ms, partition))
        if len(self._heap) > len(self._due) + OUTDATED_MAX:
            self._heap = [(due_ms, number) for number, due_ms in self._due.items()]
            heapq.heapify(self._heap)
        if self._heap[0] == (at_ms, partition):
            self.wake.set()  # also for a future time: the claimer's sleep may end later

    def queue_due(self, partition: int, at_ms: int, queue: str = "") -> None:
        """A queue of this partition is due at that time: its next claim must be here by then."""
        at_ms -= self.lead_ms
        for user in self._shared.get(partition, {}).pop(queue, ()):
            self._users.note(partition, user, at_ms)
        self.schedule(partition, at_ms)

    def hint(self, partition: int, user: str = "") -> None:
        """A sleeping queue of this partition woke, or got its first URLs of this user."""
        if user or partition in self._users:
            self._users.note(partition, user, 0)
        self.schedule(partition)

    def drop(self, partitions: Iterable[int]) -> None:
        """These partitions are lost."""
        for partition in partitions:
            self._due.pop(partition, None)
            self._fetches.pop(partition, None)
            self._users.drop(partition)
            self._shared.pop(partition, None)

    @property
    def lead_ms(self) -> int:
        """How long before its time a queue is claimed; 0 when claims are scarce."""
        return 0 if self._open_claims.is_scarce else LEAD_MS

    @property
    def first_ms(self) -> int | None:
        """The earliest time in the heap (possibly outdated); None when it is empty."""
        return self._heap[0][0] if self._heap else None

    def note_fetch(self, partition: int, at_ms: int | None) -> None:
        """When the next fetch of a partition is due; None: it has none that waits."""
        if at_ms is None:
            self._fetches.pop(partition, None)
        else:
            self._fetches[partition] = at_ms

    def later(self) -> dict[int, int]:
        """The partitions whose next fetch is due at a later time, with that time."""
        now_ms = monotonic_ms()
        return {partition: at_ms for partition, at_ms in self._fetches.items() if at_ms > now_ms}

    @property
    def is_idle(self) -> bool:
        """Will no partition be due soon?"""
        return not self._heap or self._heap[0][0] > monotonic_ms() + SOON_MS

    def room_changed(self) -> None:
        """Claims were ended: there may be room for more."""
        if self._heap and self._heap[0][0] <= monotonic_ms():
            self.wake.set()

    def waits_beyond(self, partition: int, at_ms: int) -> bool:
        """Has this partition no due time, or one after that time?"""
        return self._due.get(partition, at_ms + 1) > at_ms

    def has_waits(self, partition: int) -> bool:
        """Do queues of this partition have a boost, or users URLs in them?"""
        return partition in self._users

    def note_reply(
        self, partition: int, waits: Mapping[tuple[int, str], int], batches: Iterable[QueueBatch], *, later_ms: int
    ) -> None:
        """`waits`: boost and user -> when a queue of theirs is due, on a clock that ours is `later_ms` ahead of. Empty:
        there are neither boosts nor users. `batches`: what they got.
        """
        if not waits:
            self._users.drop(partition)
            self._shared.pop(partition, None)
            return
        self._users.replace(partition, {key: at_ms + later_ms for key, at_ms in waits.items() if at_ms >= 0})
        for batch in batches:
            self._turns.charge(batch.claims[0].user, len(batch.claims))
            if batch.waiting:
                self._shared.setdefault(partition, {})[batch.queue] = batch.waiting

    def take(self, most: int) -> list[int]:
        """Remove at most `most` partitions that are due now: those with the highest boost, of them one for each user in
        turn, else the longest due.
        """
        now_ms = monotonic_ms()
        if self._users and most > 0:
            return self._take_in_turn(now_ms, most)
        found: list[int] = []
        while self._heap and len(found) < most:
            at_ms, partition = self._heap[0]
            if self._due.get(partition) != at_ms:
                heapq.heappop(self._heap)  # outdated
                continue
            if at_ms > now_ms:
                break
            heapq.heappop(self._heap)
            del self._due[partition]
            found.append(partition)
        return found

    def _take_in_turn(self, now_ms: int, most: int) -> list[int]:
        found = self._users.take(now_ms, most)
        for partition in found:
            del self._due[partition]
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)  # outdated
        return found


log = logging.getLogger(__name__)

PARTITIONS_PER_ROUND = 256
FULL_CLAIMS_MAX = 16  # open at a time while the engine's memory is full: to fetch and ack them frees some
URLS_PER_CALL = 8  # at least, when there is room for fewer than are due: each call and each ack has a cost
OWN_MAX = 2**31  # URLs that are not of a run: any number
SWEEP_MS = 1000
NOTHING_MS = 20  # pause after a due queue gave nothing: it is at its cap, and acks will wake it
RECONNECT_PAUSE_S = 1.0


async def listen_for_hints(engine: Engine, channel: str, on_hint: Callable[[int, str], None]) -> None:
    """Receive hints of partitions that others have woken for a user, until cancelled. A lost hint costs one sweep
    interval.
    """
    while True:
        try:
            async for message in engine.subscribe(channel):
                meta, _, user = message.decode().partition(" ")
                on_hint(Keys.partition_of_meta(meta), user)
        except EngineError:
            await asyncio.sleep(RECONNECT_PAUSE_S)


class Claimer:
    """Fills the scheduler."""

    def __init__(
        self,
        frontier: Frontier,
        held: HeldPartitions,
        due: DuePartitions,
        scheduler: Scheduler,
        counters: Counters,
        settings: Settings,
        *,
        on_short: Callable[[int, Sequence[str]], None],
        on_engine_restart: Callable[[], None],
        on_runs: Callable[[Collection[str]], Awaitable[None]],
        on_probe: Callable[[str, int | None], None],
        has_jobs: Callable[[], bool] = lambda: False,
    ) -> None:
        """`on_short`: called with queues of a partition whose next URLs are in files. `on_engine_restart`: called when
        the engine has lost writes that this session knows of. `on_runs`: called with the runs of claims before these
        are handed on; it may raise EngineError, and no claim is lost. `on_probe`: called with the origin of URLs
        that were set aside and come back, and since when it has been silent (monotonic ms; None: not known to be).
        `has_jobs`: limits of the crawl are not for runs, so URLs of these are claimed beyond them.
        """
        self._frontier = frontier
        self._held = held
        self._due = due
        self._open_claims = counters.open_claims
        self._scheduler = scheduler
        self._counters = counters
        self._settings = settings
        self._on_short = on_short
        self._on_engine_restart = on_engine_restart
        self._on_runs = on_runs
        self._on_probe = on_probe
        self._has_jobs = has_jobs
        self._serial = 0
        # Partition -> epoch and request. Sent again unchanged, so that nothing is delivered twice.
        self._unanswered: dict[int, tuple[int, ClaimRequest]] = {}
        self._answered = asyncio.Event()  # set while no claim call is in flight
        self._answered.set()
        self._swept_ms = 0

    async def run(self) -> None:
        """Claim until cancelled."""
        while True:
            self._due.wake.clear()
            try:
                busy = await self._round()
            except EngineError as error:
                log.warning("claim.engine_error", extra={"error": str(error)})
                await asyncio.sleep(ENGINE_PAUSE_S)
                continue
            if not busy:
                await self._sleep()

    async def _sleep(self) -> None:
        now_ms = monotonic_ms()
        until_ms, first_ms = self._swept_ms + SWEEP_MS, self._due.first_ms
        if first_ms is not None and self._room() > 0:
            until_ms = min(until_ms, first_ms)
        try:
            async with asyncio.timeout(max(until_ms - now_ms, 1) / 1000):
                await self._due.wake.wait()
        except TimeoutError:
            pass

    def _room(self) -> int:
        room = self._open_claims.room
        beyond_limits = self._has_jobs() and not self._counters.pages_max
        pages_left = None if beyond_limits else self._counters.pages_left()
        if self._counters.is_engine_full:
            room = min(room, FULL_CLAIMS_MAX - self._open_claims.total + self._counters.held_pages)
        return room if pages_left is None else min(room, pages_left)

    async def _round(self) -> bool:
        """One batch of claims; False when there was nothing to do."""
        if monotonic_ms() - self._swept_ms >= SWEEP_MS:
            self._swept_ms = monotonic_ms()
            await self._sweep()
        if self._counters.is_stopping or self._counters.waits_for in ("disk", "paused"):
            return False
        partitions = self._due_partitions()
        if not partitions:
            return False
        await self._claim(partitions)
        return True

    def _due_partitions(self) -> list[int]:
        most = min(PARTITIONS_PER_ROUND, -(-self._room() // URLS_PER_CALL))
        return [partition for partition in self._due.take(most) if self._held.is_open(partition)]

    async def _claim(self, partitions: list[int]) -> None:
        share, own = max(1, self._room() // len(partitions)), self._counters.pages_left()
        wanted: list[tuple[Fence, ClaimRequest]] = []
        for i, partition in enumerate(partitions):
            fence = self._held.fence_of(partition)
            if fence is not None:
                epoch, request = self._unanswered.pop(partition, (-1, None))
                mine = None if own is None else own * (i + 1) // len(partitions) - own * i // len(partitions)
                wanted.append((fence, request if request and epoch == fence.epoch else self._request(share, mine)))
        self._answered.clear()
        try:
            replies = await self._frontier.claim(wanted)
            await self._meet_runs(replies)
            for (fence, request), reply in zip(wanted, replies, strict=True):
                self._take_in(fence, request, reply)
        except EngineError:
            for fence, request in wanted:
                self._again(fence, request)
            raise
        finally:
            self._answered.set()

    async def _meet_runs(self, replies: Sequence[ClaimReply | EngineError]) -> None:
        """What is known of runs is read for many claims at once; what fails here is read when a claim has its turn."""
        batches = [batch for reply in replies if isinstance(reply, ClaimReply) for batch in reply.batches]
        runs = {claim.run for batch in batches for claim in batch.claims if claim.run}
        if runs:
            with contextlib.suppress(EngineError):
                await self._on_runs(runs)

    async def settle(self) -> None:
        """Wait until the last call has returned or failed; called when no further one is made."""
        await self._answered.wait()

    def _request(self, share: int, own: int | None) -> ClaimRequest:
        f, self._serial, is_full = self._settings.frontier, self._serial + 1, self._counters.is_engine_full
        return ClaimRequest(
            request_id=f"{self._frontier.session}-{self._serial}",
            urls_max=min(share, 2 * f.claim_urls_max),  # twice as many take 5.5 ms in an engine with a million keys
            per_queue_max=1 if is_full else f.claim_urls_max,
            ahead_ms=0 if is_full or self._open_claims.is_scarce else int(f.claim_ahead_s * 1000),
            visibility_ms=int(f.visibility_timeout_s * 1000),
            default_delay_ms=int(self._settings.politeness.delay_s * 1000),
            out_max=4 * f.claim_urls_max,
            lead_ms=self._due.lead_ms,
            budget=FetchQuota(pages=self._settings.budget.pages, bytes=self._settings.budget.bytes),
            at_s=wall_s(),
            weights=self._counters.overrides.weights,
            probe_ms=int(self._settings.hosts.probe_s * 1000),
            own_max=OWN_MAX if own is None else own,
        )

    def _take_in(self, fence: Fence, request: ClaimRequest, reply: ClaimReply | EngineError) -> None:
        partition = fence.partition
        if isinstance(reply, EngineError):
            self._again(fence, request)
            return
        if reply.status == "FENCED":
            self._held.lose(partition)
            return
        if reply.status == "RECOVER":
            self._on_engine_restart()
            return
        if self._held.epoch_of(partition) != fence.epoch:
            return  # lost meanwhile: the claims are of an older epoch and expire by themselves
        for _, origin, since_ms in reply.probes:
            here_ms = monotonic_ms() + since_ms - self._held.now_of(partition)
            self._on_probe(origin, here_ms if since_ms >= 0 else None)
        for batch in reply.batches:
            self._open_claims.opened(batch.claims)
            self._scheduler.put(batch, start_ms=self._here(partition, batch.start_ms))
            reached("claim.taken", batch.claims[0].url)
        if reply.short:
            self._on_short(partition, reply.short)
        later_ms = monotonic_ms() - self._held.now_of(partition)
        self._due.note_reply(partition, reply.waits, reply.batches, later_ms=later_ms)
        fetch_ms = reply.next_fetch_ms
        self._due.note_fetch(partition, fetch_ms + later_ms if fetch_ms >= 0 else None)
        if reply.next_due_ms >= 0:
            wait_ms = reply.next_due_ms - self._held.now_of(partition)  # negative: due since then, and goes first
            if not reply.batches:
                wait_ms = max(wait_ms, NOTHING_MS)
            self._due.schedule(partition, monotonic_ms() + wait_ms)

    def _here(self, partition: int, at_ms: int) -> int:
        """Convert a time of the partition's clock to our own (monotonic ms); 0 stays 0."""
        return at_ms and monotonic_ms() + at_ms - self._held.now_of(partition)

    def _again(self, fence: Fence, request: ClaimRequest) -> None:
        """The outcome is unknown: the same request id returns the same batch."""
        if self._held.is_open(fence.partition):
            self._unanswered[fence.partition] = fence.epoch, request
            self._due.schedule(fence.partition, monotonic_ms() + int(ENGINE_PAUSE_S * 1000))

    async def _sweep(self) -> None:
        """Check partitions that are not due soon, once a second: a hint may have been lost."""
        soon_ms = monotonic_ms() + SWEEP_MS
        waiting = [p for p in self._held if self._due.waits_beyond(p, soon_ms)]
        for partition, due_ms in await self._frontier.awake(waiting):
            if self._held.is_open(partition):
                self._due.queue_due(partition, self._here(partition, due_ms))
        for partition in waiting:
            if self._due.has_waits(partition):  # `awake` does not cover queues with a boost
                self._due.schedule(partition)
        for partition, visible_ms in await self._frontier.visible(waiting):  # added since, or the wall clock stepped
            if self._held.is_open(partition):
                self._due.schedule(partition, monotonic_ms() + visible_ms - int(wall_s() * 1000))
