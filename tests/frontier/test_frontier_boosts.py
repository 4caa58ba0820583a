"""Boosts in the engine: which of the due queues a claim takes first, while it is short, and for every owner."""

from collections.abc import Sequence

from msgspec.structs import replace

from crawler.frontier.deferred import ChangeKind, QueueChange
from crawler.frontier.operator import OperatorCommands, OverrideKind
from crawler.frontier.owner import Settlement
from tests.frontier.door import DELAY_MS, Door, found


async def arrive(door: Door, *names: str) -> None:
    """Two URLs for each queue, which become due one ms after another."""
    for n, name in enumerate(names):
        await door.add(found(1, host=name), found(2, host=name))
        await door.frontier.book_request(door.fence, name, Settlement(next_fetch_ms=n + 1, delay_ms=DELAY_MS))
    door.now = 10 * DELAY_MS


async def taken(door: Door, urls_max: int) -> list[str]:
    return [batch.queue for batch in (await door.claim_reply(urls_max=urls_max, ahead_ms=0)).batches]


def in_engine(door: Door) -> dict[str, object]:
    with door.node as node:
        meta = node.hget(door.keys.meta(0), "boosts")
        return {"boosts": dict(node.zrange(door.keys.of(0, "boosts"), 0, -1, withscores=True)), "meta": meta}


async def test_due_queues_leave_by_boost_and_by_due_time_within_one(door: Door, operator: OperatorCommands) -> None:
    await arrive(door, "last.test", "low.test", "a.test", "b.test", "best.test", "high1.test", "high2.test")
    overrides = {"last.test": -9, "low.test": -1, "best.test": 9, "high1.test": 3, "high2.test": 3}
    for domain, n in overrides.items():
        await operator.boost(domain, n)
    short = [(await taken(door, 1))[0] for _ in range(3)]
    assert short == ["best.test", "high1.test", "high2.test"]
    assert await taken(door, 64) == ["a.test", "b.test", "low.test", "last.test"]
    assert await taken(door, 64) == []


async def test_nobody_is_hidden_behind_many_queues_of_another_boost(door: Door, operator: OperatorCommands) -> None:
    """They have been due for longer, and a claim looks at few of them."""
    many = [f"n{n}.test" for n in range(200)]
    await arrive(door, *many, "normal.test", "boosted.test")
    for start in range(0, len(many), 64):
        await operator.deferred_urls.change_queues(
            0, [QueueChange(name, ChangeKind.BOOST, "", -2) for name in many[start : start + 64]]
        )
    await operator.boost("boosted.test", 1)
    assert await taken(door, 2) == ["boosted.test", "normal.test"]
    assert await taken(door, 2) == ["n0.test", "n1.test"]


async def test_a_boost_makes_nothing_due_earlier(door: Door, operator: OperatorCommands) -> None:
    await arrive(door, "a.test", "b.test")
    await door.frontier.book_request(door.fence, "b.test", Settlement(next_fetch_ms=door.now + 1))
    await operator.boost("b.test", 9)
    assert await taken(door, 64) == ["a.test"]
    door.now += 1
    assert await taken(door, 64) == ["b.test"]


async def test_a_queue_keeps_its_boost_while_its_claims_are_out_and_after_them(
    door: Door, operator: OperatorCommands
) -> None:
    await arrive(door, "a.test", "b.test", "c.test")
    (claim,) = await door.claim(urls_max=1, ahead_ms=0)
    await operator.boost(claim.queue, -4)
    await operator.boost("c.test", 4)
    await door.ack(claim, next_ms=door.now, delay_ms=DELAY_MS)
    assert await taken(door, 64) == ["c.test", "b.test", claim.queue]


async def test_a_boost_that_is_changed_or_taken_back_leaves_one_place(door: Door, operator: OperatorCommands) -> None:
    await arrive(door, "a.test", "b.test")
    assert in_engine(door) == {"boosts": {}, "meta": None}
    for n in (5, 5, -5, 2):
        await operator.boost("b.test", n)
    await operator.boost("a.test", -1)
    assert in_engine(door) == {"boosts": {b"b.test": 2.0, b"a.test": -1.0}, "meta": b"2 -1"}
    assert (await operator.overrides()).boosts == {"a.test": -1, "b.test": 2}
    for domain in ("a.test", "b.test"):
        await operator.boost(domain, 0)
    assert in_engine(door) == {"boosts": {}, "meta": None}
    assert (await operator.overrides()).boosts == {}
    assert await taken(door, 64) == ["a.test", "b.test"]


