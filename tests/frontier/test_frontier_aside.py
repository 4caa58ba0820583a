"""URLs of origins that do not answer are set aside: pending in a row of their own until the origin is probed."""

import pytest

from crawler.audit.judge_frontier import Committed, disagreements
from crawler.engine.client import Call
from crawler.frontier.bulk import BulkLookup
from crawler.frontier.codec import DeadLetter
from crawler.frontier.deferred import ChangeKind, DeferredUrls, QueueChange
from crawler.frontier.messages import ClaimReply, Probe
from crawler.frontier.operator import Purge
from crawler.frontier.owner import Aside, Settlement
from crawler.frontier.pending import PendingUrls
from crawler.frontier.stats import Stats
from crawler.model import AckOutcome, Candidate, Claim
from tests.frontier.door import Door, fingerprint, found
from tests.frontier.test_frontier_restore import done, restore

DEAD = "http://dead.a.test"
MINUTE = 60_000


def dead(path: object, **more: object) -> Candidate:
    url = f"{DEAD}/{path}"
    return found(path, url=url, fingerprint=fingerprint(url, str(more.get("run", ""))), **more)


async def set_aside(door: Door, *claims: Claim, due_ms: int = MINUTE, since_ms: int = 0) -> None:
    call = door.frontier.return_claims(
        door.fence, [(claim, 0) for claim in claims], aside=Aside(DEAD, due_ms, since_ms)
    )
    assert await door.frontier.end([call]) == [AckOutcome.COMMITTED]


def dead_letter(door: Door, claim: Claim) -> Call:
    letter = DeadLetter(
        url=claim.url, queue=claim.queue, domain=claim.domain, depth=claim.depth, reason="dns_not_found", detail="",
        attempts=1, failed_at=1.0,
    )  # fmt: skip
    return door.frontier.dead_letter(door.fence, claim, Settlement(next_fetch_ms=0), letter)


async def claims_at(door: Door, now: int) -> tuple[ClaimReply, set[str]]:
    """The reply, and the paths of what was handed out."""
    door.now = now
    reply = await door.claim_reply()
    return reply, {c.url.rpartition("/")[2] for batch in reply.batches for c in batch.claims}


async def check(door: Door, pending: int) -> None:
    """All that counts agrees that this many are pending."""
    urls = PendingUrls(door.engine, door.keys)
    read = {(one.url.url, one.url.run) async for some in urls.read(0) for one in some}
    tally = await BulkLookup(door.engine, door.keys, 1).tally(0)
    assert (len(read), await urls.count(0), tally.added - tally.done) == (pending, pending, pending)
    committed = Committed(tally.committed, tally.committed)
    assert list(disagreements(tally, committed, exactly=True)) == []


async def stats(door: Door) -> dict[str, int]:
    (domain,) = await Stats(door.engine, door.keys, 1).domains([("a.test", 0)])
    return {"queued": domain.queued, "claimed": domain.claimed, "aside": domain.set_aside, "pending": domain.pending}


async def test_urls_that_are_set_aside_are_pending_and_not_handed_out(door: Door) -> None:
    await door.add(dead(1, score=3.0), found(2, score=2.0), dead(3, score=1.0))
    (claim,) = await door.claim()
    await set_aside(door, claim)
    await check(door, 3)
    assert await stats(door) == {"queued": 1, "claimed": 0, "aside": 2, "pending": 3}
    assert [one.url[-1] for one in await door.claim()] == ["2"]


async def all_dead(door: Door, n: int, **more: object) -> None:
    """Add n URLs of the dead origin and set them all aside."""
    await door.add(*(dead(path, **more) for path in range(n)))
    while claims := await door.claim():
        await set_aside(door, *claims)


async def test_one_url_goes_back_as_a_probe_when_its_origin_is_due(door: Door) -> None:
    await all_dead(door, 5)
    reply, handed = await claims_at(door, MINUTE - 1)
    assert handed == set()
    assert reply.next_due_ms == MINUTE
    reply, handed = await claims_at(door, MINUTE)
    assert len(handed) == 1
    assert reply.probes == (Probe("a.test", DEAD, 0),)
    assert await stats(door) == {"queued": 0, "claimed": 1, "aside": 4, "pending": 5}
    await check(door, 5)


