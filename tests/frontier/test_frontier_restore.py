"""Commits that are known from disk alone become seen and done, wherever the engine has their URLs."""

import contextlib

from msgspec.structs import replace

from crawler.audit.judge_frontier import Committed, disagreements
from crawler.frontier.bulk import BulkLookup, Tally, UrlState
from crawler.frontier.codec import DeadLetter
from crawler.frontier.deferred import BLOCKED, ChangeKind, DeferredUrls, QueueChange
from crawler.frontier.lookup import UrlLookup
from crawler.frontier.owner import Settlement
from crawler.frontier.restore import RESTORE_MAX, DoneUrl, Restoring
from crawler.frontier.stats import Stats
from crawler.model import Candidate
from tests.frontier.door import HASH_KEY, Door, found

SETTLED = Settlement(next_fetch_ms=0)


def restoring(door: Door) -> Restoring:
    return Restoring(door.engine, door.keys, hash_key=HASH_KEY)


def done(candidate: Candidate, status: int = 200, items: int = 0) -> DoneUrl:
    c = candidate
    return DoneUrl(
        fingerprint=c.fingerprint, partition=0, domain=c.domain, queue=c.queue, status=status, body_bytes=100,
        fetch_ms=7, items=items,
    )  # fmt: skip


async def restore(door: Door, *urls: DoneUrl) -> tuple[int, int]:
    """As a rebuild does: how many were unknown, and how many were pending."""
    door_ = restoring(door)
    unknown = await door_.restore(urls)
    by_fingerprint = {url.fingerprint: url for url in urls}
    pending = 0
    async for some in door_.all_pending(0):
        pending += await door_.withdraw((f, by_fingerprint[fp]) for fp, f in some if fp in by_fingerprint)
    return unknown, pending


def left_of(door: Door) -> set[str]:
    """The keys of pending URLs that the partition still has."""
    with contextlib.closing(door.node) as client:
        return {name for name in ("u", "x", "r", "ready") if client.exists(door.keys.of(0, name))}


async def tally(door: Door) -> Tally:
    return await BulkLookup(door.engine, door.keys, 1).tally(0)


async def test_an_unknown_url_is_seen_done_and_counted_and_never_new_again(door: Door) -> None:
    page, moved = found("page"), found("moved", host="b.test")
    assert await restore(door, done(page), done(moved, 301)) == (2, 0)
    assert await door.add(page, moved) == [0, 0]
    assert await door.claim() == []
    totals = await Stats(door.engine, door.keys, 1).totals()
    assert (totals.added, totals.done, totals.bytes, dict(totals.status)) == (2, 2, 200, {"2": 1, "3": 1})
    (b,) = await Stats(door.engine, door.keys, 1).domains([("b.test", 0)])
    assert (b.fetched, b.bytes, b.fetch_ms, b.pending) == (1, 100, 7, 0)


async def test_items_are_counted_again_wherever_the_url_was(door: Door) -> None:
    await door.add(found("known"))
    pages = done(found("known"), items=2), done(found("new"), items=3), done(found("none"))
    assert await restore(door, *pages) == (2, 1)
    assert (await Stats(door.engine, door.keys, 1).totals()).items == 5
    (domain,) = await Stats(door.engine, door.keys, 1).domains([(found("new").domain, 0)])
    assert domain.items == 5


async def test_what_an_index_has_is_not_written_into_one_by_the_next_owner(door: Door) -> None:
    """The rebuild has read its line, and its record may be elsewhere now."""
    states = BulkLookup(door.engine, door.keys, 1)
    await door.add(found("page"), found("other"))
    for _ in range(2):
        for claim in await door.claim():
            await door.ack(claim, delay_ms=0)
    assert await restoring(door).restore([done(found("page"))]) == 0
    assert [entry.url for entry in await states.undrained(0)] == [found("other").url]


