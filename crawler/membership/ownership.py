"""Moves this session's leases towards the ring: acquires what the ring assigns, hands over the rest."""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from crawler.engine.client import Engine
from crawler.engine.server import Change, everything
from crawler.errors import EngineError
from crawler.frontier.leases import Acquired, Lease, Leases, Takeover, Takeovers
from crawler.frontier.members import Member
from crawler.frontier.owner import Fence
from crawler.frontier.record import Keys
from crawler.membership.peers import Peers
from crawler.model import Claim
from crawler.rules.membership import Liveness
from crawler.rules.ring import Ring
from crawler.runtime.process import monotonic_ms, reached, tick, wall_s
from crawler.settings import MembershipSettings

# The leases that this session holds: read by the pipeline before it starts or writes anything.
#
# Only `Ownership` acquires leases. Losing one is synchronous: everything kept for the partition is dropped before other
# code runs.

log = logging.getLogger(__name__)


class Dependent(Protocol):
    """State of the pipeline that is kept for each partition."""

    def drop(self, partitions: Sequence[int]) -> None:
        """These partitions are lost: forget what is kept for them. They may be acquired again later."""


class HeldPartition(msgspec.Struct):
    """A lease of ours. The partition's time is its stored clock plus the time since then on our monotonic clock."""

    epoch: int
    clock_ms: int
    anchor_ms: int
    draining: bool = False
    drain_until_ms: int = 0
    sequence: int = 0  # of its last commit that we know of
    log_entries: int = 0  # commits of an earlier owner in the engine's log that the pipeline does not know of


class HeldPartitions:
    """The leases of one session by partition, and those that may be in its name although it does not hold them."""

    def __init__(
        self, session: str, dependents: Sequence[Dependent] = (), *, clock_ms: Callable[[], int] = monotonic_ms
    ) -> None:
        self._session = session
        self._dependents = dependents
        self._clock_ms = clock_ms
        self._held: dict[int, HeldPartition] = {}
        self.changes = 0  # grows with each lease that is acquired or lost
        self.tried_epochs: dict[int, int] = {}  # partition -> the highest epoch that this session got or may have got
        self.unconfirmed: set[int] = set()  # leases that may be in our name although we do not hold them
        self._sequences: dict[int, int] = {}  # of partitions that we held and lost at once, until they are read again

    def __iter__(self) -> Iterator[int]:
        """The partitions held, draining ones included."""
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, partition: object) -> bool:
        return partition in self._held

    def items(self) -> Iterable[tuple[int, HeldPartition]]:
        """Partitions and their leases, draining ones included."""
        return self._held.items()

    def epoch_of(self, partition: int) -> int | None:
        """The epoch of a lease; None when the partition is not ours."""
        held = self._held.get(partition)
        return None if held is None else held.epoch

    def fence_of(self, partition: int) -> Fence | None:
        """The fence for writes; None when the partition is not ours."""
        held = self._held.get(partition)
        if held is None:
            return None
        return Fence(partition, self._session, held.epoch, self.now_of(partition))

    def now_of(self, partition: int) -> int:
        """The partition's time, ms; the partition must be held."""
        held = self._held[partition]
        return held.clock_ms + self._clock_ms() - held.anchor_ms

    def holds(self, claim: Claim) -> bool:
        """Is the lease under which this claim was delivered still held?"""
        held = self._held.get(claim.partition)
        return held is not None and held.epoch == claim.epoch

    def is_open(self, partition: int) -> bool:
        """May new work start in this partition?"""
        held = self._held.get(partition)
        return held is not None and not held.draining

    def add(self, won: Acquired, anchor_ms: int, *, is_wanted: bool, sequence: int = 0) -> None:
        """A lease was acquired. One that is not wanted is only held to be released. `sequence`: as read before."""
        self.tried_epochs[won.partition] = won.epoch
        self.changes += 1
        log_entries = 0 if is_wanted else won.log_entries
        self._held[won.partition] = HeldPartition(
            won.epoch, won.clock_ms, anchor_ms, draining=not is_wanted, sequence=sequence, log_entries=log_entries
        )
        self.unconfirmed.discard(won.partition)

    def committed(self, partition: int, sequence: int) -> None:
        """The engine has answered that it has this commit."""
        held = self._held.get(partition)
        if held is not None:
            held.sequence = max(held.sequence, sequence)

    def set_back(self, seen: Iterable[Lease]) -> dict[int, tuple[int, int]]:
        """Partitions of which the engine no longer has all commits, by leases that were read after `lose_all`: the
        number of the last one, and how many are missing. Each is returned once.
        """
        known = ((one, self._sequences.pop(one.partition, 0)) for one in seen)
        return {one.partition: (last, last - one.sequence) for one, last in known if last > one.sequence}

    def let_go(self, partition: int) -> Fence | None:
        """Stop holding a partition: the fence to release its lease with. Its dependents are not notified."""
        fence = self.fence_of(partition)
        self._held.pop(partition, None)
        self.changes += 1
        self.unconfirmed.add(partition)  # until its lease is read again: the release may be lost
        return fence

    def drop(self, partitions: Iterable[int]) -> None:
        """Notify the dependents that these partitions are lost."""
        lost = list(partitions)
        for dependent in self._dependents:
            dependent.drop(lost)

    def lose(self, partition: int) -> None:
        """A write was fenced: the partition belongs to another session."""
        self.changes += 1
        if self._held.pop(partition, None) is not None:
            self.unconfirmed.add(partition)
            log.warning("partition.fenced", extra={"partition": partition})
            self.drop([partition])

    def lose_all(self, is_lost: Callable[[int], bool] = lambda _partition: True) -> int:
        """The silence lasted too long, or these partitions' server fell back: nothing starts there until their leases
        are acquired again. Returns how many were held.
        """
        self.changes += 1
        lost = {partition: held for partition, held in self._held.items() if is_lost(partition)}
        self._sequences |= {partition: held.sequence for partition, held in lost.items()}
        self.unconfirmed.update(lost, filter(is_lost, self.tried_epochs))  # it may have restored released leases
        for partition in lost:
            del self._held[partition]
        self.drop(list(lost))
        return len(lost)


