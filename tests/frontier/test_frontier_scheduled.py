"""Scheduled URLs: pending from the start, handed out when the owner's wall clock has reached their time."""

from pathlib import Path

from crawler.frontier.bulk import BulkLookup
from crawler.frontier.codec import DeadLetter
from crawler.frontier.dead_letters import DeadLetters
from crawler.frontier.deferred import ChangeKind, DeferredUrls, QueueChange
from crawler.frontier.lookup import UrlLookup
from crawler.frontier.messages import AddBudget
from crawler.frontier.operator import OperatorCommands
from crawler.frontier.owner import Settlement
from crawler.frontier.pending import SCHEDULED, PendingUrls
from crawler.frontier.restore import DoneUrl, Restoring
from crawler.frontier.stats import Stats
from crawler.model import Candidate
from tests.frontier.door import FINGERPRINTS, HASH_KEY, Door, found

NOON = 1_800_000_000.0  # wall clock, s
IDLE = 100_000


def at(path: object, after_s: float, host: str = "a.test", **more: object) -> Candidate:
    """A seed for so many seconds after noon."""
    return found(path, host=host, depth=0, seed=True, visible_at=NOON + after_s, **more)


async def urls_at(door: Door, after_s: float) -> list[str]:
    return [claim.url.rpartition("/")[2] for claim in await door.claim(at_s=NOON + after_s)]


async def test_a_url_is_handed_out_when_its_time_has_come(door: Door) -> None:
    assert await door.add(at("late", 10), at("later", 20, "b.test"), found("now", host="c.test")) == [1, 1, 1]
    assert await urls_at(door, 0) == ["now"]
    assert await urls_at(door, 9.999) == []
    assert await urls_at(door, 10) == ["late"]
    assert await urls_at(door, 25) == ["later"]


async def test_the_answer_of_a_claim_has_the_first_time_on_the_partition_clock(door: Door) -> None:
    await door.add(at("a", 10), at("b", 5, "b.test"))
    door.now = 7_000
    assert (await door.claim_reply(at_s=NOON)).next_due_ms == 12_000
    assert (await door.claim_reply(at_s=NOON - 20)).next_due_ms == 12_000 + 20_000, "a clock that stepped back"


async def test_a_claim_moves_64_at_most_and_is_due_again_at_once(door: Door) -> None:
    await door.add(*(at(n, 10, f"h{n}.test") for n in range(100)))
    reply = await door.claim_reply(at_s=NOON + 10, urls_max=1)
    assert reply.next_due_ms == 0
    assert (await Stats(door.engine, door.keys, 1).totals()).scheduled == 36
    await door.claim(at_s=NOON + 10, urls_max=1)
    totals = await Stats(door.engine, door.keys, 1).totals()
    assert (totals.scheduled, totals.first_visible_at, totals.pending) == (0, None, 100)


async def test_a_url_that_is_scheduled_stays_so_when_it_is_found_again(door: Door) -> None:
    await door.add(at("a", 10))
    assert await door.add(at("a", 5), found("a")) == [0, 0]
    assert await urls_at(door, 9) == []
    assert await urls_at(door, 10) == ["a"]


async def test_a_url_keeps_its_origin_its_place_and_its_seed(door: Door) -> None:
    await door.add(found("x", url="http://a.test:81/x", visible_at=NOON, depth=2, seed_number=7, score=3.0, label="l"))
    (claim,) = await door.claim(at_s=NOON)
    assert (claim.url, claim.depth, claim.seed_number, claim.score, claim.label) == ("http://a.test:81/x", 2, 7, 3, "l")


async def test_readers_find_it_and_count_it_as_pending(door: Door) -> None:
    await door.add(at("a", 10, seed_number=3), found("b"), at("c", 20, "b.test"))
    stats, lookup = Stats(door.engine, door.keys, 1), UrlLookup(door.engine, door.keys, 1)
    totals, progress = await stats.totals(), await lookup.progress()
    assert (totals.pending, totals.scheduled, totals.first_visible_at) == (3, 2, NOON + 10)
    assert (progress.pending, progress.scheduled, progress.first_visible_at) == (3, 2, NOON + 10)
    (domain,) = await stats.domains([("a.test", 0)])
    assert (domain.queued, domain.scheduled, domain.pending) == (1, 1, 2)
    where = await lookup.locate(at("a", 0))
    assert (where.seen, where.visible_at, where.place, where.deferred) == (True, NOON + 10, None, "")
    assert where.record is not None
    assert (where.record.url, where.record.seed, where.record.seed_number) == (at("a", 0).url, True, 3)
    states = BulkLookup(door.engine, door.keys, 1)
    assert await states.pending(FINGERPRINTS, 0) == {
        c.fingerprint for c in (at("a", 0), found("b"), at("c", 0, "b.test"))
    }
    tally = await states.tally(0)
    assert (tally.pending, tally.added, tally.done, tally.is_steady) == (3, 3, 0, True)
    pending = PendingUrls(door.engine, door.keys)
    assert await pending.queues(0) == {"a.test", "b.test"}
    found_ones = {one.url.url: (one.block, one.visible_at) async for some in pending.scheduled(0) for one in some}
    assert found_ones == {at("a", 0).url: (SCHEDULED, NOON + 10), at("c", 0, "b.test").url: (SCHEDULED, NOON + 20)}


