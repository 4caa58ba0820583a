"""Step 3, schedule: claims wait in a slot for each queue until the queue is due; then a worker gets one.

Of the queues that are due, the highest boost goes first, and among equals users take turns. It uses the monotonic clock
only. The engine's clock of a queue is durable, the one here is local: the later of the two applies.
"""

import asyncio
import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from crawler.frontier.messages import QueueBatch
from crawler.model import Claim
from crawler.rules.pace import TICK_MS, UNMEASURED, AdaptiveDelay
from crawler.rules.places import registrable_domain
from crawler.rules.turns import FairTurns
from crawler.runtime.clocks import monotonic_ms, wall_s
from crawler.worker.open_claims import ClaimPlace, OpenClaims

NOTHING: frozenset[str] = frozenset()
KEPT_MS = 60_000  # how long what was learned of a host outlives its claims: the next ones are on their way
DOUBTS = 8  # after an origin of a queue did not answer, others that have not yet may not either
DOUBT_TURNS = 4  # one of these may be spent on an origin that has not answered
DOUBT_MS = 1_000  # at least until another one is tried, where none may be now
KEPT_PLAIN_MS = 2_000  # how long an ordinary slot outlives its claims: one may be on its way back


class Boosted(Protocol):
    """An entry of a `DueQueue`. When its boost changes it is pushed again, and its old entry is skipped."""

    boost: int
    user: str


T = TypeVar("T", bound=Boosted)


_Heap = list[tuple[int, int, T]]


class DueQueue(Generic[T]):
    """A heap of due times for each boost and user."""

    def __init__(self, turns: FairTurns) -> None:
        self._turns = turns
        self._heaps: dict[int, dict[str, _Heap[T]]] = {0: {}}  # by boost, highest first
        self._serial = 0

    def push(self, due_ms: int, one: T) -> None:
        """Add an entry; equal due times of one user leave in the order in which they came."""
        if one.boost not in self._heaps:
            self._heaps = dict(sorted([*self._heaps.items(), (one.boost, {})], key=lambda pair: pair[0], reverse=True))
        self._serial += 1
        heapq.heappush(self._heaps[one.boost].setdefault(one.user, []), (due_ms, self._serial, one))

    def pop(self, now_ms: int) -> T | None:
        """Remove the entry that has been due for longest, among those of the highest boost and of the user whose turn
        it is; None if none is due.
        """
        for boost, heaps in self._heaps.items():
            while due := [user for user, heap in heaps.items() if heap[0][0] <= now_ms]:
                user = due[0] if len(due) == 1 else self._turns.next_of(due)
                one = heapq.heappop(heaps[user])[2]
                if not heaps[user]:
                    del heaps[user]
                if one.boost == boost:
                    self._turns.advance(user)
                    return one
        return None

    def next_ms(self) -> int | None:
        """The earliest due time, whatever the boost."""
        firsts = (heap[0][0] for heaps in self._heaps.values() for heap in heaps.values())
        return min(firsts, default=None)


