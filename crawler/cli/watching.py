"""Feeds a view with the state of a running crawl, read from the engine once a second."""

import asyncio
import time
from typing import TYPE_CHECKING

from crawler.errors import EngineError
from crawler.views.figures import DomainRows, Snapshot
from crawler.views.overview import Quiet, Shown, View

if TYPE_CHECKING:
    from crawler.crawl.opening import OpenCrawl

EVERY_S = 1.0
TABLE_EVERY_S = 2.0  # domains cost more to read


class Watcher:
    """Reads and shows until cancelled."""

    def __init__(self, crawl: "OpenCrawl", view: View) -> None:
        self._crawl = crawl
        self.view = view
        self._began = time.monotonic()
        self._is_silent = False
        limits = crawl.settings.crawl
        self._is_limited = bool(limits.pages_max or limits.time_max_s)

    async def run(self) -> None:
        """Again and again; an engine that does not answer is reported once."""
        while not isinstance(self.view, Quiet):
            try:
                await self.look()
                self._is_silent = False
            except EngineError as error:
                if not self._is_silent:
                    self.view.say(f"Waiting: {error}")
                self._is_silent = True
            await asyncio.sleep(TABLE_EVERY_S if self.view.rows else EVERY_S)
        await asyncio.Event().wait()  # nobody looks

    async def look(self) -> Shown:
        """Read once and show it: headline and table are of one moment."""
        from crawler.views.overview import overview, snapshot

        rows = self.view.rows
        if rows:
            found = await snapshot(self._crawl, "pages", rows)
        else:
            nothing = DomainRows(sort="pages", rows=(), total=0)
            found = Snapshot(overview=await overview(self._crawl), domains=nothing)
        shown = Shown(at_s=time.monotonic() - self._began, snapshot=found, is_limited=self._is_limited)
        self.view.show(shown)
        return shown
