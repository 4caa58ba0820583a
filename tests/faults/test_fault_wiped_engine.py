"""An engine that is wiped: noticed, said loudly, never crawled on; what the folder holds makes the crawl anew."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from crawler.errors import ConflictError
from crawler.instance.instance import Instance
from tests.crawl.harness import crawl, lab_names, settings_of
from tests.support.engine import Engine
from tests.support.serving import serve_web

DELAY_S = 0.03


async def committed(instances: list[Instance], n: int) -> None:
    async with asyncio.timeout(60):
        while sum(i.flow.committed for i in instances) < n:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("instances", [1, 3])
async def test_flushall_in_mid_crawl_ends_every_instance_with_an_error(
    tmp_path: Path, engine: Engine, instances: int
) -> None:
    """Counters of an empty engine say that nothing is pending: that must not be taken for the end of the crawl."""

    async def wipe(running: list[Instance]) -> None:
        await committed(running, 60)
        with contextlib.closing(engine.client()) as client:
            client.flushall()

    with serve_web(seed=3, domains=4, pages=5) as site:
        async with lab_names() as dns:
            settings = settings_of(
                tmp_path / "c",
                dns__nameservers=[dns],
                scope__mode="any",
                politeness__delay_s=DELAY_S,
                frontier__redis=engine.url,
            )
            done = await crawl(settings, site.web.seeds, instances=instances, meanwhile=wipe)
    assert len(done.entries) < len(site.web.expected(site.web.seeds, "any").committed)
    assert [type(error) for error in done.errors] == [ConflictError] * instances
    assert all("'crawler rebuild'" in str(error) for error in done.errors)
    assert not any(instance.stopped_because for instance in done.instances)
