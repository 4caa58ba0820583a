"""What an instance knows about itself: counters, vital signs, what it does now."""

import asyncio
import contextlib
import heapq
import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from pathlib import Path

import msgspec

from crawler.archive.folder import UNKNOWN, free_bytes
from crawler.errors import EngineError, InvariantError
from crawler.frontier.arguments import ActivityHead, ActivityItem
from crawler.frontier.codec import pack
from crawler.frontier.lists import FINE, Sample, Series, busiest_max
from crawler.frontier.lookup import UrlLookup
from crawler.frontier.operator import Overrides
from crawler.model import Claim, FailureKind
from crawler.rules.shapes import ShapeWatch
from crawler.runtime.process import Gate, monotonic_ms, open_gate, process_cpu_s, tick, until_tick, wall_s
from crawler.terminal.text import failure_reason

WINDOW_MS = 30_000  # scrapes are 15 or 30 s apart: each sees what happened since the last one
LOOP_EVERY_S = 0.2
LOOP_RESTING_S = 1.0  # without claims: who waits is not to wake for it
DISK_RESTING_S = 5.0
DISK_EVERY_S = 1.0  # a second of fetching fits into `archive.disk_free_bytes_min`


class Recent:
    """The largest (or, with `min`, the smallest) value that was noted lately: for at least 30 s, and at most 60."""

    def __init__(
        self, pick: Callable[[float, float], float] = max, *, clock_ms: Callable[[], int] = monotonic_ms
    ) -> None:
        self._pick = pick
        self._clock_ms = clock_ms
        self._began_ms = clock_ms()
        self._current: float | None = None
        self._before: float | None = None

    def note(self, value: float) -> None:
        """A new value."""
        self._turn()
        self._current = value if self._current is None else self._pick(self._current, value)

    @property
    def value(self) -> float | None:
        """None when nothing was noted lately."""
        self._turn()
        if self._current is None or self._before is None:
            return self._current if self._before is None else self._before
        return self._pick(self._before, self._current)

    def _turn(self) -> None:
        now_ms = self._clock_ms()
        age_ms = now_ms - self._began_ms
        if age_ms >= WINDOW_MS:
            self._before = self._current if age_ms < 2 * WINDOW_MS else None
            self._began_ms, self._current = now_ms, None


class Vitals:
    """Delay of the event loop, free disk of a folder, CPU time and memory of this process without its children."""

    def __init__(
        self,
        folder: Path,
        on_disk_free: Callable[[int], None] = lambda _: None,
        usable: Callable[[int], int] = lambda free: free,
        *,
        at_work: asyncio.Event | None = None,
        is_scarce: Callable[[], bool] = lambda: False,
    ) -> None:
        """`on_disk_free` is called with the free bytes of the folder's disk after each look, if they are known.
        `usable`: how many of these can be written, by a trial in a thread. `at_work`: set while there are claims;
        `is_scarce`: is somebody waiting for room on the disk?
        """
        self._folder = folder
        self._usable = usable
        self._on_disk_free = on_disk_free
        self._at_work = at_work or asyncio.Event()
        if at_work is None:
            self._at_work.set()
        self._is_scarce = is_scarce
        self._loop_delay_s = Recent()
        self._disk_free = UNKNOWN

    async def watch_loop(self) -> None:
        """Measure by how much timers are late, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            wait_s = until_tick(LOOP_EVERY_S if self._at_work.is_set() else LOOP_RESTING_S)
            due_s = loop.time() + wait_s
            await asyncio.sleep(wait_s)
            self._loop_delay_s.note(loop.time() - due_s)

    async def watch_disk(self) -> None:
        """Look at the disk until cancelled, in a thread: a network disk may not answer."""
        while True:
            await self.look_at_disk()
            await tick(DISK_EVERY_S)
            if not (self._at_work.is_set() or self._is_scarce()):
                await tick(DISK_RESTING_S, self._at_work)

    async def look_at_disk(self) -> None:
        """Measure its free bytes once."""
        self._disk_free = await asyncio.to_thread(self._measure)
        if self._disk_free != UNKNOWN:
            self._on_disk_free(self._disk_free)

    def _measure(self) -> int:
        return self._usable(free_bytes(self._folder))

    def description(self) -> dict[str, float | int]:
        """Fields of `Member` by name."""
        return {
            "loop_delay_s": round(max(0.0, self._loop_delay_s.value or 0.0), 3), "disk_free": self._disk_free,
            "cpu_s": round(process_cpu_s(), 1), "resident": _resident_bytes(),
        }  # fmt: skip


def _resident_bytes() -> int:
    """Of this process, as Linux counts it."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return UNKNOWN


