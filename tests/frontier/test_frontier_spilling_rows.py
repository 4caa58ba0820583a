"""Parked URLs in files: counted and found as before, and back in their queue when they are released."""

import contextlib
from pathlib import Path

import pytest

from crawler.audit.judge_frontier import Committed, disagreements
from crawler.errors import ArchiveError
from crawler.frontier.bulk import BulkLookup
from crawler.frontier.deferred import BLOCKED, ChangeKind, DeferredUrls, QueueChange
from crawler.frontier.lookup import UrlLookup
from crawler.frontier.messages import AddBudget, FetchBudget
from crawler.frontier.operator import OperatorCommands, Purge
from crawler.frontier.pending import PendingUrls
from crawler.frontier.stats import Stats
from crawler.instance.raised_budgets import RaisedBudgets
from tests.frontier.door import FINGERPRINTS, Door, found, url_of
from tests.frontier.test_frontier_spilling import QUEUE, Spill, without_delay

ROW = f"{QUEUE}|urls"
MANY = 1000
KEPT = 256  # URLs of a row that stay in memory, at most


@pytest.fixture
def row(door: Door, tmp_path: Path) -> Spill:
    return Spill(door, tmp_path / "spill", ROW)


async def defer(door: Door, n: int = MANY) -> None:
    """URLs that are deferred at once, the best first."""
    for start in range(0, n, 250):
        some = range(start, min(n, start + 250))
        await door.add(*(found(i, score=-i / 4096, deferred="urls") for i in some))


def on_disk(door: Door) -> tuple[int, int]:
    """URLs of queues, and deferred ones."""
    with contextlib.closing(door.node) as client:
        queued, deferred = client.hmget(door.keys.meta(0), "spilled", "spilled_deferred")
    return int(queued or 0), int(deferred or 0)


def ready(door: Door) -> list[str]:
    with contextlib.closing(door.node) as client:
        return [name.decode() for name in client.zrange(door.keys.of(0, "ready"), 0, -1)]


async def check_counts(door: Door, row: Spill, *, pending: int, deferred: int) -> None:
    tally = await BulkLookup(door.engine, door.keys, 1, row.files).tally(0)
    assert list(disagreements(tally, Committed(tally.committed), exactly=True)) == []
    assert (tally.pending, tally.deferred) == (pending, deferred)
    some = [one async for one in PendingUrls(door.engine, door.keys, row.files).deferred(0)]
    assert len({found.url.url for part in some for found in part}) == deferred


async def all_claimed(door: Door, row: Spill) -> list[str]:
    """Claim to the end, bringing back what is short as the owner does."""
    got: list[str] = []
    queue = Spill(door, row.files.root, QUEUE)
    while True:
        reply = await door.claim_reply(out_max=10_000)
        got += [c.url for b in reply.batches for c in b.claims]
        if reply.short:
            await queue.back()
        elif not reply.batches:
            return got


async def test_rows_go_before_queues_and_all_of_them_but_the_first_block_and_the_one_that_is_being_filled(
    door: Door, row: Spill
) -> None:
    await door.add(*(found(f"queued{n}", score=-n / 4096) for n in range(MANY)))
    await defer(door, 600)
    assert [queue for _, _, queue in await row.calls.longest([0])] == [ROW, QUEUE]
    (blocks, _, _), _ = await row.calls.longest([0])
    assert await row.calls.spill(door.fence, await row.write(blocks - 1)) == blocks - 1
    assert on_disk(door) == (0, (blocks - 1) * 128)
    assert [queue for _, _, queue in await row.calls.longest([0])] == [QUEUE]
    await door.add(*(found(f"worse{n}", score=-9.0, deferred="urls") for n in range(20)))
    assert [queue for _, _, queue in await row.calls.longest([0])] == [QUEUE], "they went into the last block"
    await check_counts(door, row, pending=MANY, deferred=620)


async def test_nobody_is_told_of_a_row_that_lies_in_a_file(door: Door, row: Spill) -> None:
    await defer(door)
    assert await DeferredUrls(door.frontier, 1).release(0, QUEUE, "urls", 100) == 100
    await row.all_but_one()
    reply = await door.claim_reply()
    assert (reply.short, ready(door), row.number("short", "ZCARD")) == ((), [], 0)
    assert not await row.back(), "and none follows one that somebody brings back"
    assert ready(door) == []
    await check_counts(door, row, pending=100, deferred=MANY - 100)


@pytest.mark.parametrize("n", [40, 128, 300, 700, MANY])
async def test_the_requested_number_is_released_and_blocks_move_unread(door: Door, row: Spill, n: int) -> None:
    await without_delay(door)
    await defer(door)
    await row.all_but_one()
    before = on_disk(door)[1]
    assert before >= MANY - KEPT
    assert await DeferredUrls(door.frontier, 1, row.files).release(0, QUEUE, "urls", n) == n
    queued, deferred = on_disk(door)
    assert (queued, deferred) == (0, before) if n <= 128 else queued >= n - KEPT
    await check_counts(door, row, pending=n, deferred=MANY - n)
    got = await all_claimed(door, row)
    assert sorted(got) == sorted(url_of(i) for i in range(n)), "the best ones"
    if n <= 128 or n == MANY:
        assert got[:n] == [url_of(i) for i in range(n)], "in their order"


