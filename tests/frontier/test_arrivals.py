"""What may stand where a crawl arrives, and the proof that all of it has come although servers fail."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from crawler.errors import ConflictError, EngineDown, EngineError, EngineFull, UsageError
from crawler.frontier.crawls import CrawlList
from crawler.frontier.keys import CRAWLS
from crawler.frontier.leases import Acquired, Leases
from crawler.frontier.owner import Fence
from crawler.frontier.record import ARRIVING, BORN, MOVED, REMOVED, Crawls, Mark, mark_in
from crawler.recovery import backup
from crawler.recovery.arrival import Arrival
from crawler.recovery.backup import BackupReader, back_up, check_whole, restore
from crawler.recovery.move import Departure, move, undo, undo_without_target
from crawler.recovery.side import Side
from tests.frontier.door import HASH_KEY
from tests.frontier.moving_lab import MEMBERSHIP, NAME, PARTITIONS, Dying, Lab, dump, make, opened

pytestmark = pytest.mark.cluster


@pytest.fixture(params=["to-cluster", "to-server"])
async def lab(request: Any, engine: Any, cluster: Any, tmp_path: Path) -> AsyncIterator[Lab]:
    ends = [engine.url, cluster.url]
    lab = Lab(*(ends if request.param == "to-cluster" else ends[::-1]), tmp_path)
    await make(lab.here)
    try:
        yield lab
    finally:
        await lab.close()


@pytest.fixture
async def into_cluster(engine: Any, cluster: Any, tmp_path: Path) -> AsyncIterator[Lab]:
    lab = Lab(engine.url, cluster.url, tmp_path)
    await make(lab.here)
    try:
        yield lab
    finally:
        await lab.close()


# A server fails, and its successor lacks what no replica had.

GROUP = 3  # whose server fails


async def fail(side: Side, *, restarted: bool = True) -> None:
    """The server of a group is replaced by one that has nothing of it and its neighbours."""
    engine, keys = cast("Dying", side.engine), side.keys
    shard = engine.shard_of(keys.meta(GROUP))
    lost = [p for p in range(PARTITIONS) if engine.shard_of(keys.meta(p)) == shard]
    async for some in engine.scan(keys.pattern):
        tags = [f"{{{NAME}:{p}}}:".encode() for p in lost]
        await engine.commands([("UNLINK", key) for key in some if any(key.startswith(tag) for tag in tags)])
    engine.failed[shard] += restarted


MOMENTS: dict[str, tuple[type, str]] = {
    "before-it-is-read-back": (Arrival, "lost"), "before-its-last-word": (Arrival, "finish"),
    "before-the-source-is-checked": (Departure, "check"),
}  # fmt: skip
CONFIRMED = ("before-a-replica-has-the-mark", "while-a-replica-is-waited-for")  # by the calls before it


def at(moment: str, patch: pytest.MonkeyPatch, side: Side, then: Callable[[], Awaitable[None]]) -> None:
    """Let it happen once, at this moment of the arrival at that end."""
    left = [1]

    async def once() -> None:
        if left and left.pop():
            await then()

    if moment in MOMENTS:
        owner, name = MOMENTS[moment]
        real = getattr(owner, name)

        async def after(*arguments: Any) -> Any:
            await once()
            return await real(*arguments)

        patch.setattr(owner, name, after)
    elif moment in CONFIRMED:
        confirm, looks = side.engine.confirm, iter(range(100))

        async def confirmed(keys: Any) -> list[str]:
            if next(looks) == CONFIRMED.index(moment):
                await once()
            return await confirm(keys)

        patch.setattr(side.engine, "confirm", confirmed)
    else:
        assert moment == "between-groups"
        note = Arrival.note

        async def noted(self: Arrival, group: int, read: Any) -> None:
            await note(self, group, read)
            if group == GROUP + 1:
                await once()

        patch.setattr(Arrival, "note", noted)


@pytest.mark.parametrize("how", ["move", "restore"])
@pytest.mark.parametrize(
    ("moment", "restarted"),
    [
        ("between-groups", True), ("between-groups", False), ("before-it-is-read-back", True),
        ("before-it-is-read-back", False), ("while-a-replica-is-waited-for", True),
    ],
)  # fmt: skip
async def test_what_a_server_lost_while_a_crawl_arrived_is_copied_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, how: str, moment: str, *, restarted: bool
) -> None:
    was, file = await dump(lab.here), lab.folder / "m.backup"
    at(moment, monkeypatch, lab.there, lambda: fail(lab.there, restarted=restarted))
    if how == "move":
        await lab.move()
    else:
        await back_up(lab.here, file, MEMBERSHIP)
        await restore(file, Arrival(lab.there, "m.backup"))
    assert await dump(lab.there) == was
    await Crawls(lab.there.engine, lab.there.keys).counts(PARTITIONS)  # all have their marks


async def test_a_server_that_loses_a_group_each_time_ends_the_move(
    into_cluster: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = Arrival.lost

    async def looked(self: Arrival, *arguments: Any) -> list[int]:
        await fail(self.side, restarted=False)
        return await lost(self, *arguments)

    monkeypatch.setattr(Arrival, "lost", looked)
    with pytest.raises(EngineError, match=r"the copy of partition \d differs from what was read"):
        await into_cluster.move()
    assert not await opened(into_cluster.here)
    assert not await opened(into_cluster.there)


async def test_a_partition_without_keys_has_its_mark_before_anything_of_the_crawl(into_cluster: Lab) -> None:
    """A shard that lost its partitions has no marks, used or not."""
    lab = into_cluster
    unused = [p for p in range(PARTITIONS) if not await lab.here.engine.command("EXISTS", lab.here.keys.meta(p))]
    assert unused
    await lab.move()
    for partition in range(PARTITIONS):
        assert await lab.there.engine.command("HGET", lab.there.keys.meta(partition), BORN) == b"1"
    assert await lab.there.engine.command("HGET", lab.there.keys.crawl, "marked") == b"1"


async def test_marks_of_a_cluster_stay_there(lab: Lab) -> None:
    """A server needs none, and each cluster gives its own."""
    await lab.move()
    marks = [await lab.there.engine.command("HGET", lab.there.keys.meta(p), BORN) for p in range(PARTITIONS)]
    assert set(marks) == ({b"1"} if lab.there.engine.fails_in_parts else {None})


async def test_servers_without_a_replica_are_named_and_not_waited_for(into_cluster: Lab) -> None:
    ends = into_cluster.ends()
    await move(*ends)
    keys = into_cluster.there.keys
    assert ends[1].alone == {into_cluster.there.engine.shard_of(keys.meta(p)) for p in range(PARTITIONS)} | {
        into_cluster.there.engine.shard_of(keys.crawl)
    }


async def test_a_record_that_its_server_lost_is_written_again(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its replica has the mark, and all else."""
    confirm, keys = lab.there.engine.confirm, lab.there.keys
    marks, lost = list[bytes](), [1]

    async def confirmed(some: Any) -> list[str]:
        raw = await lab.there.raw()
        if raw and mark_in(raw):
            marks.append(raw)
        elif lost:
            lost.pop()
            await lab.there.engine.command("HSET", keys.crawl, "record", marks[-1])
        return await confirm(some)

    monkeypatch.setattr(lab.there.engine, "confirm", confirmed)
    was = await dump(lab.here)
    await lab.move()
    assert not lost
    assert await dump(lab.there) == was