# What the stages of one instance share: counts, open claims, the stop flag.

ANY_NUMBER = sys.maxsize
ERROR_MAX = 120  # characters
ERROR_SHOWN_S = 60.0  # and what an engine lost


class OpenClaims:
    """The claims of one instance that are neither acked nor returned. To end a claim twice is a bug."""

    def __init__(self, claims_max: int) -> None:
        self._claims_max = claims_max
        self._tokens: dict[int, set[str]] = {}
        self.total = 0
        self.some, self.none = asyncio.Event(), asyncio.Event()  # set while there are some, or none
        self.none.set()
        self.ever = 0  # how many were opened
        self.own = 0  # without those of runs; the next one, too
        self.own_ever = 0

    def opened(self, claims: Collection[Claim]) -> None:
        """The engine has delivered these."""
        for claim in claims:
            tokens = self._tokens.setdefault(claim.partition, set())
            is_new = claim.token not in tokens
            self.total += is_new
            self.ever += is_new
            self.own += is_new and not claim.run
            self.own_ever += is_new and not claim.run
            tokens.add(claim.token)
        if self.total:
            self.some.set()
            self.none.clear()

    def ended(self, claim: Claim) -> None:
        """The work on this claim is over here."""
        tokens = self._tokens.get(claim.partition, set())
        if claim.token not in tokens:
            raise InvariantError(f"a claim has ended twice: {claim.url}")
        tokens.remove(claim.token)
        self.total -= 1
        self.own -= not claim.run
        if not tokens:
            del self._tokens[claim.partition]
        if not self.total:
            self.some.clear()
            self.none.set()

    def has_any(self, partition: int) -> bool:
        """Are claims of this partition open?"""
        return partition in self._tokens

    @property
    def room(self) -> int:
        """How many more claims may be opened."""
        return self._claims_max - self.total

    @property
    def is_scarce(self) -> bool:
        """Is more than half of the room taken? Then nothing is claimed ahead of its time."""
        return 2 * self.total > self._claims_max


