"""Feeds a view with the state of a running crawl, read from the engine once a second."""

import contextlib
import time
from typing import TYPE_CHECKING

from crawler.crawl.opening import OpenCrawl
from crawler.errors import (
    EngineError,
)
from crawler.runtime.ticks import tick
from crawler.terminal.output import warn
from crawler.terminal.words import duration
from crawler.views.live import Quiet, Shown, View
from crawler.views.snapshot import DomainRows, Snapshot

if TYPE_CHECKING:
    from crawler.engine.client import Trouble
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crawler.engine.client import Trouble

EVERY_S = 1.0
TABLE_EVERY_S = 2.0  # domains cost more to read
TOLD_AFTER_S, TOLD_QUIETLY_AFTER_S = 3.0, 60.0  # of trouble with the engine: a failover of seconds is nothing to tell
TOLD_AGAIN_S = 10.0  # when there is another reason


class EngineTrouble:
    """What people are told while an engine does not serve."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._after_s = TOLD_QUIETLY_AFTER_S if is_quiet else TOLD_AFTER_S
        self._told: Trouble | None = None
        self._next_s = 0.0

    def line(self, trouble: "Trouble | None", now_s: float) -> str:
        """What to say now (monotonic); "" if nothing."""
        told = self._told
        if trouble is None:
            self._told = None
            return f"The engine serves again after {duration(now_s - told.since_s)}." if told else ""
        is_known = told is not None and (told.text == trouble.text or now_s < self._next_s)
        if is_known or now_s - trouble.since_s < self._after_s:
            return ""
        self._told, self._next_s = trouble, now_s + TOLD_AGAIN_S
        return f"Waiting: {trouble.text}"


class Watcher:
    """Reads and shows until cancelled."""

    def __init__(self, crawl: "OpenCrawl", view: View) -> None:
        self._crawl = crawl
        self.view = view
        self.one_shape = ""  # as last read
        self._began = time.monotonic()
        limits = crawl.settings.crawl
        self._is_limited = bool(limits.pages_max or limits.time_max_s)

    async def run(self) -> None:
        """Again and again. An engine that does not serve is reported once, and when it serves again."""
        trouble = EngineTrouble(is_quiet=isinstance(self.view, Quiet))
        while True:
            if not isinstance(self.view, Quiet):
                with contextlib.suppress(EngineError):
                    await self.look()
            if line := trouble.line(self._crawl.engine.trouble, time.monotonic()):
                self._say(line)
            await tick(TABLE_EVERY_S if self.view.rows else EVERY_S)

    def _say(self, line: str) -> None:
        if isinstance(self.view, Quiet):
            warn(line)
        else:
            self.view.say(line)

    async def look(self) -> Shown:
        """Read once and show it: headline and table are of one moment."""
        from crawler.views.whole import overview, snapshot

        rows = self.view.rows
        if rows:
            found = await snapshot(self._crawl, "pages", rows)
        else:
            nothing = DomainRows(sort="pages", rows=(), total=0)
            found = Snapshot(overview=await overview(self._crawl), domains=nothing)
        shown = Shown(at_s=time.monotonic() - self._began, snapshot=found, is_limited=self._is_limited)
        self.one_shape = found.overview.one_shape
        self.view.show(shown)
        return shown