async def test_a_record_that_is_lost_after_a_move_was_killed_is_written_again(lab: Lab) -> None:
    """It was killed before a replica had the record; the next one does not believe what the primary says."""
    was = await dump(lab.here)
    await arrived(lab)
    record = await lab.there.raw()
    assert record is not None
    mark = Mark(layout=ARRIVING, was=record.decode(), place="a", move=json.loads(record)["move"])
    with pytest.MonkeyPatch.context() as patch:
        at(CONFIRMED[0], patch, lab.there, partial(stored, lab.there, msgspec.json.encode(mark)))
        await lab.move()
    assert await dump(lab.there) == was
    assert [await opened(lab.here), await opened(lab.there)] == [False, True]


# Two commands bring the same.


@pytest.mark.parametrize("how", ["move", "restore"])
@pytest.mark.parametrize("moment", ["between-groups", "before-it-is-read-back"])
async def test_a_command_that_is_overtaken_writes_nothing_more(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, how: str, moment: str
) -> None:
    """The second one goes on, and ends; then the crawl goes on there. What the first one read is old by then."""
    file = lab.folder / "m.backup"
    await back_up(lab.here, file, MEMBERSHIP)

    async def bring() -> None:
        if how == "move":
            await lab.move()
        else:
            await restore(file, Arrival(lab.there, "m.backup"))

    async def overtake() -> None:
        await bring()
        for partition in range(PARTITIONS):  # the crawl goes on
            await lab.there.engine.command("HSET", lab.there.keys.meta(partition), "added", 77)

    at(moment, monkeypatch, lab.there, overtake)
    with pytest.raises(ConflictError, match=r"another command goes on|was changed at this moment"):
        await bring()
    metas = [lab.there.keys.meta(partition) for partition in range(PARTITIONS)]
    found = await lab.there.engine.commands([("HGET", meta, "added") for meta in metas])
    assert set(found) == {b"77"}
    assert await opened(lab.there)


