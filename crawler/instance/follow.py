"""Follows what others change while a crawl runs: operator overrides, scope rules and roots."""

import contextlib
from collections.abc import Callable

from crawler.engine.server import Change
from crawler.errors import EngineError
from crawler.frontier.record import CrawlRecord, Crawls
from crawler.instance.overrides import OverrideFollower
from crawler.routing.router import Router
from crawler.runtime.ticks import tick

NO_VERSION = -1
FOLLOW_S = 1.0  # an operator's overrides take effect within two seconds


class SharedRecord:
    """The crawl's record as last read."""

    def __init__(
        self,
        crawls: Crawls,
        record: CrawlRecord,
        override_follower: OverrideFollower,
        router: Router,
        *,
        follow_jobs: Callable[[int], None],
        every_s: float,
    ) -> None:
        """`follow_jobs`: called with the version of the crawl's jobs each time."""
        self._crawls = crawls
        self._record = record
        self._override_follower = override_follower
        self._router = router
        self._follow_jobs = follow_jobs
        self._every_s = min(every_s, FOLLOW_S)
        self._is_doubtful = False

    def noticed(self, change: Change) -> None:
        """What was changed may be lost: the same counters may then stand for other changes, so all is read again."""
        self._is_doubtful |= change.may_have_lost and change.affects(self._crawls.keys.crawl)

    async def run(self) -> None:
        """Follow until cancelled. Raises ConflictError when the crawl is gone."""
        while True:
            await tick(self._every_s)
            with contextlib.suppress(EngineError):
                await self.follow()

    async def follow(self) -> None:
        """Read what has changed. Raises EngineError, ConflictError."""
        was_doubtful, self._is_doubtful = self._is_doubtful, False
        try:
            version, overrides, jobs = await self._crawls.versions(self._record)
            if was_doubtful:
                self._follow_jobs(NO_VERSION)
            self._follow_jobs(jobs)
            await self._override_follower.follow(NO_VERSION if was_doubtful else overrides)
            if version == self._record.version and not was_doubtful:
                return
            self._record, roots = await self._crawls.shared()
            self._router.follow(self._record, roots)
            self._router.recent.clear()  # URLs that were out of scope may be in scope now
        except EngineError:
            self._is_doubtful |= was_doubtful
            raise

    async def check_still_there(self) -> None:
        """Raises ConflictError when the crawl is gone or replaced by another one."""
        await self._crawls.still(self._record)
