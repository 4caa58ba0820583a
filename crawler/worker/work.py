"""When each held partition may be claimed from: one due time each, so that no partition is polled in vain."""

import asyncio
import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Self

import msgspec

from crawler.frontier.messages import QueueBatch
from crawler.membership.held import HeldPartitions
from crawler.model import CommitEntry
from crawler.routing.traps_learned import TrapMemory
from crawler.rules.sites import of_queues
from crawler.rules.turns import FairTurns
from crawler.runtime.clocks import monotonic_ms
from crawler.settings import Settings
from crawler.worker.activity import Activity
from crawler.worker.counters import Counters
from crawler.worker.due_users import OUTDATED_MAX, DueUsers
from crawler.worker.open_claims import OpenClaims
from crawler.worker.page_requests import OpenRequests
from crawler.worker.schedule import Scheduler

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
        open_claims = OpenClaims(
            max(CLAIMS_MIN, 16 * settings.fetch.concurrency), knows_twins=settings.requisites.fetch
        )
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
