"""Script by script: what a random walk over a small model can't show nicely."""

import asyncio
import contextlib
from typing import Any

import pytest

from crawler.errors import EngineFull
from crawler.frontier.frontier import Settlement
from crawler.frontier.records import DeadLetter
from crawler.model import AckOutcome, AddOutcome, Refusal
from tests.frontier.door import DELAY_MS, Door, found

NEW, SEEN, LOWERED = AddOutcome.NEW, AddOutcome.SEEN, AddOutcome.LOWERED


def seen_buckets(client: Any, door: Door) -> list[bytes]:
    return sorted(client.scan_iter(door.keys.of(0, "s0:*"), count=10_000))


async def test_neighbouring_fingerprints_beyond_53_bits_stay_distinct(door: Door) -> None:
    big = [2**53, 2**53 + 1, 2**62 + 1, 2**62 + 2, 2**63 - 2, 2**63 - 1]
    values = [*big, *(-v for v in big), -(2**63), 0, -1, 1, -12345678, 12345678, -123456789, 123456789]
    items = [found(i, fingerprint=str(v)) for i, v in enumerate(values)]
    assert await door.add(*items) == [NEW] * len(values)
    assert await door.add(*items) == [SEEN] * len(values)
    assert {c.fingerprint for c in await claim_all(door)} == {str(v) for v in values}


async def claim_all(door: Door) -> list[Any]:
    await door.frontier.pace(door.fence, "a.test", Settlement(next_fetch_ms=0, delay_ms=0))
    return await door.claim(out_max=10_000)


async def test_the_seen_set_stays_exact_and_small_as_it_grows(door: Door) -> None:
    n, batch = 50_000, 250
    for start in range(0, n, batch):
        assert await door.add(*(found(i) for i in range(start, start + batch))) == [NEW] * batch
    assert await door.add(*(found(i) for i in range(0, n, 97))) == [SEEN] * len(range(0, n, 97))
    with contextlib.closing(door.node) as client:
        buckets = seen_buckets(client, door)
        assert {client.object("ENCODING", b) for b in buckets} == {b"intset"}
        members = [m for b in buckets for m in client.smembers(b)]
        assert len(members) == len(set(members)) == n
        assert {m.decode() for m in members} == {found(i).fingerprint for i in range(n)}
        assert sum(client.memory_usage(b, samples=0) for b in buckets) / n <= 12


async def test_a_repeat_inside_one_call_is_seen_and_lowers_the_depth(door: Door) -> None:
    assert await door.add(found(1, depth=3), found(1, depth=3), found(1, depth=2), found(1, depth=1)) == [1, 0, 2, 2]
    (claim,) = await door.claim()
    assert (claim.depth, claim.score) == (1, -1.0)


async def test_a_lower_depth_moves_a_queued_url_forward(door: Door) -> None:
    await door.add(found("deep", depth=9), found("near", depth=2))
    assert await door.add(found("deep", depth=1)) == [LOWERED]
    assert await door.add(found("deep", depth=1), found("deep", depth=5)) == [SEEN, SEEN]
    assert (await door.claim())[0].url == found("deep").url


async def test_a_claimed_url_keeps_the_shorter_path_when_it_is_retried(door: Door) -> None:
    await door.add(found(1, depth=5))
    (claim,) = await door.claim()
    assert await door.add(found(1, depth=2)) == [LOWERED]
    call = door.frontier.retry(door.fence, claim, Settlement(next_fetch_ms=0), due_ms=10, kind="timeout")
    assert await door.frontier.end([call]) == [AckOutcome.COMMITTED]
    door.now = 5000
    (again,) = await door.claim()
    assert (again.depth, again.score, again.attempts) == (2, -2.0, 1)


async def test_an_unusual_url_survives_a_rewrite_of_its_record(door: Door) -> None:
    url = 'http://a.test/%22/"\\/é/\u2028?q=[1,"2"]'
    await door.add(found(1, url=url, depth=5, score=-5.1234))
    assert await door.add(found(1, url=url, depth=4, score=-4.5678)) == [LOWERED]
    (claim,) = await door.claim()
    assert (claim.url, claim.depth, claim.score) == (url, 4, -4.5678)


async def test_an_ack_takes_more_links_than_lua_has_stack_for(door: Door) -> None:
    await door.add(found("parent"))
    (claim,) = await door.claim()
    reply = await door.ack(claim, *(found(i) for i in range(9000)))
    assert reply.outcome is AckOutcome.COMMITTED
    with contextlib.closing(door.node) as client:
        assert client.zcard(door.keys.of(0, "q:a.test")) == 9000


async def test_a_hint_goes_to_the_owner_only_when_a_queue_woke(door: Door) -> None:
    other = Door(door.engine.url, [], session="bob")
    await other.engine.connect()
    heard: list[bytes] = []

    async def listen() -> None:
        async for message in door.engine.subscribe(door.keys.hints + "ann"):
            heard.append(message)

    listener = asyncio.create_task(listen())
    try:
        await wait_until_subscribed(door)
        await other.add(found(1))  # wakes
        await other.add(found(2))  # awake already
        await other.add(found(1))  # not new
        await door.add(found(1, host="b.test"))  # by the owner itself
        await other.add(found(1, host="c.test"))  # wakes
        async with asyncio.timeout(5):
            while len(heard) < 2:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert heard == [door.keys.meta(0).encode()] * 2
    finally:
        listener.cancel()
        await asyncio.gather(listener, return_exceptions=True)
        await other.close()


async def wait_until_subscribed(door: Door) -> None:
    clients = door.nodes()
    try:
        async with asyncio.timeout(5):
            while not any(client.pubsub_channels() for client in clients):
                await asyncio.sleep(0.01)
    finally:
        for client in clients:
            client.close()


