"""A crawl that is open, with some URLs added and nothing fetched, for tests of the service functions."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from msgspec.structs import replace

from crawler.app.crawl import OpenCrawl, make_seeder
from crawler.app.open_crawl import open_crawl
from crawler.errors import EngineError
from crawler.frontier.operator_log import Actor, OperatorLog, Via
from crawler.seeding.seeder import GivenUrl
from tests.crawl.harness import settings_of
from tests.support.engine import Engine

ANN = Actor(who="ann", via=Via.API)
DOMAIN = "docs.example"
URLS = tuple(f"https://{DOMAIN}/p{n}" for n in range(5))


@contextlib.asynccontextmanager
async def seeded(folder: Path, engine: Engine, *urls: str) -> AsyncIterator[OpenCrawl]:
    """An open crawl with these URLs."""
    async with open_crawl(settings_of(folder, frontier__redis=engine.url), create=True) as crawl:
        await make_seeder(crawl).add_all([GivenUrl("test", url) for url in urls or URLS])
        yield crawl


class LogIsGoneError(EngineError):
    """The operator log can't be written."""


class BrokenLog(OperatorLog):
    """An operator log that nothing can be written to."""

    async def add(self, actor: Actor, action: str, target: str = "", detail: str = "") -> int:
        raise LogIsGoneError(f"{actor.who} {action} {target} {detail}")


def without_log(crawl: OpenCrawl) -> OpenCrawl:
    """The same crawl, whose operator log can't be written."""
    return replace(crawl, operator_log=BrokenLog(crawl.engine, crawl.keys))


async def logged(crawl: OpenCrawl) -> list[tuple[str, str, str]]:
    """(action, target, detail) of all entries, all of which are Ann's."""
    found = await crawl.operator_log.read()
    assert {(one.who, one.via) for one in found} <= {(ANN.who, ANN.via)}
    return [(one.action, one.target, one.detail) for one in found]


async def all_keys(crawl: OpenCrawl) -> dict[bytes, bytes]:
    """Everything that the engine stores of the crawl, as it dumps it."""
    names = sorted(await crawl.engine.command("KEYS", "*"))
    return dict(zip(names, await crawl.engine.commands([("DUMP", name) for name in names]), strict=True))
