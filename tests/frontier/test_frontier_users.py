"""Users in the engine: who gets the places of a claim and the slots of a queue, and what is kept of it."""

import random
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from crawler.frontier.bulk import BulkLookup
from crawler.frontier.deferred import ChangeKind, QueueChange
from crawler.frontier.lookup import UrlLookup
from crawler.frontier.operator import OperatorCommands
from crawler.frontier.owner import Settlement
from crawler.frontier.pending import PendingUrls
from crawler.frontier.stats import Stats
from crawler.model import Candidate, Claim
from tests.frontier.door import DELAY_MS, FINGERPRINTS, Door, found

ANN, BEN = "ann", "ben@b.test"


def urls(user: str, n: int, host: str = "a.test", first: int = 0) -> list[Candidate]:
    """URLs of a user in one queue, the best first."""
    return [found(f"{user}{i}", host=host, user=user, score=-i / 100) for i in range(first, first + n)]


def over(user: str, n: int) -> list[Candidate]:
    """A URL of a user in each of n queues."""
    return [found(user, host=f"{user or 'crawl'}{i}.test", user=user) for i in range(n)]


async def add(door: Door, *candidates: Candidate) -> None:
    for start in range(0, len(candidates), 128):
        await door.add(*candidates[start : start + 128])


async def slots(door: Door, n: int, host: str = "a.test", **request: Any) -> list[Claim]:
    """What a queue with a delay hands out in its next n slots."""
    claims = []
    for _ in range(n):
        door.now += DELAY_MS
        for claim in await door.claim(ahead_ms=0, **request):
            assert claim.queue == host
            claims.append(claim)
            await door.ack(claim, next_ms=door.now + DELAY_MS, delay_ms=DELAY_MS)
    return claims


def shares(claims: list[Claim]) -> Counter[str]:
    return Counter(claim.user for claim in claims)


def has_delay(claim: Claim) -> bool:
    """In a crawl in which every fourth queue has none."""
    return int(claim.queue[1 : claim.queue.index(".")]) % 4 > 0


def raw(door: Door, name: str) -> dict[bytes, bytes]:
    with door.node as node:
        return node.hgetall(door.keys.of(0, name))


async def test_two_users_alternate_in_one_domain_whoever_came_first(door: Door) -> None:
    await add(door, *urls(ANN, 300))
    assert shares(await slots(door, 20)) == {ANN: 20}
    await add(door, *urls(BEN, 10))
    claims = await slots(door, 20)
    assert shares(claims) == {ANN: 10, BEN: 10}
    ours = [claim.url for claim in claims if claim.user == BEN]
    assert ours == [one.url for one in urls(BEN, 10)], "in their own order"
    assert shares(await slots(door, 5)) == {ANN: 5}


async def test_slots_of_a_domain_follow_the_weights(door: Door) -> None:
    await add(door, *urls(ANN, 90), *urls(BEN, 90), *urls("", 90))
    claims = await slots(door, 60, weights={ANN: 3.0, BEN: 0.5, "": 2.5})
    for n in range(6, 60):
        got = shares(claims[:n])
        for user, weight in ((ANN, 3.0), (BEN, 0.5), ("", 2.5)):
            assert abs(got[user] - n * weight / 6) <= 2, f"after {n} slots"


async def test_few_urls_on_other_domains_are_not_behind_a_backlog(door: Door) -> None:
    await add(door, *over(ANN, 500))
    door.now += 100 * DELAY_MS
    await add(door, *over(BEN, 10))
    got = [await door.claim(urls_max=4, ahead_ms=0) for _ in range(6)]
    assert [shares(claims)[BEN] for claims in got[:5]] == [2] * 5
    assert shares(got[5]) == {ANN: 4}


