"""A page that takes longer than its claim lasts is not handed out a second time while it is worked on."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from crawler.crawl.instance import Instance
from tests.crawl.harness import crawl, lab_names, settings_of
from tests.crawl.lab import fetched_twice
from tests.support.serving import serve_web

VISIBILITY_S = 2.0


@pytest.mark.slow
async def test_claims_are_extended_while_their_pages_are_worked_on(tmp_path: Path) -> None:
    async def slow_down(instances: list[Instance]) -> None:
        archive = instances[0].stages.archive
        store, slow = archive.store, iter((3 * VISIBILITY_S,))

        async def slowly(group: Any) -> Any:
            await asyncio.sleep(next(slow, 0))
            return await store(group)

        archive.store = slowly  # type: ignore[method-assign]

    with serve_web(seed=17, domains=2, pages=3) as site:
        async with lab_names() as dns:
            settings = settings_of(
                tmp_path / "c",
                dns__nameservers=[dns],
                scope__mode="any",
                fetch__total_timeout_s=1.0,
                frontier__visibility_timeout_s=VISIBILITY_S,
            )
            done = await crawl(settings, site.web.seeds, meanwhile=slow_down)
        requests = site.requests()
        expected = site.web.expected(site.web.seeds, "any").committed
    assert done.errors == []
    assert done.statuses == expected
    assert fetched_twice(requests) == []
