"""Step 2, claim: claims URLs of the partitions that are due, as many as the instance can hold.

Replies tell when a partition is due next, and hints tell what others make due earlier: whoever wakes a queue or
schedules a URL there publishes one. To ask each partition each second instead costs two replies a second for each one
with URLs that wait; a crawl of a thousand domains with a long delay sent 2,000 commands a second and did nothing.

A hint may be lost. So a tenth of the partitions that are not due soon is looked at each second, at most 128, by one
pipeline: a lost hint costs ten seconds, and half a minute with 4,096 partitions in one instance. All are looked at
within a second when the subscription began or was broken, and when the wall clock steps, by which URLs are scheduled.
No script could read all of them, because each touches one slot; and one set of due times for the whole crawl would be a
key that each ack of all instances writes to.

A call whose reply is lost is sent again with the same request id, and gets the same batch: nothing is delivered twice.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence

from crawler.engine.client import Engine
from crawler.errors import EngineError
from crawler.frontier.keys import Keys
from crawler.frontier.messages import ClaimReply, FetchBudget
from crawler.frontier.owner import ClaimRequest, Fence, Frontier
from crawler.runtime.clocks import ENGINE_PAUSE_S, monotonic_ms, wall_s
from crawler.runtime.crash_points import reached
from crawler.runtime.ticks import until_set, until_tick
from crawler.settings import Settings
from crawler.worker.work import Work

log = logging.getLogger(__name__)

PARTITIONS_PER_ROUND = 256
FULL_CLAIMS_MAX = 16  # open at a time while the engine's memory is full: to fetch and ack them frees some
URLS_PER_CALL = 8  # at least, when there is room for fewer than are due: each call and each ack has a cost
OWN_MAX = 2**31  # URLs that are not of a run: any number
SWEEP_MS = 1000  # between looks at some partitions that are not due soon:
SWEEPS = 10  # a tenth of them each time,
SWEEP_MAX = 128  # and at most this many: a look costs the same, however many there are
CLOCK_STEP_MS = 500  # of the wall clock: then all are looked at, for URLs that are scheduled by it
NOTHING_MS = 20  # pause after a due queue gave nothing: it is at its cap, and acks will wake it
RECONNECT_PAUSE_S = 1.0


async def listen_for_hints(
    engine: Engine, channel: str, on_hint: Callable[[int, str], None], on_gap: Callable[[], None]
) -> None:
    """Receive hints of partitions that others have woken for a user, until cancelled. `on_gap`: called when hints of
    before may be lost.
    """
    while True:
        try:
            async for message in engine.subscribe(channel):
                if message is None:
                    on_gap()
                    continue
                meta, _, user = message.decode().partition(" ")
                on_hint(Keys.partition_of_meta(meta), user)
        except EngineError:
            await asyncio.sleep(RECONNECT_PAUSE_S)


class Claimer:
    """Fills the scheduler."""

    def __init__(
        self,
        frontier: Frontier,
        work: Work,
        settings: Settings,
        *,
        pages_left: Callable[[], int | None],
        on_short: Callable[[int, Sequence[str]], None],
        on_set_back: Callable[[int], None],
        on_runs: Callable[[Collection[str]], Awaitable[None]],
        on_probe: Callable[[str, int | None], None],
        has_jobs: Callable[[], bool] = lambda: False,
    ) -> None:
        """`pages_left`: as `Counters.pages_left`. `on_short`: called with queues of a partition whose next URLs are in
        files. `on_set_back`: called when the engine has lost writes to a partition that this session knows of.
        `on_runs`: called with the runs of claims before these are handed on; it may raise EngineError, and no claim is
        lost. `on_probe`: called with the origin of URLs that were set aside and come back, and since when it has been
        silent (monotonic ms; None: not known to be). `has_jobs`: limits of the crawl are not for runs, so URLs of these
        are claimed beyond them.
        """
        self._frontier = frontier
        self._work = work
        self._settings = settings
        self._pages_left = pages_left
        self._on_short = on_short
        self._on_set_back = on_set_back
        self._on_runs = on_runs
        self._on_probe = on_probe
        self._has_jobs = has_jobs
        self._serial = 0
        # Partition -> epoch and request. Sent again unchanged, so that nothing is delivered twice.
        self._unanswered: dict[int, tuple[int, ClaimRequest]] = {}
        self._answered = asyncio.Event()  # set while no claim call is in flight
        self._answered.set()
        self._sweep_at_ms = 0
        self._to_sweep: list[int] = []
        self._sweep_all = False
        self._wall_ahead_ms = int(wall_s() * 1000) - monotonic_ms()

    def hints_lost(self) -> None:
        """Look at all partitions soon."""
        self._sweep_all = True

    async def run(self) -> None:
        """Claim until cancelled."""
        while True:
            self._work.due.wake.clear()
            try:
                busy = await self._round()
            except EngineError as error:
                log.warning("claim.engine_error", extra={"error": str(error)})
                await asyncio.sleep(ENGINE_PAUSE_S)
                continue
            if not busy:
                await self._sleep()

    async def _sleep(self) -> None:
        now_ms, first_ms = monotonic_ms(), self._work.due.first_ms
        until_ms = self._sweep_at_ms
        if first_ms is not None and self._may_claim and self._room() > 0:
            until_ms = min(until_ms, first_ms)
        await until_set(self._work.due.wake, max(until_ms - now_ms, 1) / 1000)

    def _room(self) -> int:
        room = self._work.open_claims.room
        beyond_limits = self._has_jobs() and not self._work.counters.pages_max
        pages_left = None if beyond_limits else self._pages_left()
        if self._work.counters.is_engine_full:
            room = min(room, FULL_CLAIMS_MAX - self._work.open_claims.total + self._work.counters.held_pages)
        return room if pages_left is None else min(room, pages_left)

    async def _round(self) -> bool:
        """One batch of claims; False when there was nothing to do."""
        if monotonic_ms() >= self._sweep_at_ms:
            self._sweep_at_ms = monotonic_ms() + int(until_tick(SWEEP_MS / 1000) * 1000)
            await self._sweep()
        if not self._may_claim:
            return False
        partitions = self._due_partitions()
        if not partitions:
            return False
        await self._claim(partitions)
        return True

    @property
    def _may_claim(self) -> bool:
        counters = self._work.counters
        return not counters.is_stopping and counters.waits_for not in ("disk", "paused", "backup")

    def _due_partitions(self) -> list[int]:
        most = min(PARTITIONS_PER_ROUND, -(-self._room() // URLS_PER_CALL))
        return [partition for partition in self._work.due.take(most) if self._work.held.is_open(partition)]

    async def _claim(self, partitions: list[int]) -> None:
        share, own = max(1, self._room() // len(partitions)), self._pages_left()
        wanted: list[tuple[Fence, ClaimRequest]] = []
        for i, partition in enumerate(partitions):
            fence = self._work.held.fence_of(partition)
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

    @property
    def is_asking(self) -> bool:
        """Is a call in flight, or to be sent again?"""
        return not self._answered.is_set() or any(map(self._work.held.is_open, self._unanswered))

    async def settle(self) -> None:
        """Wait until the last call has returned or failed; called when no further one is made."""
        await self._answered.wait()

    def _request(self, share: int, own: int | None) -> ClaimRequest:
        f, self._serial, is_full = self._settings.frontier, self._serial + 1, self._work.counters.is_engine_full
        return ClaimRequest(
            request_id=f"{self._frontier.session}-{self._serial}",
            urls_max=min(share, 2 * f.claim_urls_max),  # twice as many take 5.5 ms in an engine with a million keys
            per_queue_max=1 if is_full else f.claim_urls_max,
            ahead_ms=0 if is_full or self._work.open_claims.is_scarce else int(f.claim_ahead_s * 1000),
            visibility_ms=int(f.visibility_timeout_s * 1000),
            default_delay_ms=int(self._settings.politeness.delay_s * 1000),
            out_max=4 * f.claim_urls_max,  # a group on its way to disk does not hold up its queue
            lead_ms=self._work.due.lead_ms,
            budget=FetchBudget(pages=self._settings.budget.pages, bytes=self._settings.budget.bytes),
            at_s=wall_s(),
            weights=self._work.counters.overrides.weights,
            probe_ms=int(self._settings.hosts.probe_s * 1000),
            own_max=OWN_MAX if own is None else own,
        )

    def _take_in(self, fence: Fence, request: ClaimRequest, reply: ClaimReply | EngineError) -> None:
        partition = fence.partition
        if isinstance(reply, EngineError):
            self._again(fence, request)
            return
        if reply.status == "FENCED":
            self._work.held.lose(partition)
            return
        if reply.status == "RECOVER":
            self._on_set_back(partition)
            return
        if self._work.held.epoch_of(partition) != fence.epoch:
            return  # lost meanwhile: the claims are of an older epoch and expire by themselves
        for _, origin, since_ms in reply.probes:
            here_ms = monotonic_ms() + since_ms - self._work.held.now_of(partition)
            self._on_probe(origin, here_ms if since_ms >= 0 else None)
        for batch in reply.batches:
            self._work.open_claims.opened(batch.claims)
            self._work.scheduler.put(batch, start_ms=self._here(partition, batch.start_ms))
            reached("claim.taken", batch.claims[0].url)
        if reply.short:
            self._on_short(partition, reply.short)
        later_ms = monotonic_ms() - self._work.held.now_of(partition)
        self._work.due.note_reply(partition, reply.waits, reply.batches, later_ms=later_ms)
        fetch_ms = reply.next_fetch_ms
        self._work.due.note_fetch(partition, fetch_ms + later_ms if fetch_ms >= 0 else None)
        if reply.next_due_ms >= 0:
            wait_ms = reply.next_due_ms - self._work.held.now_of(partition)  # negative: due since then, and goes first
            if not reply.batches:
                wait_ms = max(wait_ms, NOTHING_MS)
            self._work.due.schedule(partition, monotonic_ms() + wait_ms)

    def _here(self, partition: int, at_ms: int) -> int:
        """Convert a time of the partition's clock to our own (monotonic ms); 0 stays 0."""
        return at_ms and monotonic_ms() + at_ms - self._work.held.now_of(partition)

    def _again(self, fence: Fence, request: ClaimRequest) -> None:
        """The outcome is unknown: the same request id returns the same batch."""
        if self._work.held.is_open(fence.partition):
            self._unanswered[fence.partition] = fence.epoch, request
            self._work.due.schedule(fence.partition, monotonic_ms() + int(ENGINE_PAUSE_S * 1000))

    def _next_some(self) -> list[int]:
        """The next partitions to look at: all of them in turn."""
        self._to_sweep = self._to_sweep or list(self._work.held)
        count = min(SWEEP_MAX, -(-len(self._work.held) // SWEEPS))
        some, self._to_sweep = self._to_sweep[:count], self._to_sweep[count:]
        return [p for p in some if p in self._work.held]

    async def _sweep(self) -> None:
        """Look at some of the partitions that are not due soon: a hint may have been lost."""
        ahead_ms = int(wall_s() * 1000) - monotonic_ms()
        if abs(ahead_ms - self._wall_ahead_ms) >= CLOCK_STEP_MS:
            self._wall_ahead_ms, self._sweep_all = ahead_ms, True
        is_whole, self._sweep_all = self._sweep_all, False
        some = list(self._work.held) if is_whole else self._next_some()
        try:
            for start in range(0, len(some), SWEEP_MAX):
                await self._look_at(some[start : start + SWEEP_MAX], ahead_ms)
        except EngineError:
            self._sweep_all |= is_whole
            raise

    async def _look_at(self, partitions: Sequence[int], ahead_ms: int) -> None:
        """`ahead_ms`: wall clock minus monotonic one."""
        soon_ms = monotonic_ms() + SWEEP_MS
        waiting = [p for p in partitions if self._work.due.waits_beyond(p, soon_ms)]
        for partition, due_ms, visible_ms in await self._frontier.awake(waiting):
            if not self._work.held.is_open(partition):
                continue
            if due_ms is not None:
                self._work.due.queue_due(partition, self._here(partition, due_ms))
            if visible_ms is not None:
                self._work.due.schedule(partition, visible_ms - ahead_ms)
        for partition in waiting:
            if self._work.due.has_waits(partition):  # `awake` does not cover queues with a boost
                self._work.due.schedule(partition)
