"""Moves this session's leases towards the ring: acquires what the ring assigns, hands over the rest.

A partition is in one of these states, as its engine's lease (meta hash: session, epoch) and this session see it:

    free      nobody's, session is empty    -> held (acquire.lua)
    held      ours: `HeldPartitions`        -> draining, when the ring gives it to another; -> lost
    draining  held, and nothing new starts  -> held, if the ring gives it back; -> free (release_lease.lua)
    lost      ours in the engine, maybe, and not in memory (late heartbeat, fenced call, failover) -> held, by acquire
    another's -> held, once that session is dead (peers.py)

The ring suggests, the lease decides. That at most one session can commit for a partition (I1, I2) rests on these rules:

- Acquire is a compare-and-set on the lease that was read, and the lease is read *before* the counter that condemns its
  holder. The other way round, a session that was silent, came back and acquired it again between the two reads would
  lose it for its old silence.
- A new epoch is above the stored one and above any that this session tried (`tried_epochs`): if the reply was lost and
  the engine fell back, it must not get the same epoch a second time, for its own late calls would pass the fence.
- A partition is dropped from memory before its release is sent. Whatever becomes of the release, nothing here writes
  under the old lease any more.
- A lease in our own name that we do not hold is the trace of a lost reply. It is acquired again, also if it is not
  wanted: then to be released, because nobody else could get it while we live.
- Claims are returned before the release, so that the next owner does not hold its queues for what was never fetched.
"""

import contextlib
import logging
from collections.abc import Callable
from typing import Protocol

from crawler.errors import EngineError
from crawler.frontier.leases import Acquired, Lease, Leases, Takeover, Takeovers
from crawler.frontier.members import Member
from crawler.membership.held import HeldPartitions
from crawler.membership.peers import Peers
from crawler.rules.membership import Liveness
from crawler.rules.ring import Ring
from crawler.runtime.clocks import monotonic_ms, wall_s
from crawler.runtime.crash_points import reached
from crawler.runtime.ticks import tick
from crawler.settings import MembershipSettings

log = logging.getLogger(__name__)


class RebalanceListener(Protocol):
    """What ownership calls in the pipeline."""

    def acquired(self, partition: int, *, log_entries: int, pending: int) -> None:
        """A partition is ours from now on."""

    def drain(self, partition: int) -> None:
        """Start nothing more in a partition; what is in flight may finish."""

    def is_idle(self, partition: int) -> bool:
        """Is nothing of the partition in flight or unacked?"""

    async def give_back(self, partition: int) -> None:
        """Return every claim of a partition that is still held, and store what only we know. Raises EngineError when
        that failed: the next owner could be too early then.
        """

    def set_back(self, pages: int) -> None:
        """The engine lost so many pages of ours, which are fetched again."""


