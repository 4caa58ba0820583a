"""Runs of jobs in the frontier: seen-sets and counts of their own in the queues of all, and nothing left behind."""

import contextlib
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from crawler.frontier.bulk import BulkLookup
from crawler.frontier.codec import DeadLetter
from crawler.frontier.dead_letters import DeadLetters
from crawler.frontier.deferred import BLOCKED, ChangeKind, DeferredUrls, QueueChange
from crawler.frontier.lookup import UrlLookup
from crawler.frontier.messages import AddBudget
from crawler.frontier.owner import Settlement
from crawler.frontier.restore import Restoring
from crawler.frontier.runs import Runs
from crawler.frontier.seeds import Seeds
from crawler.frontier.stats import Stats
from crawler.model import AddOutcome
from crawler.rules.finish import RunPass, is_run_finished
from crawler.rules.job_runs import RunCounts, RunRecord, RunSpec, total_of
from tests.frontier.door import HASH_KEY, Door, found
from tests.frontier.raw import dump
from tests.frontier.test_frontier_restore import done, restore

ONE, TWO = "job00000.0.1", "job00000.0.2"
NOW = Settlement(next_fetch_ms=0, delay_ms=0)


def runs_of(door: Door) -> Runs:
    return Runs(door.engine, door.keys, 1)


async def counts(door: Door, run: str = ONE) -> RunCounts:
    return (await runs_of(door).counts(run, [0]))[0]


async def record(door: Door, run: str, *roots: str) -> RunRecord:
    active = RunRecord(run=run, user="ann", name="job", nominal=1, started_at=1.0, spec=RunSpec(), roots=roots)
    await door.engine.command("HSET", door.keys.of(0, "runs"), run, msgspec.json.encode(active))
    return active


def letter_of(url: str, run: str) -> DeadLetter:
    return DeadLetter(
        url=url, queue="a.test", domain="a.test", depth=1, reason="tls", detail="", attempts=1, failed_at=1.0, run=run
    )


async def change(door: Door, what: ChangeKind) -> None:
    await DeferredUrls(door.frontier, 1).change_queues(0, [QueueChange("a.test", what, BLOCKED)])


async def unbalanced(door: Door) -> tuple[int, int, int]:
    """Seen but not added, done but in no state, pending by counters but not there: zeros."""
    t = await BulkLookup(door.engine, door.keys, 1).tally(0)
    ended = t.committed + t.dead + t.refused + t.revived + t.deferrals
    return t.added - t.revived - t.released - t.seen, t.done - ended, t.added - t.done - t.pending


async def test_one_url_is_fetched_for_the_crawl_and_for_each_run(door: Door) -> None:
    assert await door.add(found(1), found(1, run=ONE), found(1, run=TWO), found(1, run=ONE)) == [1, 1, 1, 0]
    claims = []
    for _ in range(3):
        door.now += 2000
        (claim,) = await door.claim(per_queue_max=1)
        await door.ack(claim, body_bytes=7)
        claims.append(claim)
    assert {c.url for c in claims} == {found(1).url}
    assert sorted(c.run for c in claims) == ["", ONE, TWO]
    assert len({c.fingerprint for c in claims}) == 3
    assert await counts(door) == await counts(door, TWO) == RunCounts(added=1, done=1, s2=1, bytes=7)
    assert await unbalanced(door) == (0, 0, 0)
    assert [some async for some in Seeds(door.engine, door.keys, 1).read()] == [[]]


async def test_urls_of_several_runs_are_answered_in_their_order(door: Door) -> None:
    await door.add(found(1, run=ONE))
    assert await door.add(found(1), found(1, run=ONE), found(2, run=TWO), found(1)) == [1, 0, 1, 0]