class QueueSlot(msgspec.Struct):
    """One queue's claims in this instance. `next_ms`: no request may start before. `active`: running turns."""

    queue: str
    concurrency: int = 1  # requests at a time
    partition: int = -1  # as of its last claims
    delay_ms: int = -1  # -1: no robots.txt was read for it yet
    forgotten_ms: int = -1  # while the delay is not known: what it was before
    next_ms: int = 0
    sent_ms: int | None = None  # its last request, and the delay that was known then; None: not seen
    sent_delay_ms: int = -1
    settled_ms: int = 0  # the value of `next_ms` if none of the running turns sends a request
    active: int = 0
    holds: int = 0  # pages that are parsed apart: no request starts until they are done
    waiting: deque[Claim] = msgspec.field(default_factory=deque)
    is_queued: bool = False  # has a valid entry in the due queue
    boost: int = 0  # of the queues that are due, those with a higher boost go first
    users: tuple[str, ...] = ()  # that have further URLs in the queue, as of its last claims
    user: str = ""  # in whose turn it is served; see `_user_of`
    since_ms: int = 0  # a lower bound of when the oldest waiting claim came
    tried_ms: int = -KEPT_MS  # the last attempt to reach an origin that had not answered; see `try_doubtful`
    doubt_ms: int = 0  # up to when such attempts are promised
    is_apart: bool = False  # the request to such an origin is open, and others of the queue go on
    answered: str = ""  # the last origin that answered, "" for none yet
    reached: str = ""  # an origin that was connected to before its first request, and has not failed since
    doubts: int = 0  # so many further new origins must answer until the next one is trusted to, see `DOUBTS`
    has_aside: bool = False  # URLs of it are set aside, as of its last claims
    recalled: frozenset[str] = NOTHING  # origins that answered since: what was set aside of them comes back
    busy_origin: str = ""  # the last one that answered 503
    adaptive_delay: AdaptiveDelay = UNMEASURED

    def try_doubtful(self, now_ms: int, promised_ms: int = 0) -> int:
        """When an origin that has not answered may be tried: now, which takes this turn, or later. At most one of
        DOUBT_TURNS turns is spent on those, and one request at a time. `promised_ms`: what it was told before; one that
        was told nothing yet goes behind those that were.
        """
        gap_ms = DOUBT_TURNS * max(self.delay_ms, self.adaptive_delay.delay_ms, 0)
        if promised_ms > now_ms:
            return promised_ms
        is_first = promised_ms > 0 or now_ms >= self.doubt_ms
        if is_first and not self.is_apart and now_ms >= self.tried_ms + gap_ms:
            # Counted from when it could have been tried: one that comes a little late takes nothing from the next one.
            self.tried_ms = max(self.tried_ms + gap_ms, now_ms - gap_ms // DOUBT_TURNS)
            return now_ms
        self.doubt_ms = max(self.doubt_ms, self.tried_ms, now_ms) + max(gap_ms, DOUBT_MS)
        return self.doubt_ms

    def is_idle(self, now_ms: int) -> bool:
        """Does it have no claims, and nothing worth keeping?"""
        learned = self.adaptive_delay.delay_ms > max(self.delay_ms, 0)
        until_ms = self.next_ms + (KEPT_MS if learned else KEPT_PLAIN_MS)
        return not self.waiting and not self.active and not self.holds and until_ms <= now_ms

    @property
    def due_ms(self) -> int:
        """Its place in the due queue: the time from which a request could start."""
        return max(self.next_ms, self.since_ms)


class Scheduler:
    """The queue slots, in the order in which they are due, and the workers that wait for a claim."""

    def __init__(
        self,
        open_claims: OpenClaims,
        *,
        concurrency_per_queue: int,
        concurrency_of: Callable[[str], int | None] = lambda _: None,
        weight_of: Callable[[str], float] = lambda _: 1.0,
    ) -> None:
        """`concurrency_of`: the concurrency of a queue that has its own, else None. `weight_of`: the weight of a user
        among others.
        """
        self._open_claims = open_claims
        self._per_queue = concurrency_per_queue
        self._concurrency_of = concurrency_of
        self._slots: dict[str, QueueSlot] = {}
        self._turns = FairTurns(weight_of)
        self._due_queue = DueQueue[QueueSlot](self._turns)
        self._boosts: Mapping[str, int] = {}
        self._has_users = False  # others than the crawl itself, so far
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._waiting_at: defaultdict[str, deque[Claim]] = defaultdict(deque)
        self.waiting = 0
        self.active = 0

    def put(self, batch: QueueBatch, *, start_ms: int = 0) -> None:
        """Add claims of a queue, none of which may start before `start_ms`."""
        slot = self._slot(batch.queue)
        slot.partition = batch.claims[0].partition
        if batch.delay_ms >= 0:
            self.shorten_delay(slot, batch.delay_ms)
        elif slot.delay_ms >= 0:  # the engine has forgotten it, and others did not wait for it: it is learned again
            slot.forgotten_ms = slot.delay_ms
        slot.delay_ms = batch.delay_ms
        slot.next_ms, slot.settled_ms = max(slot.next_ms, start_ms), max(slot.settled_ms, start_ms)
        if not slot.waiting:
            slot.since_ms = monotonic_ms()
        self._has_users = self._has_users or bool(batch.claims[0].user)
        for claim in batch.claims:
            self._open_claims.moved(claim, ClaimPlace.QUEUED)
        slot.users = batch.waiting
        slot.has_aside = batch.aside > 0
        if not slot.has_aside:
            slot.recalled = NOTHING
        slot.waiting.extend(batch.claims)
        self.waiting += len(batch.claims)
        self._enqueue(slot)
        self._wake()

    def give_back(self, claim: Claim, *, at_tail: bool = False) -> None:
        """Put a claim that was taken but not fetched back at the head of its queue, or at its tail."""
        self._open_claims.moved(claim, ClaimPlace.QUEUED)
        slot = self._slot(claim.queue)
        if at_tail:
            slot.waiting.append(claim)
        else:
            slot.waiting.appendleft(claim)
        self.waiting += 1
        self._enqueue(slot)
        self._wake()

    def wait_at(self, address: str, claim: Claim) -> None:
        """Keep a claim until its server's address has room."""
        self._open_claims.moved(claim, ClaimPlace.AT_ADDRESS)
        self._waiting_at[address].append(claim)
        self.waiting += 1

    def wake_one(self, address: str) -> None:
        """The address has room for one more."""
        waiting = self._waiting_at.get(address)
        if waiting:
            claim = self._first_of(waiting)
            waiting.remove(claim)
            if not waiting:
                del self._waiting_at[address]
            self.waiting -= 1
            self.give_back(claim)

    def _first_of(self, waiting: Sequence[Claim]) -> Claim:
        """The one with the highest boost, of the user whose turn it is, that has waited for longest."""
        if self._boosts:
            highest = max(self._boosts.get(one.domain, 0) for one in waiting)
            waiting = [one for one in waiting if self._boosts.get(one.domain, 0) == highest]
        if not self._has_users:
            return waiting[0]
        users = [self._user_of(self._slot(one.queue), one) for one in waiting]
        return waiting[users.index(self._turns.next_of(users))]

    def _user_of(self, slot: QueueSlot, claim: Claim) -> str:
        """In whose turn a claim is served: its own user's, or that of one who waits behind it in the queue.

        Otherwise the other work of its user would hold up everybody in this queue. Its own user is charged.
        """
        return self._turns.next_of((claim.user, *slot.users)) if slot.users else claim.user

    def _slot(self, queue: str) -> QueueSlot:
        slot = self._slots.get(queue)
        if slot is None:
            concurrency = self._concurrency_of(queue) or self._per_queue
            slot = self._slots[queue] = QueueSlot(queue, concurrency, boost=self._boost_of(queue))
        return slot

    def _boost_of(self, queue: str) -> int:
        return self._boosts.get(registrable_domain(queue), 0) if self._boosts else 0

    def set_boosts(self, boosts: Mapping[str, int]) -> None:
        """Replace the boosts, by domain; 0 for all others."""
        self._boosts = boosts
        for slot in self._slots.values():
            boost = self._boost_of(slot.queue)
            if boost != slot.boost:
                slot.boost, slot.is_queued = boost, False  # its entry in the due queue is void
                self._enqueue(slot)
        self._wake()

    def slot_of(self, queue: str) -> QueueSlot:
        """The slot of a queue; created if there is none."""
        return self._slot(queue)

    def wait_of(self, queue: str) -> int:
        """How long a queue has to wait as far as known here, ms."""
        slot = self._slots.get(queue)
        return 0 if slot is None else max(0, slot.next_ms - monotonic_ms())

    def delay_of(self, queue: str) -> int:
        """A queue's delay as far as known here, ms; -1 when it is not."""
        slot = self._slots.get(queue)
        return -1 if slot is None else slot.delay_ms

    def waited_for(self) -> list[str]:
        """The addresses at which claims wait."""
        return list(self._waiting_at)

    @property
    def awaits_room(self) -> bool:
        """Does any claim wait for room at an address?"""
        return bool(self._waiting_at)

    def waiting_at(self, address: str) -> int:
        """How many claims wait for room at an address."""
        waiting = self._waiting_at.get(address)
        return len(waiting) if waiting else 0

    async def next(self) -> tuple[QueueSlot, Claim]:
        """The next claim whose time has come; waits for one. The caller must end it with `finished`."""
        while True:
            found = self._pop_due(monotonic_ms())
            if found is not None:
                if self._waiters:
                    self._wake()  # for the next slot: hand it out, or set the timer for it
                return found
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            self._set_timer()
            try:
                await waiter
            except asyncio.CancelledError:
                if not waiter.cancelled() and waiter.done():
                    self._wake()  # another worker gets our turn
                raise

    def _pop_due(self, now_ms: int) -> tuple[QueueSlot, Claim] | None:
        while (slot := self._due_queue.pop(now_ms)) is not None:
            slot.is_queued = False
            if not slot.waiting or slot.active >= self._room(slot):
                continue
            if slot.next_ms > now_ms:
                self._enqueue(slot)
                continue
            claim = slot.waiting.popleft()
            self._turns.charge(claim.user, 1)
            self.waiting -= 1
            slot.active += 1
            self.active += 1
            delay_ms = max(slot.delay_ms, slot.adaptive_delay.delay_ms)
            if delay_ms > 0:
                slot.next_ms = max(slot.next_ms, now_ms + delay_ms + TICK_MS)
            self._enqueue(slot)
            return slot, claim
        return None

    def take_of(self, slot: QueueSlot, is_wanted: Callable[[Claim], bool]) -> list[Claim]:
        """Take the claims of one slot that are wanted out of it."""
        return self.take_out(is_wanted, (slot.waiting,))

    def finished(self, slot: QueueSlot, *, wait_ms: int, started: bool = True) -> None:
        """A turn of this slot has ended; the next request may start `wait_ms` from now. A turn without a request (not
        `started`) has no other effect on the queue's clock.
        """
        slot.active -= 1
        self.active -= 1
        if started or wait_ms:
            slot.settled_ms = max(slot.settled_ms, monotonic_ms() + wait_ms)
        if started or slot.active:
            slot.next_ms = max(slot.next_ms, slot.settled_ms)
        else:
            slot.next_ms = slot.settled_ms
        self._enqueue(slot)
        self._wake()

    def hold(self, queue: str) -> None:
        """Start no further request of a queue, until as many calls of `release`."""
        self._slot(queue).holds += 1

    def release(self, queue: str, *, wait_ms: int) -> None:
        """End a hold; the next request may start `wait_ms` from now."""
        slot = self._slot(queue)
        slot.holds -= 1
        if wait_ms:
            self.postpone(queue, wait_ms)
        self._enqueue(slot)
        self._wake()

    def postpone(self, queue: str, wait_ms: int) -> None:
        """No request of a queue starts within this time."""
        slot, at_ms = self._slot(queue), monotonic_ms() + wait_ms
        slot.next_ms, slot.settled_ms = max(slot.next_ms, at_ms), max(slot.settled_ms, at_ms)

    def _enqueue(self, slot: QueueSlot) -> None:
        if slot.is_queued or not slot.waiting or slot.active >= self._room(slot):
            return
        slot.is_queued, slot.user = True, self._user_of(slot, slot.waiting[0])
        self._due_queue.push(slot.due_ms, slot)

    def _room(self, slot: QueueSlot) -> int:
        """Requests at a time; none while it is held."""
        return 0 if slot.holds else slot.concurrency

    def _wake(self) -> None:
        """Wake a worker for the first slot, now or when it is due."""
        due_ms = self._due_queue.next_ms()
        if due_ms is not None and due_ms <= monotonic_ms():
            while self._waiters:
                waiter = self._waiters.popleft()
                if not waiter.done():
                    waiter.set_result(None)
                    return
        self._set_timer()

    def _set_timer(self) -> None:
        """Set the timer for the slot that is due first, while a worker waits."""
        due = self._due_queue.next_ms()
        if due is None or not self._waiters:
            return
        if self._timer is not None:
            if self._timer_ms <= due and not self._timer.cancelled():
                return
            self._timer.cancel()
        self._timer_ms = due
        delay_s = max(0, due - monotonic_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._wake()

    def drop(self, partitions: Iterable[int]) -> None:
        """These partitions are lost: their waiting claims belong to others, or will be claimed again."""
        for claim in self.remove(partitions):
            self._open_claims.ended(claim)

    def remove(self, partitions: Iterable[int]) -> list[Claim]:
        """Take out every waiting claim of these partitions."""
        wanted = set(partitions)
        return self.take_out(lambda claim: claim.partition in wanted)

    def remove_all(self) -> list[Claim]:
        """Take out every waiting claim."""
        return self.take_out(lambda _: True)

    def take_out(self, is_wanted: Callable[[Claim], bool], among: Iterable[deque[Claim]] | None = None) -> list[Claim]:
        """Take out the waiting claims that are wanted, `among` all lists of these or some."""
        removed: list[Claim] = []
        for waiting in (self._waiting_lists() if among is None else among) if self.waiting else ():
            if any(map(is_wanted, waiting)):
                removed.extend(filter(is_wanted, waiting))
                kept = [claim for claim in waiting if not is_wanted(claim)]
                waiting.clear()
                waiting.extend(kept)
        if removed:
            for address in [address for address, waiting in self._waiting_at.items() if not waiting]:
                del self._waiting_at[address]
        self.waiting -= len(removed)
        return removed

    @property
    def has_due(self) -> bool:
        """Is there a claim whose time has come?"""
        due_ms = self._due_queue.next_ms()
        return due_ms is not None and due_ms <= monotonic_ms()

    def slots(self) -> list[QueueSlot]:
        """All slots."""
        return list(self._slots.values())

    def shorten_delay(self, slot: QueueSlot, delay_ms: int) -> None:
        """Apply a shorter delay at once; other reasons to wait still apply. A longer delay changes nothing."""
        is_known = slot.delay_ms >= 0
        before_ms = slot.delay_ms if is_known else slot.forgotten_ms
        if before_ms > delay_ms:
            sooner_ms = max(before_ms, slot.adaptive_delay.delay_ms) - max(delay_ms, slot.adaptive_delay.delay_ms)
            slot.next_ms -= sooner_ms
            slot.settled_ms -= sooner_ms
            if is_known:
                slot.delay_ms = delay_ms
            else:
                slot.forgotten_ms = delay_ms
            slot.is_queued = False  # its entry for a later time will find nothing to do
            self._enqueue(slot)
            self._wake()

    def _waiting_lists(self) -> list[deque[Claim]]:
        return [*(slot.waiting for slot in self._slots.values()), *self._waiting_at.values()]

    def take_stale(self, *, wait_max_ms: int, age_max_ms: int) -> list[Claim]:
        """Take out claims that are not due within `wait_max_ms`, and those that have waited too long."""
        now_ms = monotonic_ms()
        stale: list[Claim] = []
        for slot in self._slots.values():
            if slot.waiting and (slot.next_ms - now_ms > wait_max_ms or now_ms - slot.since_ms > age_max_ms):
                stale.extend(slot.waiting)
                slot.waiting.clear()
        self.waiting -= len(stale)
        claimed_at = wall_s() - age_max_ms / 1000  # whoever an address was to wake them after may be gone
        return stale + self.take_out(lambda claim: claim.claimed_at < claimed_at, self._waiting_at.values())

    def forget_idle(self) -> None:
        """Drop idle slots: memory is bounded by the queues that have, or recently had, claims here."""
        now_ms = monotonic_ms()
        idle = [queue for queue, slot in self._slots.items() if slot.is_idle(now_ms)]
        for queue in idle:
            del self._slots[queue]
