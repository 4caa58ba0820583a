"""A tally in the course of which URLs move says that it is not steady: some were counted twice, or never."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from crawler.engine.client import Engine
from crawler.frontier.bulk import BulkLookup
from crawler.frontier.deferred import PAUSED, ChangeKind, DeferredUrls, QueueChange
from crawler.frontier.owner import Settlement
from tests.frontier.door import Door, found
from tests.frontier.test_frontier_spilling import QUEUE, Spill, ordered, without_delay

Step = Callable[[], Awaitable[object]]


class Interrupted:
    """The engine, in which something happens as soon as the blocks of queues are known, or have been counted."""

    def __init__(self, engine: Engine, step: Step, *, is_counted: bool) -> None:
        self._engine, self._step, self._is_counted = engine, step, is_counted
        self.command = engine.command

    def run_id_of(self, key: str) -> str:
        return self._engine.run_id_of(key)

    async def commands(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        is_count = commands[0][0] == "ZCARD"
        if is_count and not self._is_counted:
            await self._step()
        replies = await self._engine.commands(commands)
        if is_count and self._is_counted:
            await self._step()
        return replies


async def tally_while(
    door: Door, step: Step, spill: Spill | None = None, *, is_counted: bool = True
) -> tuple[int, bool]:
    """(URLs pending by the tally in which that step was taken, whether it is steady)."""
    engine = cast("Engine", Interrupted(door.engine, step, is_counted=is_counted))
    tally = await BulkLookup(engine, door.keys, 1, spill.files if spill else None).tally(0)
    return tally.pending, tally.is_steady


async def test_one_that_nothing_happens_to_is_steady(door: Door) -> None:
    async def nothing() -> None: ...

    await door.add(found(1), found(2))
    assert await tally_while(door, nothing) == (2, True)


async def test_one_in_which_the_engine_may_have_gone_back_is_not_steady(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica without the last writes takes over, and an audit would call URLs lost."""
    await door.add(found(1))

    async def failover() -> None:
        monkeypatch.setattr(door.engine, "run_id_of", lambda _: "another")

    assert await tally_while(door, failover) == (1, False)


async def test_a_claim_counts_its_url_twice(door: Door) -> None:
    await door.add(found(1), found(2))
    assert await tally_while(door, door.claim) == (3, False)


async def test_a_claim_that_was_given_back_is_counted_nowhere(door: Door) -> None:
    await door.add(found(1), found(2))
    (claim,) = await door.claim()
    assert await tally_while(door, lambda: door.return_claims(claim)) == (1, False)


async def test_a_claim_that_expires_is_counted_nowhere(door: Door) -> None:
    await door.add(found(1), found(2))
    await door.claim(visibility_ms=1000)
    door.now = 2000
    assert await tally_while(door, lambda: door.claim_reply(urls_max=0)) == (1, False)


async def test_a_retry_that_is_due_is_counted_nowhere(door: Door) -> None:
    await door.add(found(1), found(2))
    (claim,) = await door.claim()
    retry = door.frontier.retry(door.fence, claim, Settlement(next_fetch_ms=0), due_ms=1000, kind="connect")
    await door.frontier.end([retry])
    door.now = 2000
    assert await tally_while(door, lambda: door.claim_reply(urls_max=0)) == (1, False)


async def test_a_claim_put_back_instead_of_deferred_is_not_counted(door: Door) -> None:
    await door.add(found(1), found(2, deferred="trap:path"))
    await DeferredUrls(door.frontier, 1).release(0, QUEUE, "trap:path", 1)
    (claim,) = await door.claim()
    defer = door.frontier.defer(door.fence, claim, "trap:path")
    assert await tally_while(door, lambda: door.frontier.end([defer])) == (1, False)


async def test_a_changed_queue_may_have_been_in_no_list_of_queues(door: Door) -> None:
    await door.add(found(1), found(2))
    for what, reason, n in ((ChangeKind.STOP, PAUSED, 0), (ChangeKind.START, PAUSED, 0), (ChangeKind.BOOST, "", 3)):
        order = QueueChange(QUEUE, what, reason, n)
        assert await tally_while(
            door, lambda order=order: DeferredUrls(door.frontier, 1).change_queues(0, [order])
        ) == (
            2,
            False,
        )


async def test_a_block_that_goes_to_its_file_or_comes_back_is_counted_twice_or_nowhere(
    door: Door, tmp_path: Path
) -> None:
    spill = Spill(door, tmp_path / "spill")
    await without_delay(door)
    for start in range(0, 1000, 250):
        await door.add(*ordered(1000)[start : start + 250])
    assert await tally_while(door, spill.all_but_one, spill, is_counted=False) == (256, False)
    while not (await door.claim_reply(out_max=1000)).short:
        pass
    assert await tally_while(door, spill.back, spill, is_counted=False) == (1000 + 128, False)
