"""Blocks of queues in files: what a random walk over small blocks can't show nicely."""

import contextlib
from pathlib import Path

import pytest

from crawler.archive.spill_files import SpillFiles
from crawler.errors import ArchiveError, EngineDown
from crawler.frontier.bulk import BulkLookup
from crawler.frontier.codec import PendingUrl
from crawler.frontier.deferred import DeferredUrls
from crawler.frontier.operator import Purge
from crawler.frontier.pending import PendingUrls
from crawler.frontier.restore import DoneUrl, Restoring
from crawler.frontier.spilling import Block, Place, Spilling, Stub, urls_of
from crawler.model import Candidate
from tests.frontier.door import DELAY_MS, FINGERPRINTS, HASH_KEY, Door, found, url_of

QUEUE = "a.test"
HEAD_AND_ONE = 256  # URLs that stay in memory


class Spill:
    """An owner's view of one queue, or a row of deferred URLs, and its files."""

    def __init__(self, door: Door, folder: Path, queue: str = QUEUE) -> None:
        self.door, self.queue = door, queue
        self.files = SpillFiles(folder, door.session)
        self.calls = Spilling(door.engine, door.keys, default_delay_ms=DELAY_MS)

    async def write(self, blocks: int) -> list[tuple[Block, Place]]:
        read = await self.calls.worst(0, self.queue, blocks)
        return list(zip(read, self.files.write(0, self.door.epoch, [b.packed() for b in read]), strict=True))

    async def all_but_one(self) -> int:
        """Spill as a spiller does; how many blocks."""
        ((blocks, _, _),) = await self.calls.longest([0])
        return await self.calls.spill(self.door.fence, await self.write(blocks - 1))

    async def back(self) -> bool:
        """Bring the next block back; whether another one should follow."""
        (stub,) = await self.calls.next_stubs([(0, self.queue)])
        assert stub is not None
        (packed,) = self.files.read(0, [stub.place])
        (more,) = await self.calls.unspill([(0, self.queue, stub, urls_of(packed))])
        return more

    def number(self, key: str, *command: str) -> int:
        with contextlib.closing(self.door.node) as client:
            return int(client.execute_command(*command, self.door.keys.of(0, key)) or 0)

    @property
    def in_memory(self) -> int:
        with contextlib.closing(self.door.node) as client:
            names = [*client.scan_iter(self.door.keys.of(0, "[qb]:*"), count=10_000)]
            return sum(client.zcard(name) for name in names)

    @property
    def spilled(self) -> int:
        with contextlib.closing(self.door.node) as client:
            return int(client.hget(self.door.keys.meta(0), "spilled") or 0)


@pytest.fixture
def spill(door: Door, tmp_path: Path) -> Spill:
    return Spill(door, tmp_path / "spill")


def stub_of(block: Block, place: Place) -> Stub:
    return Stub(" ".join(map(str, (block.id, *place, len(block.urls)))), place, len(block.urls))


def ordered(n: int) -> list[Candidate]:
    """URLs of one queue, the best first."""
    return [found(i, score=-i / 4096) for i in range(n)]


async def without_delay(door: Door) -> None:
    """Its robots.txt was read: many URLs of the queue a call."""
    await door.add(found("first", score=1.0))
    (claim,) = await door.claim()
    await door.ack(claim, delay_ms=0)


async def test_a_queue_leaves_in_order_whatever_of_it_was_on_disk(door: Door, spill: Spill) -> None:
    await without_delay(door)
    urls = ordered(1500)
    for start in range(0, 1500, 250):
        await door.add(*urls[start : start + 250])
    assert await spill.all_but_one() == 10
    assert (spill.in_memory, spill.spilled) == (1500 - 10 * 128 + 36, 10 * 128 - 36)  # the last block was not full
    got: list[str] = []
    while len(got) < 1500:
        reply = await door.claim_reply(out_max=10_000)
        claims = [c.url for b in reply.batches for c in b.claims]
        got += claims
        assert claims, "a queue with URLs had none in memory"
        if reply.short:
            assert reply.short == (QUEUE,)
            await spill.back()
    assert got == [c.url for c in urls]
    assert (spill.spilled, spill.number("files", "HLEN"), spill.number("short", "ZCARD")) == (0, 0, 0)


