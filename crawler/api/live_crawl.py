"""The open crawl that all clients share."""

import time

from crawler.crawl.opening import OpenCrawl
from crawler.errors import ConflictError, EngineUnfit

RELOAD_EVERY_S = 5.0


class LiveCrawl:
    """Loads the crawl's record again when it is asked for, at most each five seconds."""

    def __init__(self, crawl: OpenCrawl) -> None:
        self.last = crawl  # as it was loaded last
        self._loaded_at = time.monotonic()

    async def current(self) -> OpenCrawl:
        """The crawl. Raises EngineError, also when the engine no longer has it."""
        if time.monotonic() - self._loaded_at >= RELOAD_EVERY_S:
            try:
                self.last = await self.last.reloaded()
            except ConflictError as error:
                raise EngineUnfit(str(error)) from None
            self._loaded_at = time.monotonic()
        return self.last
