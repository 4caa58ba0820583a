"""Jobs in a crawl of this process, with short times: instances that wait for work, and what people do meanwhile."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crawler.crawl import runs as runner
from crawler.crawl.build import open_instance
from crawler.crawl.opening import OpenCrawl, open_crawl
from crawler.errors import EngineDown
from crawler.frontier.jobs import job_id
from crawler.frontier.operator_log import Actor, Via
from crawler.jobs import runs, triggers
from crawler.model import CommitEntry
from crawler.rules.cron import schedule_of
from crawler.rules.job_runs import RunSpec
from crawler.rules.jobs import JobSpec, Row
from crawler.runtime.clocks import wall_s
from crawler.settings import Settings
from crawler.views import jobs
from tests.crawl.harness import entries_of, lab_names, settings_of
from tests.support.engine import Engine
from tests.support.patience import PATIENCE_S
from tests.support.serving import Site, serve_resources
from tests.support.web import Resource

ME = Actor(who="ann", via=Via.CLI)
NAME = "news"
SOON_S = 0.05
KEPT = (b":closed", b":dead", b":l")  # keys that may name a run that has ended


@dataclass
class Lab:
    """A crawl, an engine and a web; the first instance's `crawl` is what people's commands use."""

    site: Site
    engine: Engine
    settings: Settings
    crawl: OpenCrawl

    @property
    def folder(self) -> Path:
        return Path(self.settings.archive.dir)

    def url(self, host: str, path: str = "/") -> str:
        return self.site.url(host, path)

    async def add(self, *seeds: str, every: str = "1000", run: Mapping[str, Any] | None = None, **spec: Any) -> None:
        schedule = schedule_of(every=every, now_s=int(wall_s()))
        made = JobSpec(schedule=schedule, run=RunSpec(**run or {}), **spec)
        await jobs.add_job(self.crawl, "default", NAME, made, seeds, actor=ME)

    async def run(self) -> None:
        """A manual run."""
        await jobs.run_job(self.crawl, "default", NAME, actor=ME)

    async def rows(self) -> list[Row]:
        """The history, oldest first."""
        return list(reversed(await self.crawl.jobs.history(job_id("default", NAME), limit=1000)))

    async def ended(self, count: int = 1) -> list[Row]:
        """Wait until so many runs have ended for good; all rows."""

        async def are() -> bool:
            return (
                sum(row.outcome in ("finished", "limited", "stopped", "failed") for row in await self.rows()) >= count
            )

        await until(are, f"{count} runs to end")
        return await self.rows()

    def entries(self, run: str) -> list[CommitEntry]:
        return [entry for entry in entries_of(self.folder) if entry.run == run]

    def fetched(self, run: str) -> Counter[str]:
        """Paths of the pages of a run, with their hosts."""
        return Counter(entry.url.partition("//")[2].replace(f":{self.site.port}", "") for entry in self.entries(run))

    async def nothing_left(self) -> None:
        """Wait until the engine has nothing of any run, but for notes that each is closed."""
        await until(self._is_clean, "all runs to be closed")

    async def _is_clean(self) -> bool:
        with contextlib.closing(self.engine.client()) as client:
            keys = client.keys("{main:*")
        runs = [
            key for key in keys if b":touched:" in key or b":roots:" in key or key.endswith((b":runs", b":closing"))
        ]
        mine = job_id("default", NAME).encode()
        named = [key for key in keys if mine + b"." in key and not key.endswith(KEPT)]
        return not runs and not named


async def until(condition: Callable[[], Awaitable[object]], what: str, *, timeout_s: float = PATIENCE_S) -> None:
    """Wait for it; an engine that is too busy to answer is asked again."""
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                with contextlib.suppress(EngineDown):
                    if await condition():
                        return
                await asyncio.sleep(SOON_S)
    except TimeoutError:
        raise TimeoutError(f"waited {timeout_s:g} s for {what}") from None


def hasten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look more often than instances do."""
    monkeypatch.setattr(runner, "CHECK_S", SOON_S)
    monkeypatch.setattr(triggers, "IDLE_S", SOON_S)
    monkeypatch.setattr(runs, "LOOK_S", (0.02, 0.1))


@contextlib.asynccontextmanager
async def job_lab(
    folder: Path, engine: Engine, web: Mapping[tuple[str, str], Resource], **options: Any
) -> AsyncIterator[Lab]:
    """A crawl with one instance that waits for work."""
    async with job_web(folder, engine, web, **options) as (site, settings), running(settings) as crawl:
        yield Lab(site, engine, settings, crawl)


@contextlib.asynccontextmanager
async def job_web(
    folder: Path, engine: Engine, web: Mapping[tuple[str, str], Resource], **options: Any
) -> AsyncIterator[tuple[Site, Settings]]:
    """A web, and the settings of a crawl of it."""
    with serve_resources(dict(web)) as site:
        async with lab_names() as dns:
            given = {
                "frontier__redis": engine.url, "dns__nameservers": [dns], "scope__mode": "any",
                "crawl__partitions": 16, "membership__beats": 70.0,
            }  # fmt: skip
            yield site, settings_of(folder / "c", **(given | options))


@contextlib.asynccontextmanager
async def running(settings: Settings, node: str = "n-0") -> AsyncIterator[OpenCrawl]:
    async with (
        open_crawl(settings, create=True) as crawl,
        open_instance(await crawl.reloaded(), node=node, until_finished=False) as instance,
    ):
        working = asyncio.ensure_future(instance.run())
        try:
            yield crawl
        finally:
            instance.stop()
            await working


def linked(*links: str, **values: Any) -> Resource:
    return Resource(body="".join(f'<a href="{link}">x</a>' for link in links), **values)
