"""What the prompt of `crawler shell` calls: pages fetched one by one, each host at its delay, and handed to handlers.

Heavy: the command imports it when it runs.
"""

import json
import time
from typing import Any

from crawler.cli.event_loop import run_async
from crawler.errors import NothingFetchedError
from crawler.handlers.crawler import Crawler
from crawler.handlers.page import Followed, Page
from crawler.handlers.run import Limits, run_handler
from crawler.handlers.tasks import Threads
from crawler.rules.health import delay_ms
from crawler.rules.scope import SiteRules, of_queues
from crawler.rules.urls import canonicalize, host_of, join, queue_of, registrable_domain
from crawler.settings import Settings
from crawler.terminal.text import say
from crawler.views.page import PageClient


class ShellSession:
    """One prompt's."""

    def __init__(self, settings: Settings, app: Crawler | None) -> None:
        self._settings = settings
        self._app = app
        self._page_client = PageClient(settings)
        self._labels = SiteRules.of(settings.sites, "label")
        self._own_delay_s = of_queues(settings.sites, "delay_s")
        self._ended_s: dict[str, float] = {}  # by queue
        self._url = ""

    def fetch(self, url: str, *, follow: bool = False) -> Page:
        """A page; a relative URL is one of the first page's. Raises InvalidUrl, and NothingFetchedError where there is
        none.
        """
        target = (join(self._url, url) if self._url else None) or canonicalize(url.strip())
        self._wait(target)
        try:
            visit = run_async(self._page_client.visit(target, follow=follow))
        finally:
            self._ended_s[self._queue_of(target)] = time.monotonic()
        if visit.refusal:
            raise NothingFetchedError(visit.refusal)
        assert visit.result is not None
        assert visit.result.response is not None
        self._url = self._url or visit.url
        return Page(
            visit.result.response, visit.page, domain=registrable_domain(host_of(visit.url)),
            label=(self._labels.first(visit.url, "label") or "") if self._labels else "",
            labels=frozenset(self._app.labels) if self._app else None,
        )  # fmt: skip

    def _wait(self, url: str) -> None:
        """Until the delay since the last request of its queue is over."""
        queue, politeness = self._queue_of(url), self._settings.politeness
        if queue in self._ended_s:
            least_s = max(politeness.delay_s, self._own_delay_s(queue) or 0.0)
            wait_ms = delay_ms(
                min_delay_ms=int(least_s * 1000), crawl_delay_s=self._page_client.crawl_delay_s(url),
                delay_max_ms=int(politeness.delay_max_s * 1000),
            )  # fmt: skip
            time.sleep(max(0.0, self._ended_s[queue] + wait_ms / 1000 - time.monotonic()))

    def _queue_of(self, url: str) -> str:
        return queue_of(host_of(url), by_domain=self._settings.frontier.queue_by == "domain")

    def handle(self, page: Page) -> tuple[list[Any], list[Followed]]:
        """What the app's handler of a page yields, and what it follows. Raises HandlerError as the page would fail,
        LookupError when no handler is for it.
        """
        assert self._app is not None
        handler = self._app.handler_for(page.url, page.label, page.status)
        if handler is None:
            raise LookupError(f"no handler is for {page.url} (status {page.status}, label {page.label!r})")
        s = self._settings.handlers
        page.forget_followed()
        work = run_handler(handler, page, Limits(s.items_max), Threads(s.threads))
        handled = run_async(work, has_users_code=True)
        for invalid in handled.invalid:
            say(f"invalid item: {invalid.field}: {invalid.reason}")
        return [json.loads(item) for item in handled.items], handled.followed