async def test_a_queue_with_only_scheduled_urls_is_packed_and_wakes(door: Door) -> None:
    await door.add(*(at(n, 10, f"h{n}.test") for n in range(5)))
    door.now = IDLE
    assert await urls_at(door, 0) == []
    with door.node as node:
        assert node.keys(door.keys.of(0, "w:*")) == []
    assert [
        d.scheduled for d in await Stats(door.engine, door.keys, 1).domains([(f"h{n}.test", 0) for n in range(5)])
    ] == [1] * 5
    assert sorted(await urls_at(door, 10)) == [str(n) for n in range(5)]


async def test_a_queue_that_also_has_queued_urls_is_not_packed(door: Door) -> None:
    await door.add(at("a", 10), found("b"))
    door.now = IDLE
    await door.claim_reply(urls_max=0, at_s=NOON)
    with door.node as node:
        assert node.keys(door.keys.of(0, "w:*")) == [door.keys.of(0, "w:a.test").encode()]


async def test_a_domain_that_is_blocked_meanwhile_defers_it_when_its_time_comes(door: Door) -> None:
    await door.add(at("a", 10))
    deferred = DeferredUrls(door.frontier, 1)
    await deferred.change_queues(0, [QueueChange("a.test", ChangeKind.STOP, "blocked")])
    assert await urls_at(door, 10) == []
    assert [(one.reason, one.urls) for one in await deferred.of_partition(0)] == [("blocked", 1)]
    await deferred.change_queues(0, [QueueChange("a.test", ChangeKind.START, "blocked")])
    assert await urls_at(door, 11) == ["a"]


async def test_a_purge_drops_scheduled_urls_of_its_domain_only(door: Door, operator: OperatorCommands) -> None:
    await door.add(*(at(n, 10) for n in range(200)), at("b", 10, "b.test"), found("now"))
    assert await operator.purge("a.test") == 201
    totals = await Stats(door.engine, door.keys, 1).totals()
    assert (totals.scheduled, totals.pending, totals.refused) == (1, 1, {"purged": 201})
    assert await urls_at(door, 10) == ["b"]
    assert (await BulkLookup(door.engine, door.keys, 1).tally(0)).pending == 1


async def test_a_budget_of_urls_goes_before_its_time(door: Door) -> None:
    door.frontier.add_budget = AddBudget(urls=2)
    await door.add(at("a", 10), found("b"))
    await door.add(at("c", 10))
    totals = await Stats(door.engine, door.keys, 1).totals()
    assert (totals.deferred, totals.scheduled, totals.pending) == (1, 1, 2)


async def test_a_budget_of_hosts_admits_the_host_of_a_scheduled_seed(door: Door) -> None:
    door.frontier.add_budget = AddBudget(hosts=1)
    await door.add(at("a", 10, "x.test"), found("b", host="www.x.test", domain="x.test", queue="x.test"))
    assert (await Stats(door.engine, door.keys, 1).totals()).deferred == 1


async def test_a_dead_letter_is_put_back_for_a_time(door: Door) -> None:
    await door.add(found("a"))
    (claim,) = await door.claim()
    letter = DeadLetter(
        url=claim.url, queue="a.test", domain="a.test", depth=1, reason="tls", detail="", attempts=1, failed_at=1.0
    )
    await door.frontier.end([door.frontier.dead_letter(door.fence, claim, Settlement(next_fetch_ms=0), letter)])
    letters = DeadLetters(door.frontier, 1)
    found_ones = await letters.find_all({0: [claim.fingerprint]})
    assert await letters.requeue(found_ones, {claim.fingerprint: NOON + 10}) == 1
    assert await urls_at(door, 9) == []
    assert await urls_at(door, 10) == ["a"]
    assert (await Stats(door.engine, door.keys, 1).domains([("a.test", 0)]))[0].dead == 0


async def test_a_rebuild_makes_one_done_whose_page_is_on_disk(door: Door, tmp_path: Path) -> None:
    await door.add(at("a", 10))
    restoring = Restoring(door.engine, door.keys, hash_key=HASH_KEY)
    (here,) = [pair async for some in restoring.all_pending(0) for pair in some]
    done = DoneUrl(
        fingerprint=here[0], partition=0, domain="a.test", queue="a.test", status=200, body_bytes=1, fetch_ms=1
    )
    assert [await restoring.withdraw([(here[1], done)]) for _ in range(2)] == [1, 0]
    totals = await Stats(door.engine, door.keys, 1).totals()
    assert (totals.scheduled, totals.pending, totals.fetched) == (0, 0, 1)


async def test_the_first_time_of_partitions_is_told_to_their_owner(door: Door) -> None:
    assert await door.frontier.awake([0, 1]) == []
    await door.add(at("a", 10), at("b", 5))
    assert await door.frontier.awake([0, 1]) == [(0, None, round((NOON + 5) * 1000))]