class LastError(msgspec.Struct, frozen=True):
    """The last attempt that failed; `at_s` is wall clock."""

    kind: str
    detail: str
    url: str
    at_s: float

    @property
    def text(self) -> str:
        """Like "connection refused: docs.example": the reason in few words, and the host with its port."""
        host = self.url.split("/", 3)[2]
        room = ERROR_MAX - min(len(host), ERROR_MAX // 2) - 2
        return f"{failure_reason(self.kind, self.detail)[:room]}: {host[: ERROR_MAX // 2]}"


class Counters(msgspec.Struct):
    """Counts of one instance, and what its stages need to know of each other. `own`: not of runs of jobs."""

    open_claims: OpenClaims
    pages_max: int = 0
    own_pages_max: int = 0
    pages_room: int = 0  # at the last count: what nobody in the crawl had fetched or claimed
    claimed_before: int = 0  # `ever` at that count
    counted_s: float = 0.0  # when that began; wall clock
    counted_ms: int = 0  # when it ended; monotonic
    counted_for: frozenset[str] = frozenset()  # the sessions that shared it then
    # Our part of such a room, counted at that time: others claim, too, until they count again. None: nobody else does.
    share_of: Callable[[int, float], int | None] = lambda *_: None
    committed: int = 0
    own_committed: int = 0  # without those of runs
    committed_before: int = 0  # by the whole crawl at the last count, without what we committed
    own_committed_before: int = 0
    bytes_max: int = 0
    own_bytes: int = 0  # of bodies that this instance committed, without those of runs
    own_bytes_before: int = 0
    errors: int = 0
    last_error: LastError | None = None
    committed_at_error: int = 0  # by then
    fenced: int = 0  # results that came too late: another session had the lease by then
    set_back_pages: int = 0  # that the engine lost in the last minute, as it was set back
    set_back_at_s: float = 0.0
    shapes: ShapeWatch = msgspec.field(default_factory=ShapeWatch)
    late: int = 0  # requests that were open when the lease was lost: nothing can fence a web server
    is_stopping: bool = False
    is_standing_still: bool = False  # a command pauses the crawl
    still_for: tuple[str, ...] = ()  # as in `Member`
    held_pages: int = 0  # fetched, and not acked because links of theirs wait
    held_links: int = 0  # of these
    is_engine_full: bool = False  # few claims at a time: to end them frees memory
    can_spill: bool = False  # do URLs in long queues leave the engine when it is full?
    # What is wrong with proxies, or our own network, through which nothing comes.
    trouble: dict[FailureKind, str] = msgspec.field(default_factory=dict)
    is_disk_full: bool = False  # no more claims until there is room for the records of those in flight
    overrides: Overrides = msgspec.field(default_factory=Overrides)  # by an operator, as last read
    # While this lock is held, `committed` equals the engine's count.
    acking: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)

    def weight_of(self, user: str) -> float:
        """The weight of a user among others."""
        return self.overrides.weights.get(user, 1.0)

    @property
    def done(self) -> int:
        """Attempts that have ended."""
        return self.committed + self.errors

    @property
    def waits_for(self) -> str:
        """Why no URLs are claimed although some may be due, or few ("memory"); same values as `Member.waits_for`."""
        if self.is_standing_still:
            return "backup"
        if self.is_disk_full:
            return "disk"
        if self.overrides.is_paused:
            return "paused"
        if self.is_engine_full:
            return "memory"
        return next((kind.value for kind, trouble in self.trouble.items() if trouble), "")

    def description(self) -> dict[str, int | str | float | tuple[str, ...]]:
        """Fields of `Member` by name."""
        last, text, at_s = self.last_error, "", 0.0
        # As long as nothing else was done, it is still why.
        if last and (self.committed == self.committed_at_error or wall_s() - last.at_s < ERROR_SHOWN_S):
            text, at_s = last.text, round(last.at_s, 1)
        return {
            "fenced": self.fenced, "late": self.late, "waits_for": self.waits_for, "still_for": self.still_for,
            "held_pages": self.held_pages, "held_links": self.held_links,
            "last_error": text, "last_error_at": at_s, "set_back_pages": self._set_back_now,
            "one_shape": self.shapes.hint(monotonic_ms()),
        }  # fmt: skip

    def note_error(self, error: LastError) -> None:
        """An attempt failed, or the look before one did."""
        self.last_error, self.committed_at_error = error, self.committed

    def set_back(self, pages: int) -> None:
        """The engine has lost its last writes, with this many pages of ours."""
        self.set_back_pages, self.set_back_at_s = self._set_back_now + pages, wall_s()

    @property
    def _set_back_now(self) -> int:
        return self.set_back_pages if wall_s() - self.set_back_at_s < ERROR_SHOWN_S else 0

    def pages_left(self) -> int | None:
        """How many more pages may be claimed under the limits, that are not of runs; None without a limit."""
        if self.is_out_of_bytes:
            return 0
        if not (self.pages_max or self.own_pages_max):
            return None
        share, unclaimed = self.share_of(self.pages_room, self.counted_s), self._unclaimed
        if share is not None:
            unclaimed = min(unclaimed, share - (self.ever - self.claimed_before))
        return max(0, unclaimed)

    @property
    def _unclaimed(self) -> int:
        """What is left if no other instance has open claims."""
        return min(
            self.pages_max - self.committed_before - self.committed - self.open_claims.total
            if self.pages_max
            else ANY_NUMBER,
            self.own_pages_max - self.own_committed_before - self.own_committed - self.open_claims.own
            if self.own_pages_max
            else ANY_NUMBER,
        )

    @property
    def ever(self) -> int:
        """How many claims were opened that count for the limits."""
        return self.open_claims.ever if self.pages_max else self.open_claims.own_ever

    @property
    def is_limit_near(self) -> bool:
        """Is a limit reached as far as this instance knows? Only the engine's totals decide."""
        claims = self.open_claims.total if self.pages_max else self.open_claims.own
        return self.is_out_of_bytes or (self._unclaimed <= 0 and not claims)

    @property
    def is_out_of_bytes(self) -> bool:
        return bool(self.bytes_max) and self.own_bytes_before + self.own_bytes >= self.bytes_max


