"""Samples the totals of the crawl over time: whichever instance finds that a slot has no sample writes it."""

import contextlib
from collections.abc import Callable, Hashable

from crawler.errors import EngineError
from crawler.frontier.lookup import UrlLookup
from crawler.frontier.series import FINE, Sample, Series
from crawler.runtime.clocks import monotonic_ms, wall_s
from crawler.runtime.tasks import Gate, open_gate
from crawler.runtime.ticks import tick

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
