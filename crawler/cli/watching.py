"""Feeds a view with the state of a running crawl, read from the engine once a second."""

import asyncio
import time
from typing import TYPE_CHECKING

from crawler.errors import EngineError
from crawler.frontier.lookup import Progress
from crawler.frontier.series import Sample
from crawler.reports.live_view import DOMAINS_SHOWN, Quiet, Snapshot, View
from crawler.runtime.clock import wall_s

if TYPE_CHECKING:
    from crawler.app.crawl import OpenCrawl
    from crawler.frontier.stats import DomainStats

EVERY_S = 1.0
DOMAINS_EVERY = 2  # reads between two looks at the domains, which cost more


class Watcher:
    """Reads and shows until cancelled."""

    def __init__(self, crawl: "OpenCrawl", view: View, *, domains: bool) -> None:
        self._crawl = crawl
        self._inspect = crawl.inspect
        self.view = view
        self._domains = domains
        self._began = time.monotonic()
        self._last = Snapshot(at_s=0.0, progress=Progress())
        self._reads = 0
        self._is_silent = False
        limits = crawl.settings.crawl
        self._is_limited = bool(limits.pages_max or limits.time_max_s)

    async def run(self) -> None:
        """Once a second; an engine that does not answer is reported once."""
        while not isinstance(self.view, Quiet):
            try:
                await self.look()
                self._is_silent = False
            except EngineError as error:
                if not self._is_silent:
                    self.view.say(f"Waiting: {error}")
                self._is_silent = True
            await asyncio.sleep(EVERY_S)
        await asyncio.Event().wait()  # nobody looks

    async def look(self) -> Snapshot:
        """Read once and show it."""
        crawl = self._crawl
        progress = await self._inspect.progress()
        samples = await crawl.series.read(Sample.of(wall_s(), progress))
        members = [m for m in (await crawl.members.read()).values() if m.state == "alive"]
        domains = self._last.domains
        if self._domains and self._reads % DOMAINS_EVERY == 0:
            domains = await self._busiest()
        self._reads += 1
        self._last = Snapshot(
            at_s=time.monotonic() - self._began,
            progress=progress,
            pages_per_s=samples.rates.pages,
            in_flight=min(progress.pending, sum(m.in_flight for m in members)),
            instances=max(1, len(members)),
            waits_for={m.waits_for for m in members if m.waits_for},
            awaited=[m.awaited for m in members if m.awaited],
            last_error=max(members, key=lambda m: m.last_error_at).last_error if members else "",
            is_limited=self._is_limited,
            domains=domains,
        )
        self.view.show(self._last)
        return self._last

    async def _busiest(self) -> list["DomainStats"]:
        stats = self._crawl.stats
        return await stats.domains(await stats.top_domains(DOMAINS_SHOWN))