async def test_places_of_claims_follow_the_weights(door: Door) -> None:
    await add(door, *over(ANN, 400), *over(BEN, 400), *over("", 400))
    got: Counter[str] = Counter()
    for n in range(1, 31):
        got += shares(await door.claim(urls_max=8, ahead_ms=0, weights={ANN: 4.0, "": 2.0}))
        for user, weight in ((ANN, 4), (BEN, 1), ("", 2)):
            assert abs(got[user] - 8 * n * weight / 7) <= 8, "one batch"


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(one, marks=pytest.mark.slow) for one in range(2, 6))])
async def test_service_of_users_with_a_backlog_is_by_weight_and_nothing_stays_free(door: Door, seed: int) -> None:
    """Queues of one or of several users, with and without a delay; claims of any size, at any time."""
    chance = random.Random(seed)
    weights = {ANN: 3.0, BEN: 1.5}
    for host in range(40):
        for user in ("", ANN, BEN):
            if chance.random() < 0.6:
                await add(door, *urls(user, 40, f"h{host}.test"))
        if host % 4 == 0:
            await door.frontier.book_request(door.fence, f"h{host}.test", Settlement(next_fetch_ms=0, delay_ms=0))
    got: Counter[str] = Counter()
    out: list[Claim] = []
    started: dict[str, int] = {}
    for _ in range(150):
        door.now += chance.choice((0, 300, 5000))
        most = chance.choice((1, 2, 5, 8))
        claims = await door.claim(urls_max=most, per_queue_max=4, ahead_ms=0, weights=weights)
        if len(claims) < most:
            rest = await door.claim(urls_max=64, per_queue_max=4, ahead_ms=0, weights=weights)
            assert not any(has_delay(claim) for claim in rest), "some were due, and there was room for them"
            claims += rest
        got += shares(claims)
        for claim in filter(has_delay, claims):
            assert door.now >= started.get(claim.queue, -DELAY_MS) + DELAY_MS, "one clock, whoever it is for"
        out += claims
        while out and chance.random() < 0.9:
            claim = out.pop(chance.randrange(len(out)))
            started[claim.queue] = door.now
            delay_ms = DELAY_MS if has_delay(claim) else 0
            await door.ack(claim, next_ms=door.now + delay_ms, delay_ms=delay_ms)
    served = {user: got[user] / weights.get(user, 1.0) for user in ("", ANN, BEN)}
    queues_shared, batch = 40, 8
    assert max(served.values()) - min(served.values()) <= batch + queues_shared / 2, got
    assert sum(got.values()) > 150


async def test_a_user_that_adds_one_url_at_a_time_gets_no_more_than_its_share(door: Door) -> None:
    await add(door, *urls(ANN, 100))
    got: Counter[str] = Counter()
    for i in range(40):
        await add(door, *urls(BEN, 1, first=i))
        got += shares(await slots(door, 1, weights={ANN: 3.0}))
    assert 9 <= got[BEN] <= 11


async def test_a_user_does_not_save_up_what_it_did_not_use(door: Door) -> None:
    await add(door, *over(ANN, 200), *over(BEN, 1))
    for _ in range(20):
        await door.claim(urls_max=4, ahead_ms=0)
    await add(door, *(replace(one, url=f"{one.url}x", fingerprint=f"{i}", queue=f"late{i}.test", domain=f"late{i}.test")
                      for i, one in enumerate(over(BEN, 100))))  # fmt: skip
    got: Counter[str] = Counter()
    for _ in range(10):
        got += shares(await door.claim(urls_max=4, ahead_ms=0))
    assert abs(got[ANN] - got[BEN]) <= 4


async def test_a_boost_goes_before_the_turn_of_a_user(door: Door, operator: OperatorCommands) -> None:
    await add(door, *over(ANN, 20), *over(BEN, 20))
    for i in range(8):
        await operator.boost(f"{ANN}{i}.test", 2)
    door.now += DELAY_MS
    reply = await door.claim_reply(urls_max=8, ahead_ms=0)
    assert shares([c for b in reply.batches for c in b.claims]) == {ANN: 8}
    assert set(reply.waits) == {(boost, user) for boost in (2, 0) for user in ("", ANN, BEN)}
    assert reply.waits[2, ANN] == -1
    for i in range(8):
        await operator.boost(f"{ANN}{i}.test", 0)
    assert shares(await door.claim(urls_max=8, ahead_ms=0)) in ({ANN: 4, BEN: 4}, {BEN: 8}, {ANN: 1, BEN: 7})


async def test_claims_and_retries_come_back_as_urls_of_their_user(door: Door) -> None:
    await add(door, *urls(ANN, 2), *urls(BEN, 2))
    (first,) = await door.claim(ahead_ms=0)
    call = door.frontier.retry(door.fence, first, Settlement(next_fetch_ms=0), due_ms=door.now + 1, kind="timeout")
    await door.frontier.end([call])
    door.now += DELAY_MS
    await door.return_claims(*await door.claim(ahead_ms=0))
    await door.acquire("bob")
    door.now += 100 * DELAY_MS
    claims = await slots(door, 4)
    assert shares(claims) == {ANN: 2, BEN: 2}
    assert {c.attempts for c in claims if c.url == first.url} == {1}


async def test_a_claim_names_the_users_that_still_wait_in_its_queues(door: Door) -> None:
    await add(door, *urls(ANN, 2), *urls("", 1), *over("", 1))
    reply = await door.claim_reply(ahead_ms=0)
    waiting = {batch.queue: batch.waiting for batch in reply.batches}
    first = next(batch.claims[0].user for batch in reply.batches if batch.queue == "a.test")
    assert waiting == {"crawl0.test": (), "a.test": (ANN,) if first == "" else ("", ANN)}


