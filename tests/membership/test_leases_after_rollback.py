"""An engine that fell back has leases in the names of sessions that had released them."""

import contextlib

from crawler.engine.client import Engine as Client
from crawler.frontier.keys import Keys
from crawler.frontier.scripts import library
from crawler.settings import MembershipSettings
from tests.faults.joining_lab import Ledger, VirtualInstance
from tests.support.engine import Engine

PARTITIONS = 16


async def test_a_lease_restored_by_a_rollback_is_released_again(engine: Engine) -> None:
    """`a` had all and gave half to `b`; the engine forgets it. The ring gives `a` no reason to look at that half, and
    for `b` it is that of a living session.
    """
    settings, keys = MembershipSettings(debounce_s=0), Keys("t")
    ledger, door = Ledger(PARTITIONS), Client(engine.url, library())
    await door.connect()
    a, b = (VirtualInstance(door, ledger, node, settings) for node in ("a", "b"))

    async def steps(*instances: VirtualInstance) -> None:
        for _ in range(8):
            for one in instances:
                await one.heartbeat.beat()
                await one.ownership.step()

    try:
        await a.join()
        await steps(a)
        with contextlib.closing(engine.client()) as client:
            before = {p: client.hgetall(keys.meta(p)) for p in range(PARTITIONS)}
            await b.join()
            await steps(a, b)
            for partition, meta in before.items():
                client.hset(keys.meta(partition), mapping=meta)
        a.lose_leases()  # as both do when they notice the restart
        b.lose_leases()
        await steps(a, b)
        assert sorted([*a.held, *b.held]) == list(range(PARTITIONS))
    finally:
        await door.close()


async def test_who_notices_first_leaves_alone_what_another_may_still_work_on(engine: Engine) -> None:
    """Found by the simulation: a failover put a lease into the name of who had released it, who took it at once; its
    owner, which had noticed nothing yet, made one more request.
    """
    settings, keys = MembershipSettings(debounce_s=0), Keys("t")
    ledger, door = Ledger(PARTITIONS), Client(engine.url, library())
    await door.connect()
    a, b = (VirtualInstance(door, ledger, node, settings) for node in ("a", "b"))
    now_ms = 0
    for one in (a, b):
        one.held._clock_ms = lambda: now_ms

    async def steps(*instances: VirtualInstance) -> None:
        for _ in range(8):
            for one in instances:
                await one.heartbeat.beat()
                await one.ownership.step()

    async def forgotten(before: dict[int, dict[bytes, bytes]]) -> tuple[set[int], set[int]]:
        """The leases of both; the engine falls back, and `a` alone notices it."""
        had = {*a.held}, {*b.held}
        for partition, meta in before.items():
            client.hset(keys.meta(partition), mapping=meta)
        for partition in a.held:
            ledger.gave_up(partition, "s-a")
        a.held.fall_back(lambda _: True)
        await steps(a)
        return had

    try:
        await a.join()
        await steps(a)
        with contextlib.closing(engine.client()) as client:
            before = {p: client.hgetall(keys.meta(p)) for p in range(PARTITIONS)}
            await b.join()
            await steps(a, b)
            of_a, of_b = await forgotten(before)
            assert {*a.held} == of_a, "at once what nobody else had"
            assert {*b.held} == of_b
            untouched = {p: client.hget(keys.meta(p), "epoch") for p in of_b}
            assert untouched == {p: before[p][b"epoch"] for p in of_b}, "an acquire would fence whoever works there"
            a.held.fall_back(lambda _: True)  # noticed once more, before its leases are back
            for partition in of_a:
                ledger.gave_up(partition, "s-a")
            await steps(a)
            assert {*a.held} == of_a
            assert untouched == {p: client.hget(keys.meta(p), "epoch") for p in of_b}
            now_ms = int(settings.dead_s * 1000)
            b.lose_leases()
            await steps(a, b)
            assert ({*a.held}, {*b.held}) == (of_a, of_b)
    finally:
        await door.close()


async def test_commits_that_the_engine_lost_are_counted_once_by_who_had_the_partition(engine: Engine) -> None:
    settings, keys = MembershipSettings(debounce_s=0), Keys("t")
    door = Client(engine.url, library())
    await door.connect()
    one = VirtualInstance(door, Ledger(PARTITIONS), "a", settings)

    async def is_lost() -> int:
        seen = len(one.set_back)
        one.lose_leases()
        await one.ownership.step()
        return sum(one.set_back[seen:])

    try:
        await one.join()
        with contextlib.closing(engine.client()) as client:
            client.hset(keys.meta(3), "sequence", 7)  # of an earlier owner
            for _ in range(8):
                await one.heartbeat.beat()
                await one.ownership.step()
            client.hset(keys.meta(5), "sequence", 20)
            one.held.committed(5, 19)
            one.held.committed(5, 18)  # answers come in any order
            assert await is_lost() == 0, "a silence, not a loss"
            client.hset(keys.meta(3), "sequence", 5)
            client.hset(keys.meta(5), "sequence", 9)
            assert await is_lost() == 2 + 11
            assert await is_lost() == 0
    finally:
        await door.close()