# What happens in the queues of this instance, for the rates of the busiest: counted here, sent with drains of the log.
#
# Nothing is sent twice, so a crash or a failed call may lose two seconds of it. Totals don't come from here.

SEND_EVERY_MS = 2000
ACTIVITY_ERROR_MAX = 60  # characters that are kept of the reason of a failure


class _Counts(msgspec.Struct):
    """What happened in a queue in one slot, as in ActivityItem."""

    pages: int = 0
    bytes: int = 0
    client_errors: int = 0
    server_errors: int = 0
    failures: int = 0
    error: str = ""  # the last one

    def item(self, slot: int, queue: str, in_flight: int) -> ActivityItem:
        return ActivityItem(
            slot, queue, self.pages, self.bytes, self.client_errors, self.server_errors, self.failures, in_flight,
            self.error,
        )  # fmt: skip


_NONE = _Counts()
_Queues = dict[str, _Counts]
_Open = Counter[tuple[int, str]]  # requests by partition and queue


class Activity:
    """Counts by partition, slot and queue, and the open requests of each queue."""

    def __init__(self, partitions: int, open_requests: Callable[[], Iterable[Claim]] = tuple) -> None:
        self._most = busiest_max(partitions)
        self._open_requests = open_requests
        self._open = _Open()  # when it was taken last
        self._sent = _Open()  # what the engine has of them
        self._counts: dict[int, dict[int, _Queues]] = {}
        self._slot = 0  # that was noted last
        self._taken_ms = monotonic_ms()
        self._is_slot_over = False
        self._is_ending = False

    def response(self, partition: int, queue: str, status: int, body_bytes: int) -> None:
        """A response was committed."""
        counts = self._of(partition, queue)
        counts.pages += 1
        counts.bytes += body_bytes
        counts.client_errors += status // 100 == 4
        counts.server_errors += status // 100 == 5

    def failure(self, partition: int, queue: str, error: str) -> None:
        """An attempt brought no response, for this reason."""
        counts = self._of(partition, queue)
        counts.failures += 1
        counts.error = error[:ACTIVITY_ERROR_MAX]

    def _of(self, partition: int, queue: str) -> _Counts:
        slot = FINE.slot_of(wall_s())
        self._is_slot_over |= bool(self._counts) and slot != self._slot
        self._slot = slot
        queues = self._counts.setdefault(partition, {}).setdefault(slot, {})
        counts = queues.get(queue)
        if counts is None:
            counts = queues[queue] = _Counts()
        return counts

    def drop(self, partitions: Iterable[int]) -> None:
        """These partitions are lost."""
        gone = set(partitions)
        for partition in gone:
            self._counts.pop(partition, None)
        for place in [one for one in self._sent if one[0] in gone]:
            del self._sent[place]

    @property
    def has_any(self) -> bool:
        """Has the engine other counts, or others of open requests?"""
        return bool(self._counts or self._sent)

    def end(self) -> None:
        """Nothing more comes: what there is is due."""
        self._is_ending = True

    @property
    def is_due(self) -> bool:
        """Is there something to send, for long enough or of a slot that is over?"""
        is_over = self._is_ending or self._is_slot_over or FINE.slot_of(wall_s()) != self._slot
        is_late = monotonic_ms() - self._taken_ms >= SEND_EVERY_MS
        if self._counts:
            return is_over or is_late
        return is_late and (bool(self._sent) or any(self._open_requests()))

    def take(self) -> dict[int, bytes]:
        """What is to be sent for each partition, of the busiest queues of each slot; it is forgotten here."""
        counts, self._counts = self._counts, {}
        seconds = max(0.5, (monotonic_ms() - self._taken_ms) / 1000)
        self._taken_ms, self._is_slot_over = monotonic_ms(), False
        now = _Open((claim.partition, claim.queue) for claim in self._open_requests())
        found: dict[int, list[ActivityItem]] = {p: list(self._items(p, slots, now)) for p, slots in counts.items()}
        told = {(partition, item.queue) for partition, items in found.items() for item in items}
        slot = FINE.slot_of(wall_s())
        for place in self._changed(now):
            if place not in told:
                found.setdefault(place[0], []).append(_NONE.item(slot, place[1], now[place]))
                told.add(place)
        for place in told:
            self._sent[place] = now[place]
        self._open, self._sent = now, +self._sent
        head = ActivityHead(most=self._most, seconds=seconds, slot_s=FINE.slot_s)
        return {p: pack([*head, *(value for item in items for value in item)]) for p, items in found.items()}

    def _items(self, partition: int, slots: dict[int, _Queues], now: _Open) -> Iterator[ActivityItem]:
        for slot in sorted(slots):
            queues = slots[slot]
            busiest = heapq.nlargest(self._most, queues, key=lambda name: queues[name].pages + queues[name].failures)
            for queue in busiest:
                yield queues[queue].item(slot, queue, now[partition, queue])

    def _changed(self, now: _Open) -> Iterator[tuple[int, str]]:
        """Queues of which the engine has another number of open requests. A new request that ends soon is not worth
        a message of its own: it counts from the second time that it is seen.
        """
        yield from (place for place in self._sent if self._sent[place] != now[place])
        yield from (place for place in now if place in self._open and place not in self._sent)


