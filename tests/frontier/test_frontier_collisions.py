"""Values that share a bucket: none is lost, whatever their number, and no call moves more than a bounded number."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from typing import Any

import pytest
from msgspec.structs import replace

from crawler.frontier.arguments import RestateItem, ReturnItem
from crawler.frontier.bulk import BulkLookup, UrlState
from crawler.frontier.codec import DeadLetter, item_of, pack
from crawler.frontier.dead_letters import DeadLetters
from crawler.frontier.deferred import DeferredUrls
from crawler.frontier.messages import AddBudget
from crawler.frontier.owner import Settlement
from crawler.frontier.seeds import Seeds
from crawler.model import Candidate, Claim
from tests.frontier.door import HASH_KEY, Door, found
from tests.frontier.raw import RawPartition, dump

MEMBERS = 9_000  # more than Lua can unpack
PAIRS = 4_200  # of a name and a value: likewise
MOVES_MAX = 1_000  # as in lua/_buckets.lua
SETTLED = Settlement(next_fetch_ms=0, delay_ms=0)


def sharing_a_bucket(n: int) -> list[str]:
    """Fingerprints that no split ever parts: their last nine digits are the same."""
    return [f"{number}000000007" for number in range(1, n + 1)]


def colliding(names: Callable[[int], str], n: int, buckets: int) -> list[str]:
    """n names of one bucket, as long as there are at most so many (a power of two)."""
    key = HASH_KEY.hex()

    def is_in_it(name: str) -> bool:
        return int(hashlib.sha1(f"{key}{name}".encode(), usedforsecurity=False).hexdigest()[:13], 16) % buckets == 5

    found_names: Iterator[str] = filter(is_in_it, map(names, count(1)))
    return list(islice(found_names, n))


def with_fingerprints(fingerprints: Sequence[str], **more: Any) -> list[Candidate]:
    return [found(f"{n}", fingerprint=fp, **more) for n, fp in enumerate(fingerprints)]


def size_of_split(door: Door, name: str, ask: str) -> int:
    with door.node as client:
        return int(client.execute_command(ask, door.keys.of(0, f"{name}:split")))


async def add_in_calls(door: Door, urls: Sequence[Candidate], name: str, ask: str = "SCARD") -> list[int]:
    """As many calls as it takes, each with some. None may move more than it may."""
    outcomes: list[int] = []
    waiting = 0
    for start in range(0, len(urls), 120):
        outcomes += await door.add(*urls[start : start + 120])
        before, waiting = waiting, size_of_split(door, name, ask)
        assert waiting >= before - MOVES_MAX
    return outcomes


@pytest.mark.slow(ci=True)
async def test_fingerprints_of_one_bucket_stay_seen(door: Door) -> None:
    crafted = with_fingerprints(sharing_a_bucket(MEMBERS))
    honest = [found(f"honest/{n}", host="b.test") for n in range(3_000)]
    assert set(await add_in_calls(door, crafted + honest, "s")) == {1}
    assert set(await add_in_calls(door, crafted + honest, "s")) == {0}
    states = await BulkLookup(door.engine, door.keys, 1).of({0: [c.fingerprint for c in crafted + honest]})
    assert set(states.values()) == {UrlState.ENDED}, "which stands for pending, too"
    tally = await BulkLookup(door.engine, door.keys, 1).tally(0)
    assert tally.seen == tally.seen_counter == MEMBERS + 3_000


async def test_a_bucket_too_large_to_split_at_once_is_split_by_and_by(door: Door) -> None:
    """Its values are found wherever they are at the moment."""
    crafted = with_fingerprints(sharing_a_bucket(MEMBERS))
    await add_in_calls(door, crafted, "s")
    seen_waiting, n = False, 0
    with door.node as client:
        while not (seen_waiting and size_of_split(door, "s", "SCARD") == 0) and n < 20_000:
            await door.add(*(found(f"more/{n + i}", host="b.test") for i in range(100)))
            n += 100
            seen_waiting = seen_waiting or size_of_split(door, "s", "SCARD") > 0
            assert await door.add(crafted[n % MEMBERS], crafted[-1]) == [0, 0]
        assert seen_waiting
        # The honest ones have the load that they are to have.
        members = [client.scard(key) for key in client.keys(door.keys.of(0, "s:*"))]
    assert sum(members) == MEMBERS + n
    assert sorted(members)[-2] < 600


async def test_depths_of_one_bucket_stay_known(door: Door) -> None:
    door.frontier.is_limited = True
    crafted = with_fingerprints(sharing_a_bucket(PAIRS), depth=7)
    assert set(await add_in_calls(door, crafted, "z", "HLEN")) == {1}
    nearer = with_fingerprints(sharing_a_bucket(PAIRS), depth=3)
    assert set(await add_in_calls(door, nearer, "z", "HLEN")) == {2}
    claims = await door.claim(urls_max=64, per_queue_max=64, ahead_ms=0)
    assert {c.depth for c in claims} <= {3, 7}
    with door.node as client:
        depths = RawPartition.of(dump(client, "{t:0}*"), door.keys, 0).depths("")
    assert depths == {c.fingerprint: 3 for c in crafted}


@pytest.mark.slow(ci=True)
async def test_robots_of_origins_of_one_bucket_stay_known(door: Door) -> None:
    origins = colliding(lambda n: f"http://o{n}.test", PAIRS, 128)
    calls = [
        door.frontier.pace_call(door.fence, "a.test", SETTLED, origin=origin, robots=b"1000 %d" % n)
        for n, origin in enumerate(origins)
    ]
    await door.frontier.end(calls)
    shared = await BulkLookup(door.engine, door.keys, 1).robots(0)
    assert shared == {origin: b"1000 %d" % n for n, origin in enumerate(origins)}
    for n in (0, 1, PAIRS // 2, PAIRS - 1):
        assert await door.frontier.robots(0, origins[n]) == b"1000 %d" % n
    again = door.frontier.pace_call(door.fence, "a.test", SETTLED, origin=origins[0], robots=b"1000 new")
    await door.frontier.end([again])
    assert (await BulkLookup(door.engine, door.keys, 1).robots(0))[origins[0]] == b"1000 new"
    with door.node as client:
        assert int(client.hget(door.keys.meta(0), "yn")) == PAIRS


@pytest.mark.slow(ci=True)
async def test_idle_queues_of_one_bucket_keep_their_records(door: Door) -> None:
    queues = colliding(lambda n: f"q{n}.test", PAIRS, 128)
    await add_in_calls(door, [found("", host=queue) for queue in queues], "s")
    while claims := await door.claim(urls_max=64):
        await door.frontier.end([door.frontier.refuse(door.fence, claim, "robots") for claim in claims])
    door.now = 200_000
    with door.node as client:
        while client.zcard(door.keys.of(0, "idle")):
            await door.claim()
        assert int(client.hget(door.keys.meta(0), "hn")) == PAIRS
        stored = RawPartition.of(dump(client, "{t:0}*"), door.keys, 0)
        assert all(stored.record(queue)["urls"] == 1 for queue in queues[:: PAIRS // 20])
        assert await door.add(*(found("more", host=queue) for queue in queues[:100])) == [1] * 100
        stored = RawPartition.of(dump(client, "{t:0}*"), door.keys, 0)
        assert all(stored.record(queue)["urls"] == 2 for queue in queues[:100])
        assert int(client.hget(door.keys.meta(0), "hn")) == PAIRS - 100


@pytest.mark.slow(ci=True)
async def test_seeds_of_one_bucket_keep_their_counts(door: Door) -> None:
    numbers = [int(name) for name in colliding(str, PAIRS, 128)]
    await door.engine.command("HSET", door.keys.crawl, "seeds", max(numbers))
    await add_in_calls(door, [found(f"{n}", seed_number=number) for n, number in enumerate(numbers)], "e", "HLEN")
    await add_in_calls(door, [found(f"b{n}", seed_number=number) for n, number in enumerate(numbers)], "e", "HLEN")
    counts = await Seeds(door.engine, door.keys, 1)._counts()
    assert counts == dict.fromkeys(numbers, (2, 0, 0))


@pytest.mark.slow(ci=True)
async def test_hosts_of_a_domain_of_one_bucket_stay_counted(door: Door) -> None:
    """Not one list that grows: what a host more costs does not depend on how many there are."""
    door.frontier.add_budget = AddBudget(hosts=MEMBERS)
    labels = [name.split(" ")[1] for name in colliding(lambda n: f"a.test h{n}", PAIRS, 128)]
    urls = [found("", url=f"http://{label}.a.test/", fingerprint=str(n), queue="a.test", domain="a.test")
            for n, label in enumerate(labels)]  # fmt: skip
    await add_in_calls(door, urls, "n", "HLEN")
    deferred_urls = DeferredUrls(door.frontier, 1)
    assert await deferred_urls.hosts(0, ["a.test"]) == [PAIRS]
    assert await deferred_urls.hosts_taken(0, "a.test", [*labels, "other"]) == set(labels)


@pytest.mark.slow(ci=True)
async def test_any_number_of_dead_letters_is_put_back(door: Door) -> None:
    urls = with_fingerprints(sharing_a_bucket(PAIRS))
    await add_in_calls(door, urls, "s")
    known = {c.url: c.fingerprint for c in urls}
    while claims := await door.claim(urls_max=64, ahead_ms=10**9, default_delay_ms=0):
        given_up = [replace(claim, fingerprint=known[claim.url]) for claim in claims]
        await door.frontier.end([door.frontier.dead_letter(door.fence, c, SETTLED, letter_of(c)) for c in given_up])
    letters = DeadLetters(door.frontier, 1)
    stored = {one.fingerprint: one async for some in letters.read() for one in some}
    assert set(stored) == set(known.values())
    assert await letters.requeue(stored.values()) == PAIRS
    assert set(await add_in_calls(door, urls, "s")) == {0}


def letter_of(claim: Claim) -> DeadLetter:
    return DeadLetter(
        url=claim.url, queue=claim.queue, domain=claim.domain, depth=1, reason="timeout", detail="", attempts=1,
        failed_at=1.0,
    )  # fmt: skip


async def test_no_call_fails_for_the_number_of_its_values(door: Door) -> None:
    """More than the program ever sends at once: what can grow does not pass over Lua's stack."""
    run, key = door.engine.run, (door.keys.meta(0),)
    fence = (door.session, door.epoch, 0)
    urls = [found(f"{n}", host=f"q{n}.test" if n % 2 else "a.test") for n in range(MEMBERS)]
    values = [value for url in urls for value in item_of(url)]
    digits, woken = await run(
        "add", key, "", 0, pack(values), "hints", "ann", 0, pack((0, 0, 0, 0)), HASH_KEY.hex(), ""
    )
    assert digits == b"1" * MEMBERS
    assert woken == MEMBERS // 2 + 1
    claims = await door.claim(urls_max=MEMBERS, per_queue_max=MEMBERS, out_max=MEMBERS, ahead_ms=10**9)
    assert len(claims) == MEMBERS // 2 + 1, "one of each queue, for no delay is known"
    assert await run("extend_claims", key, *fence, 90_000, *(c.token for c in claims)) == [b"COMMITTED", len(claims)]
    returned = pack([ReturnItem(c.token, 0, "", 0, 0) for c in claims])
    assert await run("return_claims", key, *fence, returned) == [b"COMMITTED", len(claims)]
    assert await run("drain_log", key, *fence, b"", *(f"{url.fingerprint}:1" for url in urls)) == [b"COMMITTED", 0]
    done = [RestateItem(f"{n}", f"r{n}.test", f"r{n}.test", "COMMITTED", status_class=2) for n in range(MEMBERS)]
    assert await run("restate", key, pack(done), HASH_KEY.hex()) == b"1" * MEMBERS
    tally = await BulkLookup(door.engine, door.keys, 1).tally(0)
    assert (tally.pending, tally.added, tally.committed) == (MEMBERS, 2 * MEMBERS, MEMBERS)
