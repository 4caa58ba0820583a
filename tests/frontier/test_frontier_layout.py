"""Two releases of the program on one crawl: refused in one line, and nothing is touched."""

import msgspec
import pytest

from crawler.engine.client import Engine
from crawler.errors import ConflictError
from crawler.frontier.keys import LAYOUT, Keys
from crawler.frontier.record import Crawls
from crawler.frontier.scripts import library
from crawler.settings import Settings
from tests.support.engine import Engine as RunningEngine


@pytest.mark.parametrize("other", [LAYOUT - 1, LAYOUT + 1])
async def test_a_crawl_of_another_layout_is_refused_and_left_as_it_is(engine: RunningEngine, other: int) -> None:
    door = Engine(engine.url, library())
    await door.connect()
    try:
        crawls = Crawls(door, Keys("main"))
        record = await crawls.create_or_load(Settings())
        changed = msgspec.json.encode(msgspec.structs.replace(record, layout=other))
        await door.command("HSET", Keys("main").crawl, "record", changed)
        with pytest.raises(ConflictError, match=rf"layout {other}, this release needs layout {LAYOUT}"):
            await crawls.create_or_load(Settings())
        assert await door.command("HGETALL", Keys("main").crawl) == {b"record": changed}
    finally:
        await door.close()