# Samples the totals of the crawl over time: whichever instance finds that a slot has no sample writes it.

CHECK_S = 1.0
STILL_MS = 60_000  # how long totals are believed that only members could change, who have done nothing


class Sampler:
    """Runs in every instance."""

    def __init__(
        self,
        series: Series,
        inspect: UrlLookup,
        pause: Gate = open_gate,
        work: Callable[[], Hashable | None] = lambda: None,
    ) -> None:
        """`pause`: awaited before each look. `work`: what all instances have done, changed by each page; None while
        any works on one.
        """
        self._pause = pause
        self._work = work
        self._series = series
        self._inspect = inspect
        self._slot = -1  # that is known to have a sample
        self._last: tuple[Hashable, Sample, int] | None = None  # the totals that were read, and when

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            await self._pause()
            with contextlib.suppress(EngineError):  # a slot without a sample: rates are measured over its neighbours
                await self.look()
            await tick(CHECK_S)

    async def look(self) -> None:
        """Write a sample if this slot has none. Raises EngineError."""
        slot = FINE.slot_of(wall_s())
        if slot == self._slot:
            return
        if await self._series.is_wanted(wall_s()):
            await self._series.write(await self._sample())
        self._slot = slot

    async def _sample(self) -> Sample:
        """The totals now: those of the last look, while nobody has done anything since."""
        work, now_ms = self._work(), monotonic_ms()
        if self._last is not None and work == self._last[0] and now_ms - self._last[2] < STILL_MS:
            return self._last[1]._replace(at_s=wall_s())
        sample = Sample.of(wall_s(), await self._inspect.progress())
        self._last = None if work is None else (work, sample, now_ms)
        return sample
