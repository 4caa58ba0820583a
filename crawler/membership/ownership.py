"""Which partitions this session owns: acquire what the ring suggests, hand over what it no longer does.

Holds leases and their clocks; knows nothing of URLs. The pipeline asks `fence_of` before it writes or starts anything.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from crawler.errors import EngineError
from crawler.frontier.frontier import Fence
from crawler.frontier.leases import Acquired, Lease, Leases
from crawler.frontier.members import Member
from crawler.frontier.takeovers import Takeover, Takeovers
from crawler.membership.peers import Neighbours
from crawler.model import Claim
from crawler.rules.liveness import State
from crawler.runtime.clock import monotonic_ms, wall_s
from crawler.runtime.crash_points import reached
from crawler.settings import MembershipSettings

log = logging.getLogger(__name__)


class Held(msgspec.Struct):
    """A lease of ours. The partition's time is its stored clock plus what our monotonic clock went on since."""

    epoch: int
    clock_ms: int
    anchor_ms: int
    draining: bool = False
    drain_until_ms: int = 0
    log_entries: int = 0  # commits of an earlier tenure in the engine's log that the pipeline was not told of


class PartitionUser(Protocol):
    """The pipeline, as ownership sees it."""

    def acquired(self, partition: int, *, log_entries: int, pending: int) -> None:
        """A partition is ours from now on."""

    def drain(self, partition: int) -> None:
        """Start nothing more in a partition; what is in flight may end."""

    def is_idle(self, partition: int) -> bool:
        """Is nothing of the partition in flight or unacked?"""

    def lost(self, partitions: Iterable[int]) -> None:
        """Drop all work of partitions at once: they belong to others, or will be acquired anew."""

    async def give_back(self, partition: int) -> None:
        """Return every claim of a partition that is still held, and tell the engine what only we know. Raises
        EngineError when it could not be told: then its next owner would be too early.
        """


