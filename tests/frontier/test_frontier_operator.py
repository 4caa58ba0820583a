"""Orders in the engine: what stands, what queues make of it, and that URLs which are purged end for ever."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from crawler.audit.judge_frontier import Committed, disagreements
from crawler.frontier.bulk import BulkLookup
from crawler.frontier.deferred import BLOCKED, PAUSED, ChangeKind, DeferredUrls, QueueChange
from crawler.frontier.messages import AddBudget
from crawler.frontier.operator import EVERYWHERE, OperatorCommands, OverrideKind, OverrideStore, Purge
from crawler.frontier.owner import Settlement
from tests.frontier.door import DELAY_MS, Door, found

QUEUE = "a.test"


async def counts(door: Door) -> tuple[int, int, int]:
    """Pending, deferred and refused, after all sums were checked."""
    counted = await BulkLookup(door.engine, door.keys, 1).tally(0)
    assert list(disagreements(counted, Committed(counted.committed), exactly=True)) == []
    return counted.added - counted.done, counted.deferred, counted.refused


async def test_overrides_last_until_removed_and_each_change_has_a_version(door: Door) -> None:
    book = OverrideStore(door.engine, door.keys)
    assert (await book.read()).version == 0
    assert [await book.give(OverrideKind.BLOCKED, QUEUE), await book.give(OverrideKind.BLOCKED, QUEUE)] == [True, False]
    assert await book.give(OverrideKind.DELAY, "b.test", 1500)
    overrides = await book.read()
    assert (overrides.version, overrides.stop_of(QUEUE), overrides.stop_of("b.test")) == (3, BLOCKED, "")
    assert (overrides.delays_ms, overrides.is_paused) == ({"b.test": 1500}, False)
    assert [await book.cancel(OverrideKind.BLOCKED, QUEUE), await book.cancel(OverrideKind.BLOCKED, QUEUE)] == [
        True,
        False,
    ]
    await book.give(OverrideKind.PAUSED, EVERYWHERE)
    overrides = await book.read()
    assert (overrides.stop_of(QUEUE), overrides.is_paused, overrides.holds_back(QUEUE)) == ("", True, True)


async def test_a_domain_that_is_paused_and_blocked_stays_paused_when_it_is_unblocked(
    door: Door, operator: OperatorCommands
) -> None:
    await door.add(found(1), found(2))
    for kind in (OverrideKind.PAUSED, OverrideKind.BLOCKED):
        await operator.book.give(kind, QUEUE)
        assert await operator.carry_out(QUEUE) == 2
    assert (await operator.deferred_urls.stops(0), await counts(door)) == ({QUEUE: BLOCKED}, (0, 2, 0))
    await operator.book.cancel(OverrideKind.BLOCKED, QUEUE)
    await operator.carry_out(QUEUE)
    assert (await operator.deferred_urls.stops(0), await counts(door)) == ({QUEUE: PAUSED}, (2, 0, 0))
    await operator.book.cancel(OverrideKind.PAUSED, QUEUE)
    assert await operator.carry_out(QUEUE) == 2
    assert await operator.carry_out(QUEUE) == 0
    assert len(await door.claim()) == 1


async def test_a_queue_whose_budget_is_used_up_is_not_paused_but_may_be_blocked(
    door: Door, operator: OperatorCommands
) -> None:
    await door.add(found(1))
    await operator.deferred_urls.change_queues(0, [QueueChange(QUEUE, ChangeKind.STOP, "pages")])
    await operator.book.give(OverrideKind.PAUSED, QUEUE)
    await operator.carry_out(QUEUE)
    assert await operator.deferred_urls.stops(0) == {QUEUE: "pages"}
    await operator.book.give(OverrideKind.BLOCKED, QUEUE)
    await operator.carry_out(QUEUE)
    assert await operator.deferred_urls.stops(0) == {QUEUE: BLOCKED}


async def test_an_order_holds_for_the_next_owner_too(door: Door, operator: OperatorCommands) -> None:
    await door.add(found(1))
    await operator.book.give(OverrideKind.BLOCKED, QUEUE)
    await operator.carry_out(QUEUE)
    await door.acquire("bob")
    door.now = 100_000
    assert await door.claim() == []
    assert await counts(door) == (0, 1, 0)


async def test_by_host_only_the_known_queues_of_a_domain_are_stopped(door: Door, by_host: OperatorCommands) -> None:
    one = replace(found(1, host="x.a.test"), domain=QUEUE)
    two = replace(found(1, host="y.a.test"), domain=QUEUE)
    await door.add(one, two, found(1, host="other.test"))
    await by_host.book.give(OverrideKind.BLOCKED, QUEUE)
    assert await by_host.carry_out(QUEUE) == 2
    assert await by_host.deferred_urls.stops(0) == {QUEUE: BLOCKED, "x.a.test": BLOCKED, "y.a.test": BLOCKED}
    assert [c.url for c in await door.claim()] == ["http://other.test/1"]


async def test_by_host_a_queue_that_came_after_the_order_is_stopped_when_it_is_met(
    door: Door, by_host: OperatorCommands
) -> None:
    await by_host.book.give(OverrideKind.BLOCKED, QUEUE)
    await by_host.carry_out(QUEUE)
    await door.add(replace(found(1, host="new.a.test"), domain=QUEUE))
    (claim,) = await door.claim()
    assert await by_host.carry_out(QUEUE, [claim.queue]) == 0
    await door.return_claims(claim)
    assert await counts(door) == (0, 1, 0)
    assert await door.claim() == []
    await by_host.book.cancel(OverrideKind.BLOCKED, QUEUE)
    assert await by_host.carry_out(QUEUE) == 1


async def test_a_stop_that_is_removed_meanwhile_leaves_the_queue_started(
    door: Door, operator: OperatorCommands
) -> None:
    """An instance met a claim of a blocked domain just when the operator took the block back."""
    await door.add(found(1))
    await operator.book.give(OverrideKind.BLOCKED, QUEUE)
    change_queues = operator.deferred_urls.change_queues

    async def cancelled_first(partition: int, overrides: Sequence[QueueChange]) -> list[int]:
        operator.deferred_urls.change_queues = change_queues  # type: ignore[method-assign]
        await operator.book.cancel(OverrideKind.BLOCKED, QUEUE)
        return await change_queues(partition, overrides)

    operator.deferred_urls.change_queues = cancelled_first  # type: ignore[method-assign]
    await operator.carry_out(QUEUE, [QUEUE])
    assert await operator.deferred_urls.stops(0) == {}
    assert len(await door.claim()) == 1


async def test_a_shorter_delay_holds_at_once_and_what_else_the_queue_waits_for_stays(
    door: Door, operator: OperatorCommands
) -> None:
    await door.add(found(1), found(2))
    await door.frontier.book_request(door.fence, QUEUE, Settlement(next_fetch_ms=65_000, delay_ms=60_000))
    for _ in range(2):
        await operator.delay(QUEUE, 2_000)
    door.now = 6_999
    assert await door.claim() == []
    door.now = 7_000
    assert len(await door.claim(ahead_ms=0)) == 1


async def test_a_delay_that_is_taken_back_is_read_from_robots_again(door: Door, operator: OperatorCommands) -> None:
    await door.add(found(1))
    await operator.delay(QUEUE, 60_000)
    await operator.delay(QUEUE, None)
    assert (await operator.book.read()).delays_ms == {}
    door.now = DELAY_MS
    assert [b.delay_ms for b in (await door.claim_reply()).batches] == [-1]


async def test_the_shortest_delay_that_ever_held_is_known_to_audits(operator: OperatorCommands) -> None:
    for ms in (500, 100, 900, None):
        await operator.delay(QUEUE, ms)
    assert (await operator.book.read()).least_ms == {QUEUE: 100}


@pytest.mark.parametrize("stop", ["", PAUSED, BLOCKED])
async def test_what_is_purged_is_refused_and_seen_for_ever(door: Door, operator: OperatorCommands, stop: str) -> None:
    door.frontier.is_limited = True
    door.frontier.add_budget = AddBudget(urls=300)
    await door.add(*(found(n) for n in range(400)), found("trap", deferred="trap:calendar"), found(1, host="b.test"))
    (claim, retried) = await two_claims(door)
    await door.frontier.end(
        [door.frontier.retry(door.fence, retried, Settlement(next_fetch_ms=0), due_ms=10**9, kind="tls")]
    )
    if stop:
        await operator.deferred_urls.change_queues(0, [QueueChange(QUEUE, ChangeKind.STOP, stop)])
    assert await operator.purge(QUEUE) == 400
    assert await operator.purge(QUEUE) == 0
    assert await counts(door) == (2, 0, 400)
    assert await door.add(found(3), found("trap")) == [0, 0]
    await door.ack(claim)
    assert await counts(door) == (1, 0, 400)
    with door.node as node:
        left = {key.decode().partition("}:")[2] for key in node.keys(door.keys.of(0, "*"))}
    assert [name for name in left if "|" in name or name.startswith((f"b:{QUEUE}", f"q:{QUEUE}"))] == []
    assert "a" not in left


async def two_claims(door: Door) -> list[object]:
    await door.frontier.book_request(door.fence, QUEUE, Settlement(next_fetch_ms=0, delay_ms=0))
    await DeferredUrls(door.frontier, 1).change_queues(0, [QueueChange("b.test", ChangeKind.STOP, PAUSED)])
    return await door.claim(urls_max=2)


async def test_a_block_that_is_claimed_from_meanwhile_is_purged_but_for_the_claims(door: Door) -> None:
    await door.frontier.book_request(door.fence, QUEUE, Settlement(next_fetch_ms=0, delay_ms=0))
    await door.add(*(found(n) for n in range(10)))
    purge = Purge(door.frontier, DeferredUrls(door.frontier, 1))
    plain = door.engine.run

    async def claiming_first(name: str, keys: tuple[str, ...], *args: object) -> object:
        door.engine.run = plain
        assert len(await door.claim(urls_max=4)) == 4
        return await plain(name, keys, *args)

    door.engine.run = claiming_first
    assert await purge.purge(0, QUEUE) == 6
    assert await counts(door) == (4, 0, 6)


async def test_release_takes_reasons_domains_and_numbers_and_leaves_what_was_ordered(
    door: Door, operator: OperatorCommands
) -> None:
    door.frontier.add_budget = AddBudget(urls=1)
    await door.add(*(found(n, host=host) for host in (QUEUE, "b.test", "c.test") for n in range(4)))
    await door.add(found("t", deferred="trap:calendar"))
    await operator.deferred_urls.change_queues(
        0, [QueueChange("b.test", ChangeKind.STOP, BLOCKED), QueueChange("c.test", ChangeKind.STOP, "pages")]
    )
    assert await counts(door) == (1, 12, 0)
    assert await operator.release(QUEUE, "trap:calendar") == 1
    assert await operator.release(QUEUE, "urls", 2) == 2
    assert await operator.release("", "urls") == 4
    assert await counts(door) == (5, 8, 0)
    assert await operator.release() == 4
    assert (await operator.deferred_urls.stops(0), await counts(door)) == ({"b.test": BLOCKED}, (9, 4, 0))


async def test_an_owner_that_booked_before_an_override_sets_the_due_time(
    door: Door, operator: OperatorCommands
) -> None:
    await door.add(found(1), found(2))
    await operator.delay(QUEUE, 2_000)
    await door.frontier.book_request(
        door.fence, QUEUE, Settlement(next_fetch_ms=60_000, delay_ms=60_000)
    )  # had not read it
    for _ in range(2):
        await operator.set_delay(0, {QUEUE: 2_500}, 2_000)
    door.now = 2_499
    assert await door.claim() == []
    door.now = 2_500
    assert [(b.delay_ms, len(b.claims)) for b in (await door.claim_reply()).batches] == [(2_000, 1)]
