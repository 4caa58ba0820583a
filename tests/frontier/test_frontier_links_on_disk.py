"""A budget that grows with links, where what it deferred lies in files: its owner looks again and again."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from crawler.frontier.bulk import BulkLookup
from crawler.frontier.deferred import DeferredUrls
from crawler.frontier.messages import AddQuota
from crawler.instance import raised_quotas
from crawler.instance.raised_quotas import RaisedQuotasWatcher
from crawler.settings import BudgetSettings
from tests.frontier.door import Door, found
from tests.frontier.test_frontier_spilling import Spill
from tests.frontier.test_frontier_spilling_rows import ROW, defer
from tests.support.patience import PATIENCE_S
from tests.worker.turn_lab import held_with

EACH, LINKING = 50, 4


async def pending(door: Door, row: Spill) -> int:
    return (await BulkLookup(door.engine, door.keys, 1, row.files).tally(0)).pending


async def until(count: int, door: Door, row: Spill) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await pending(door, row) != count:
            await asyncio.sleep(0.01)


async def test_an_owner_releases_the_part_of_a_block_that_the_engine_can_not(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, hints = Spill(door, tmp_path / "spill", ROW), list[int]()
    door.frontier.add_quota = AddQuota(urls=3, urls_per_linking_domain=EACH)
    await door.add(*(found(f"first{n}") for n in range(3)))
    await defer(door)
    await row.all_but_one()
    monkeypatch.setattr(raised_quotas, "EVERY_S", 0.01)
    monkeypatch.setattr(raised_quotas, "GROWN_EVERY_MS", 20)
    owner = RaisedQuotasWatcher(
        door.frontier, DeferredUrls(door.frontier, 1, row.files), held_with(0),
        BudgetSettings(urls=3, urls_per_linking_domain=EACH), allow_private=False, wake=hints.append,
    )  # fmt: skip
    running = asyncio.create_task(owner.run())
    await asyncio.sleep(0.05)
    for place in range(LINKING):
        await door.add(found("first0", linked_from=place))
    await until(3 + LINKING * EACH, door, row)
    assert hints
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
