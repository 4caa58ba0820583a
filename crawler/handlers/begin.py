"""What an app begins with."""

from typing import Any

from crawler.errors import UsageError
from crawler.handlers.crawler import Crawler
from crawler.handlers.functions import is_plain, stream_of
from crawler.handlers.pipeline import RefusedError
from crawler.handlers.run import call_asynchronous, call_plain
from crawler.handlers.threads import Threads
from crawler.model import Followed

START_MAX = 1_000_000  # requests: 300 MB
START_S = 3600.0


async def started(app: Crawler, threads: Threads) -> list[Followed]:
    """The first requests, as the app's start yields them. Raises UsageError when it fails."""
    found: list[Followed] = []

    def take(item: Any) -> None:
        if len(found) >= START_MAX:
            raise RefusedError(f"more than {START_MAX:,} requests: 'crawler seed -i FILE' takes any number")
        if isinstance(item, str):
            item = app.request(item)
        if not isinstance(item, Followed):
            raise TypeError(f"expected a URL or app.request(...), got {type(item).__name__}")
        found.append(item)

    for function in app.starts:
        if is_plain(function):
            failure = await call_plain(function, (), take, threads, START_S)
        else:
            failure = await call_asynchronous(stream_of(function), (), take, START_S)
        if failure is not None:
            raise UsageError(f"@app.start: {failure.detail}")
    return found
