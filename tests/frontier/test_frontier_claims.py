"""Claims that last longer, URLs that processes died with, sessions that are not let in."""

import contextlib

import pytest

from crawler.errors import ConflictError
from crawler.frontier.members import BeatAnswer, Member, Members
from crawler.frontier.owner import Settlement
from crawler.model import AckOutcome
from tests.frontier.door import Door, found


async def test_an_extended_claim_is_not_handed_out_twice(door: Door) -> None:
    await door.add(found("slow"), found("lost", host="b.test"))
    slow, lost = sorted(await door.claim(visibility_ms=10_000), key=lambda claim: claim.domain)
    door.now += 9_000
    await door.frontier.extend_claims({0: (door.fence, [slow])}, visibility_ms=10_000)
    door.now += 9_000
    assert [c.url for c in await door.claim()] == [lost.url]
    assert (await door.ack(slow)).outcome is AckOutcome.COMMITTED
    assert (await door.ack(lost)).outcome is AckOutcome.GONE


async def test_an_extension_that_was_long_on_its_way_shortens_nothing(door: Door) -> None:
    await door.add(found("slow"))
    claims = await door.claim(visibility_ms=10_000)
    for door.now in (9_000, 2_000):
        await door.frontier.extend_claims({0: (door.fence, claims)}, visibility_ms=10_000)
    door.now = 15_000
    assert await door.claim() == []
    door.now = 19_000
    assert len(await door.claim()) == 1


async def test_a_claim_that_returns_to_its_session_does_not_suggest_a_death(door: Door) -> None:
    """An engine that fails again and again has every lease acquired again: URLs would be given up as poison URLs."""
    await door.add(found("a"))
    for _ in range(3):
        await door.acquire()
        door.now += 5_000  # the hold of a takeover
        (claim,) = await door.claim()
        assert claim.deliveries == 0
    await door.acquire("bob")
    door.now += 5_000
    (claim,) = await door.claim()
    assert claim.deliveries == 1


async def test_a_claim_that_has_ended_or_is_anothers_is_not_extended(door: Door) -> None:
    await door.add(found("a"), found("b", host="b.test"))
    one, two = await door.claim(visibility_ms=1_000)
    await door.ack(one)
    stale = door.fence
    await door.acquire("bob")
    await door.frontier.extend_claims({0: (stale, [one, two])}, visibility_ms=10_000)
    door.now += 2_000  # the hold of a takeover
    assert [c.url for c in await door.claim()] == [two.url]


async def test_deaths_are_counted_once_a_session_and_survive_retries_and_shorter_paths(door: Door) -> None:
    door.frontier.is_limited = True
    await door.add(found("a", depth=3), found("b", depth=3))
    await door.frontier.book_request(door.fence, "a.test", Settlement(next_fetch_ms=0, delay_ms=0))
    first, _ = await door.claim()
    told = [await door.frontier.record_crash(who, {0: [first.fingerprint]}) for who in ("dan", "dan", "eve", "eve")]
    assert told == [1, 0, 1, 0]
    await door.frontier.end([door.frontier.retry(door.fence, first, Settlement(next_fetch_ms=0), due_ms=0, kind="tls")])
    await door.add(found(first.url.rpartition("/")[2], depth=1))
    door.now += 1
    (again,) = await door.claim()
    assert (again.url, again.deaths, again.attempts, again.depth) == (first.url, 2, 1, 1)


async def test_the_deaths_of_a_url_are_forgotten_when_it_ends(door: Door) -> None:
    await door.add(found("a"))
    (claim,) = await door.claim()
    await door.frontier.record_crash("dan", {0: [claim.fingerprint]})
    await door.ack(claim)
    with contextlib.closing(door.node) as client:
        assert not client.exists(door.keys.of(0, "k"))


async def test_an_evicted_session_can_neither_beat_nor_join_and_its_successor_can(door: Door) -> None:
    members, ann = Members(door.engine, door.keys), Member(session="ann", node="n", counter=1)
    assert await members.join(ann) == 1
    await members.evict(ann)
    assert await members.heartbeat(ann) is BeatAnswer.EVICTED
    assert await members.remove_dead(ann)
    assert await members.heartbeat(ann) is BeatAnswer.EVICTED
    with pytest.raises(ConflictError, match="evicted by an operator"):
        await members.join(ann)
    bob = Member(session="bob", node="n", counter=1)
    assert await members.join(bob) == 2
    assert await members.heartbeat(bob) is BeatAnswer.COMMITTED


async def test_a_dead_session_of_another_release_is_removed_unless_it_beats_again(door: Door) -> None:
    """Its fields are not ours, so what we would write is not what it wrote."""
    members, ann = Members(door.engine, door.keys), Member(session="ann", node="n", counter=1)
    await members.join(ann)
    older = b'{"session":"ann","node":"n","counter":%d,"gone":1}'
    await door.engine.command("HSET", door.keys.members, "ann", older % 7)
    seen = (await members.read())["ann"]
    await door.engine.command("HSET", door.keys.members, "ann", older % 8)
    assert not await members.remove_dead(seen), "it lives"
    last = (await members.read())["ann"]
    assert not await members.remove_dead(seen), "another reader has seen it beat"
    assert await members.remove_dead(last)
    assert await members.read() == {}


async def test_a_session_that_leaves_by_itself_is_not_counted_as_returning(door: Door) -> None:
    """Scaling up and down does not count as flapping."""
    members = Members(door.engine, door.keys)
    for n in range(5):
        member = Member(session=f"s{n}", node="n", counter=1)
        assert await members.join(member) == 1
        await members.leave(member)
        await members.leave(member)
    for n in range(3):
        member = Member(session=f"t{n}", node="n", counter=1)
        assert await members.join(member) == n + 1
        assert await members.remove_dead(member)


async def test_a_repeated_join_counts_once_and_a_steady_life_ends_the_count(door: Door) -> None:
    members, ann = Members(door.engine, door.keys), Member(session="ann", node="n", counter=1)
    assert [await members.join(ann), await members.join(ann)] == [1, 1]
    assert await members.join(Member(session="bob", node="n", counter=1), instead_of="ann") == 2
    await members.is_steady("n")
    assert await members.join(Member(session="cyd", node="n", counter=1), instead_of="bob") == 1
