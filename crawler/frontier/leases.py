"""Leases of partitions: acquired by compare-and-set and released, without clock or expiry. Also a log of takeovers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from crawler.engine.client import Call, Engine
from crawler.errors import EngineDown, EngineError
from crawler.frontier.arguments import (
    AcquireArgs,
    BorrowArgs,
    ReturnSlotArgs,
)
from crawler.frontier.keys import Keys
from crawler.frontier.owner import Fence, or_nothing
from crawler.frontier.record import check_marks, marks_of

TAKEOVERS_MAX = 1000  # kept


class Lease(msgspec.Struct, frozen=True):
    """A partition's lease as read; session '' means free (released or never acquired)."""

    partition: int
    session: str
    node: str
    epoch: int
    sequence: int = 0  # of the last commit in the partition; not known of a lease that an acquire came too late for


class Acquired(msgspec.Struct, frozen=True, kw_only=True):
    """An acquired lease: its epoch, the partition's stored clock (ms), and its numbers of log entries and URLs."""

    partition: int
    epoch: int
    clock_ms: int
    log_entries: int
    pending: int


class Leases:
    """The leases of one crawl."""

    def __init__(self, engine: Engine, keys: Keys, *, hash_key: bytes) -> None:
        self._engine = engine
        self._keys = keys
        self._hash_key = hash_key.hex()

    async def read(self, partitions: Iterable[int]) -> list[Lease]:
        """The current leases. Raises ConflictError for one on a shard that was wiped, EngineError where one is down."""
        wanted = list(partitions)
        found = await self.read_there(wanted)
        if len(found) < len(wanted):
            raise EngineDown("no answer from a shard of the engine")
        return found

    async def read_there(self, partitions: Iterable[int]) -> list[Lease]:
        """The same without those on a shard that is down."""
        wanted = list(partitions)
        fields = ("session", "node", "epoch", "sequence", *marks_of(self._engine))
        raw = await self._engine.replies_of([("HMGET", self._keys.meta(p), *fields) for p in wanted])
        found = [(p, m) for p, m in zip(wanted, or_nothing(raw), strict=True) if m is not None]
        await check_marks(self._engine, self._keys, [p for p, m in found if None in m[4:]])
        return [
            Lease(p, (m[0] or b"").decode(), (m[1] or b"").decode(), int(m[2] or 0), int(m[3] or 0)) for p, m in found
        ]

    async def acquire(
        self, session: str, node: str, wanted: Sequence[tuple[Lease, int]]
    ) -> list[Acquired | Lease | EngineError]:
        """Acquire partitions whose lease is still the one seen; each comes with the floor of its new epoch.

        For a lease that changed meanwhile the result is the current one.
        """
        calls = [
            Call(
                "acquire",
                (key := self._keys.meta(seen.partition),),
                AcquireArgs(
                    session, node, seen.session, seen.epoch, floor, self._engine.run_id_of(key), self._hash_key
                ),
            )
            for seen, floor in wanted
        ]
        results: list[Acquired | Lease | EngineError] = []
        for (seen, _), raw in zip(wanted, await self._engine.run_many(calls), strict=True):
            if isinstance(raw, EngineError):
                results.append(raw)
            elif raw[0] == b"ACQUIRED":
                epoch, clock_ms, log_entries, pending = map(int, raw[1:5])
                results.append(
                    Acquired(
                        partition=seen.partition,
                        epoch=epoch,
                        clock_ms=clock_ms,
                        log_entries=log_entries,
                        pending=pending,
                    )
                )
            else:
                results.append(Lease(seen.partition, raw[1].decode(), raw[2].decode(), int(raw[3])))
        return results

    async def sequences(self, partitions: Iterable[int]) -> dict[int, int]:
        """The number of the last commit in each of these partitions. Raises EngineError."""
        wanted = list(partitions)
        raw = await self._engine.commands([("HGET", self._keys.meta(p), "sequence") for p in wanted])
        return {p: int(found or 0) for p, found in zip(wanted, raw, strict=True)}

    async def raise_sequences(self, numbers: Mapping[int, int]) -> None:
        """The next commits in these partitions get higher numbers than these. Raises EngineError."""
        await self._engine.run_all(
            [Call("raise_sequence", (self._keys.meta(p),), (number,)) for p, number in numbers.items()]
        )

    async def release(self, fences: Sequence[Fence]) -> None:
        """Release leases; one that is no longer ours stays. The caller has dropped the partitions before."""
        await self._engine.run_many(
            [Call("release_lease", (self._keys.meta(f.partition),), (f.session, f.epoch, f.now_ms)) for f in fences]
        )


_encode = msgspec.json.Encoder().encode


class Takeover(msgspec.Struct, frozen=True, kw_only=True):
    """A session took over partitions of a dead one; kept for people and audits.

    `silent_ms`: since the last heartbeat of the dead session, on the clock of the new owner; -1 when it never saw one.
    `at`: wall clock, s.
    """

    node: str
    session: str
    by_node: str
    by_session: str
    partitions: int
    silent_ms: int
    at: float


_decoder = msgspec.json.Decoder(Takeover)


class Takeovers:
    """The last takeovers of one crawl."""

    def __init__(self, engine: Engine, keys: Keys) -> None:
        self._engine = engine
        self._key = keys.takeovers

    async def note(self, takeover: Takeover) -> None:
        """Add one and drop the oldest. Raises EngineError; a lost entry is only missing in the statistics."""
        await self._engine.commands([("RPUSH", self._key, _encode(takeover)), ("LTRIM", self._key, -TAKEOVERS_MAX, -1)])

    async def read(self, newest: int = TAKEOVERS_MAX) -> list[Takeover]:
        """The newest entries, oldest first."""
        return [_decoder.decode(blob) for blob in await self._engine.command("LRANGE", self._key, -newest, -1)]


class SlotRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of lua/borrow_slot.lua. `waiter`: id of this request; `now_ms`: a lower bound of the owner's time while
    `epoch` lasts; `mark`: that of another waiter, seen for `seen_ms`.
    """

    waiter: str
    now_ms: int = 0
    epoch: int = -1
    mark: str = ""
    seen_ms: int = 0


class SlotReply(NamedTuple):
    """Wait in ms (0 when granted); the partition's clock in ms and its epoch; the mark of the waiter with the slot."""

    wait_ms: int
    clock_ms: int
    epoch: int
    mark: str


class SlotQueue:
    """The two script calls."""

    def __init__(self, engine: Engine, keys: Keys, *, default_delay_ms: int) -> None:
        self._engine = engine
        self._keys = keys
        self._default_delay_ms = default_delay_ms

    async def borrow(self, partition: int, queue: str, asked: SlotRequest) -> SlotReply:
        """Request one slot on a queue that others own. A repeated call is granted again; `release` ends it."""
        a = asked
        args = BorrowArgs(queue, a.now_ms, a.epoch, self._default_delay_ms, a.waiter, a.mark, a.seen_ms)
        reply = await self._engine.run("borrow_slot", (self._keys.meta(partition),), *args)
        return SlotReply(int(reply[0]), int(reply[1]), int(reply[2]), reply[3].decode())

    async def release(self, partition: int, queue: str, waiter: str) -> None:
        """The request that `borrow` granted has ended. Raises EngineError; the mark then expires by itself."""
        await self._engine.run("return_slot", (self._keys.meta(partition),), *ReturnSlotArgs(queue, waiter))