async def test_counts_follow_a_url_to_each_of_its_ends(door: Door) -> None:
    f = door.frontier
    await door.add(*(found(i, run=ONE) for i in range(5)))
    door.now = 1000
    await f.book_request(door.fence, "a.test", NOW)
    one, two, three, four, five = await door.claim()
    await door.ack(one, found("child", run=ONE), status=404, body_bytes=10)
    letter = letter_of(two.url, ONE)
    await f.end(
        [
            f.dead_letter(door.fence, two, NOW, letter),
            f.refuse(door.fence, three, "robots"),
            f.retry(door.fence, four, NOW, due_ms=10**9, kind="tls"),
            f.return_claims(door.fence, [(five, 0)]),
        ]
    )
    expected = RunCounts(added=6, done=2, dead=1, refused=1, s4=1, bytes=10, retries=1)
    assert await counts(door) == expected
    assert expected.pending == 3
    assert await unbalanced(door) == (0, 0, 0)


async def test_waiting_urls_of_a_stopped_queue_count_as_deferred(door: Door) -> None:
    await door.add(found(1, run=ONE), found(2, run=ONE), found(1))
    door.now = 1000
    await door.frontier.book_request(door.fence, "a.test", NOW)
    first, *_ = await door.claim(urls_max=1, per_queue_max=1)
    await change(door, ChangeKind.STOP)
    waiting = 2 - bool(first.run)
    assert (await counts(door)).deferred == waiting
    await door.return_claims(first)
    assert await counts(door) == RunCounts(added=2, deferred=2)
    assert await unbalanced(door) == (0, 0, 0)
    await change(door, ChangeKind.START)
    assert await counts(door) == RunCounts(added=2)


async def test_what_a_rebuild_finds_done_is_not_deferred_when_its_queue_stops(door: Door) -> None:
    page = found(1, run=ONE)
    await door.add(page, found(2, run=ONE))
    await door.frontier.record_crash("dan", {0: [page.fingerprint]})
    assert await restore(door, replace(done(page), run=ONE)) == (0, 1)
    await change(door, ChangeKind.STOP)
    assert await counts(door) == RunCounts(added=2, done=1, deferred=1, s2=1, bytes=100)
    with contextlib.closing(door.node) as client:
        assert client.keys(door.keys.of(0, "k")) == [], "its deaths are forgotten"


async def test_a_rebuild_counts_pages_for_their_run_until_it_is_closed(door: Door) -> None:
    one, two = (replace(done(found(n, run=ONE)), run=ONE) for n in (1, 2))
    assert await restore(door, one) == (1, 0)
    assert await counts(door) == RunCounts(added=1, done=1, s2=1, bytes=100)
    await runs_of(door).close([(ONE, 0)])
    assert await restore(door, two) == (0, 0)
    assert await unbalanced(door) == (0, 0, 0)


async def test_nothing_of_a_run_is_added_to_be_kept(door: Door) -> None:
    """What a block or a rule would keep of the crawl is refused of a run. Budgets are not for runs."""
    door.frontier.add_budget = AddBudget(urls=3, hosts=1)
    await door.add(found(1))
    await change(door, ChangeKind.STOP)
    assert await door.add(found(1, run=ONE)) == [1]
    assert await counts(door) == RunCounts(added=1, done=1, refused=1)
    await change(door, ChangeKind.START)
    others = (found(i, run=ONE) for i in range(2, 5))
    assert await door.add(*others, found(5, run=ONE, deferred="trap:x"), found(1, run=ONE)) == [1, 1, 1, 1, 0]
    host = found(6, host="b.test", run=ONE)
    more = found(6, host="b.test", url="http://more.b.test/6", run=ONE)
    assert await door.add(host, more) == [1, 1]
    assert await counts(door) == RunCounts(added=7, done=2, refused=2)
    tally = await BulkLookup(door.engine, door.keys, 1).tally(0)
    assert (tally.pending, tally.deferred, tally.refused) == (6, 0, 2)
    await door.add(found(7), found(8), found(9))
    tally = await BulkLookup(door.engine, door.keys, 1).tally(0)
    assert (tally.pending, tally.deferred) == (8, 1), "of the crawl's own, which are four, three are admitted"
    assert await unbalanced(door) == (0, 0, 0)


