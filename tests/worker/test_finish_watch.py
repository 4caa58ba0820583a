"""Who looks whether a crawl is finished: one session reads all partitions, the others check what it found."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from crawler.frontier.members import Member
from crawler.instance import finish
from crawler.instance.finish import FinishWatcher
from crawler.instance.retelling import UNDER_WAY
from tests.support.patience import until

LONG_S = 0.1


class World:
    """A crawl's counts and members, and a watcher for each session."""

    def __init__(self) -> None:
        self.counts_now = [(1, 1), (2, 1)]
        self.reads = 0
        self.asked: list[int] = []
        self.proof = ""
        self.members: dict[str, Member] = {}
        self.run_id = "run"
        self.digest = ""

    async def counts(self, _partitions: int) -> list[Any]:
        self.reads += 1
        return [SimpleNamespace(added=a, done=d, log_entries=0, own=(a, d)) for a, d in self.counts_now]

    async def counts_of(self, partitions: Sequence[int]) -> list[Any]:
        found = await self.counts(2) if partitions else []
        self.reads -= bool(partitions)
        self.asked += [*partitions]
        return [found[partition] for partition in partitions]

    async def still(self, _record: object) -> None:
        pass

    async def end(self) -> str:
        return self.proof

    async def note_end(self, digest: str) -> None:
        self.proof = digest

    async def read(self) -> dict[str, Member]:
        return self.members

    async def drain(self) -> None:
        pass

    def join(self, session: str, *, looks: int = 0) -> FinishWatcher:
        self.members[session] = Member(session=session, node=session, counter=1, state="alive", looks=looks)
        return FinishWatcher(
            self, self, self, self, self,  # type: ignore[arg-type]
            record=SimpleNamespace(partitions=2), session=session, digest=lambda: self.digest,  # type: ignore[arg-type]
        )  # fmt: skip

    def wait(self, watcher: FinishWatcher) -> "asyncio.Task[str]":
        async def never() -> bool:
            return False

        return asyncio.create_task(
            watcher.wait(
                is_locally_quiet=lambda: True, limit=lambda: "", has_more=never, alive=lambda: self.members,
                has_jobs=lambda: False, start_no_runs=lambda: None,
            )
        )  # fmt: skip


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(finish, "PENDING_PAUSES_S", (0.002, 0.005))
    monkeypatch.setattr(finish, "QUIET_PAUSE_S", 0.002)
    return World()


async def test_only_the_first_session_reads_all_partitions_and_the_others_check_its_proof(world: World) -> None:
    first, second, third = (world.join(session) for session in "abc")
    tasks = [world.wait(second), world.wait(third)]
    await asyncio.sleep(LONG_S)
    assert world.reads == 0
    tasks.append(world.wait(first))
    await until(lambda: first.looks > 2)
    assert (second.looks, third.looks, world.proof) == (0, 0, "")
    world.counts_now = [(1, 1), (2, 2)]
    async with asyncio.timeout(60):
        assert await asyncio.gather(*tasks) == ["finished"] * 3
    assert (second.looks, third.looks) == (1, 1)


async def test_while_one_partition_has_urls_pending_no_other_is_read(world: World) -> None:
    first = world.join("a")
    task = world.wait(first)
    await until(lambda: first.looks > 5)
    assert (world.reads, set(world.asked)) == (1, {1})  # 0 has none
    world.counts_now = [(2, 1), (2, 2)]  # the last one there led to another one
    await until(lambda: 0 in world.asked)
    assert not task.done()
    world.counts_now = [(2, 2), (2, 2)]
    async with asyncio.timeout(60):
        assert await task == "finished"


async def test_an_earlier_proof_ends_nothing(world: World) -> None:
    """The crawl had ended, and got further seeds."""
    world.counts_now = [(1, 1), (1, 1)]
    alone = world.join("b")
    async with asyncio.timeout(60):
        assert await world.wait(alone) == "finished"
    assert world.proof
    world.counts_now = [(1, 1), (2, 1)]
    world.join("a")
    again = world.join("b")
    task = world.wait(again)
    await asyncio.sleep(LONG_S)
    assert not task.done()
    assert again.looks == 1  # it does not check the same proof again and again
    task.cancel()


async def test_a_session_that_goes_on_after_the_end_is_not_waited_for(world: World) -> None:
    world.join("a", looks=-1)
    world.counts_now = [(1, 1), (2, 2)]
    async with asyncio.timeout(60):
        assert await world.wait(world.join("b")) == "finished"


async def test_a_first_session_that_does_not_look_is_replaced_unless_it_has_work(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finish, "LOOK_ALONE_MS", 50)
    world.join("a")
    second = world.join("b")
    world.members["a"] = Member(session="a", node="a", counter=1, state="alive", looks=5, in_flight=1)
    task = world.wait(second)
    await asyncio.sleep(LONG_S)
    assert second.looks == 0
    world.members["a"] = Member(session="a", node="a", counter=1, state="alive", looks=5)
    await until(lambda: second.looks > 0)
    task.cancel()


@pytest.mark.parametrize("theirs", [UNDER_WAY, "other"])
async def test_no_crawl_ends_before_a_shard_has_what_all_members_sent_dead_ones_too(world: World, theirs: str) -> None:
    world.counts_now, world.digest = [(1, 1), (2, 2)], "primaries"
    watcher = world.join("a")
    world.members["a"] = Member(session="a", node="a", counter=1, state="alive", looks=0, engine="primaries")
    world.members["dead"] = Member(session="dead", node="d", counter=1, state="alive", engine=theirs)
    task = world.wait(watcher)
    await until(lambda: watcher.looks > 3)
    assert not task.done()
    del world.members["dead"]  # somebody has told what it had sent, and removed it
    world.digest = UNDER_WAY  # and that was us
    looks = watcher.looks
    await until(lambda: watcher.looks > looks + 2)
    assert not task.done()
    world.digest = "primaries"
    async with asyncio.timeout(60):
        assert await task == "finished"
