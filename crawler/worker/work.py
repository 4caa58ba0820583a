"""What the stages of one instance share: when its partitions are due, its queues, and what is not yet in the engine."""

import asyncio
import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Self

import msgspec

from crawler.frontier.messages import QueueBatch
from crawler.membership.ownership import HeldPartitions
from crawler.model import CommitEntry
from crawler.rules.order import FairTurns
from crawler.rules.scope import of_queues
from crawler.runtime.process import monotonic_ms
from crawler.settings import Settings
from crawler.worker.router import TrapMemory
from crawler.worker.schedule import Scheduler
from crawler.worker.turn import OpenRequests
from crawler.worker.watch import Activity, Counters, OpenClaims

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
    def soon_s(self) -> float:
        """Seconds until a partition is due, if one is soon; 0.0 otherwise, and when one is due now."""
        wait_ms = self._heap[0][0] - monotonic_ms() if self._heap else 0
        return max(0, wait_ms) / 1000 if wait_ms <= SOON_MS else 0.0

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


class UnsavedClocks:
    """Queues of lost partitions whose clocks are known here, but maybe not to an engine that fell back."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.by_partition: dict[int, list[str]] = {}

    def drop(self, partitions: Iterable[int]) -> None:
        """These partitions are lost: note their queues that the scheduler still knows."""
        lost = {*partitions, *self.by_partition}
        self.by_partition = {}
        for slot in self._scheduler.slots() if lost else ():
            if slot.partition in lost and slot.delay_ms >= 0:
                self.by_partition.setdefault(slot.partition, []).append(slot.queue)


class CommitBacklog:
    """Commits of this session that are still in the engine's log, by partition."""

    def __init__(self) -> None:
        self.undrained: defaultdict[int, list[CommitEntry]] = defaultdict(list)  # not in the index yet
        self.indexed: defaultdict[int, list[CommitEntry]] = defaultdict(list)  # on disk, and still in the log

    def drop(self, partitions: Iterable[int]) -> None:
        """These partitions are lost: their new owners drain their logs."""
        for partition in partitions:
            self.undrained.pop(partition, None)
            self.indexed.pop(partition, None)

    def has_any(self, partition: int) -> bool:
        return partition in self.undrained or partition in self.indexed

    @property
    def is_empty(self) -> bool:
        return not (self.undrained or self.indexed)

    def longest(self) -> int:
        """The number of commits in the longest list."""
        return max(map(len, (*self.undrained.values(), *self.indexed.values())), default=0)


CLAIMS_MIN = 512  # that an instance may hold, at least: twice what one queue needs while groups are committed


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What one instance has at hand. Most of it is dropped with a partition that another instance takes over."""

    counters: Counters
    held: HeldPartitions
    due: DuePartitions
    scheduler: Scheduler
    unsaved: UnsavedClocks
    backlog: CommitBacklog
    requests: OpenRequests  # for pages, not for robots.txt
    activity: Activity
    traps: TrapMemory

    @property
    def open_claims(self) -> OpenClaims:
        return self.counters.open_claims

    @classmethod
    def of(cls, session: str, settings: Settings, partitions: int) -> Self:
        """That of a session which holds no partition yet."""
        open_claims = OpenClaims(max(CLAIMS_MIN, 16 * settings.fetch.concurrency))
        counters, requests = Counters(open_claims), OpenRequests()
        scheduler = Scheduler(
            open_claims,
            concurrency_per_queue=settings.politeness.concurrency_per_queue,
            concurrency_of=of_queues(settings.sites, "concurrency"),
            weight_of=counters.weight_of,
        )
        due, unsaved = DuePartitions(open_claims, counters.weight_of), UnsavedClocks(scheduler)
        backlog, activity = CommitBacklog(), Activity(partitions, lambda: requests.claims)
        return cls(
            counters=counters,
            held=HeldPartitions(session, (due, scheduler, unsaved, backlog, activity)),
            due=due,
            scheduler=scheduler,
            unsaved=unsaved,
            backlog=backlog,
            requests=requests,
            activity=activity,
            traps=TrapMemory(settings.traps),
        )