class Ownership:
    """Every `read_s`: reads the peers, then moves leases towards the ring."""

    def __init__(
        self,
        leases: Leases,
        peers: Peers,
        held: HeldPartitions,
        me: Member,
        settings: MembershipSettings,
        *,
        listener: RebalanceListener,
        takeovers: Takeovers,
        clock_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self._leases = leases
        self._peers = peers
        self._held = held
        self._me = me
        self._settings = settings
        self._listener = listener
        self._takeovers = takeovers
        self._clock_ms = clock_ms
        self._leaving = False
        self._settled: tuple[Ring, int] | None = None  # the ring, and the count of changes, since all is as it demands
        self._to_raise: dict[int, int] = {}  # partitions whose next commits must have higher numbers
        self.taken_over = 0  # partitions of dead sessions
        self.is_still = False  # moves nothing, while a command pauses the crawl
        self.has_stepped = False

    async def run(self) -> None:
        """Step until cancelled; an engine that does not answer is waited for."""
        while True:
            try:
                is_changed = await self.step()
                self.has_stepped = True
                if is_changed:
                    continue  # the ring changed: act on it at once
            except EngineError as error:
                log.warning("ownership.engine_error", extra={"error": str(error)})
            await tick(self._settings.read_s * self._peers.time_scale)

    async def step(self) -> bool:
        """One round; True when the ring changed in it.

        Leases are read before the counters that may prove their holders dead, and acquired against what was read.
        """
        if self._is_settled:
            await self._peers.refresh()
            self.is_still = bool(self._peers.pausing)
            return not (self.is_still or self._is_settled)
        wanted = self._wanted()
        asked = [p for p in {*wanted, *self._held.unconfirmed} if p not in self._held]
        seen = await self._leases.read_there(asked) if asked else []
        if lost := self._held.set_back(seen):
            pages = sum(missing for _, missing in lost.values())
            log.warning("engine.set_back", extra={"pages": pages})
            self._listener.set_back(pages)
            self._to_raise |= {partition: last for partition, (last, _) in lost.items()}
        if self._to_raise:  # the index has these numbers
            await self._leases.raise_sequences(self._to_raise)
            self._to_raise.clear()
        await self._peers.refresh()
        share = set(self._wanted())
        self.is_still = bool(self._peers.pausing)
        if self.is_still:
            return False
        await self._hand_over(share)
        ours = {lease.partition for lease in seen if lease.session == self._me.session}
        self._held.unconfirmed -= {lease.partition for lease in seen} - ours
        for lease in seen:
            if lease.session not in ("", self._me.session):
                self._held.is_anothers(lease.partition)
        # A lease in our name that is not wanted is acquired to be released: no one else could get it while we live.
        free = {lease.partition for lease in seen if lease.partition in share and self._is_takeable(lease)}
        within_ms = self._settings.dead_s * 1000 * self._peers.time_scale
        takeable = [lease for lease in seen if lease.partition in ours | free]
        await self._acquire(
            [one for one in takeable if not self._held.may_be_anothers(one.partition, within_ms)], share
        )
        if share == set(self._held) and not any(held.draining for _, held in self._held.items()):
            self._settled = self._peers.ring, self._held.changes
        return share != set(wanted)

    @property
    def _is_settled(self) -> bool:
        """Does this session hold what the ring suggests, and nothing else, as after an earlier step?"""
        if self._settled is None or self._held.unconfirmed or self._leaving:
            return False
        ring, changes = self._settled
        return ring is self._peers.ring and changes == self._held.changes

    def _wanted(self) -> list[int]:
        return [] if self._leaving else self._peers.ring.share_of(self._me.node)

    def _is_takeable(self, lease: Lease) -> bool:
        """Is it free, or its holder dead, or is it in our own name because the reply to an acquire was lost?"""
        return lease.session in ("", self._me.session) or self._peers.state_of(lease.session) is Liveness.DEAD

    async def _acquire(self, takeable: list[Lease], share: set[int]) -> None:
        if not takeable or self._leaving:
            return
        asked = [(lease, self._held.tried_epochs.get(lease.partition, 0)) for lease in takeable]
        self._held.unconfirmed.update(lease.partition for lease in takeable)  # until the reply is here
        # If the reply is lost and the engine falls back, this session must not get the same epoch a second time.
        self._held.tried_epochs.update((lease.partition, max(lease.epoch, floor) + 1) for lease, floor in asked)
        replies = await self._leases.acquire(self._me.session, self._me.node, asked)
        # When the reply arrived, not when the call was sent: what we take for the partition's time may lag, never lead.
        anchor_ms = self._clock_ms()
        reached("lease.acquired")
        for lease, reply in zip(takeable, replies, strict=True):
            if isinstance(reply, Acquired):
                self._take(reply, anchor_ms, is_wanted=reply.partition in share, sequence=lease.sequence)
        await self._note_takeovers([asked[i][0] for i, reply in enumerate(replies) if isinstance(reply, Acquired)])
        failed = [reply for reply in replies if isinstance(reply, EngineError)]
        if failed:
            raise failed[0]

    async def _note_takeovers(self, taken: list[Lease]) -> None:
        """Record for people and audits whose partitions were taken, and how long that took."""
        by_session: dict[str, list[Lease]] = {}
        for lease in taken:
            if lease.session not in ("", self._me.session):
                by_session.setdefault(lease.session, []).append(lease)
        for session, leases in by_session.items():
            self.taken_over += len(leases)
            takeover = Takeover(
                node=leases[0].node,
                session=session,
                by_node=self._me.node,
                by_session=self._me.session,
                partitions=len(leases),
                silent_ms=self._peers.silence_of(session),
                at=wall_s(),
            )
            fields = {"member": takeover.node, "member_session": session, "silent_ms": takeover.silent_ms}
            log.warning("partitions.taken_over", extra=fields | {"partitions": len(leases)})
            with contextlib.suppress(EngineError):
                await self._takeovers.note(takeover)

    def _take(self, won: Acquired, anchor_ms: int, *, is_wanted: bool, sequence: int) -> None:
        self._held.add(won, anchor_ms, is_wanted=is_wanted, sequence=sequence)
        if is_wanted:
            self._listener.acquired(won.partition, log_entries=won.log_entries, pending=won.pending)

    async def _hand_over(self, wanted: set[int]) -> None:
        now_ms = self._clock_ms()
        finished = []
        for partition, held in self._held.items():
            if partition in wanted:
                if held.draining:  # wanted again before it was given away
                    held.draining = False
                    self._listener.acquired(partition, log_entries=held.log_entries, pending=1)
                    held.log_entries = 0
                continue
            if not held.draining:
                held.draining = True
                held.drain_until_ms = now_ms + int(self._settings.drain_timeout_s * 1000)
                self._listener.drain(partition)
            if self._listener.is_idle(partition) or now_ms >= held.drain_until_ms:
                finished.append(partition)
        await self.release(finished)

    async def release(self, partitions: list[int]) -> None:
        """Release partitions: return their claims, drop them here, then release the lease."""
        fences = []
        for partition in partitions:
            try:
                await self._listener.give_back(partition)
            except EngineError as error:  # the partition stays ours, or is taken over once we are dead
                log.warning("handover.engine_error", extra={"partition": partition, "error": str(error)})
                continue
            fence = self._held.let_go(partition)
            if fence is not None:
                fences.append(fence)
        self._held.drop([fence.partition for fence in fences])
        if fences:
            reached("handover.dropped")
            await self._leases.release(fences)
            reached("release.answered")

    async def leave(self) -> None:
        """Release everything; called when the pipeline has ended."""
        self._leaving = True
        await self.release(list(self._held))
