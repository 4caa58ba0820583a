"""What the tests of rebuilds share: a web, a crawl of a part of it, and the rebuild as the command does it."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from crawler.archive.folder import CrawlFolder, open_or_create
from crawler.archive.index import to_entry, with_footer
from crawler.cli.main import main
from crawler.cli.rebuild import doors_of, entrance
from crawler.crawl.build import open_instance
from crawler.crawl.opening import OpenCrawl, make_seeder, open_crawl
from crawler.crawl.url_input import GivenUrl
from crawler.frontier.stats import Totals
from crawler.recovery.rebuild import Rebuild
from crawler.recovery.replay import RebuildReport
from crawler.rules.progress import SILENT, Meter
from crawler.settings import Settings
from tests.crawl.harness import Crawled, crawl, entries_of, settings_of
from tests.frontier.raw import dump
from tests.support.engine import Engine
from tests.support.serving import GeneratedSite, Site


@dataclass
class Lab:
    """A web that is served, names for it, an engine, and a place for crawl folders."""

    site: Site
    dns: str
    engine: Engine
    home: Path

    def settings(self, folder: str = "c", **options: Any) -> Settings:
        mine: dict[str, Any] = {"dns__nameservers": [self.dns], "frontier__redis": self.engine.url}
        return settings_of(self.home / folder, **({"scope__mode": "any"} | mine | options))

    def asked(self) -> Counter[tuple[str, str]]:
        """How often each page was asked for; pages that fail on purpose apart."""
        pages = (r for r in self.site.requests() if not r.is_robots and r.status < 500)
        return Counter((r.host.partition(":")[0], r.target) for r in pages)

    def kept(self) -> dict[bytes, Any]:
        """Everything that the engine has of the crawl, except for its members."""
        with contextlib.closing(self.engine.client()) as client:
            return {k: v for k, v in dump(client, "{main*").items() if b":members" not in k and b":nodes" not in k}


@dataclass
class WebLab(Lab):
    """The same with a generated web."""

    site: GeneratedSite

    @property
    def expected(self) -> dict[str, int]:
        return self.site.web.expected(self.site.web.seeds, "any").committed

    async def crawl_some(self, pages: int, folder: str = "c", **options: Any) -> Crawled:
        done = await crawl(self.settings(folder, crawl__pages_max=pages, **options), self.site.web.seeds)
        assert not done.errors
        assert pages // 2 < len(done.entries) < len(self.expected)
        return done

    async def finish(self, settings: Settings) -> Crawled:
        """Crawl to the end, without being told the seeds again: the exact set, each page exported once."""
        done = await crawl(settings, [])
        assert not done.errors
        assert done.statuses == self.expected
        assert not done.twice
        return done


async def rebuild(
    settings: Settings,
    *others: Path,
    seeds: Sequence[str] = (),
    refetch: bool = False,
    accept_loss: bool = False,
    partitions: int = 0,
    meter: Meter = SILENT,
) -> RebuildReport:
    """What the command does, in this process."""
    more = [open_or_create(other) for other in others]
    async with open_crawl(settings, create=True, enter=entrance(more, partitions)) as opened:
        await make_seeder(opened).add_all(GivenUrl("here", url) for url in seeds)
        deps = doors_of(await opened.reloaded())
        try:
            made = Rebuild(deps, [opened.folder, *more], refetch=refetch, accept_loss=accept_loss, meter=meter)
            return await made.run()
        finally:
            await deps.rereader.close()


@contextlib.asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[OpenCrawl]:
    async with open_crawl(settings, create=False) as found:
        yield found


async def audit(settings: Settings) -> int:
    """The exit code of the command: 0 means that the crawl is clean."""
    words = ["audit", "--dir", settings.archive.dir, "--redis", settings.frontier.redis]
    return await asyncio.to_thread(main, words)


async def totals(settings: Settings) -> Totals:
    async with opened(settings) as found:
        return await found.stats.totals()


def folder_of(settings: Settings) -> CrawlFolder:
    return open_or_create(settings.archive.dir)


def page_of(url: str) -> tuple[str, str]:
    """As in `Lab.asked`."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.path + (f"?{parts.query}" if parts.query else "")


def forget_commits(folder: CrawlFolder, urls: Iterable[str]) -> None:
    """Take lines out of the index, as if their commits had been lost with the engine's log."""
    gone = set(urls)
    for path in folder.index.iterdir():
        lines = path.read_bytes().splitlines(keepends=True)
        left = [line for line in lines if (entry := to_entry(line)) is None or entry.url not in gone]
        path.write_bytes(b"".join(with_footer(left)))


def given(url: str) -> GivenUrl:
    return GivenUrl("here", url)


def opened_anew(lab: Lab, folder: str = "c", **options: Any) -> contextlib.AbstractAsyncContextManager[OpenCrawl]:
    return open_crawl(lab.settings(folder, **options), create=True)


async def crawl_on_two(lab: WebLab, **options: Any) -> None:
    """Two instances, each with a folder of its own, crawl some of the web."""
    # With a delay, or the first one may have all pages before the second one has its share.
    slow = {"crawl__pages_max": 120, "politeness__delay_s": 0.05}
    await run_on_two(lab, lab.site.web.seeds, **(slow | options))
    assert all(entries_of(lab.home / name) for name in ("c0", "c1"))


async def end_on_two(lab: WebLab) -> None:
    """They go on to the end: exact, and together each page once."""
    await run_on_two(lab, [])
    entries = [entry for name in ("c0", "c1") for entry in entries_of(lab.home / name)]
    assert {e.url: e.status for e in entries} == lab.expected
    commits = {(e.url, e.session, e.fetched_at) for e in entries}  # those of a dead owner may be in two folders
    assert [url for url, n in Counter(url for url, *_ in commits).items() if n > 1] == []


async def run_on_two(lab: WebLab, seeds: Sequence[str], **options: Any) -> None:
    async with contextlib.AsyncExitStack() as stack:
        instances = []
        for n in range(2):
            found = await stack.enter_async_context(opened_anew(lab, f"c{n}", **options))
            await make_seeder(found).add_all(map(given, seeds))
            found = await found.reloaded()
            instances.append(await stack.enter_async_context(open_instance(found, node=f"n-{n}", until_finished=True)))
        await asyncio.gather(*(instance.run() for instance in instances))
