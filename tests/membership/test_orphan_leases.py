"""A lease in the name of a session that does not hold it, while the ring assigns it to another node."""

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from crawler.engine.client import Engine
from crawler.errors import EngineDown
from crawler.frontier.keys import Keys
from crawler.frontier.leases import Leases, Takeovers
from crawler.frontier.members import Member
from crawler.frontier.scripts import library
from crawler.membership.held import HeldPartitions
from crawler.membership.ownership import Ownership
from crawler.rules.membership import Liveness
from crawler.rules.ring import Ring
from crawler.settings import MembershipSettings
from tests.frontier.door import HASH_KEY
from tests.support.engine import Engine as Server

ME, OTHER = "node-me", "node-other"


class FakePeers:
    """All sessions are alive; the test sets the ring."""

    def __init__(self, owners: tuple[str, ...]) -> None:
        self.ring = Ring(owners)
        self.time_scale = 1
        self.pausing: tuple[str, ...] = ()

    async def refresh(self) -> None:
        """Nothing new."""

    def state_of(self, session: str) -> Liveness:
        return Liveness.ALIVE

    def silence_of(self, session: str) -> int:
        return -1


class IdlePipeline:
    """A pipeline that only records the logs it has to index."""

    def __init__(self) -> None:
        self.logs: list[int] = []

    def acquired(self, partition: int, *, log_entries: int, pending: int) -> None:
        self.logs.append(log_entries)

    def drain(self, partition: int) -> None: ...
    def set_back(self, pages: int) -> None: ...
    def is_idle(self, partition: int) -> bool:
        return True

    async def give_back(self, partition: int) -> None: ...


@pytest.fixture
async def owned(engine: Server) -> AsyncIterator[tuple[Any, ...]]:
    """(ownership of partition 0, its peers, the leases of the crawl)"""
    opened = Engine(engine.url, library())
    await opened.connect()
    keys, peers = Keys("t"), cast("Any", FakePeers((ME,)))
    leases, me = Leases(opened, keys, hash_key=HASH_KEY), Member(session="s-me", node=ME, counter=0)
    held = HeldPartitions(me.session)
    ownership = Ownership(
        leases, peers, held, me, MembershipSettings(), listener=IdlePipeline(), takeovers=Takeovers(opened, keys)
    )
    await ownership.step()
    assert list(ownership._held) == [0]
    yield ownership, peers, leases
    await opened.close()


async def holder(leases: Leases) -> str:
    (lease,) = await leases.read([0])
    return lease.session


async def settled(ownership: Ownership) -> None:
    for _ in range(3):
        await ownership.step()


async def test_a_lost_lease_goes_to_the_owner_that_the_ring_names(owned: Any) -> None:
    """Found by chaos: paused over a join and a restart of the engine. The joiner waited for us forever."""
    ownership, peers, leases = owned
    ownership._held.lose_all()
    peers.ring = Ring((OTHER,))
    await settled(ownership)
    assert await holder(leases) == ""
    assert list(ownership._held) == []


async def test_partitions_of_dead_sessions_count_as_taken_over_and_free_ones_do_not(owned: Any) -> None:
    ownership, peers, leases = owned
    assert ownership.taken_over == 0
    ownership._held.lose_all()
    await leases._engine.command("HSET", Keys("t").meta(0), "session", "s-dead", "node", OTHER)
    await ownership.step()
    assert (list(ownership._held), ownership.taken_over) == ([], 0), "its holder lives"
    peers.state_of = lambda _: Liveness.DEAD
    await settled(ownership)
    assert (list(ownership._held), ownership.taken_over) == ([0], 1)


async def test_an_unanswered_release_is_repeated(owned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ownership, peers, leases = owned

    async def cut(*_: object) -> None:
        raise EngineDown("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(Leases, "release", cut)
        peers.ring = Ring((OTHER,))
        with pytest.raises(EngineDown):
            await ownership.step()
    assert await holder(leases) == "s-me"
    await settled(ownership)
    assert await holder(leases) == ""


async def test_an_unanswered_acquire_is_remembered_when_the_ring_changes(
    owned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ownership, peers, leases = owned
    acquire = Leases.acquire

    async def lost(self: Leases, *arguments: Any) -> None:
        await acquire(self, *arguments)
        raise EngineDown("no answer")

    ownership._held.lose_all()
    with monkeypatch.context() as patch:
        patch.setattr(Leases, "acquire", lost)
        with pytest.raises(EngineDown):
            await ownership.step()
    peers.ring = Ring((OTHER,))
    await settled(ownership)
    assert await holder(leases) == ""


async def test_a_lease_of_a_living_session_is_left_alone(owned: Any) -> None:
    ownership, peers, leases = owned
    ownership._held.lose_all()
    peers.ring = Ring((OTHER,))
    (lease,) = await leases.read([0])
    await leases.acquire("s-other", OTHER, [(lease, 0)])
    await settled(ownership)
    assert await holder(leases) == "s-other"


async def test_an_epoch_is_never_granted_twice_after_a_rollback(owned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by the simulation: two tenures of one session with the same epoch, which no fence can tell apart."""
    ownership, _, leases = owned
    ownership._held.lose_all()
    (before,) = await leases.read([0])
    acquire = Leases.acquire

    async def unheard(self: Leases, *arguments: Any) -> Any:
        await acquire(self, *arguments)
        return [EngineDown("the reply was lost")]

    with monkeypatch.context() as patch:
        patch.setattr(Leases, "acquire", unheard)
        with pytest.raises(EngineDown):
            await ownership.step()
    (lost,) = await leases.read([0])
    assert (lost.session, lost.epoch) == ("s-me", before.epoch + 1)
    await leases._engine.command("HSET", Keys("t").meta(0), "epoch", before.epoch)  # the engine fell back
    await settled(ownership)
    (again,) = await leases.read([0])
    assert list(ownership._held) == [0]
    assert again.epoch > lost.epoch


async def test_a_leftover_log_is_indexed_when_a_lease_is_wanted_again(
    engine: Server,
) -> None:
    """Found by the simulation: acquired while the ring gave it to a leaver, whose share came back before the release.

    The commits of an earlier tenure were never indexed, and the crawl never ended.
    """
    opened = Engine(engine.url, library())
    await opened.connect()
    keys, peers, work = Keys("t"), cast("Any", FakePeers((ME,))), IdlePipeline()
    leases, me = Leases(opened, keys, hash_key=HASH_KEY), Member(session="s-me", node=ME, counter=0)
    held = HeldPartitions(me.session)
    ownership = Ownership(
        leases, peers, held, me, MembershipSettings(), listener=work, takeovers=Takeovers(opened, keys)
    )
    work.is_idle = lambda _: False  # type: ignore[method-assign]
    try:
        await ownership.step()
        await opened.command("HSET", keys.of(0, "l"), "1:1", "1.s-me-1.1 1 {}")
        ownership._held.lose_all()
        peers.ring = Ring((OTHER,))
        await ownership.step()
        peers.ring = Ring((ME,))
        await settled(ownership)
    finally:
        await opened.close()
    assert list(ownership._held) == [0]
    assert [n for n in work.logs if n] == [1]