async def test_a_url_of_a_run_that_is_refused_when_it_is_claimed_leaves_nothing(door: Door) -> None:
    await door.add(found(1, run=ONE))
    (claim,) = await door.claim()
    await door.frontier.record_crash("dan", {0: [claim.fingerprint]})
    await door.frontier.end([door.frontier.defer(door.fence, claim, "trap:x")])
    assert await counts(door) == RunCounts(added=1, done=1, refused=1)
    with contextlib.closing(door.node) as client:
        assert client.keys(door.keys.of(0, "k")) == client.keys(door.keys.of(0, f"z{ONE}:*")) == []


async def test_a_closed_run_leaves_nothing_and_takes_nothing(door: Door) -> None:
    n = 12_000  # some hundred buckets
    for i in range(0, n, 1000):
        await door.add(*(found(k, run=ONE, host=f"h{k % 7}.test") for k in range(i, i + 1000)))
    await door.add(found(1, run=TWO), found(1))
    calls = []
    plain = door.engine.run_all

    async def noting(some: Sequence[object]) -> object:
        calls.append(some)
        return await plain(some)  # type: ignore[arg-type]

    door.engine.run_all = noting  # type: ignore[assignment, method-assign]
    await runs_of(door).close([(ONE, 0)])
    assert len(calls) > 1
    with contextlib.closing(door.node) as client:
        keys = dump(client, "*")
        meta = keys.pop(b"{t:0}:m")
        named = [key for key, value in keys.items() if ONE.encode() in key or (b":e:" in key and ONE.encode() in value)]
    assert named == []
    assert not [name for name in meta if ONE.encode() in name]
    assert int(meta[b"dropped"]) == n
    assert await door.add(found("late", run=ONE), found(1, run=TWO)) == [AddOutcome.ENDED, AddOutcome.SEEN]
    assert await unbalanced(door) == (0, 0, 0)
    assert await counts(door, TWO) == RunCounts(added=1)


async def test_what_waits_of_a_closed_run_ends_without_a_trace(door: Door) -> None:
    await door.add(found(1, run=ONE), found(2, run=ONE), found(3, run=ONE))
    door.now = 1000
    await door.frontier.book_request(door.fence, "a.test", NOW)
    await runs_of(door).close([(ONE, 0)])
    one, two, three = await door.claim()
    assert (await door.ack(one, found("child", run=ONE))).outcome == "COMMITTED"
    letter = letter_of(three.url, ONE)
    f = door.frontier
    await f.end([f.refuse(door.fence, two, "run_ended"), f.dead_letter(door.fence, three, NOW, letter)])
    assert await counts(door) == RunCounts()
    assert await unbalanced(door) == (0, 0, 0)
    assert await door.claim() == []


async def test_dead_letters_of_a_run_return_until_it_is_closed(door: Door) -> None:
    await record(door, ONE)
    await door.add(found(1, run=ONE))
    door.now = 1000
    (claim,) = await door.claim()
    f, letters = door.frontier, DeadLetters(door.frontier, 1)
    await f.end([f.dead_letter(door.fence, claim, NOW, letter_of(claim.url, ONE))])
    ((stored,),) = [some async for some in letters.read(0)]
    assert stored.letter.run == ONE
    assert await letters.requeue([stored]) == 1
    assert await counts(door) == RunCounts(added=1)
    (claim,) = await door.claim()
    assert (claim.run, claim.fingerprint) == (ONE, found(1, run=ONE).fingerprint)
    await f.end([f.dead_letter(door.fence, claim, NOW, letter_of(claim.url, ONE))])
    await runs_of(door).close([(ONE, 0)])
    assert await letters.requeue([stored]) == 0
    await door.engine.command("DEL", door.keys.of(0, "runs"), door.keys.of(0, "closed"))
    assert await letters.requeue([stored]) == 0, "it has ended long ago"
    assert await letters.discard([stored], "purged") == 1
    assert await counts(door) == RunCounts()
    assert await unbalanced(door) == (0, 0, 0)


