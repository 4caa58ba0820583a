"""Leases that a session dropped without releasing them: whoever the ring gives them to must get them."""

import pytest

from crawler.settings import MembershipSettings
from tests.faults.joining_lab import Ledger, SharedEngine, VirtualInstance
from tests.support.engine import Engine

PARTITIONS = 32


@pytest.mark.xfail(
    strict=True,
    reason="Ownership.step reads the leases of its own share only: what it dropped and no longer wants stays",
)
async def test_what_a_lapse_dropped_and_the_ring_gives_away_is_not_left_in_the_name_of_a_living_session(
    engine: Engine,
) -> None:
    """`a` has all and is silent for too long; while it is, `b` joins. When `a` wakes it drops everything, and its ring
    gives half to `b`. The leases of that half are in `a`'s name: it does not want them, and it lives.
    """
    settings = MembershipSettings(debounce_s=0)
    ledger, door = Ledger(PARTITIONS), SharedEngine(engine.url)
    await door.connect()
    a, b = (VirtualInstance(door, ledger, node, settings) for node in ("a", "b"))
    try:
        await a.join()
        while len(a.ownership.held) < PARTITIONS:
            await a.ownership.step()
        await b.join()
        a.lapse()
        for _ in range(8):
            await a.heartbeat.beat()
            await b.heartbeat.beat()
            await a.ownership.step()
            await b.ownership.step()
        assert sorted([*a.ownership.held, *b.ownership.held]) == list(range(PARTITIONS))
    finally:
        await door.close()