async def test_nothing_is_kept_of_users_that_have_nothing(door: Door) -> None:
    before = set(raw(door, "m"))
    await add(door, *urls(ANN, 3), *urls(BEN, 2))
    assert raw(door, "users") == {b"ann": b"3", BEN.encode(): b"2"}
    await slots(door, 5)
    assert raw(door, "users") == {}
    assert not {b"users", b"turns"} & set(raw(door, "m"))
    (record,) = await Stats(door.engine, door.keys, 1).records([("a.test", 0)])
    assert not {"users", "turns"} & set(record)
    with door.node as node:
        assert not [key for key in node.keys("*") if b"@" in key]
    assert before <= set(raw(door, "m"))


async def test_a_crawl_without_users_stores_and_reads_what_it_did(door: Door) -> None:
    await add(door, *urls("", 5))
    reply = await door.claim_reply()
    assert (reply.waits, reply.batches[0].waiting) == ({}, ())
    with door.node as node:
        assert not [key for key in node.keys("*") if b"@" in key or key.endswith(b":users")]
        assert {b"users", b"turns"} & set(raw(door, "m")) == set()
        assert node.hvals(door.keys.of(0, "u"))[0].split(b" ")[1] == b"a.test"


async def test_people_see_the_urls_of_all_users(door: Door, operator: OperatorCommands) -> None:
    await add(door, *urls(ANN, 130), *urls(BEN, 2), *urls("", 3))
    (stats,) = await Stats(door.engine, door.keys, 1).domains([("a.test", 0)])
    assert stats.queued == 135
    pending = PendingUrls(door.engine, door.keys)
    assert await pending.count(0) == 135
    assert len(await pending.fingerprints(FINGERPRINTS, 0)) == 135
    users = Counter([one.url.user async for some in pending.read(0) for one in some])
    assert users == {ANN: 130, BEN: 2, "": 3}
    place = await UrlLookup(door.engine, door.keys, 1).locate(urls(BEN, 2)[1])
    assert (place.place, place.record and place.record.user) == (1, BEN)
    tally = await BulkLookup(door.engine, door.keys, 1).tally(0)
    assert (tally.pending, tally.added - tally.done) == (135, 135)


async def test_a_queue_is_stopped_started_and_emptied_for_all_users(door: Door, operator: OperatorCommands) -> None:
    await add(door, *urls(ANN, 130), *urls(BEN, 2), *urls("", 3))
    change = operator.deferred_urls.change_queues
    assert await change(0, [QueueChange("a.test", ChangeKind.STOP, "blocked")]) == [135]
    door.now += DELAY_MS
    assert await door.claim() == []
    assert len([one async for some in PendingUrls(door.engine, door.keys).deferred(0) for one in some]) == 135
    assert await change(0, [QueueChange("a.test", ChangeKind.START, "blocked")]) == [135]
    assert len(await door.claim(ahead_ms=0)) == 1
    assert await operator.purge("a.test") == 134
    assert raw(door, "users") == {}
    tally = await BulkLookup(door.engine, door.keys, 1).tally(0)
    assert (tally.pending, tally.added - tally.done, tally.deferred) == (1, 1, 0)


async def test_a_hint_names_the_user_whose_urls_came(door: Door) -> None:
    with door.node as node, node.pubsub() as channel:
        channel.subscribe(f"{door.keys.hints}{door.session}")
        await add(door, *urls("", 1))
        door.frontier.session = "other"
        await add(door, *urls(ANN, 1), *urls(ANN, 1, first=1), *urls("", 1, first=1))
        told = []
        while (message := channel.get_message(timeout=0.2)) is not None:
            if message["type"] == "message":
                told.append(message["data"])
        assert told == [door.keys.meta(0).encode() + b" ann"]


async def test_a_repeated_batch_names_the_user_who_has_nothing_left(door: Door) -> None:
    await door.add(*urls(ANN, 1))
    request = door.request()
    first, again = await door.claim(request), await door.claim(request)
    assert [claim.user for claim in first] == [ANN]
    assert again == first


@pytest.mark.parametrize(("reason", "pending"), [("paused", {"crawl", ANN}), ("pages", {ANN}), ("blocked", set())])
async def test_what_a_stop_does_not_defer_is_read_as_pending(
    door: Door, operator: OperatorCommands, reason: str, pending: set[str]
) -> None:
    """A budget of pages is for the crawl's own: URLs of users are still handed out."""
    await add(door, found("own"), found("anns", user=ANN))
    await operator.deferred_urls.change_queues(0, [QueueChange("a.test", ChangeKind.STOP, reason)])
    reader = PendingUrls(door.engine, door.keys)
    read = {one.url.user or "crawl" async for some in reader.read(0) for one in some}
    deferred = {one.url.user or "crawl" async for some in reader.deferred(0) for one in some}
    assert (read, deferred) == (pending, {"crawl", ANN} - pending)
    assert await reader.count(0) == len(pending)