async def test_without_news_of_a_probe_another_one_follows_a_minute_later(door: Door) -> None:
    await all_dead(door, 3)
    _, first = await claims_at(door, MINUTE)
    assert (await claims_at(door, 2 * MINUTE - 1))[1] == set()
    _, second = await claims_at(door, 2 * MINUTE + 1)
    assert len(first) == 1
    assert second  # the first one, whose claim expired, or another one
    await check(door, 3)


async def test_another_probe_comes_back_when_the_first_told_nothing(door: Door) -> None:
    await all_dead(door, 3)
    reply, _ = await claims_at(door, MINUTE)
    (probe,) = [c for b in reply.batches for c in b.claims]
    await door.frontier.end([door.frontier.refuse(door.fence, probe, "robots")])
    await door.frontier.recall(door.fence, "a.test", DEAD, due_ms=MINUTE + 5)
    assert (await claims_at(door, MINUTE + 4))[1] == set()
    assert len((await claims_at(door, MINUTE + 5))[1]) == 1


@pytest.mark.parametrize("is_good", [True, False])
async def test_all_urls_of_a_recalled_origin_come_back(door: Door, is_good: bool) -> None:
    await all_dead(door, 300)
    assert (await stats(door))["aside"] == 300
    assert await door.frontier.recall(door.fence, "a.test", DEAD, is_good=is_good) is AckOutcome.COMMITTED
    came = set()
    for _ in range(20):
        _, handed = await claims_at(door, door.now + 1)
        came |= handed
        for batch in (await door.claim_reply()).batches:
            came |= {c.url.rpartition("/")[2] for c in batch.claims}
        tally = await stats(door)
        if tally["aside"] == 0:
            break
    assert (await stats(door))["aside"] == 0
    await check(door, 300)


async def test_a_silence_goes_on_across_probes_and_owners_until_the_origin_answers(door: Door) -> None:
    await all_dead(door, 3)
    await door.acquire("bob")
    reply, _ = await claims_at(door, MINUTE)
    (probe,) = [c for b in reply.batches for c in b.claims]
    await set_aside(door, probe, due_ms=3 * MINUTE, since_ms=MINUTE)
    reply, _ = await claims_at(door, 3 * MINUTE)
    assert [one.since_ms for one in reply.probes] == [0]
    await door.frontier.recall(door.fence, "a.test", DEAD, is_good=True)
    (claim,) = [c for b in reply.batches for c in b.claims]
    await set_aside(door, claim, due_ms=9 * MINUTE, since_ms=8 * MINUTE)
    reply, _ = await claims_at(door, 9 * MINUTE)
    assert [one.since_ms for one in reply.probes] == [8 * MINUTE]


async def test_urls_of_users_go_back_to_their_users(door: Door) -> None:
    await door.add(dead(1, user="ann"))
    await door.add(dead(2, user="bob"))
    await door.add(dead(3))
    while claims := await door.claim():
        await set_aside(door, *claims)
    assert (await stats(door))["aside"] == 3
    await door.frontier.recall(door.fence, "a.test", DEAD, is_good=True)
    seen = set()
    for _ in range(6):
        door.now += 10_000
        for claim in await door.claim():
            seen.add((claim.user, claim.url[-1]))
            await door.ack(claim)
    assert seen == {("ann", "1"), ("bob", "2"), ("", "3")}


async def test_urls_of_a_queue_that_is_stopped_for_its_budget_are_deferred(door: Door) -> None:
    await all_dead(door, 5)
    deferred = DeferredUrls(door.frontier, 1)
    await deferred.change_queues(0, [QueueChange("a.test", ChangeKind.STOP, "pages")])
    _, handed = await claims_at(door, 1)
    assert handed == set()
    await check(door, 0)
    assert [(row.reason, row.urls) for row in await deferred.of_queue(0, "a.test")] == [("pages", 5)]
    await deferred.change_queues(0, [QueueChange("a.test", ChangeKind.START, "pages")])
    await check(door, 5)