# Handles a server that restarted, lost recent writes or is another one now: the session forgets what it believes that
# the engine has. In a cluster this is about the partitions of one shard, or of slots that moved.


class EngineRestarts:
    """Drops the leases on a server that is another one than before; they are acquired again under its run id."""

    def __init__(self, engine: Engine, keys: Keys, held: HeldPartitions, forget: Callable[[Change], None]) -> None:
        """`forget` clears what this session assumes to be on that server, as do further `listeners`."""
        self._engine = engine
        self._keys = keys
        self._held = held
        self.listeners = [forget]

    def noticed(self, change: Change) -> None:
        """A server fell back or is another one: drop what it has, before another call reaches it."""
        for listener in self.listeners:
            listener(change)
        lost = self._held.lose_all(lambda partition: change.affects(self._keys.meta(partition)))
        if self._engine.is_cluster:
            log.warning("shard.changed", extra={"partitions": lost})
        else:
            log.warning("engine.restarted")

    def noticed_in(self, partition: int) -> None:
        """The engine has lost writes to this partition that this session knows of."""
        meta = self._keys.meta(partition)
        self.noticed(Change(meta.__eq__ if self._engine.is_cluster else everything))

    def listening(self) -> contextlib.AbstractContextManager[None]:
        """In this context, a restart that a new connection reveals calls `noticed`."""
        return self._engine.restarts.listen(self.noticed)


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
        # A lease in our name that is not wanted is acquired to be released: no one else could get it while we live.
        free = {lease.partition for lease in seen if lease.partition in share and self._is_takeable(lease)}
        await self._acquire([lease for lease in seen if lease.partition in ours | free], share)
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
        anchor_ms = self._clock_ms()  # when the reply arrived, not when the call was sent
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
