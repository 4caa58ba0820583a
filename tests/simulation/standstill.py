"""The command that has all instances stand still, as `crawler backup --pause` does, without the backup."""

import asyncio
from collections import Counter

from crawler.crawl.opening import member_of, open_crawl
from crawler.errors import CrawlerError
from crawler.recovery.pause import Pause
from tests.simulation.machines import Fleet, Life, replaced

PATIENCE_S = 8.0  # until all stand still


async def pause_crawl(fleet: Fleet, life: Life, seconds: float, counts: Counter[str]) -> None:
    """Pause the crawl for so long, if all stand still in time."""
    settings = replaced(fleet.settings, archive={"dir": str(fleet.folder / life.node.machine)})
    try:
        async with open_crawl(settings, create=True) as crawl:
            me = member_of(crawl, life.node.name, state="pausing")
            async with Pause(crawl.members, me, settings.membership, patience_s=PATIENCE_S).held():
                counts["stood still"] += 1
                await asyncio.sleep(seconds)
    except CrawlerError:
        counts["did not stand still"] += 1
    life.ended = life.ended or "done"
