"""Pins and evictions as functions: their entries in the operator log, and that nothing changes without one."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from crawler.crawl.opening import OpenCrawl, member_of
from crawler.errors import UsageError
from crawler.views import pins
from crawler.views.shares import place
from tests.support.engine import Engine
from tests.views.views_lab import ANN, DOMAIN, check_nothing_unlogged, logged, seeded

OTHER = "other.example"
CHANGES: dict[str, Callable[[OpenCrawl], Awaitable[object]]] = {
    "pin": lambda crawl: pins.pin(crawl, DOMAIN, "web-1", actor=ANN),
    "unpin": lambda crawl: pins.unpin(crawl, OTHER, actor=ANN),
    "evict": lambda crawl: pins.evict(crawl, "web-0", actor=ANN),
}


@pytest.fixture
async def crawl(tmp_path: Path, engine: Engine) -> AsyncIterator[OpenCrawl]:
    async with seeded(tmp_path / "c", engine) as one:
        await one.members.join(msgspec.structs.replace(member_of(one, "web-0"), session="gone"))
        await pins.pin(one, OTHER, "web-0", actor=ANN)
        yield one


async def test_a_pin_is_logged_and_comes_as_a_record(crawl: OpenCrawl) -> None:
    done = await pins.pin(crawl, f"https://www.{DOMAIN}/x", "web-1", actor=ANN)
    assert (done.domain, done.node, done.running) == (DOMAIN, "web-1", False)
    assert (await place(crawl, DOMAIN)).pinned == "web-1"
    assert [(one.domain, one.state) for one in (await pins.pins(crawl)).pins] == [
        (DOMAIN, "waiting"),
        (OTHER, "waiting"),
    ]
    assert (await pins.unpin(crawl, DOMAIN, actor=ANN)).still_pinned_by == []
    with pytest.raises(UsageError, match="is not pinned"):
        await pins.unpin(crawl, DOMAIN, actor=ANN)
    assert (await logged(crawl))[1:] == [("ring pin", DOMAIN, "to web-1"), ("ring unpin", DOMAIN, "")]


async def test_a_node_that_is_not_there_is_not_evicted_and_not_logged(crawl: OpenCrawl) -> None:
    with pytest.raises(UsageError, match="no node 'web-7' takes part"):
        await pins.evict(crawl, "web-7", actor=ANN)
    assert len(await logged(crawl)) == 1


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_nothing_moves_without_an_entry_in_the_log(
    crawl: OpenCrawl, change: Callable[[OpenCrawl], Awaitable[object]]
) -> None:
    await check_nothing_unlogged(crawl, change)