async def test_a_queue_without_urls_in_memory_waits_for_its_owner_and_is_told_of_each_time(
    door: Door, spill: Spill
) -> None:
    await without_delay(door)
    await door.add(*ordered(200))
    await door.add(*(found(f"b{i}", score=-1.0 - i / 4096) for i in range(200)))
    assert await spill.calls.spill(door.fence, await spill.write(9)) >= 2
    while claims := await door.claim(out_max=10_000):
        assert claims
    door.now += 10_000
    reply = await door.claim_reply(out_max=10_000)
    assert (reply.short, reply.next_due_ms) == ((QUEUE,), door.now + 1000)
    assert await door.add(found("late", score=-1.5)) == [1]
    assert (await door.claim_reply(out_max=10_000)).batches == ()  # it belongs behind what is on disk
    assert spill.number("ready", "ZCARD") == 0, "asked in vain again and again"
    await spill.back()
    assert await door.claim(out_max=10_000)


async def test_a_block_that_changed_since_it_was_read_stays_in_memory(door: Door, spill: Spill) -> None:
    urls = ordered(600)
    await door.add(*urls[:250])
    await door.add(*urls[250:500])
    written = await spill.write(3)
    await door.add(
        *(found(f"new{i}", score=-400.5 / 4096) for i in range(100))
    )  # splits the blocks that they belong to
    before = spill.in_memory
    assert await spill.calls.spill(door.fence, written) < len(written)
    assert spill.in_memory + spill.spilled == before == 600


async def test_a_url_that_left_and_came_back_with_another_score_is_not_taken_out(door: Door, spill: Spill) -> None:
    """Told of the block as it was, the engine would bring back the old score, and forget a lost delivery."""
    await door.add(*ordered(200))
    (written,) = await spill.write(1)
    member, score = written[0].urls[0]
    with contextlib.closing(door.node) as client:
        client.zadd(door.keys.of(0, f"b:{QUEUE}:{written[0].id}"), {member: score + 1})
    assert await spill.calls.spill(door.fence, [written]) == 0
    assert spill.in_memory == 200


async def test_what_came_into_a_block_while_it_was_written_stays_in_memory(door: Door, spill: Spill) -> None:
    await without_delay(door)
    await door.add(*ordered(200))
    (written,) = await spill.write(1)
    await door.add(*(found(f"z{i}", score=-1.0) for i in range(20)))
    assert await spill.calls.spill(door.fence, [written]) == 1
    assert (spill.in_memory, spill.spilled) == (220 - len(written[0].urls), len(written[0].urls))
    assert await PendingUrls(door.engine, door.keys, spill.files).count(0) == 220
    await spill.back()
    assert spill.in_memory == 220
    got = [c.url for _ in range(9) for c in await door.claim(out_max=10_000)]
    assert got[:200] == [c.url for c in ordered(200)]
    assert set(got[200:]) == {url_of(f"z{i}") for i in range(20)}


async def test_telling_twice_and_bringing_back_twice_counts_once(door: Door, spill: Spill) -> None:
    await door.add(*ordered(250))
    await door.add(*(found(f"b{i}", score=-1.0) for i in range(250)))
    written = await spill.write(2)
    assert [await spill.calls.spill(door.fence, written) for _ in range(2)] == [2, 2]
    back = [(0, QUEUE, stub_of(block, place), block.urls) for block, place in written]
    await spill.calls.unspill(back)
    await spill.calls.unspill(back)
    assert (spill.in_memory, spill.spilled) == (500, 0)
    assert await spill.calls.spill(door.fence, written) == 2  # the same URLs again: the file is still true of them
    assert (await BulkLookup(door.engine, door.keys, 1, spill.files).tally(0)).pending == 500


async def test_another_owner_tells_nothing_and_reads_all(door: Door, spill: Spill) -> None:
    await door.add(*ordered(250))
    await door.add(*(found(f"b{i}", score=-1.0) for i in range(250)))
    written, late = await spill.write(2), door.fence
    assert await spill.calls.spill(door.fence, written[:1]) == 1
    await door.acquire("bob")
    assert await spill.calls.spill(late, written[1:]) == 0
    (packed,) = spill.files.read(0, [written[0][1]])
    await spill.calls.unspill([(0, QUEUE, stub_of(*written[0]), urls_of(packed))])
    assert (spill.in_memory, spill.spilled) == (500, 0)


