"""Script by script: what a random walk over a small model can't show nicely."""

import asyncio
import contextlib
import random
from typing import Any

import pytest
from msgspec.structs import replace as replaced

from crawler.errors import EngineFull
from crawler.frontier.codec import DeadLetter, FailedAttempt
from crawler.frontier.lookup import UrlLookup
from crawler.frontier.owner import Ack, Settlement
from crawler.frontier.pending import PendingUrls
from crawler.model import AckOutcome, AddOutcome, Claim, CommitEntry, RefusalReason
from tests.frontier.door import DELAY_MS, Door, fingerprint, found
from tests.support.patience import PATIENCE_S

NEW, SEEN, LOWERED = AddOutcome.NEW, AddOutcome.SEEN, AddOutcome.LOWERED


def seen_buckets(client: Any, door: Door) -> list[bytes]:
    return sorted(client.scan_iter(door.keys.of(0, "s:*"), count=10_000))


async def test_neighbouring_fingerprints_beyond_53_bits_stay_distinct(door: Door) -> None:
    big = [2**53, 2**53 + 1, 2**62 + 1, 2**62 + 2, 2**63 - 2, 2**63 - 1]
    values = [*big, *(-v for v in big), -(2**63), 0, -1, 1, -12345678, 12345678, -123456789, 123456789]
    items = [found(i, fingerprint=str(v)) for i, v in enumerate(values)]
    assert await door.add(*items) == [NEW] * len(values)
    assert await door.add(*items) == [SEEN] * len(values)
    with contextlib.closing(door.node) as client:
        assert {m.decode() for b in seen_buckets(client, door) for m in client.smembers(b)} == {str(v) for v in values}


@pytest.mark.slow(ci=True)
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
    door.frontier.is_limited = True
    assert await door.add(found(1, depth=3), found(1, depth=3), found(1, depth=2), found(1, depth=1)) == [1, 0, 2, 2]
    (claim,) = await door.claim()
    assert claim.depth == 1


async def test_without_a_limit_of_depth_a_url_stays_as_deep_as_it_was_found(door: Door) -> None:
    await door.add(found("deep", depth=9))
    assert await door.add(found("deep", depth=1)) == [SEEN]
    assert (await door.claim())[0].depth == 9


async def test_depths_stay_exact_as_their_buckets_split(door: Door) -> None:
    door.frontier.is_limited = True
    for start in range(0, 2000, 200):
        await door.add(*(found(n, depth=9) for n in range(start, start + 200)))
    assert await door.add(*(found(n, depth=2) for n in range(0, 2000, 100))) == [LOWERED] * 20
    await door.frontier.book_request(door.fence, "a.test", Settlement(next_fetch_ms=0, delay_ms=0))
    claims = await door.claim(urls_max=2000, per_queue_max=2000, out_max=2000)
    assert {c.url for c in claims if c.depth == 2} == {found(n).url for n in range(0, 2000, 100)}
    assert {c.depth for c in claims} == {2, 9}
    for start in range(0, 2000, 100):
        await door.frontier.end([door.frontier.refuse(door.fence, c, "robots") for c in claims[start : start + 100]])
    with contextlib.closing(door.node) as client:
        assert list(client.scan_iter(door.keys.of(0, "z:*"), count=10_000)) == []


async def test_a_claimed_url_keeps_the_shorter_path_when_it_is_retried(door: Door) -> None:
    door.frontier.is_limited = True
    await door.add(found(1, depth=5))
    (claim,) = await door.claim()
    assert await door.add(found(1, depth=2)) == [LOWERED]
    call = door.frontier.retry(door.fence, claim, Settlement(next_fetch_ms=0), due_ms=10, kind="timeout")
    assert await door.frontier.end([call]) == [AckOutcome.COMMITTED]
    door.now = 5000
    (again,) = await door.claim()
    assert (again.depth, again.attempts) == (2, 1)


async def test_an_unusual_url_survives_a_rewrite_of_its_record(door: Door) -> None:
    url = 'http://a.test/%22/"\\/é/\u2028?q=[1,"2"]'
    await door.add(found(1, url=url, fingerprint=fingerprint(url), depth=5, redirects=3, seed=True))
    (claim,) = await door.claim()
    call = door.frontier.retry(door.fence, claim, Settlement(next_fetch_ms=0), due_ms=10, kind="timeout")
    await door.frontier.end([call])
    door.now = 5000
    (again,) = await door.claim()
    assert again == replaced(claim, token=again.token, attempts=1)
    assert (again.url, again.depth, again.redirects, again.seed) == (url, 5, 3, True)


