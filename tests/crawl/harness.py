"""Crawls in this process: one or several instances on one engine, and what they left on disk."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crawler.archive.folder import open_existing
from crawler.archive.index_reader import read_entries
from crawler.archive.warc_writer import OF_EXCHANGES
from crawler.crawl.build import open_instance
from crawler.crawl.instance import Instance
from crawler.crawl.opening import OpenCrawl, make_seeder, open_crawl
from crawler.crawl.url_input import GivenUrl
from crawler.model import CommitEntry
from crawler.settings import Settings, load
from crawler.settings.internals import INTERNALS
from tests.support.dns_server import DnsAnswer, DnsServer

QUICK: dict[str, Any] = {
    "politeness.delay_s": 0.0,
    "fetch.allow_private": True,
    "fetch.concurrency": 16,
    "politeness.concurrency_per_address": 64,
    "retry.backoff_s": 0.05,
    "retry.backoff_factor": 1.0,
    **{f"retry.{kind}.backoff_s": 0.05 for kind in ("dns_error", "connect", "timeout", "server_busy")},
    "internals.membership.debounce_s": 0.1,
    "crawl.partitions": 64,
}


def settings_of(folder: Path, **options: Any) -> Settings:
    """Quick settings for tests; keys as in `load`, with '__' for the dot. Internals are named like settings."""
    given = QUICK | {"archive.dir": str(folder)} | {k.replace("__", "."): v for k, v in options.items()}
    return load(environment={}, options={f"internals.{k}" if k in INTERNALS else k: v for k, v in given.items()})


@contextlib.asynccontextmanager
async def lab_names() -> AsyncIterator[str]:
    """A DNS server that knows every name under .test as 127.0.0.1; yields its address."""
    async with DnsServer({"*.test": DnsAnswer(addresses=("127.0.0.1",))}) as dns:
        yield dns.address


@dataclass
class Crawled:
    """What a crawl left: the committed entries as export sees them, and the instances that ran."""

    entries: list[CommitEntry]
    instances: list[Instance] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)

    @property
    def statuses(self) -> dict[str, int]:
        return {e.url: e.status for e in self.entries}

    @property
    def twice(self) -> list[str]:
        counted = Counter((e.url, e.visit) for e in self.entries)
        return [url for (url, _), n in counted.items() if n > 1]


def warc_of_pages(folder: Path) -> Path:
    """The WARC file of a crawl folder that has its pages, if there is one."""
    (found,) = (path for path in (folder / "warc").iterdir() if OF_EXCHANGES not in path.name)
    return found


def entries_of(folder: Path) -> list[CommitEntry]:
    return list(read_entries(open_existing(folder)))


async def crawl(
    settings: Settings,
    seeds: Sequence[str],
    *,
    instances: int = 1,
    meanwhile: Callable[[list[Instance]], Any] | None = None,
    start_after: Sequence[int] | None = None,
) -> Crawled:
    """Seed and crawl until finished; `meanwhile(instances)` runs at the same time.

    `start_after`: for each instance, how many pages must be committed before it starts.
    """
    done = Crawled([])
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(open_crawl(settings, create=True))
        await make_seeder(first).add_all([GivenUrl(f"seed {n}", url) for n, url in enumerate(seeds)])
        for n in range(instances):
            opened = first if n == 0 else await stack.enter_async_context(open_crawl(settings, create=True))
            done.instances.append(await _opened(stack, await opened.reloaded(), f"node-{n}"))
        background = asyncio.ensure_future(meanwhile(done.instances)) if meanwhile else None
        after = start_after or [0] * instances
        ended = await asyncio.gather(
            *(_run(i, done, n) for i, n in zip(done.instances, after, strict=True)), return_exceptions=True
        )
        if background is not None:
            await background
        done.errors = [e for e in ended if isinstance(e, BaseException)]
    done.entries = entries_of(Path(settings.archive.dir))
    return done


async def _opened(stack: contextlib.AsyncExitStack, opened: OpenCrawl, node: str) -> Instance:
    return await stack.enter_async_context(open_instance(opened, node=node, until_finished=True))


async def _run(instance: Instance, crawled: Crawled, after: int) -> None:
    while sum(i.counters.committed for i in crawled.instances) < after:
        await asyncio.sleep(0.01)
    await instance.run()