async def test_audits_and_questions_see_urls_on_disk(door: Door, spill: Spill) -> None:
    urls = ordered(1000)
    for start in range(0, 1000, 250):
        await door.add(*urls[start : start + 250])
    await spill.all_but_one()
    pending = PendingUrls(door.engine, door.keys, spill.files)
    assert await pending.count(0) == 1000
    assert await pending.fingerprints(FINGERPRINTS, 0) == {c.fingerprint for c in urls}
    assert [(await pending.place(0, QUEUE, urls[n].url, now_s=0.0) or (-1,))[0] for n in (0, 500, 999)] == [0, 500, 999]
    with pytest.raises(ArchiveError, match=r"set frontier\.spill_folder"):
        await PendingUrls(door.engine, door.keys).fingerprints(FINGERPRINTS, 0)


async def test_a_rebuild_takes_committed_urls_out_of_files(door: Door, spill: Spill) -> None:
    urls = ordered(1000)
    for start in range(0, 1000, 250):
        await door.add(*urls[start : start + 250])
    await spill.all_but_one()
    restoring = Restoring(door.engine, door.keys, hash_key=HASH_KEY, files=spill.files)
    gone = {urls[n].fingerprint for n in (0, 400, 401, 999)}
    withdrawn = 0
    async for some in restoring.all_pending(0):
        done = [
            (one, DoneUrl(fingerprint=fp, partition=0, domain=QUEUE, queue=QUEUE, status=200, body_bytes=1, fetch_ms=1))
            for fp, one in some
            if fp in gone
        ]
        withdrawn += await restoring.withdraw(done)
    assert withdrawn == 4
    left = await PendingUrls(door.engine, door.keys, spill.files).fingerprints(FINGERPRINTS, 0)
    assert left == {c.fingerprint for c in urls} - gone
    tally = await BulkLookup(door.engine, door.keys, 1, spill.files).tally(0)
    assert tally.added - tally.done == tally.pending == 996


async def test_what_matches_leaves_files_and_a_walk_that_was_cut_off_goes_on_after_a_takeover(
    door: Door, spill: Spill
) -> None:
    urls = ordered(1000)
    for start in range(0, 1000, 250):
        await door.add(*urls[start : start + 250])
    await spill.all_but_one()
    gone = {urls[n].url: urls[n].fingerprint for n in (0, 1, 300, 301, *range(600, 700), 999)}
    purge, plain = Purge(door.frontier, DeferredUrls(door.frontier, 1), spill.files), door.engine.run
    spilled = spill.spilled

    def matches(url: PendingUrl) -> bool:
        return url.url in gone

    async def cut_off(name: str, keys: tuple[str, ...], *args: object) -> object:
        reply = await plain(name, keys, *args)
        if name == "purge":
            door.engine.run = plain
            await door.acquire("bob")
            raise EngineDown("no answer")  # though it was done
        return reply

    assert await purge.matching(0, matches, is_dry=True) == (0, len(gone))
    assert spill.spilled == spilled
    door.engine.run = cut_off
    with pytest.raises(EngineDown):
        await purge.matching(0, matches)
    dropped, left = await purge.matching(0, matches)
    assert (0 < dropped < len(gone), left) == (True, 0)
    assert await purge.matching(0, matches) == (0, 0)
    assert await PendingUrls(door.engine, door.keys, spill.files).fingerprints(FINGERPRINTS, 0) == {
        one.fingerprint for one in urls
    } - {*gone.values()}
    tally = await BulkLookup(door.engine, door.keys, 1, spill.files).tally(0)
    assert tally.added - tally.done == tally.pending == 1000 - len(gone)
    assert await door.add(*urls[:2]) == [0, 0], "they stay seen"


async def test_what_is_purged_is_brought_back_from_its_files_before(door: Door, spill: Spill) -> None:
    await door.add(*(found(n) for n in range(1000)))
    await spill.all_but_one()
    assert spill.spilled == 1000 - HEAD_AND_ONE
    deferred_urls = DeferredUrls(door.frontier, 1)
    with pytest.raises(ArchiveError, match=r"frontier\.spill_folder"):
        await Purge(door.frontier, deferred_urls).purge(0, QUEUE)
    assert await Purge(door.frontier, deferred_urls, spill.files).purge(0, QUEUE) == 1000 - HEAD_AND_ONE
    assert (spill.spilled, spill.in_memory) == (0, 0)
    assert await PendingUrls(door.engine, door.keys, spill.files).count(0) == 0
