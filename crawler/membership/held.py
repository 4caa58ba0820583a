"""The leases that this session holds: read by the pipeline before it starts or writes anything.

Only `Ownership` acquires leases (ownership.py has the rules). Losing one is synchronous: everything kept for the
partition is dropped before other code runs, so that no task goes on with a claim of a lease that is gone.

A partition's time is its stored clock and what has passed since on our monotonic clock. The stored one only grows, and
stands still while nobody owns the partition; no wall clock is read, so none that steps or differs can bring a request
too early.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from crawler.frontier.leases import Acquired, Lease
from crawler.frontier.owner import Fence
from crawler.model import Claim
from crawler.runtime.clocks import monotonic_ms

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
        self._was_ours: set[int] = set()  # partitions that we got, and nobody else since, as far as we know
        self._rollbacks: list[tuple[Callable[[int], bool], int]] = []  # which partitions, and when we noticed
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
        self._was_ours.add(won.partition)

    def may_be_anothers(self, partition: int, within_ms: float) -> bool:
        """Did the engine fall back, so lately that another session may still work on this partition by a lease that the
        engine no longer knows? Not if nobody else had it since we did: then the engine only forgot ours.
        """
        if not self._rollbacks:
            return False
        self._rollbacks = [one for one in self._rollbacks if self._clock_ms() - one[1] < within_ms]
        return partition not in self._was_ours and any(is_lost(partition) for is_lost, _ in self._rollbacks)

    def is_anothers(self, partition: int) -> None:
        """Another session has its lease."""
        self._was_ours.discard(partition)

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
        self._was_ours.discard(partition)
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
            self._was_ours.discard(partition)
            log.warning("partition.fenced", extra={"partition": partition})
            self.drop([partition])

    def fall_back(self, is_lost: Callable[[int], bool]) -> int:
        """As `lose_all`, where the server of these partitions may have lost its last writes."""
        self._rollbacks.append((is_lost, self._clock_ms()))
        return self.lose_all(is_lost)

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