class Ownership:
    """Runs every `read_s`: looks at the neighbours, moves leases towards the ring."""

    def __init__(
        self,
        leases: Leases,
        neighbours: Neighbours,
        me: Member,
        settings: MembershipSettings,
        *,
        user: PartitionUser,
        takeovers: Takeovers,
        clock_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self._leases = leases
        self._neighbours = neighbours
        self._me = me
        self._settings = settings
        self._user = user
        self._takeovers = takeovers
        self._clock_ms = clock_ms
        self._held: dict[int, Held] = {}
        self._tried: dict[int, int] = {}  # highest epoch that this session had or may have been given, per partition
        self._astray: set[int] = set()  # leases that may be in our name though we do not hold them
        self._leaving = False

    @property
    def held(self) -> dict[int, Held]:
        """The leases of this session, draining ones included."""
        return self._held

    def fence_of(self, partition: int) -> Fence | None:
        """What to write with, or None when the partition is not ours."""
        held = self._held.get(partition)
        return None if held is None else self._fence(partition, held)

    def now_of(self, partition: int) -> int:
        """The partition's time, ms; the partition must be held."""
        held = self._held[partition]
        return held.clock_ms + self._clock_ms() - held.anchor_ms

    def _fence(self, partition: int, held: Held) -> Fence:
        now_ms = held.clock_ms + self._clock_ms() - held.anchor_ms
        return Fence(partition, self._me.session, held.epoch, now_ms)

    def holds(self, claim: Claim) -> bool:
        """Does the lease still stand under which this claim was handed out?"""
        held = self._held.get(claim.partition)
        return held is not None and held.epoch == claim.epoch

    def is_open(self, partition: int) -> bool:
        """May new work start in this partition?"""
        held = self._held.get(partition)
        return held is not None and not held.draining

    async def run(self) -> None:
        """Step for ever; an engine that does not answer is waited for."""
        while True:
            try:
                if await self.step():
                    continue  # the ring changed: act on it at once
            except EngineError as error:
                log.warning("ownership.engine_error", extra={"error": str(error)})
            await asyncio.sleep(self._settings.read_s * self._neighbours.stretch)

    async def step(self) -> bool:
        """One round; True when the ring changed in it.

        Leases are read before the counters that may condemn their holders, and acquired against what was read.
        """
        wanted = self._wanted()
        asked = [p for p in {*wanted, *self._astray} if p not in self._held]
        seen = await self._leases.read(asked) if asked else []
        await self._neighbours.look()
        share = set(self._wanted())
        await self._hand_over(share)
        ours = {lease.partition for lease in seen if lease.session == self._me.session}
        self._astray -= {lease.partition for lease in seen} - ours
        # What is in our name and not wanted is acquired, too: to be released, or nobody could have it while we live.
        free = {lease.partition for lease in seen if lease.partition in share and self._is_takeable(lease)}
        await self._acquire([lease for lease in seen if lease.partition in ours | free], share)
        return share != set(wanted)

    def _wanted(self) -> list[int]:
        return [] if self._leaving else self._neighbours.ring.share_of(self._me.node)

    def _is_takeable(self, lease: Lease) -> bool:
        """Free, or its holder is dead; or in our own name without our knowing: the acquire's reply was lost."""
        return lease.session in ("", self._me.session) or self._neighbours.state_of(lease.session) is State.DEAD

    async def _acquire(self, takeable: list[Lease], share: set[int]) -> None:
        if not takeable or self._leaving:
            return
        asked = [(lease, self._tried.get(lease.partition, 0)) for lease in takeable]
        self._astray.update(lease.partition for lease in takeable)  # until the reply is here
        # Should the reply be lost, and the engine fall back, the same epoch must not be ours a second time.
        self._tried.update((lease.partition, max(lease.epoch, floor) + 1) for lease, floor in asked)
        replies = await self._leases.acquire(self._me.session, self._me.node, asked)
        anchor_ms = self._clock_ms()  # when the reply arrived, not when the call was sent
        reached("lease.acquired")
        for reply in replies:
            if isinstance(reply, Acquired):
                self._take(reply, anchor_ms, is_wanted=reply.partition in share)
        await self._note_takeovers([asked[i][0] for i, reply in enumerate(replies) if isinstance(reply, Acquired)])
        failed = [reply for reply in replies if isinstance(reply, EngineError)]
        if failed:
            raise failed[0]

    async def _note_takeovers(self, taken: list[Lease]) -> None:
        """For people and audits: whose partitions these were, and how long it took."""
        by_session: dict[str, list[Lease]] = {}
        for lease in taken:
            if lease.session not in ("", self._me.session):
                by_session.setdefault(lease.session, []).append(lease)
        for session, leases in by_session.items():
            takeover = Takeover(
                node=leases[0].node,
                session=session,
                by_node=self._me.node,
                by_session=self._me.session,
                partitions=len(leases),
                silent_ms=self._neighbours.silence_of(session),
                at=wall_s(),
            )
            fields = {"member": takeover.node, "member_session": session, "silent_ms": takeover.silent_ms}
            log.warning("partitions.taken_over", extra=fields | {"partitions": len(leases)})
            with contextlib.suppress(EngineError):
                await self._takeovers.note(takeover)

    def _take(self, won: Acquired, anchor_ms: int, *, is_wanted: bool) -> None:
        self._tried[won.partition] = won.epoch
        log_entries = 0 if is_wanted else won.log_entries
        self._held[won.partition] = Held(
            won.epoch, won.clock_ms, anchor_ms, draining=not is_wanted, log_entries=log_entries
        )
        self._astray.discard(won.partition)
        if is_wanted:
            self._user.acquired(won.partition, log_entries=won.log_entries, pending=won.pending)

    async def _hand_over(self, wanted: set[int]) -> None:
        now_ms = self._clock_ms()
        finished = []
        for partition, held in self._held.items():
            if partition in wanted:
                if held.draining:  # wanted again before it was given away
                    held.draining = False
                    self._user.acquired(partition, log_entries=held.log_entries, pending=1)
                    held.log_entries = 0
                continue
            if not held.draining:
                held.draining = True
                held.drain_until_ms = now_ms + int(self._settings.drain_timeout_s * 1000)
                self._user.drain(partition)
            if self._user.is_idle(partition) or now_ms >= held.drain_until_ms:
                finished.append(partition)
        await self.release(finished)

    async def release(self, partitions: list[int]) -> None:
        """Give partitions away: claims first, then the lease. They are dropped here before anything is sent."""
        fences = []
        for partition in partitions:
            try:
                await self._user.give_back(partition)
            except EngineError as error:  # it stays ours, or is taken as that of a dead session
                log.warning("handover.engine_error", extra={"partition": partition, "error": str(error)})
                continue
            held = self._held.pop(partition, None)
            self._astray.add(partition)  # until its lease was read once more: a release may be lost
            if held is not None:
                fences.append(self._fence(partition, held))
        self._user.lost([fence.partition for fence in fences])
        if fences:
            reached("handover.dropped")
            await self._leases.release(fences)
            reached("release.answered")

    async def leave(self) -> None:
        """Release everything that is idle by now; called when the pipeline has ended."""
        self._leaving = True
        await self.release(list(self._held))

    def lapse(self) -> None:
        """Silence lasted too long: nothing is started anywhere until each lease was acquired anew."""
        dropped = list(self._held)
        self._astray.update(dropped, self._tried)  # an engine that fell back may have given back what we released
        self._held.clear()
        self._user.lost(dropped)

    def fenced(self, partition: int) -> None:
        """A write was refused: the partition belongs to somebody else."""
        if self._held.pop(partition, None) is not None:
            self._astray.add(partition)
            log.warning("partition.fenced", extra={"partition": partition})
            self._user.lost([partition])
