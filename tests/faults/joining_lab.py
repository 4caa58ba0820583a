"""Many virtual instances on one event loop and one real engine: real members, leases, rings and heartbeats, no URLs.

    python -m tests.faults.joining_lab --instances 1000 --partitions 16384

What one process does here is spread over as many machines in a real crawl: CPU is short, so times come out longer than
they would be there. They are bounds, not measurements.
"""

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from crawler.engine.client import Engine
from crawler.frontier.keys import Keys
from crawler.frontier.leases import Leases, Takeovers
from crawler.frontier.members import Member, Members
from crawler.frontier.scripts import library
from crawler.membership.heartbeat import BeatCalls, Heartbeat, SessionLiveness
from crawler.membership.held import HeldPartitions
from crawler.membership.node_names import join
from crawler.membership.ownership import Ownership
from crawler.membership.peers import Peers
from crawler.rules.ring import build
from crawler.settings import MembershipSettings
from tests.frontier.door import HASH_KEY
from tests.support.engine import running_engine

CALL_TIMEOUT_S = 60.0  # one loop does the work of all: a call may wait for its turn
POLL_S = 1.0


@dataclass
class Ledger:
    """The owner of each partition as instances learn it; how often partitions moved, how long one had no owner."""

    partitions: int
    owner: dict[int, str] = field(default_factory=dict)
    given_up_s: dict[int, float] = field(default_factory=dict)
    moves: int = 0
    longest_s: float = 0.0

    def took(self, partition: int, session: str) -> None:
        assert partition not in self.owner, f"{partition} has two owners: {self.owner[partition]} and {session}"
        self.owner[partition] = session
        self.moves += 1
        if (since := self.given_up_s.pop(partition, None)) is not None:
            self.longest_s = max(self.longest_s, time.monotonic() - since)

    def gave_up(self, partition: int, session: str) -> None:
        if self.owner.get(partition) == session:
            del self.owner[partition]
            self.given_up_s[partition] = time.monotonic()


class NoWork:
    """A pipeline without URLs: everything is idle at once."""

    def __init__(self, ledger: Ledger, session: str, set_back: list[int]) -> None:
        self._ledger, self._session = ledger, session
        self._set_back = set_back

    def set_back(self, pages: int) -> None:
        self._set_back.append(pages)

    def acquired(self, partition: int, *, log_entries: int, pending: int) -> None:
        if self._ledger.owner.get(partition) != self._session:
            self._ledger.took(partition, self._session)

    def drain(self, partition: int) -> None:
        """Nothing is in flight."""

    def is_idle(self, partition: int) -> bool:
        return True

    async def give_back(self, partition: int) -> None:
        self._ledger.gave_up(partition, self._session)