async def test_a_closed_run_is_remembered_for_ten_minutes(door: Door) -> None:
    await runs_of(door).close([(ONE, 0)])
    for door.now, kept in ((600_000, 2), (600_001, 1)):
        await door.claim()  # moves the clock
        await runs_of(door).close([(TWO, 0)])
        assert await door.engine.command("ZCARD", door.keys.of(0, "closed")) == kept


async def test_partitions_are_touched_while_the_run_is_active(door: Door) -> None:
    runs = runs_of(door)
    assert not await runs.touch(ONE, [0])
    assert await runs.touched(ONE) == frozenset()
    active = await record(door, ONE, "host:a.test")
    assert await runs.touch(ONE, [0, 7])
    assert await runs.touch(ONE, [7, 9], ["host:b.test", "host:a.test"])
    assert await runs.touched(ONE) == {0, 7, 9}
    roots = ("host:a.test", "host:b.test")
    assert await runs.read([TWO, ONE, ONE]) == {ONE: msgspec.structs.replace(active, roots=roots), TWO: None}
    await runs.close_everywhere([ONE])
    assert await runs.touched(ONE) == frozenset()
    assert (await runs.read([ONE]))[ONE] == active


async def test_a_run_is_finished_after_two_equal_passes(door: Door) -> None:
    passes: list[RunPass] = []

    async def look() -> bool:
        passes.append(RunPass("e", await runs_of(door).counts(ONE, [0])))
        return is_run_finished(passes)

    await door.add(found(1, run=ONE), found(2, host="b.test"))
    assert not await look()
    assert not await look()
    door.now = 1000
    for claim in await door.claim():
        await door.ack(claim)
    assert not await look()
    assert await look()
    assert total_of(passes[-1].counts.values()) == RunCounts(added=1, done=1, s2=1)
    passes.append(msgspec.structs.replace(passes[-1], engine_run_id="f"))
    assert not is_run_finished(passes)
    passes.append(msgspec.structs.replace(passes[-1], counts={**passes[-1].counts, 1: RunCounts()}))
    assert not is_run_finished(passes), "another partition was touched"


async def test_a_url_is_located_for_the_run_that_is_meant(door: Door) -> None:
    """The crawl's own may have ended while that of a run waits in the same queue."""
    lookup = UrlLookup(door.engine, door.keys, 1)
    await door.add(found(1))
    door.now = 1000
    (claim,) = await door.claim()
    await door.ack(claim)
    await door.add(found(1, run=ONE))
    own, of_run, other = [await lookup.locate(found(1, run=run)) for run in ("", ONE, TWO)]
    assert (own.seen, own.record, own.entry is None) == (True, None, False)
    assert (of_run.seen, of_run.place, of_run.entry) == (True, 0, None)
    assert of_run.record is not None
    assert of_run.record.run == ONE
    assert (other.seen, other.record) == (False, None)
    (claim,) = await door.claim()
    assert (await lookup.locate(found(1))).record is None
    assert (await lookup.locate(found(1, run=ONE))).claim_deadline_ms is not None


async def test_a_shorter_path_counts_for_a_run(door: Door) -> None:
    await door.add(found(1, run=ONE, depth=5), found(1, depth=5))
    assert await door.add(found(1, run=ONE, depth=2), found(1, depth=2)) == [AddOutcome.LOWERED, AddOutcome.SEEN]
    door.now = 1000
    await door.frontier.book_request(door.fence, "a.test", NOW)
    assert {c.run: c.depth for c in await door.claim()} == {ONE: 2, "": 5}


async def test_the_items_of_a_run_change_with_those_of_its_pages(door: Door) -> None:
    await door.add(found(1, run=ONE))
    (claim,) = await door.claim()
    await door.ack(claim, delay_ms=0)
    restoring = Restoring(door.engine, door.keys, hash_key=HASH_KEY)
    for _ in range(2):
        await restoring.count_items("a", [(1, 0, "a.test", ONE, 3), (2, 0, "a.test", TWO, 4), (3, 0, "a.test", "", 1)])
    assert ((await counts(door)).items, (await counts(door, TWO)).items) == (3, 0), "a run that is not there stays away"
    assert (await Stats(door.engine, door.keys, 1).totals()).items == 8
