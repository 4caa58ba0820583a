"""Queries of audits: the states of many URLs at once, and counters next to a recount."""

import contextlib

from crawler.frontier.bulk import STATES_MAX, BulkLookup, UrlState
from crawler.frontier.codec import DeadLetter
from crawler.frontier.owner import Settlement
from tests.frontier.door import FINGERPRINTS, Door, found

SETTLED = Settlement(next_fetch_ms=0)


def states_of(door: Door) -> BulkLookup:
    return BulkLookup(door.engine, door.keys, 1)


async def end_each_way(door: Door) -> list[str]:
    """Five URLs, four of them at an end: committed, given up, refused, committed and drained. Their fingerprints."""
    await door.add(*(found(n, host=f"h{n}.test") for n in range(5)))
    claims = sorted(await door.claim(), key=lambda claim: claim.url)
    letter = DeadLetter(url="u", queue="q", domain="d", depth=1, reason="tls", detail="", attempts=1, failed_at=1.0)
    await door.ack(claims[3])
    await door.frontier.drain_log([(door.fence, await door.frontier.undrained(0))])
    await door.ack(claims[0])
    await door.frontier.end([door.frontier.dead_letter(door.fence, claims[1], SETTLED, letter)])
    await door.frontier.end([door.frontier.refuse(door.fence, claims[2], "robots")])
    return [claim.fingerprint for claim in claims]


async def test_each_url_has_the_state_that_its_end_left(door: Door) -> None:
    fingerprints = await end_each_way(door)
    asked = [*fingerprints, "12345"]
    states = await states_of(door).of({0: asked})
    wanted = [
        UrlState.COMMITTED, UrlState.DEAD, UrlState.ENDED, UrlState.ENDED, UrlState.ENDED, UrlState.UNSEEN,
    ]  # fmt: skip
    assert [states[fp] for fp in asked] == wanted
    assert await states_of(door).pending(FINGERPRINTS, 0) == {fingerprints[4]}


async def test_more_urls_than_a_call_takes_are_asked_in_several_and_found_in_every_bucket(door: Door) -> None:
    """Beyond 200 members the seen-set has several buckets."""
    known = [found(n) for n in range(3 * STATES_MAX)]
    await door.add(*known)
    strangers = [found(f"s{n}").fingerprint for n in range(300)]
    states = await states_of(door).of({0: [c.fingerprint for c in known] + strangers})
    assert {states[c.fingerprint] for c in known} == {UrlState.ENDED}
    assert await states_of(door).pending(FINGERPRINTS, 0) == {c.fingerprint for c in known}
    assert {states[fp] for fp in strangers} == {UrlState.UNSEEN}
    assert (await states_of(door).tally(0)).seen == len(known)


async def test_a_tally_agrees_with_itself_after_every_kind_of_end(door: Door) -> None:
    await end_each_way(door)
    tally = await states_of(door).tally(0)
    assert (tally.added, tally.seen_counter, tally.seen) == (5, 5, 5)
    assert (tally.pending, tally.committed, tally.dead, tally.refused) == (1, 2, 1, 1)
    assert (tally.done, tally.dead_counter, tally.log_entries, tally.is_steady) == (4, 1, 1, True)
    assert await states_of(door).counters() == [(0, 5, 4)]


async def test_what_vanished_shows_as_a_count_that_is_too_small(door: Door) -> None:
    fingerprints = await end_each_way(door)
    with contextlib.closing(door.node) as client:
        assert client.delete(door.keys.of(0, "u"))
        client.srem(door.keys.of(0, "s:0"), fingerprints[4])
    tally = await states_of(door).tally(0)
    assert (tally.added, tally.seen, tally.pending) == (5, 4, 0)


async def test_delays_and_robots_are_read_as_they_were_stored(door: Door) -> None:
    await door.frontier.book_request(
        door.fence, "h1.test", Settlement(next_fetch_ms=0, delay_ms=250), origin="http://h1.test", robots=b"r"
    )
    assert await states_of(door).delays([(0, "h1.test"), (0, "h2.test")]) == [250, None]
    assert await states_of(door).robots(0) == {"http://h1.test": b"r"}