async def test_what_is_opened_again_is_new_and_counts_nothing_until_it_is_fetched(door: Door) -> None:
    """As after a rebuild that could not read its page any more, in an engine that knows it as done."""
    page, other = done(found("page"), items=2), done(found("other", host="b.test"), 301)
    await restore(door, other)
    totals, before = await Stats(door.engine, door.keys, 1).totals(), await tally(door)
    await restore(door, page)
    assert await restoring(door).reopen([page]) == 1
    after = await Stats(door.engine, door.keys, 1).totals()
    assert replace(after, added=totals.added, done=totals.done) == totals
    again = await tally(door)
    assert (again.added, again.done, again.revived) == (before.added + 1, before.done + 1, 1), "these only grow"
    assert replace(again, added=before.added, done=before.done, revived=0) == before
    assert await restoring(door).reopen([page]) == 0
    assert await door.add(found("page"), found("other", host="b.test")) == [1, 0]
    ((claim,),) = [await door.claim()]
    assert claim.url == found("page").url


async def test_what_is_opened_again_is_not_written_into_an_index_by_the_next_owner(door: Door) -> None:
    """Its first result can't be read any more, and the log may still have it although an index has it, too."""
    states = BulkLookup(door.engine, door.keys, 1)
    await door.add(found("page"), found("other"))
    for _ in range(2):
        for claim in await door.claim():
            await door.ack(claim, delay_ms=0)
    assert sorted(entry.url for entry in await states.undrained(0)) == [found("other").url, found("page").url]
    assert await restoring(door).reopen([done(found("page"))]) == 1
    assert [entry.url for entry in await states.undrained(0)] == [found("other").url]


async def test_a_repeat_changes_nothing(door: Door) -> None:
    page = done(found("page"))
    await restore(door, page)
    before = await tally(door)
    assert await restore(door, page, page) == (0, 0)
    assert await tally(door) == before


async def test_a_queued_url_leaves_its_queue_and_the_queue_its_turn(door: Door) -> None:
    await door.add(found(1), found(2))
    assert await restore(door, done(found(1))) == (0, 1)
    assert [claim.url for claim in await door.claim()] == [found(2).url]
    await restore(door, done(found(2)))
    await door.add(found(3, host="lonely.test"))
    await restore(door, done(found(3, host="lonely.test")))
    assert left_of(door) == set()


async def test_a_url_whose_queue_stopped_since_it_was_read_is_deferred_no_more(door: Door) -> None:
    await door.add(found(1), found(2))
    pending = [one async for some in restoring(door).all_pending(0) for one in some]
    stopped = QueueChange("a.test", ChangeKind.STOP, BLOCKED)
    await DeferredUrls(door.frontier, 1).change_queues(0, [stopped])
    (first,) = [place for fp, place in pending if fp == found(1).fingerprint]
    assert await restoring(door).withdraw([(first, done(found(1)))]) == 1
    counted = await tally(door)
    assert (counted.deferred, counted.pending, counted.committed) == (1, 0, 1)
    assert list(disagreements(counted, Committed(1, 1), exactly=True)) == []


async def test_pages_that_were_pending_count_among_those_of_the_largest_queues(door: Door) -> None:
    await door.add(found(1))
    assert await restore(door, done(found(1)), done(found(2)), done(found(3, host="b.test"))) == (2, 1)
    with contextlib.closing(door.node) as client:
        assert dict(client.zrange(door.keys.of(0, "top"), 0, -1, withscores=True)) == {b"a.test": 2, b"b.test": 1}


async def test_a_claimed_url_is_taken_from_its_owner_and_the_late_ack_finds_it_gone(door: Door) -> None:
    await door.add(found(1), found(2))
    claims = await door.claim(urls_max=1)
    assert await restore(door, *(done(found(n)) for n in (1, 2))) == (0, 2)
    assert (await door.ack(claims[0])).outcome == "GONE"
    assert left_of(door) == set()
    await door.add(found(3))
    door.now += 120_000
    assert [claim.url for claim in await door.claim()] == [found(3).url]
    counted = await tally(door)
    assert (counted.added, counted.done, counted.pending, counted.committed) == (3, 2, 1, 2)


async def test_a_claim_of_a_dead_owner_does_not_come_back(door: Door) -> None:
    await door.add(found(1))
    await door.claim()
    await door.acquire("bob")
    await restore(door, done(found(1)))
    assert left_of(door) == set()
    door.now += 120_000
    assert await door.claim() == []
    (domain,) = await Stats(door.engine, door.keys, 1).domains([("a.test", 0)])
    assert (domain.claimed, domain.queued, domain.fetched) == (0, 0, 1)


