"""What a shard may have lost is told again, by whom and when; and nobody calls a crawl finished before."""

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crawler.archive import told_log
from crawler.archive.folder import open_or_create
from crawler.archive.told_log import Told, ToldLog, told_in
from crawler.engine.server import Change, everything
from crawler.errors import EngineDown, EngineError, NoRoomError
from crawler.frontier.arguments import AddArgs
from crawler.frontier.members import UNDER_WAY, engine_digest
from crawler.frontier.messages import AddReply
from crawler.instance import retelling as module
from crawler.instance.retelling import Retelling
from crawler.model import AddOutcome
from tests.support.patience import others_run, until


class World:
    """An engine with a shard for each partition, what it has of the adds, and the session that tells."""

    def __init__(self, folder: Path, *, fails_in_parts: bool = True) -> None:
        self.run_id, self.fails_in_parts, self.doubts = "a+b", fails_in_parts, 0
        self.down: set[int] = set()
        self.there: set[tuple[int, bytes]] = set()
        self.told: list[tuple[int, bytes]] = []
        self.ended: set[str] = set()
        self.touched: list[tuple[str, frozenset[int]]] = []
        self.keys = SimpleNamespace(meta=str, crawl="crawl")
        self.unconfirmed: set[str] = set()  # keys of shards whose replica lacks what was written last
        self.note_told: Any = None
        self.log = ToldLog(open_or_create(folder), "aa11", clock_ms=lambda: 0)
        self.retelling = Retelling(self, self, self, self.log)  # type: ignore[arg-type]

    def doubt(self) -> None:
        self.doubts += 1

    async def written(self, keys: Collection[str]) -> set[str]:
        return {*keys} - self.unconfirmed

    async def tell(self, told: Sequence[tuple[int, AddArgs]]) -> list[AddReply | EngineError]:
        return [self._answer(partition, args.urls) for partition, args in told]

    def _answer(self, partition: int, urls: bytes) -> AddReply | EngineError:
        self.told.append((partition, urls))
        if partition in self.down:
            return EngineDown("down")
        is_new = (partition, urls) not in self.there
        self.there.add((partition, urls))
        return AddReply(outcomes=(AddOutcome.NEW if is_new else AddOutcome.SEEN,), woken=0)

    async def touch_all(self, partitions: Mapping[str, Collection[int]]) -> set[str]:
        self.touched += [(run, frozenset(some)) for run, some in partitions.items()]
        return self.ended & partitions.keys()

    def send(self, partition: int, urls: bytes, run: str = "") -> None:
        """As the frontier does."""
        if self.note_told is not None:
            self.note_told([(partition, args_of(urls, run))])
        self.there.add((partition, urls))


def args_of(urls: bytes, run: str = "") -> AddArgs:
    return AddArgs(run, 1000, urls, "hints", "aa11", 0, b"", "key")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(module, "LOOK_S", 0.005)
    monkeypatch.setattr(module, "ENGINE_PAUSE_S", 0.005)
    return World(tmp_path / "c")