async def test_a_claim_tells_what_is_due_next_of_each_boost(door: Door, operator: OperatorCommands) -> None:
    await arrive(door, "a.test", "b.test", "c.test")
    assert (await door.claim_reply(urls_max=1, ahead_ms=0)).waits == {}
    await operator.boost("b.test", 3)
    await operator.boost("c.test", -3)
    reply = await door.claim_reply(urls_max=1, ahead_ms=0)
    waits = {(3, ""): -1, (0, ""): -1, (-3, ""): 3}
    assert (reply.batches[0].queue, reply.waits, reply.next_due_ms) == ("b.test", waits, 3)


async def test_a_boost_holds_for_the_next_owner_and_for_a_queue_that_is_stopped_meanwhile(
    door: Door, operator: OperatorCommands
) -> None:
    await arrive(door, "a.test", "b.test")
    await operator.boost("b.test", 1)
    await operator.book.give(OverrideKind.BLOCKED, "b.test")
    await operator.carry_out("b.test")
    await door.acquire("bob")
    door.now += 10 * DELAY_MS
    await operator.book.cancel(OverrideKind.BLOCKED, "b.test")
    await operator.carry_out("b.test")
    assert await operator.deferred_urls.stops(0) == {}
    assert await taken(door, 64) == ["b.test", "a.test"]


async def test_a_domain_may_be_boosted_before_it_was_met(door: Door, operator: OperatorCommands) -> None:
    await operator.boost("b.test", 1)
    await arrive(door, "a.test", "b.test")
    assert await taken(door, 1) == ["b.test"]


async def test_by_host_all_known_queues_of_a_domain_are_boosted_and_all_lose_it(
    door: Door, by_host: OperatorCommands
) -> None:
    await door.add(found(1, host="other.test"))
    await door.add(*(replace(found(1, host=f"{name}.b.test"), domain="b.test") for name in "xy"))
    door.now = 10 * DELAY_MS
    await by_host.boost("b.test", 1)
    assert set(await taken(door, 2)) == {"x.b.test", "y.b.test"}
    await by_host.boost("b.test", 0)
    assert in_engine(door) == {"boosts": {}, "meta": None}


async def test_hosts_that_get_urls_after_their_domain_was_boosted_have_its_boost(
    door: Door, by_host: OperatorCommands
) -> None:
    """One is met by another session's add, one by the links of a page; one was known, and had nothing left."""
    idle, page = replace(found(1, host="idle.b.test"), domain="b.test"), found(1, host="other.test")
    linked, added = (replace(found(2, host=f"{name}.b.test"), domain="b.test") for name in ("linked", "added"))
    await door.add(idle)
    (claim,) = await door.claim()
    await door.ack(claim)
    door.now = 300 * DELAY_MS
    assert await door.claim() == [], "its record goes to a store"
    await by_host.boost("b.test", 3)
    assert in_engine(door)["boosts"] == {b"b.test": 3.0}
    await door.add(page, *(found(1, host=f"{n}.test") for n in range(9)))
    (claim,) = await door.claim(urls_max=1, ahead_ms=0)
    await door.ack(claim, linked, replace(idle, url="http://idle.b.test/2", fingerprint="77"))
    await door.add(added)
    assert set(await taken(door, 3)) == {"linked.b.test", "added.b.test", "idle.b.test"}
    await by_host.boost("b.test", 0)
    assert in_engine(door) == {"boosts": {}, "meta": None}
    await door.add(replace(found(3, host="late.b.test"), domain="b.test"))
    assert in_engine(door) == {"boosts": {}, "meta": None}


async def test_a_boost_that_is_changed_meanwhile_ends_as_the_last_one(door: Door, operator: OperatorCommands) -> None:
    """Two operators at a time: the one whose order came first may be the last to reach the queues."""
    await arrive(door, "a.test", "b.test")
    change_queues = operator.deferred_urls.change_queues

    async def changed_first(partition: int, overrides: Sequence[QueueChange]) -> list[int]:
        operator.deferred_urls.change_queues = change_queues  # type: ignore[method-assign]
        await operator.boost("b.test", -1)
        return await change_queues(partition, overrides)

    operator.deferred_urls.change_queues = changed_first  # type: ignore[method-assign]
    await operator.boost("b.test", 5)
    assert in_engine(door) == {"boosts": {b"b.test": -1.0}, "meta": b"-1"}


async def test_a_boosted_queue_that_was_purged_is_not_offered(door: Door, operator: OperatorCommands) -> None:
    await arrive(door, "a.test", "b.test")
    await operator.boost("b.test", 2)
    assert await operator.purge("b.test") == 2
    reply = await door.claim_reply(ahead_ms=0)
    assert ([b.queue for b in reply.batches], reply.waits[2, ""]) == (["a.test"], -1)