async def test_an_ack_takes_more_links_than_lua_has_stack_for(door: Door) -> None:
    await door.add(found("parent"))
    (claim,) = await door.claim()
    reply = await door.ack(claim, *(found(i) for i in range(9000)))
    assert reply.outcome is AckOutcome.COMMITTED
    assert await PendingUrls(door.engine, door.keys).count(0) == 9000


async def test_an_ack_takes_links_into_more_queues_than_lua_has_stack_for(door: Door) -> None:
    await door.add(found("parent"))
    (claim,) = await door.claim()
    reply = await door.ack(claim, *(found("child", host=f"host-{i}.test") for i in range(8500)))
    assert reply.outcome is AckOutcome.COMMITTED
    assert await PendingUrls(door.engine, door.keys).count(0) == 8500


async def test_a_hint_goes_to_the_owner_only_when_a_queue_woke(door: Door) -> None:
    other = Door(door.engine.url, [], session="bob")
    await other.engine.connect()
    heard: list[bytes | None] = []

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
        await other.add(found(3, visible_at=1_900_000_000.0))  # is due at a time that the owner does not know
        await other.add(found(3, visible_at=1_900_000_000.0))  # not new
        await door.frontier.add({0: [found(1, host="d.test")]}, hints_us=True)  # a seed, by the owner's process
        async with asyncio.timeout(PATIENCE_S):
            while len(heard) < 5:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert heard == [None, *[door.keys.meta(0).encode()] * 4]
    finally:
        listener.cancel()
        await asyncio.gather(listener, return_exceptions=True)
        await other.close()


async def wait_until_subscribed(door: Door) -> None:
    clients = door.nodes()
    try:
        async with asyncio.timeout(PATIENCE_S):
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
            assert await door.return_claims(two) is AckOutcome.COMMITTED
            settlement = Settlement(next_fetch_ms=0)
            ends = [
                door.frontier.retry(door.fence, three, settlement, due_ms=9, kind="timeout"),
                door.frontier.refuse(door.fence, four, RefusalReason.ROBOTS),
            ]
            assert await door.frontier.end(ends) == [AckOutcome.COMMITTED] * 2
            await door.frontier.book_request(door.fence, "h1.test", settlement)
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
        client.function_flush()
        client.close()
    assert (await door.ack(claims[0])).sequence == 1
    for client in door.nodes():
        client.function_flush()
        client.close()
    calls = [door.frontier.refuse(door.fence, c, RefusalReason.SCOPE) for c in claims[1:]]
    assert await door.frontier.end(calls * 2) == [AckOutcome.COMMITTED] * 2 + [AckOutcome.GONE] * 2
    with contextlib.closing(door.node) as client:
        assert int(client.hget(door.keys.meta(0), "refused:scope")) == 2


async def test_claiming_under_another_run_id_needs_the_lease_acquired_again(door: Door) -> None:
    await door.add(found(1))
    door.engine.run_id_of = lambda _key: "another"
    assert (await door.claim_reply()).status == "RECOVER"
    await door.acquire()
    door.now += 2 * DELAY_MS  # taken without a release: the hold
    assert len(await door.claim()) == 1


async def test_a_repeated_claim_returns_the_same_batch_in_the_same_order(door: Door) -> None:
    await door.frontier.book_request(door.fence, "a.test", Settlement(next_fetch_ms=0, delay_ms=0))
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


async def test_a_url_that_comes_twice_in_one_ack_is_committed_once(door: Door) -> None:
    await door.add(found(1))
    (claim,) = await door.claim()
    entry = CommitEntry(
        url=claim.url, fingerprint=claim.fingerprint, mime="unk", visit=1, status_text="200", fetched_at=1.0,
        body_bytes=9,
    )  # fmt: skip
    ack = Ack(claim=claim, fence=door.fence, entry=entry, items=[], settlement=Settlement(next_fetch_ms=0), refused={})
    replies = await door.frontier.ack([ack, ack])
    assert [reply.outcome for reply in replies] == [AckOutcome.COMMITTED, AckOutcome.GONE]
    with contextlib.closing(door.node) as client:
        assert client.hmget(door.keys.meta(0), "done", "bytes", "sequence") == [b"1", b"9", b"1"]


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
    await door.frontier.book_request(door.fence, "a.test", Settlement(next_fetch_ms=0, delay_ms=0))
    scores = [1.5, -2.25, 0.0, 5e5, -2.25 - 2**-12]
    await door.add(*(found(i, score=s) for i, s in enumerate(scores)))
    assert [c.score for c in await door.claim()] == sorted(scores, reverse=True)


