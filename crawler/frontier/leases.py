"""Leases of partitions: acquired by compare-and-set and released, without clock or expiry. Also a log of takeovers."""

from collections.abc import Iterable, Sequence

import msgspec

from crawler.engine.client import Call, Engine
from crawler.errors import EngineError
from crawler.frontier.frontier import Fence
from crawler.frontier.keys import Keys

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
        """The current leases."""
        wanted = list(partitions)
        raw = await self._engine.commands(
            [("HMGET", self._keys.meta(p), "session", "node", "epoch", "sequence") for p in wanted]
        )
        return [
            Lease(p, (m[0] or b"").decode(), (m[1] or b"").decode(), int(m[2] or 0), int(m[3] or 0))
            for p, m in zip(wanted, raw, strict=True)
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
                (self._keys.meta(seen.partition),),
                (session, node, seen.session, seen.epoch, floor, self._engine.run_id, self._hash_key),
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
