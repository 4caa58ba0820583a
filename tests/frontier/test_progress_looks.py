"""The totals that viewers read again and again, from partitions in use alone: never fewer than there are."""

import asyncio

from crawler.frontier.lookup import UrlLookup
from tests.frontier.door import Door, found


async def test_reads_at_the_same_time_all_have_the_totals(door: Door) -> None:
    await door.add(found(1), found(2))
    lookup = UrlLookup(door.engine, door.keys, 1)
    reads = await asyncio.gather(lookup.progress(), lookup.progress(), lookup.progress())
    assert [one.added for one in reads] == [2, 2, 2]


async def test_what_is_added_to_an_empty_crawl_is_in_the_next_read(door: Door) -> None:
    lookup = UrlLookup(door.engine, door.keys, 1)
    assert (await lookup.progress()).added == 0
    await door.add(found(1))
    assert (await lookup.progress()).added == 1