async def test_where_tells_the_place_of_a_url(door: Door) -> None:
    inspect = UrlLookup(door.engine, door.keys, 1)
    many = [found(f"https://{n}", depth=n % 7) for n in range(300)]
    await door.add(found(1), found(2, depth=2), *many)
    unknown = await inspect.locate(found(9))
    assert (unknown.seen, unknown.record, unknown.letter, unknown.entry) == (False, None, None, None)
    whereabouts = [await inspect.locate(c) for c in (found(1), *many[:8])]
    ranks = {c.url: n for n, c in enumerate(await drained_order(door))}
    assert [w.place for w in whereabouts] == [ranks[c.url] for c in (found(1), *many[:8])]
    assert [w.record.depth for w in whereabouts if w.record] == [1, 0, 1, 2, 3, 4, 5, 6, 0]


async def drained_order(door: Door) -> list[Claim]:
    """All that the queue has, in the order in which it hands it out; given back afterwards."""
    await door.frontier.book_request(door.fence, "a.test", Settlement(next_fetch_ms=0, delay_ms=0))
    claims = await door.claim(urls_max=1000, per_queue_max=1000, out_max=1000)
    await door.return_claims(*claims)
    return claims


async def test_where_tells_how_a_url_that_has_left_its_queue_goes_on(door: Door) -> None:
    inspect = UrlLookup(door.engine, door.keys, 1)
    await door.add(found(1), found(2, host="b.test"), found(3, host="c.test"))
    one, two, three = sorted(await door.claim(), key=lambda claim: claim.url)
    claimed = await inspect.locate(found(1))
    assert (claimed.place, claimed.claim_deadline_ms, claimed.claims_out) == (None, 60_000, 1)
    await door.ack(one)
    committed = await inspect.locate(found(1))
    assert (committed.record, committed.entry.url if committed.entry else "") == (None, one.url)
    s = Settlement(next_fetch_ms=0)
    letter = DeadLetter(url="u", queue="q", domain="d", depth=1, reason="tls", detail="", attempts=1, failed_at=1.0)
    await door.frontier.end([door.frontier.dead_letter(door.fence, two, s, letter)])
    given_up = (await inspect.locate(found(2, host="b.test"))).letter
    assert given_up == replaced(letter, failures=(FailedAttempt(1.0, "tls", ""),))
    await door.frontier.end([door.frontier.retry(door.fence, three, s, due_ms=77, kind="tls")])
    retrying = await inspect.locate(found(3, host="c.test"))
    assert (retrying.retry_at_ms, retrying.record.attempts if retrying.record else 0) == (77, 1)


async def test_queues_with_many_urls_hand_them_out_in_order_whatever_order_they_came_in(door: Door) -> None:
    """Blocks split, follow one another and are used up."""
    rng = random.Random(5)
    scores = [float(rng.randrange(50)) for _ in range(700)] + [-float(n) for n in range(700)]
    for start in range(0, len(scores), 200):
        await door.add(*(found(start + i, score=s) for i, s in enumerate(scores[start : start + 200])))
    with contextlib.closing(door.node) as client:
        blocks = [k for k in client.scan_iter(count=10_000) if b"a.test" in k and client.type(k) == b"zset"]
        assert len(blocks) > 1400 / 128
        assert {client.object("ENCODING", key) for key in blocks} == {b"listpack"}
    claims = await drained_order(door) + await drained_order(door)
    assert [c.score for c in claims[:1000]] == sorted(scores, reverse=True)[:1000]
    assert [c.score for c in claims[1000:]] == [c.score for c in claims[:1000]]


async def test_urls_of_many_origins_of_a_queue_come_back_as_they_went_in(door: Door) -> None:
    """Some origins follow from the queue's name, some are listed, and of very many the last ones are written out."""
    urls = [f"{scheme}://{host}/p" for scheme in ("http", "https") for host in ("a.test", "www.a.test", "a.test:8080")]
    urls += [f"https://h{n}.a.test/q?x={n}" for n in range(120)]
    items = [found(n, url=url, fingerprint=fingerprint(url)) for n, url in enumerate(urls)]
    assert await door.add(*items) == [NEW] * len(urls)
    claims = await drained_order(door)
    assert {(c.url, c.fingerprint) for c in claims} == {(c.url, c.fingerprint) for c in items}
    places = [await UrlLookup(door.engine, door.keys, 1).locate(c) for c in items]
    assert sorted(w.place for w in places if w.place is not None) == list(range(len(urls)))
    assert [w.record.url for w in places if w.record] == urls