async def test_deferred_urls_of_an_origin_that_is_set_aside_stay_deferred(door: Door) -> None:
    await door.add(*(dead(path) for path in range(5)))
    (claim,) = await door.claim()
    deferred = DeferredUrls(door.frontier, 1)
    await deferred.change_queues(0, [QueueChange("a.test", ChangeKind.STOP, "pages")])
    await set_aside(door, claim)
    await claims_at(door, MINUTE)
    assert [(row.reason, row.urls) for row in await deferred.of_queue(0, "a.test")] == [("pages", 5)]
    await check(door, 0)


async def test_a_queue_hands_out_twice_as_many_after_a_batch_without_answers(door: Door) -> None:
    urls = [f"http://{n}.a.test/" for n in range(100)]
    await door.add(*(found(n, url=url, fingerprint=fingerprint(url)) for n, url in enumerate(urls)))
    sizes = []
    while claims := await door.claim():
        sizes.append(len(claims))
        for claim in claims:
            await door.frontier.end([dead_letter(door, claim)])
    assert sizes == [1, 2, 4, 8, 16, 32, 32, 5], "at most half of what a call may take"


async def test_each_answer_takes_one_off_what_a_queue_hands_out_at_once(door: Door) -> None:
    await door.add(*(found(n) for n in range(30)))
    for size in (1, 2, 4):
        claims = await door.claim()
        assert len(claims) == size
        for claim in claims:
            await door.frontier.end([dead_letter(door, claim)])
    claims = await door.claim()
    assert len(claims) == 8
    for claim in claims[:3]:
        await door.ack(claim, delay_ms=-1)
    await door.return_claims(*claims[3:])
    assert len(await door.claim()) == 5


async def test_the_urls_behind_one_that_is_set_aside_follow_without_being_claimed(door: Door) -> None:
    await door.add(*(dead(path) for path in range(300)))
    calls = 0
    while claims := await door.claim():
        calls += 1
        await set_aside(door, *claims)
    assert calls == 3
    await check(door, 300)


@pytest.mark.parametrize("origin", ["https://a.test", "http://a.test", "http://www.a.test:81", "http://x.a.test"])
@pytest.mark.parametrize("more", [0, 95])  # beyond 90 origins, they are written out in the queue
async def test_urls_of_no_other_origin_are_set_aside(door: Door, origin: str, more: int) -> None:
    others = ["https://a.test", "http://a.test", "http://www.a.test:81", "https://www.a.test", "http://x.a.test:80"]
    origins = [*(f"http://{n}.a.test" for n in range(more)), *dict.fromkeys([*others, origin])]
    urls = [f"{one}/{n}" for one in origins for n in range(2)]
    await door.add(
        *(
            found(n, url=url, fingerprint=fingerprint(url), score=float(url.startswith(origin + "/")))
            for n, url in enumerate(urls)
        )
    )
    (claim,) = await door.claim()
    call = door.frontier.return_claims(door.fence, [(claim, 0)], aside=Aside(origin, MINUTE, 0))
    await door.frontier.end([call])
    assert await stats(door) == {"queued": len(urls) - 2, "claimed": 0, "aside": 2, "pending": len(urls)}
    await check(door, len(urls))


async def test_a_rebuild_finds_what_is_committed_in_the_row(door: Door) -> None:
    urls = [dead(1), dead(2), dead(3, user="ann"), dead(4)]
    for url in urls:
        await door.add(url)
    while claims := await door.claim():
        await set_aside(door, *claims)
    assert await restore(door, done(urls[1]), done(urls[2])) == (0, 2)
    await check(door, 2)
    assert await restore(door, *map(done, urls)) == (0, 2)
    await check(door, 0)


async def test_a_purge_drops_what_is_set_aside(door: Door) -> None:
    await door.add(dead(7, user="ann"))
    await all_dead(door, 5)
    assert await Purge(door.frontier, DeferredUrls(door.frontier, 1)).purge(0, "a.test") == 6
    await check(door, 0)
    assert await door.engine.command("ZCARD", door.keys.of(0, "aside")) == 0