async def test_a_move_that_another_command_has_ended_says_that_it_has_arrived(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not that what has arrived should be removed."""

    async def overtake() -> None:
        await lab.move()

    at("before-the-source-is-checked", monkeypatch, lab.there, overtake)
    with pytest.raises(ConflictError, match="the crawl has arrived at b"):
        await lab.move()
    assert [await opened(lab.here), await opened(lab.there)] == [False, True]


# What stands at either end.


async def arrived(lab: Lab) -> None:
    """The record is there, and the move is killed before the source is closed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Departure, "finish", _killed)
        with pytest.raises(EngineDown):
            await lab.move()


async def half(lab: Lab) -> None:
    """The move is killed after some partitions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Arrival, "lost", _killed)
        with pytest.raises(EngineDown):
            await lab.move()


async def _killed(*_arguments: Any) -> Any:
    raise EngineDown("killed")


async def stored(side: Side, raw: bytes) -> None:
    await side.engine.commands([("HSET", side.keys.crawl, "record", raw), ("SADD", CRAWLS, NAME)])


async def copied(lab: Lab) -> None:
    """An older copy, as a replica that was split off, or a restored snapshot."""
    raw = await lab.here.raw()
    assert raw is not None
    await stored(lab.there, raw)
    await lab.there.engine.command("HSET", lab.there.keys.meta(0), "added", 3)


async def other_move(lab: Lab) -> None:
    raw = await lab.here.raw()
    assert raw is not None
    await stored(lab.there, msgspec.json.encode(Mark(layout=ARRIVING, was=raw.decode(), place="c", move="0123")))


async def set_back(lab: Lab) -> None:
    """A move is interrupted, and its source set back to the time before it."""
    raw = await lab.here.raw()
    assert raw is not None
    await half(lab)
    await stored(lab.here, raw)


async def set_back_after(lab: Lab) -> None:
    raw = await lab.here.raw()
    assert raw is not None
    await arrived(lab)
    await stored(lab.here, raw)


async def replaced(lab: Lab) -> None:
    """An interrupted move; then its target gets a copy from elsewhere."""
    raw = await lab.here.raw()
    assert raw is not None
    await half(lab)
    await stored(lab.there, raw)


async def being_removed(lab: Lab) -> None:
    await half(lab)
    raw = await lab.there.raw()
    assert raw is not None
    await stored(lab.there, msgspec.json.encode(Mark(layout=REMOVED, was=raw.decode())))


async def leaving(lab: Lab) -> None:
    raw = await lab.here.raw()
    assert raw is not None
    await stored(lab.there, msgspec.json.encode(Mark(layout=MOVED, was=raw.decode(), place="c", move="4567")))


async def older(lab: Lab) -> None:
    """The crawl got a new begin here."""
    raw = await lab.here.raw()
    assert raw is not None
    await stored(lab.there, msgspec.json.encode(json.loads(raw) | {"begun_at": 1.0}))


REFUSED = [
    (copied, r"b has the crawl 'm' already, which did not come .* a has 0 of 40 URLs done; b has 0 of 3 URLs done"),
    (
        other_move,
        r"b has a part of the crawl 'm', from c, by another move or restore: run that command again, or remove",
    ),
    (set_back, r"b has a part of the crawl 'm', from a, by another move or restore"),
    (set_back_after, r"b has the crawl 'm' already, which did not come there by this move"),
    (replaced, r"b has the crawl 'm' already, which did not come there by this move"),
    (being_removed, r"b is being removed: run 'crawler crawls rm m' again"),
    (leaving, r"b is on its way to c"),
    (older, r"b has an older copy of the crawl 'm'"),
]


@pytest.mark.parametrize(("stands", "why"), REFUSED, ids=[one[0].__name__ for one in REFUSED])
async def test_a_crawl_does_not_go_where_something_else_of_it_is(
    lab: Lab, stands: Callable[[Lab], Awaitable[None]], why: str
) -> None:
    """Neither end is changed by the refusal."""
    await stands(lab)
    was = await dump(lab.here), await dump(lab.there)
    with pytest.raises(ConflictError, match=why):
        await lab.move()
    assert (await dump(lab.here), await dump(lab.there)) == was


@pytest.mark.parametrize("stands", [half, arrived])
async def test_a_crawl_goes_on_to_where_it_was_on_its_way(lab: Lab, stands: Callable[[Lab], Awaitable[None]]) -> None:
    was = await dump(lab.here)
    await stands(lab)
    await lab.move()
    assert await dump(lab.there) == was
    assert [await opened(lab.here), await opened(lab.there)] == [False, True]
    with pytest.raises(ConflictError, match="has moved to b"):
        await lab.move()


async def test_an_arrived_crawl_goes_on_before_its_source_is_closed(lab: Lab) -> None:
    """The id of the move outlives a change of the record."""
    await arrived(lab)
    crawls = Crawls(lab.there.engine, lab.there.keys)
    await crawls.change_settings({"scope.mode": "any"})
    was = await dump(lab.there)
    await lab.move()
    assert [await opened(lab.here), await opened(lab.there)] == [False, True]
    now = await dump(lab.there)
    assert {key: value for key, value in now.items() if key != lab.there.keys.crawl.encode()} == {
        key: value for key, value in was.items() if key != lab.there.keys.crawl.encode()
    }
    record = await crawls.load()
    assert record is not None
    assert (record.scope.mode, record.move) == ("any", "")


async def test_a_crawl_that_has_moved_on_from_its_target_does_not_come_there_again(lab: Lab) -> None:
    """It arrived, went on to a third engine, and only then the first one is closed."""
    await arrived(lab)
    raw = await lab.there.raw()
    assert raw is not None
    gone = Mark(layout=MOVED, was=raw.decode(), place="c", is_done=True, move="89ab")
    await stored(lab.there, msgspec.json.encode(gone))
    was = await dump(lab.there)
    with pytest.raises(ConflictError, match="has arrived at b"):
        await undo(*lab.ends())
    await lab.move()
    assert await dump(lab.there) == was
    assert not await opened(lab.here)


async def test_a_source_whose_mark_is_gone_is_not_believed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was set back while its crawl was copied: somebody may go on there."""
    raw = await lab.here.raw()
    assert raw is not None
    at("before-it-is-read-back", monkeypatch, lab.there, partial(stored, lab.here, raw))
    with pytest.raises(ConflictError, match="the mark of this move is gone from a"):
        await lab.move()
    assert [await opened(lab.here), await opened(lab.there)] == [True, False]


