"""What an instance runs of a user's program: its handlers, its hooks, and what both need. Without an app: nothing."""

import asyncio

from crawler.frontier.stats import Stats
from crawler.handlers.crawler import Crawler
from crawler.handlers.tasks import end_users_tasks, guard_tasks
from crawler.handlers.threads import Threads
from crawler.pipeline.domains_done import DomainsDone
from crawler.pipeline.handle import HandlerStage
from crawler.pipeline.hooks import Hooks
from crawler.runtime.tasks import Loop
from crawler.settings import Settings


class HandlerRuntime:
    """One per instance. `settings`: with the scope that is stored with the crawl."""

    def __init__(self, app: Crawler | None, settings: Settings, stats: Stats) -> None:
        if app is not None:
            guard_tasks(asyncio.get_running_loop())
        threads = Threads(settings.handlers.threads)
        self.hooks = Hooks(app, threads)
        self.handling = HandlerStage(app, settings, self.hooks, threads)
        self._domains = DomainsDone(stats, self.hooks)
        self._is_there = app is not None

    def loops(self) -> dict[str, Loop]:
        """What runs beside the pipeline."""
        return {"hooks": self.hooks.run, "domains done": self._domains.run} if self._is_there else {}

    async def close(self, why: str) -> None:
        """Tell the hooks what there is left to tell, and that it is over; end the worker processes."""
        try:
            await self._domains.check_all()
            await self.hooks.finish(why)
        finally:
            await self.handling.close()
            if self._is_there:
                await end_users_tasks()