class VirtualInstance:
    """One session: what an instance is without its pipeline."""

    def __init__(self, engine: Engine, ledger: Ledger, node: str, settings: MembershipSettings) -> None:
        keys = Keys("t")
        member = Member(session=f"s-{node}", node=node, counter=0, host=node)
        members, leases = Members(engine, keys), Leases(engine, keys, hash_key=HASH_KEY)
        self._members, self._member, self._settings = members, member, settings
        self._ledger = ledger
        self.node = node
        self.peers = Peers(
            members,
            member,
            settings,
            partitions=ledger.partitions,
            is_lock_free=lambda _: False,
            on_death=self._count_death,
        )
        self.held = HeldPartitions(member.session)
        self.set_back: list[int] = []
        self.ownership = Ownership(
            leases, self.peers, self.held, member, settings,
            listener=NoWork(ledger, member.session, self.set_back), takeovers=Takeovers(engine, keys),
        )  # fmt: skip
        self.liveness = SessionLiveness(settings)
        self.heartbeat = Heartbeat(
            members, member, settings, liveness=self.liveness,
            calls=BeatCalls(
                on_lease_loss=self.lose_leases, describe=self._describe, time_scale=lambda: self.peers.time_scale
            ),
        )  # fmt: skip
        self.deaths = 0

    def _describe(self) -> dict[str, object]:
        return {"partitions": len(self.held), "in_flight": 0, "ring": self.peers.digest}

    def lose_leases(self) -> None:
        for partition in self.held:
            self._ledger.gave_up(partition, self._member.session)
        self.held.lose_all()

    async def _count_death(self, member: Member) -> None:
        self.deaths += 1

    async def join(self) -> None:
        """On the list, and alive by its first beat."""
        self.heartbeat.joined(*await join(self._members, self._member, lambda _: False, self._settings))
        await self.heartbeat.beat()

    async def run(self) -> None:
        await asyncio.gather(self.heartbeat.run(), self.ownership.run())


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of a join of many."""

    settled_s: float
    moved: int  # times that a partition got an owner
    needed: int  # partitions that the ring moves
    unowned_s: float  # the longest time that a partition had no owner
    silence_s: float  # after which a session counts as dead, with the time scale of then
    lease_losses: int
    deaths: int
    cpu_s: float

    def __str__(self) -> str:
        return (
            f"settled after {self.settled_s:.1f} s; {self.moved:,} partitions moved, {self.needed:,} had to; "
            f"none was unowned for more than {self.unowned_s:.1f} s (the silence is {self.silence_s:.0f} s); "
            f"{self.deaths} taken for dead, {self.lease_losses} lease losses; {self.cpu_s:.0f} s of CPU"
        )


class Crowd:
    """Virtual instances and the tasks that they are."""

    def __init__(self, engine: Engine, partitions: int) -> None:
        self.engine, self.settings, self.ledger = engine, MembershipSettings(), Ledger(partitions)
        self.instances: list[VirtualInstance] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def join(self, count: int) -> None:
        """Join all at once. None reads the list before all are on it: one process would compute a ring for each."""
        known = len(self.instances)
        names = [f"crawler-{n // 4:04d}-{n % 4}" for n in range(known, known + count)]
        new = [VirtualInstance(self.engine, self.ledger, name, self.settings) for name in names]
        await asyncio.gather(*(one.join() for one in new))
        self._tasks += [asyncio.create_task(one.run()) for one in new]
        self.instances += new

    async def until_settled(self, timeout_s: float) -> None:
        """Wait until the ring over all nodes is what every partition's owner follows."""
        nodes = dict.fromkeys((one.node for one in self.instances), 1)
        ring = build(nodes, partitions=self.ledger.partitions)
        goal = {partition: f"s-{node}" for partition, node in enumerate(ring.owners)}
        deadline = time.monotonic() + timeout_s
        while self.ledger.owner != goal:
            for task in self._tasks:
                if task.done():
                    task.result()
            if time.monotonic() > deadline:
                wrong = sum(self.ledger.owner.get(p) != session for p, session in goal.items())
                unowned = len(goal) - len(self.ledger.owner)
                raise TimeoutError(f"{wrong} partitions misplaced after {timeout_s:.0f} s, {unowned} without an owner")
            await asyncio.sleep(POLL_S)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def join_at_once(url: str, *, first: int, more: int, partitions: int, timeout_s: float) -> Result:
    """`first` instances own everything; then `more` come in one moment. Until all follow the ring of all."""
    engine = Engine(url, library(), call_timeout_s=CALL_TIMEOUT_S)
    await engine.connect()
    crowd = Crowd(engine, partitions)
    ledger = crowd.ledger
    try:
        await crowd.join(first)
        await crowd.until_settled(60)
        before, moves, cpu_s, begun = dict(ledger.owner), ledger.moves, time.process_time(), time.monotonic()
        await crowd.join(more)
        await crowd.until_settled(timeout_s)
        time_scale = max(one.peers.time_scale for one in crowd.instances)
        return Result(
            settled_s=time.monotonic() - begun,
            moved=ledger.moves - moves,
            needed=sum(before[p] != owner for p, owner in ledger.owner.items()),
            unowned_s=ledger.longest_s,
            silence_s=crowd.settings.dead_s * time_scale,
            lease_losses=sum(one.liveness.lease_losses for one in crowd.instances),
            deaths=sum(one.deaths for one in crowd.instances),
            cpu_s=time.process_time() - cpu_s,
        )
    finally:
        await crowd.close()
        await engine.close()


def main(argv: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    p.add_argument("--instances", type=int, default=1000, metavar="N", help="that join at once (default: 1000)")
    p.add_argument("--first", type=int, default=10, metavar="N", help="that own everything before (default: 10)")
    p.add_argument("--partitions", type=int, default=16384, metavar="P", help="default: 16384")
    p.add_argument("--timeout", type=float, default=300.0, metavar="S", help="give up after this time (default: 300)")
    o = p.parse_args(argv)
    logging.disable()
    with running_engine() as engine:
        joined = join_at_once(engine.url, first=o.first, more=o.instances, partitions=o.partitions, timeout_s=o.timeout)
        print(f"{o.instances:,} instances join {o.first} at once, {o.partitions:,} partitions:")
        print(asyncio.run(joined))
    return 0


if __name__ == "__main__":
    sys.exit(main())