async def test_a_move_that_is_taken_back_by_another_command_does_not_close_its_source(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    was = await dump(lab.here)
    at("before-its-last-word", monkeypatch, lab.there, lambda: undo(*lab.ends()))
    with pytest.raises(ConflictError, match="was changed at this moment"):
        await lab.move()
    assert await dump(lab.here) == was
    assert await dump(lab.there) == {}


# Taken back.


async def test_undo_removes_nothing_that_is_of_another_move(lab: Lab) -> None:
    await half(lab)
    raw = await lab.there.raw()
    assert raw is not None
    other = msgspec.structs.replace(msgspec.json.decode(raw, type=Mark), move="0123")
    await stored(lab.there, msgspec.json.encode(other))
    was = await dump(lab.there)
    await undo(*lab.ends())
    assert await opened(lab.here)
    assert await dump(lab.there) == was


async def test_a_move_is_taken_back_whose_target_is_full(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs no script until what has arrived is gone."""
    was = await dump(lab.here)
    await half(lab)
    engine, keys, run = lab.there.engine, lab.there.keys, lab.there.engine.run

    async def full(*call: Any) -> Any:
        there = [key async for some in engine.scan(keys.pattern) for key in some]
        if set(there) - {keys.crawl.encode()}:
            raise EngineFull("full")
        return await run(*call)

    monkeypatch.setattr(engine, "run", full)
    await undo(*lab.ends())
    assert await dump(lab.here) == was
    assert await dump(lab.there) == {}
    assert await opened(lab.here)


async def test_an_undo_that_is_killed_while_it_removes_is_finished_by_the_next(lab: Lab) -> None:
    was = await dump(lab.here)
    await half(lab)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CrawlList, "erase", _killed)
        with pytest.raises(EngineDown):
            await undo(*lab.ends())
    await undo(*lab.ends())
    assert await dump(lab.here) == was
    assert await dump(lab.there) == {}


@pytest.mark.parametrize("killed", [False, True], ids=["", "killed"])
async def test_a_crawl_whose_target_is_gone_stays_with_a_new_begin(lab: Lab, *, killed: bool) -> None:
    was, before = await dump(lab.here), await Crawls(lab.here.engine, lab.here.keys).load()
    assert before is not None
    files = lab.here.files(before)
    assert files is not None
    files.store(1, "1-s-1", b"blocks of URLs")
    await half(lab)
    bound = []
    if killed:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Departure, "take_back", _killed)
            with pytest.raises(EngineDown):
                await undo_without_target(lab.ends()[0], bound.append)
    record = await undo_without_target(lab.ends()[0], bound.append)
    assert bound == [record] * (1 + killed)
    now = await Crawls(lab.here.engine, lab.here.keys).load()
    assert now == record == msgspec.structs.replace(before, begun_at=record.begun_at, origin=before.begun_at)
    assert record.begun_at > before.begun_at
    kept = lab.here.files(record)
    assert kept is not None
    assert kept.data(1, "1-s-1") == b"blocks of URLs"
    here = await dump(lab.here)
    key = lab.here.keys.crawl.encode()
    assert {k: v for k, v in here.items() if k != key} == {k: v for k, v in was.items() if k != key}
    with pytest.raises(ConflictError, match="no move of the crawl 'm' to b is under way"):
        await undo_without_target(lab.ends()[0], bound.append)
    with pytest.raises(ConflictError, match="b has an older copy of the crawl 'm'"):  # it comes back
        await lab.move()


async def test_an_instance_that_slept_through_a_move_is_told_where_its_crawl_is(lab: Lab) -> None:
    crawls = Crawls(lab.here.engine, lab.here.keys)
    record = await crawls.load()
    assert record is not None
    await half(lab)
    with pytest.raises(ConflictError, match="crawl 'm' is on its way to b"):
        await crawls.versions(record)
    await lab.move()
    with pytest.raises(ConflictError, match="crawl 'm' has moved to b: name that engine"):
        await crawls.versions(record)


async def test_a_lease_that_was_not_released_ends_when_the_crawl_leaves(lab: Lab) -> None:
    """Its holder may only sleep: it commits nothing in the old engine when it wakes."""
    leases = Leases(lab.here.engine, lab.here.keys, hash_key=HASH_KEY)
    wanted = [(lease, 0) for lease in await leases.read([1, 2])]
    for got in await leases.acquire("s1", "n1", wanted):
        assert isinstance(got, Acquired)
    fences = [Fence(partition=p, session="s1", epoch=1, now_ms=5) for p in (1, 2)]
    await leases.release(fences[1:])
    await half(lab)
    await leases.release(fences)  # as any other call
    assert [(lease.session, lease.epoch) for lease in await leases.read([1, 2, 3])] == [("s1", 2), ("", 1), ("", 0)]
    await lab.move()
    there = Leases(lab.there.engine, lab.there.keys, hash_key=HASH_KEY)
    assert [(lease.session, lease.epoch) for lease in await there.read([1, 2, 3])] == [("", 2), ("", 1), ("", 0)]


# Backups.


async def two_backups(lab: Lab) -> list[Path]:
    """The second one has a page more."""
    files = [lab.folder / "old.backup", lab.folder / "new.backup"]
    await back_up(lab.here, files[0], MEMBERSHIP)
    await lab.here.engine.command("HSET", lab.here.keys.of(2, "u"), "new", 1)
    await back_up(lab.here, files[1], MEMBERSHIP)
    return files


async def test_a_restore_does_not_go_on_with_what_came_from_another_backup(lab: Lab) -> None:
    old, new = await two_backups(lab)
    was = await dump(lab.here)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Arrival, "lost", _killed)
        with pytest.raises(EngineDown):
            await restore(old, Arrival(lab.there, "old.backup"))
    half_there = await dump(lab.there)
    with pytest.raises(ConflictError, match=r"from old\.backup, by another move or restore"):
        await restore(new, Arrival(lab.there, "new.backup"))
    assert await dump(lab.there) == half_there
    with pytest.raises(ConflictError, match=r"from old\.backup, by another move or restore"):
        await lab.move()
    crawls = CrawlList(lab.there.engine)
    await crawls.mark(NAME)
    await crawls.erase(NAME)
    await restore(new, Arrival(lab.there, "new.backup"))
    assert await dump(lab.there) == was


async def test_a_restore_that_is_killed_after_its_record_says_that_it_is_done(lab: Lab) -> None:
    was, file = await dump(lab.here), lab.folder / "m.backup"
    await back_up(lab.here, file, MEMBERSHIP)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Arrival, "forget", _killed)
        with pytest.raises(EngineDown):
            await restore(file, Arrival(lab.there, "m.backup"))
    await restore(file, Arrival(lab.there, "m.backup"))
    assert await dump(lab.there) == was
    with pytest.raises(ConflictError, match="b has this crawl already"):
        await restore(file, Arrival(lab.there, "m.backup"))


def frames(file: Path) -> list[list[Any]]:
    with file.open("rb") as opened_file:
        found = [*BackupReader(file, opened_file).payloads()]
    return msgspec.msgpack.decode(msgspec.msgpack.encode(found))  # as they are stored


def written(file: Path, found: list[list[Any]]) -> None:
    file.unlink()
    writer = backup.BackupWriter(file)
    for payload in found:
        writer.add(*payload)
    writer.finish()


def is_of(frame: list[Any], kind: str, group: int) -> bool:
    return frame[0] == kind and frame[1] == group


TAMPERED: dict[str, tuple[Callable[[list[list[Any]]], Any], str]] = {
    "keys-taken-out": (lambda f: [x for x in f if not is_of(x, "keys", 1)], "lacks a part of partition 1"),
    "a-file-taken-out": (lambda f: [x for x in f if x[0] != "file"], "lacks a part of partition 1"),
    "a-file-too-many": (lambda f: [*f[:1], ["file", 0, "1-s-9", b"x"], *f[1:]], "lacks a part of partition 0"),
    "a-group-taken-out": (lambda f: [x for x in f if x[1] != 2 or x[0] in ("crawl", "end")], "has 8 of 9 parts"),
    "a-group-twice": (lambda f: [*f[:-1], *[x for x in f if x[1:2] == [2]], f[-1]], "do not belong together"),
    "the-mark-of-a-group-taken-out": (lambda f: [x for x in f if not is_of(x, "group", 1)], "do not belong together"),
    "the-last-group-open": (lambda f: [*f[:-2], f[-1]], "is cut"),
    "a-value-changed": (lambda f: [["keys", 1, [[b"w:x", "string", b"y"]]] if is_of(x, "keys", 1) else x for x in f],
                        "lacks a part of partition 1"),
    "more-behind-the-end": (lambda f: [*f, f[-1]], "is cut"),
    "no-begin": (lambda f: f[1:], "is cut"),
    "another-kind": (lambda f: [*f[:1], ["strange", 1], *f[1:]], "is damaged at byte"),
    "another-form": (lambda f: [*f[:1], ["keys", "x"], *f[1:]], "is damaged at byte"),
}  # fmt: skip


@pytest.mark.parametrize("how", TAMPERED)
async def test_a_backup_that_lacks_a_part_restores_nothing(into_cluster: Lab, how: str) -> None:
    """Although each of its frames is whole."""
    lab, file = into_cluster, into_cluster.folder / "m.backup"
    record = await Crawls(lab.here.engine, lab.here.keys).load()
    assert record is not None
    files = lab.here.files(record)
    assert files is not None
    files.store(1, "1-s-1", b"blocks of URLs")
    await lab.here.engine.command("HSET", lab.here.keys.of(1, "files"), "1-s-1", 1)
    await back_up(lab.here, file, MEMBERSHIP)
    change, why = TAMPERED[how]
    written(file, change(frames(file)))
    with pytest.raises(UsageError, match=f"{why}.*nothing is restored from it"):
        await restore(file, Arrival(lab.there, "m.backup"))
    assert await dump(lab.there) == {}


async def test_a_backup_with_urls_on_disk_needs_a_folder_before_it_writes(into_cluster: Lab) -> None:
    lab, file = into_cluster, into_cluster.folder / "m.backup"
    record = await Crawls(lab.here.engine, lab.here.keys).load()
    assert record is not None
    files = lab.here.files(record)
    assert files is not None
    files.store(1, "1-s-1", b"blocks of URLs")
    await lab.here.engine.command("HSET", lab.here.keys.of(1, "files"), "1-s-1", 1)
    await back_up(lab.here, file, MEMBERSHIP)
    nowhere = Side(
        engine=lab.there.engine, keys=lab.there.keys, place="b", spill_folder=None, work=lab.folder / "w"
    )  # fmt: skip
    with pytest.raises(UsageError, match=r"frontier\.spill_folder=DIR"):
        await restore(file, Arrival(nowhere, "m.backup"))
    assert await dump(lab.there) == {}


async def test_a_backup_of_another_layout_restores_nothing(into_cluster: Lab) -> None:
    lab, file = into_cluster, into_cluster.folder / "m.backup"
    await back_up(lab.here, file, MEMBERSHIP)
    found = frames(file)
    found[0][2] = msgspec.json.encode(json.loads(found[0][2]) | {"layout": 7})
    written(file, found)
    with pytest.raises(ConflictError, match="has layout 7, this release needs layout"):
        await restore(file, Arrival(lab.there, "m.backup"))
    assert await dump(lab.there) == {}


async def test_a_backup_that_changes_while_it_is_read_is_refused(
    into_cluster: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, file = into_cluster, into_cluster.folder / "m.backup"
    await back_up(lab.here, file, MEMBERSHIP)
    with file.open("rb") as opened_file:
        checked = check_whole(BackupReader(file, opened_file))
    digests = {**checked.digests, 1: "0" * 32}
    monkeypatch.setattr(backup, "check_whole", lambda _reader: checked._replace(digests=digests))
    with pytest.raises(UsageError, match="changed while it was read"):
        await restore(file, Arrival(lab.there, "m.backup"))
    assert not await opened(lab.there)