@contextlib.asynccontextmanager
async def running(world: World) -> AsyncIterator[None]:
    task = asyncio.create_task(world.retelling.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_what_a_shard_lost_is_told_again_and_nothing_else(world: World) -> None:
    for partition in (1, 2, 3):
        world.send(partition, b"url")
    before = world.retelling.digest
    world.there.clear()
    world.run_id = "a+c"
    world.retelling.noticed(Change("2".__eq__))
    assert world.retelling.digest == UNDER_WAY
    async with running(world):
        await until(lambda: world.retelling.is_done)
    assert world.told == [(2, b"url")]
    assert world.retelling.digest not in (before, UNDER_WAY)


async def test_a_slot_that_moved_has_lost_nothing(world: World) -> None:
    world.send(1, b"url")
    world.retelling.noticed(Change(everything, may_have_lost=False))
    assert world.retelling.is_done
    world.run_id = "a+b+c"  # a primary was added
    assert world.retelling.digest == engine_digest("a+b+c")
    await world.retelling.settle(2)
    assert world.told == []


async def test_what_is_owed_to_a_shard_that_is_down_is_told_when_it_is_back(world: World) -> None:
    world.down = {1}
    world.send(1, b"one")
    world.send(2, b"two")
    world.there.discard((1, b"one"))
    assert await world.retelling.owe([1])
    async with running(world):
        await until(lambda: len(world.told) >= 3)
        world.send(1, b"later")
        world.there.discard((1, b"later"))
        assert await world.retelling.owe([1])
        assert world.retelling.digest == UNDER_WAY
        world.down.clear()
        await until(lambda: world.retelling.is_done)
    assert world.there == {(1, b"one"), (1, b"later"), (2, b"two")}
    assert (2, b"two") not in world.told


async def test_nothing_is_owed_without_room_or_to_one_server(world: World, tmp_path: Path) -> None:
    alone = World(tmp_path / "d", fails_in_parts=False)
    alone.send(1, b"url")
    assert not await alone.retelling.owe([1])
    alone.retelling.noticed(Change(everything))
    assert (alone.note_told, alone.log.paths, alone.retelling.digest) == (None, [], engine_digest("a+b"))
    world.send(1, b"url")
    world.log._bytes = 1 << 40
    assert not await world.retelling.owe([1])


async def test_all_that_a_dead_session_told_is_told_again_and_then_noted_as_ours(world: World) -> None:
    other = ToldLog(open_or_create(world.log._stem.parents[1]), "bb22", clock_ms=lambda: 0)
    other.note([Told(1, tuple(args_of(b"lost"))), Told(2, tuple(args_of(b"known")))])
    world.there = {(2, b"known")}
    world.down = {1}
    world.retelling.adopt(other.paths)
    world.retelling.adopt(other.paths)
    assert world.retelling.digest == UNDER_WAY
    async with running(world):
        await until(lambda: len(world.told) > 3)
        assert other.paths[0].exists()  # until all of it has arrived
        world.down.clear()
        await until(lambda: world.retelling.is_done)
    assert world.there == {(1, b"lost"), (2, b"known")}
    assert not other.paths[0].exists()
    assert sorted(told.partition for told in told_in(world.log.paths) if told) == [1, 2]
    assert world.told.count((2, b"known")) == 1


async def test_what_was_told_on_a_cluster_is_told_again_on_one_server(world: World, tmp_path: Path) -> None:
    """As after a move from there to here, of a session that had died."""
    alone = World(tmp_path / "d", fails_in_parts=False)
    world.send(1, b"url")
    alone.retelling.adopt(world.log.paths)
    async with running(alone):
        await until(lambda: alone.retelling.is_done)
    assert (alone.told, world.log.paths[0].exists()) == ([(1, b"url")], False)


async def test_a_damaged_file_ends_nothing(world: World) -> None:
    other = ToldLog(open_or_create(world.log._stem.parents[1]), "bb22", clock_ms=lambda: 0)
    other.note([Told(1, tuple(args_of(b"one"))), Told(2, tuple(args_of(b"two")))])
    (path,) = other.paths
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    world.retelling.adopt([path, path.with_name("bb22.told9")])
    async with running(world):
        await until(lambda: world.retelling.is_done)
    assert world.told == [(1, b"one")]


async def test_partitions_of_a_run_are_noted_again_and_an_ended_run_gets_nothing(world: World) -> None:
    """The list of a run's partitions may be on the shard that lost it, wherever its URLs are."""
    world.send(1, b"of the crawl")
    world.send(2, b"of a run", "run")
    world.send(3, b"of an ended one", "ended")
    world.ended = {"ended"}
    world.retelling.noticed(Change("7".__eq__))
    async with running(world):
        await until(lambda: world.retelling.is_done)
    assert world.touched == [("run", frozenset({2})), ("ended", frozenset({3}))]
    assert world.told == [(2, b"of a run")]


async def test_a_session_leaves_when_replicas_have_what_it_sent_or_new_primaries_have_it_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the simulation: what it had sent last was lost by a failover after it had left, and nobody knew of it."""  # noqa: E501
    monkeypatch.setattr(module, "SETTLE_PAUSE_S", 0.001)
    await world.retelling.settle(2)  # it has sent nothing
    world.send(1, b"x")
    world.unconfirmed = {"1"}
    leaving = asyncio.create_task(world.retelling.settle(2))
    await others_run()
    assert not leaving.done()
    world.there.clear()
    world.run_id, world.unconfirmed = "a+c", set()
    world.retelling.noticed(Change("1".__eq__))
    await others_run()
    assert not leaving.done()
    await world.retelling._catch_up()
    await leaving
    assert world.there == {(1, b"x")}


async def test_what_finds_no_room_in_the_log_is_not_sent_and_the_disk_is_told(tmp_path: Path) -> None:
    world, told = World(tmp_path / "c"), list[NoRoomError]()
    world.retelling = Retelling(world, world, world, world.log, told.append)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(told_log, "write_all", full)
        with pytest.raises(EngineError, match="No space left"):
            world.send(3, b"a")
        assert (world.there, [error.folder for error in told]) == (set(), [tmp_path / "c" / "sessions"])
    world.send(3, b"a")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("crawler.disk_sync.sync", full)
        assert not await world.retelling.owe([3]), "it is sent until it arrives"
    assert len(told) == 2
    world.log.close(keep=False)


async def test_what_is_told_again_and_finds_no_room_is_told_once_more(world: World) -> None:
    world.send(3, b"a")
    world.there.clear()
    world.retelling.noticed(Change(everything))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(told_log, "write_all", full)
        running = asyncio.create_task(world.retelling.run())
        await until(lambda: len(world.told) > 1)
        assert not world.retelling.is_done
    await until(lambda: world.retelling.is_done)
    assert world.there == {(3, b"a")}
    running.cancel()


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