async def test_out_of_memory_refuses_adds_and_lets_owners_finish(door: Door) -> None:
    await door.add(*(found(i, host=f"h{i}.test") for i in range(4)))
    one, two, three, four = await door.claim()
    with contextlib.closing(door.node) as client:
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(EngineFull):
                await door.add(found("more"))
            assert (await door.ack(one, found("child"))).outcome is AckOutcome.COMMITTED
            assert await door.frontier.give_back(door.fence, [(two, 0)]) is AckOutcome.COMMITTED
            settlement = Settlement(next_fetch_ms=0)
            ends = [
                door.frontier.retry(door.fence, three, settlement, due_ms=9, kind="timeout"),
                door.frontier.refuse(door.fence, four, Refusal.ROBOTS),
            ]
            assert await door.frontier.end(ends) == [AckOutcome.COMMITTED] * 2
            await door.frontier.pace(door.fence, "h1.test", settlement)
            assert await door.claim()
            assert (await door.acquire("bob")).epoch == 2
            await door.leases.release([door.fence])
            assert (await door.leases.read([0]))[0].session == ""
        finally:
            client.config_set("maxmemory", 0)
    assert await door.add(found("more")) == [NEW]


async def test_scripts_forgotten_by_the_engine_are_loaded_again_and_run_once(door: Door) -> None:
    await door.add(*(found(i, host=f"h{i}.test") for i in range(3)))
    claims = await door.claim()
    for client in door.nodes():
        client.script_flush()
        client.close()
    assert (await door.ack(claims[0])).sequence == 1
    for client in door.nodes():
        client.script_flush()
        client.close()
    calls = [door.frontier.refuse(door.fence, c, Refusal.SCOPE) for c in claims[1:]]
    assert await door.frontier.end(calls * 2) == [AckOutcome.COMMITTED] * 2 + [AckOutcome.GONE] * 2
    with contextlib.closing(door.node) as client:
        assert int(client.hget(door.keys.meta(0), "refused:scope")) == 2


async def test_claiming_under_another_run_id_asks_for_recovery_until_the_lease_is_acquired_anew(door: Door) -> None:
    await door.add(found(1))
    door.engine.run_id = "another"
    assert (await door.claim_reply()).status == "RECOVER"
    await door.acquire()
    door.now += 2 * DELAY_MS  # taken without a release: the hold
    assert len(await door.claim()) == 1


async def test_a_repeated_claim_returns_the_same_batch_in_the_same_order(door: Door) -> None:
    await door.frontier.pace(door.fence, "a.test", Settlement(next_fetch_ms=0, delay_ms=0))
    await door.add(*(found(i, depth=i) for i in range(40)), *(found(i, host="b.test") for i in range(3)))
    request = door.request(urls_max=30)
    first = await door.claim_reply(request)
    assert await door.claim_reply(request) == first
    assert {c.token for c in await door.claim()}.isdisjoint({c.token for b in first.batches for c in b.claims})


async def test_a_repeated_ack_is_already_yours_and_names_the_same_sequence(door: Door) -> None:
    await door.add(found(1))
    (claim,) = await door.claim()
    first = await door.ack(claim, found(2))
    again = await door.ack(claim, found(2))
    assert (first.outcome, again.outcome) == (AckOutcome.COMMITTED, AckOutcome.ALREADY_YOURS)
    assert first.sequence == again.sequence == 1
    with contextlib.closing(door.node) as client:
        assert client.hmget(door.keys.meta(0), "added", "done") == [b"2", b"1"]


async def test_many_expired_claims_come_back_some_at_a_time_and_all_of_them(door: Door) -> None:
    await door.add(*(found(i, host=f"h{i}.test") for i in range(150)))
    assert len(await door.claim(urls_max=200)) == 150
    await door.acquire("bob")
    door.now += 2 * DELAY_MS
    assert (await door.claim_reply(urls_max=1)).next_due_ms == 0  # there is more to put back
    claims = await door.claim(urls_max=200) + await door.claim(urls_max=200) + await door.claim(urls_max=200)
    assert len({c.url for c in claims}) == len(claims) == 149
    assert {c.deliveries for c in claims} == {1}


async def test_best_score_leaves_first_and_ties_in_a_fixed_order(door: Door) -> None:
    await door.frontier.pace(door.fence, "a.test", Settlement(next_fetch_ms=0, delay_ms=0))
    scores = [1.5, -2.0001, 0.0, 7e6, -2.0002]
    await door.add(*(found(i, score=s) for i, s in enumerate(scores)))
    assert [c.score for c in await door.claim()] == sorted(scores, reverse=True)


async def test_where_tells_the_place_of_a_url(door: Door) -> None:
    async def where(path: int) -> list[bytes]:
        c = found(path)
        return await door.engine.run("where", (door.keys.meta(0),), 0, c.fingerprint, 1, c.queue, c.domain)

    await door.add(found(1), found(2, depth=2))
    assert (await where(9))[:3] == [b"0", b"", b""]
    assert [(await where(p))[5] for p in (1, 2)] == [b"0", b"1"]
    (claim,) = await door.claim()
    assert (await where(1))[2:4] == [claim.token.encode(), b"60000"]
    await door.ack(claim)
    assert (await where(1))[7].startswith(claim.token.encode())
    letter = DeadLetter(
        url="u", queue="a.test", domain="a.test", depth=1, reason="tls", detail="", attempts=1, failed_at=1.0
    )
    (claim,) = await door.claim()
    assert await door.frontier.end([door.frontier.dead(door.fence, claim, Settlement(next_fetch_ms=0), letter)]) == [
        AckOutcome.COMMITTED
    ]
    assert b"tls" in (await where(2))[6]