async def test_a_url_that_waits_for_its_retry_is_not_tried_again(door: Door) -> None:
    await door.add(found(1))
    (claim,) = await door.claim()
    await door.frontier.end([door.frontier.retry(door.fence, claim, SETTLED, due_ms=door.now + 5, kind="tls")])
    assert await restore(door, done(found(1))) == (0, 1)
    door.now += 1000
    assert await door.claim() == []
    (domain,) = await Stats(door.engine, door.keys, 1).domains([("a.test", 0)])
    assert (domain.retrying, domain.queued, domain.fetched) == (0, 0, 1)


async def test_what_the_engine_ended_itself_is_left_as_it_is(door: Door) -> None:
    await door.add(found(1), found(2, host="b.test"))
    dead, committed = sorted(await door.claim(), key=lambda claim: claim.url)
    letter = DeadLetter(url="u", queue="q", domain="d", depth=1, reason="tls", detail="", attempts=1, failed_at=1.0)
    await door.frontier.end([door.frontier.dead_letter(door.fence, dead, SETTLED, letter)])
    await door.ack(committed)
    before = await tally(door)
    assert await restore(door, done(found(1)), done(found(2, host="b.test"))) == (0, 0)
    assert await tally(door) == replace(before, log_entries=0)


async def test_more_than_a_call_takes_go_out_in_several_and_every_bucket_has_its_part(door: Door) -> None:
    urls = [found(n) for n in range(3 * RESTORE_MAX)]
    assert await restore(door, *map(done, urls)) == (len(urls), 0)
    states = await BulkLookup(door.engine, door.keys, 1).of({0: [c.fingerprint for c in urls]})
    assert set(states.values()) == {UrlState.ENDED}
    with contextlib.closing(door.node) as client:
        assert int(client.hget(door.keys.meta(0), "buckets")) == len(urls) // 200 + 1
    counted = await tally(door)
    assert (counted.seen, counted.seen_counter, counted.added, counted.done) == (len(urls),) * 4


async def test_records_of_pending_urls_are_found_and_no_others(door: Door) -> None:
    await door.add(found(1, depth=4), found(2))
    await restore(door, done(found(2)))
    pending = await restoring(door).pending({0: [found(n).fingerprint for n in (1, 2, 3)]})
    assert {fp: record.depth for fp, record in pending.items()} == {found(1).fingerprint: 4}


async def test_held_queues_wait_for_their_delay_although_nobody_knows_their_last_request(door: Door) -> None:
    await restoring(door).hold(1)
    await door.add(found(1))
    assert await door.claim() == []
    assert (await door.claim_reply()).next_due_ms == 1000
    door.now = 1000
    assert len(await door.claim()) == 1


async def test_a_rebuilt_crawl_shows_its_progress(door: Door) -> None:
    await restore(door, done(found(1)), done(found(2), 404))
    progress = await UrlLookup(door.engine, door.keys, 1).progress()
    assert (progress.fetched, progress.failed, progress.pending) == (2, 1, 0)


async def test_changed_numbers_of_items_count_once_however_often_they_are_sent(door: Door) -> None:
    await restore(door, done(found("page"), items=5), done(found("other", host="b.test")))
    changes = [(1, 0, found("page").queue, "", -3), (2, 0, "b.test", "", 4), (7, 0, "b.test", "", 2)]

    async def items() -> tuple[int, ...]:
        stats = Stats(door.engine, door.keys, 1)
        domains = await stats.domains([(found("page").queue, 0), ("b.test", 0)])
        return ((await stats.totals()).items, *(one.items for one in domains))

    await restoring(door).count_items("a", changes[:2])
    for some in (changes[:1], changes[:2], changes, changes):
        await restoring(door).count_items("a", some)
    assert await items() == (8, 2, 6)
    await restoring(door).count_items("b", changes[1:2])
    assert await items() == (12, 2, 10)
    await restoring(door).count_items("b", [])
    assert await items() == (12, 2, 10)
    many = [(n, 0, f"{n % 7}.test", "", 1) for n in range(1, 3 * RESTORE_MAX + 1)]
    await restoring(door).count_items("c", many)
    assert (await items())[0] == 12 + 3 * RESTORE_MAX