async def test_all_is_released_without_the_files_and_a_part_of_a_block_is_not(door: Door, row: Spill) -> None:
    await defer(door)
    await row.all_but_one()
    blind = DeferredUrls(door.frontier, 1)
    with pytest.raises(ArchiveError, match=r"set frontier\.spill_folder"):
        await blind.release(0, QUEUE, "urls", 300)
    await check_counts(door, row, pending=256, deferred=MANY - 256)
    assert await blind.release(0, QUEUE, "urls", MANY) == MANY - 256
    await check_counts(door, row, pending=MANY, deferred=0)
    assert ready(door) == [QUEUE]
    with door.node as node:
        assert node.keys(door.keys.of(0, "*|*")) == []


async def test_an_empty_queue_that_gets_a_block_on_disk_is_told_of_at_once(door: Door, row: Spill) -> None:
    await without_delay(door)
    await defer(door)
    await row.all_but_one()
    deferred_urls = DeferredUrls(door.frontier, 1)
    assert await deferred_urls.release(0, QUEUE, "urls", 128) == 128
    assert len(await door.claim(per_queue_max=128, urls_max=128, out_max=1000)) == 128
    assert await deferred_urls.release(0, QUEUE, "urls", 128) == 128
    assert row.number("short", "ZCARD") == 1
    assert len(await all_claimed(door, row)) == 128


async def test_urls_released_into_a_blocked_queue_stay_deferred(door: Door, row: Spill) -> None:
    await defer(door)
    await row.all_but_one()
    deferred_urls = DeferredUrls(door.frontier, 1)
    await deferred_urls.change_queues(0, [QueueChange(QUEUE, ChangeKind.STOP, BLOCKED)])
    assert await deferred_urls.release(0, QUEUE, "urls", MANY) == MANY
    assert {p.reason: p.urls for p in await deferred_urls.of_queue(0, QUEUE)} == {BLOCKED: MANY}
    await check_counts(door, row, pending=0, deferred=MANY)
    await deferred_urls.change_queues(0, [QueueChange(QUEUE, ChangeKind.START, BLOCKED)])
    await without_delay(door)
    assert len(await all_claimed(door, row)) == MANY


async def test_a_larger_budget_takes_in_exactly_what_it_has_room_for(
    door: Door, row: Spill, caplog: pytest.LogCaptureFixture
) -> None:
    door.frontier.add_budget = AddBudget(urls=3)
    await door.add(*(found(f"first{n}") for n in range(3)))
    await defer(door)
    await row.all_but_one()
    door.frontier.add_budget = AddBudget(urls=700)
    assert await RaisedBudgets(door.frontier, DeferredUrls(door.frontier, 1), FetchBudget()).release([0]) == 0
    assert [r.getMessage() for r in caplog.records] == ["budget.unreadable"]
    before = (await BulkLookup(door.engine, door.keys, 1).tally(0)).deferred
    raised = await RaisedBudgets(door.frontier, DeferredUrls(door.frontier, 1, row.files), FetchBudget()).release([0])
    assert raised == before - (MANY - 697)
    await check_counts(door, row, pending=700, deferred=MANY - 697)


async def test_deferred_urls_in_files_are_purged(door: Door, row: Spill) -> None:
    await defer(door)
    await row.all_but_one()
    purge = Purge(door.frontier, DeferredUrls(door.frontier, 1, row.files), row.files)
    assert await purge.purge(0, QUEUE) == MANY
    assert on_disk(door) == (0, 0)
    await check_counts(door, row, pending=0, deferred=0)


async def test_people_see_deferred_urls_in_files(door: Door, row: Spill) -> None:
    await defer(door)
    await row.all_but_one()
    inspect = UrlLookup(door.engine, door.keys, 1, row.files)
    assert {(await inspect.locate(found(n))).deferred for n in (0, 500, MANY - 1)} == {"urls"}
    totals = await Stats(door.engine, door.keys, 1).totals()
    assert (totals.deferred, totals.spilled, totals.spilled_deferred) == (MANY, 0, on_disk(door)[1])
    states = BulkLookup(door.engine, door.keys, 1, row.files)
    assert await states.pending(FINGERPRINTS, 0) == {found(n).fingerprint for n in range(MANY)}
    assert await OperatorCommands(door.frontier, 1, queue_by="domain").release(QUEUE, urls_max=128) == 128


async def test_another_owner_finds_them_and_goes_on(door: Door, row: Spill) -> None:
    await defer(door)
    late = door.fence
    first, *others = await row.write(3)
    assert await row.calls.spill(late, [first]) == 1
    await door.acquire("bob")
    assert await row.calls.spill(late, others) == 0, "told too late"
    before = on_disk(door)[1]
    assert await row.calls.spill(door.fence, await row.write(3)) == 3
    assert on_disk(door)[1] == before + 3 * 128
    await check_counts(door, row, pending=0, deferred=MANY)
