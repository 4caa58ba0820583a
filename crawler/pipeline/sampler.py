"""Samples the totals of the crawl over time: whichever instance finds that a slot has no sample writes it."""

import asyncio
import contextlib

from crawler.errors import EngineError
from crawler.frontier.lists import Sample, Series
from crawler.frontier.reads import UrlLookup
from crawler.runtime.clock import wall_s

CHECK_S = 1.0


class Sampler:
    """Runs in every instance."""

    def __init__(self, series: Series, inspect: UrlLookup) -> None:
        self._series = series
        self._inspect = inspect

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            with contextlib.suppress(EngineError):  # a slot without a sample: rates are measured over its neighbours
                if await self._series.is_wanted(wall_s()):
                    await self._series.write(Sample.of(wall_s(), await self._inspect.progress()))
            await asyncio.sleep(CHECK_S)
