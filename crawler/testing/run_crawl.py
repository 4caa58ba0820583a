"""A whole crawl in one call: an app, a web, a folder that is gone afterwards."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crawler.archive.folder import CrawlFolder
from crawler.archive.index_reader import read_entries
from crawler.archive.items import items_of
from crawler.crawl.build import open_instance
from crawler.crawl.opening import OpenCrawl, make_seeder, open_crawl
from crawler.crawl.url_input import GivenUrl
from crawler.errors import UsageError
from crawler.handlers.begin import started
from crawler.handlers.crawler import Crawler
from crawler.handlers.load_app import load_app
from crawler.handlers.threads import Threads
from crawler.settings import Settings, load
from crawler.testing.fake_pages import run_apart
from crawler.testing.web_server import ServedWeb

QUICK: dict[str, Any] = {
    "crawl.partitions": 64,
    "politeness.delay_s": 0.0,
    "archive.disk_free_bytes_min": 0,  # a test that waited for a small disk would never end
    "history.bytes_max": 0,
    "internals.membership.debounce_s": 0.1,
    "retry.backoff_s": 0.05,
    "retry.backoff_factor": 1.0,
    **{f"retry.{kind}.backoff_s": 0.05 for kind in ("dns_error", "connect", "timeout", "server_busy")},
}
TIME_MAX_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Crawled:
    """What a crawl left. `pages`: URL -> status; `dead`: URL -> why it was given up; `why` it ended."""

    pages: dict[str, int]
    items: list[dict[str, Any]]
    dead: dict[str, str]
    why: str


def crawl(
    app: Crawler | str | Path | None,
    seeds: str | Sequence[str] = (),
    *,
    web: ServedWeb | None = None,
    folder: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    config: Path | None = None,
) -> Crawled:
    """Crawl from the seeds until nothing is left, with the handlers of an app: the object, or what `--app` takes.
    Without seeds, from what its start yields.

    `config`: a settings file. `settings` win over it: like {"scope.mode": "any"}; without delay and with short pauses
    before retries unless they say so.
    `folder` is kept; without one, nothing is. Ends after a minute (crawl.time_max_s). Holds up the event loop of the
    caller, if there is one. Raises CrawlerError kinds.
    """
    options = {**QUICK, "crawl.time_max_s": TIME_MAX_S, **(web.settings if web else {})}
    if isinstance(app, Crawler):
        if any(handler.processes for handler in app.handlers):
            raise UsageError(
                "a handler with processes=True is loaded from a file: name that, like crawl('shop.py', ...)"
            )
        options["handlers.app"] = "(given)"
    elif app is not None:
        options["handlers.app"] = str(app)
    given = [seeds] if isinstance(seeds, str) else list(seeds)
    with tempfile.TemporaryDirectory(prefix="crawler-") as temporary:
        options["archive.dir"] = str(folder or Path(temporary) / "crawl")
        known = load(config, environment={}, options=options | dict(settings or {}))
        return run_apart(lambda: _crawl(app if isinstance(app, Crawler) else None, given, known))


async def _crawl(app: Crawler | None, seeds: Sequence[str], settings: Settings) -> Crawled:
    async with open_crawl(settings, create=True) as opened:
        given = [GivenUrl(f"seed {n}", url) for n, url in enumerate(seeds, 1)]
        if not given and settings.handlers.app:
            beginner = app or load_app(settings.handlers.app)
            given = [GivenUrl.of_start(one) for one in await started(beginner, Threads(1))]
        report = await make_seeder(opened).add_all(given)
        if not report.usable:
            raise UsageError(f"no valid seed URL: {', '.join(seeds) or 'there is none'}")
        crawl = await opened.reloaded()
        async with open_instance(crawl, node="test-0", until_finished=True, app=app) as instance:
            await instance.run()
            why = instance.stopped_because
        dead = await _dead(crawl)
    return _found(opened.folder, dead, why)


async def _dead(crawl: OpenCrawl) -> dict[str, str]:
    found: dict[str, str] = {}
    async for some in crawl.letters.read():
        found |= {one.letter.url: f"{one.letter.reason} {one.letter.detail}".strip() for one in some}
    return found


def _found(folder: CrawlFolder, dead: dict[str, str], why: str) -> Crawled:
    return Crawled(
        pages={entry.url: entry.status for entry in read_entries(folder) if entry.is_page},
        items=[json.loads(item) for _, _, item in items_of(folder)],
        dead=dead,
        why=why,
    )
