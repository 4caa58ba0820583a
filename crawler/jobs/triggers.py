"""Triggers jobs: decides what is due in the partitions that this session owns.

No leader: a job is decided by the owner of its partition, under its fence, in one step that is stored only if the job
is still as it was read. So two sessions that believe they own a partition trigger a nominal time once.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from crawler.errors import EngineError
from crawler.frontier.jobs import Jobs, StoredJob
from crawler.frontier.owner import Fence
from crawler.membership.held import HeldPartitions
from crawler.rules.job_plan import DEFAULTS, Plan, plan
from crawler.runtime.clocks import monotonic_ms, wall_s
from crawler.runtime.tasks import Gate, open_gate
from crawler.runtime.ticks import tick, until_set, until_tick
from crawler.settings.schema import JobSettings

log = logging.getLogger(__name__)


IDLE_S = 1.0  # between looks when nothing is due sooner: partitions may have been acquired
LEAST_S = 0.02  # between looks
READ_AGAIN_MS = 10_000  # somebody may have changed a job, and died before the owners were told


class Triggers:
    """Looks when the next job is due, when jobs were changed by somebody else, and when partitions were acquired."""

    def __init__(
        self,
        jobs: Jobs,
        held: HeldPartitions,
        *,
        on_plan: Callable[[Plan], None],
        on_unknown: Callable[[int], None],
        is_clock_right: Callable[[], bool],
        settings: JobSettings = DEFAULTS,
        pause: Gate = open_gate,
    ) -> None:
        """`on_plan`: called with what was stored. `on_unknown`: with a partition where it is not known what was.
        `pause`: awaited before each look.
        """
        self._gate = pause
        self._jobs = jobs
        self._held = held
        self._on_plan = on_plan
        self._on_unknown = on_unknown
        self._is_clock_right = is_clock_right
        self._settings = settings
        self._due: dict[int, float] = {}  # partition -> when something is due, wall clock, s
        self._known: dict[int, int] = {}  # partition -> epoch in which its jobs were read
        self._version = 0
        self._read_all_ms = 0  # when all partitions were read last, on the monotonic clock
        self._wakes = asyncio.Event()
        self.is_ending = False  # nothing more is decided here

    @property
    def is_used(self) -> bool:
        """Has the crawl ever had a job?"""
        return self._version > 0

    @property
    def next_at(self) -> float:
        """When something is due next (wall clock, s); 0 if nothing is."""
        return min(self._due.values(), default=0.0)

    def follow(self, version: int) -> None:
        """The version of the crawl's jobs, which grows with each change by people; 0 without jobs."""
        if version != self._version:
            self._version = version
            self._known.clear()
            self._wakes.set()

    def look_again(self, partition: int) -> None:
        """A job of this partition was changed by us: it may be due at another time."""
        self._known.pop(partition, None)
        self._wakes.set()

    async def run(self) -> None:
        """Trigger until cancelled."""
        while True:
            await self._pause()
            await self._gate()
            if self.is_used:
                with contextlib.suppress(EngineError):
                    await self.look()

    async def _pause(self) -> None:
        self._wakes.clear()
        if not self.is_used:
            await self._wakes.wait()
        elif (wait_s := self._wait_s()) >= until_tick(IDLE_S):
            await tick(IDLE_S, self._wakes)
        else:
            await until_set(self._wakes, wait_s)
            await asyncio.sleep(LEAST_S)

    def _wait_s(self) -> float:
        decides = self._is_clock_right() and not self.is_ending
        soonest = min(self._due.values(), default=None) if decides else None
        return 2 * IDLE_S if soonest is None else max(0.0, soonest - wall_s())

    async def look(self) -> None:
        """Decide what is due now. Raises EngineError."""
        now_ms = monotonic_ms()
        if now_ms - self._read_all_ms >= READ_AGAIN_MS:
            self._known.clear()
            self._read_all_ms = now_ms
        for partition in [p for p in self._due if p not in self._held]:
            del self._due[partition]
        await self._read_dues([p for p, held in self._held.items() if self._known.get(p) != held.epoch])
        now_s = wall_s()
        if not self._is_clock_right() or self.is_ending:
            return
        due = [p for p, at in self._due.items() if at <= now_s and self._held.is_open(p)]
        if due:
            await self._decide(await self._jobs.due(due, now_s), now_s)
            await self._read_dues(due)

    async def _read_dues(self, partitions: Sequence[int]) -> None:
        epochs = {p: self._held.epoch_of(p) for p in partitions}
        if not epochs:
            return
        found = await self._jobs.first_due(epochs)
        for partition, epoch in epochs.items():
            if epoch is None or self._held.epoch_of(partition) != epoch:
                continue
            self._known[partition] = epoch
            self._due.pop(partition, None)
            if partition in found:
                self._due[partition] = found[partition]

    async def _decide(self, stored: Sequence[StoredJob], now_s: float) -> None:
        steps: list[tuple[StoredJob, Plan, Fence | None]] = []
        for one in stored:
            fence = self._held.fence_of(self._jobs.home_of(one.job.id))
            if fence is not None:
                steps.append((one, plan(one.job, now_s, self._settings), fence))
        for (one, made, _), answer in zip(steps, await self._jobs.change_all(steps), strict=True):
            if not isinstance(answer, Exception):
                for record in made.starts:
                    log.info("run.triggered", extra={"job": one.job.name, "user": one.job.user, "run": record.run})
                self._on_plan(made)
            elif isinstance(answer, EngineError):  # it may have been stored
                log.warning("jobs.engine_error", extra={"job": one.job.name, "error": str(answer)})
                self._on_unknown(self._jobs.home_of(one.job.id))
