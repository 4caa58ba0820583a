"""Active runs of jobs in the engine: their records, the partitions they touched, their counts, and their end.

What concerns a run as a whole is in the partition of its job (rules/runs.py home_of). Who writes the records there is
not known here. A partition is noted as touched before any URL of the run is added to it. So a run costs what its
partitions cost: when it has ended, each of these is closed, and nothing of the run is left.

Any session may make any of these calls, and repeat them. Each raises EngineError.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from crawler.engine.client import Call, Engine
from crawler.frontier.codec import pack
from crawler.frontier.keys import Keys
from crawler.rules.runs import RunCounts, RunRecord, home_of

_decode = msgspec.json.Decoder(RunRecord).decode
_counts = msgspec.msgpack.Decoder(tuple[int, ...]).decode


class ActiveRun(NamedTuple):
    """`roots`: how many were noted for it."""

    record: RunRecord
    roots: int


class Runs:
    """The runs of one crawl."""

    def __init__(self, engine: Engine, keys: Keys, partitions: int) -> None:
        self._engine = engine
        self._keys = keys
        self._partitions = partitions

    async def read(self, runs: Iterable[str]) -> dict[str, RunRecord | None]:
        """The record of each run, with all roots of its scope; None for one that is not active."""
        found: dict[str, RunRecord | None] = {}
        for run, active in (await self.look(runs)).items():
            found[run] = active and with_roots(active.record, await self.roots(run) if active.roots else ())
        return found

    async def look(self, runs: Iterable[str]) -> dict[str, ActiveRun | None]:
        """The same in one go, with the number of noted roots instead of the roots."""
        by_home: dict[int, list[str]] = {}
        for run in dict.fromkeys(runs):
            by_home.setdefault(self.home(run), []).append(run)
        asked = [run for mine in by_home.values() for run in mine]
        commands: list[tuple[object, ...]] = [("HMGET", self._keys.of(p, "runs"), *mine) for p, mine in by_home.items()]
        commands += [("SCARD", self._of(run, "roots")) for run in asked]
        replies = await self._engine.commands(commands)
        records = [raw for row in replies[: len(by_home)] for raw in row]
        return {
            run: None if raw is None else ActiveRun(_decode(raw), int(roots))
            for run, raw, roots in zip(asked, records, replies[len(by_home) :], strict=True)
        }

    async def roots(self, run: str) -> frozenset[str]:
        """The roots that were noted for a run, apart from those in its record."""
        return frozenset(root.decode() for root in await self._engine.command("SMEMBERS", self._of(run, "roots")))

    async def active(self) -> dict[str, RunRecord]:
        """All active runs, by a look at each partition."""
        rows = await self._engine.commands([("HKEYS", self._keys.of(p, "runs")) for p in range(self._partitions)])
        found = await self.read(run.decode() for row in rows for run in row)
        return {run: record for run, record in found.items() if record is not None}

    async def touch(self, run: str, partitions: Iterable[int], roots: Iterable[str] = ()) -> bool:
        """Note that these partitions are to get URLs of the run, and roots of its scope; False when it has ended."""
        return not await self.touch_all({run: partitions}, roots)

    async def touch_all(self, partitions: Mapping[str, Iterable[int]], roots: Iterable[str] = ()) -> set[str]:
        """The same for several runs; those that have ended."""
        noted = sorted(roots)
        calls = [
            Call("touch_run", (self._keys.meta(self.home(run)),), (run, pack((sorted(mine), noted))))
            for run, mine in partitions.items()
        ]
        replies = await self._engine.run_all(calls)
        return {run for run, (answer,) in zip(partitions, replies, strict=True) if bytes(answer) == b"ENDED"}

    async def touched(self, run: str) -> frozenset[int]:
        """The partitions that have, or had, URLs of the run."""
        return frozenset(int(p) for p in await self._engine.command("SMEMBERS", self._of(run, "touched")))

    async def counts(self, run: str, partitions: Collection[int]) -> dict[int, RunCounts]:
        """What became of its URLs, by partition. Partitions are read one by one, so the sums are no snapshot."""
        calls = [Call("read_queues", (self._keys.meta(p),), ("counts", run)) for p in partitions]
        replies = await self._engine.run_all(calls)
        return {p: _run_counts(bytes(raw)) for p, (raw,) in zip(partitions, replies, strict=True)}

    async def close(self, run: str, partitions: Sequence[int]) -> None:
        """Forget an ended run in these partitions: its seen-set and its counts. Nothing is added there any more."""
        left = partitions
        while left:
            calls = [Call("close_run", (self._keys.meta(p),), (run,)) for p in left]
            replies = await self._engine.run_all(calls)
            left = [p for p, is_more in zip(left, replies, strict=True) if int(is_more)]

    async def forget(self, run: str) -> None:
        """The last step, when all partitions are closed: which ones it had touched."""
        await self._engine.command("DEL", self._of(run, "touched"), self._of(run, "roots"))

    def home(self, run: str) -> int:
        """The partition of its job."""
        return home_of(run, self._partitions)

    def _of(self, run: str, name: str) -> str:
        return self._keys.of(self.home(run), f"{name}:{run}")


def with_roots(record: RunRecord, roots: Collection[str]) -> RunRecord:
    """The record with these roots, too."""
    more = {*roots} - {*record.roots}
    return msgspec.structs.replace(record, roots=tuple(sorted(more.union(record.roots)))) if more else record


def _run_counts(packed: bytes) -> RunCounts:
    return RunCounts(*_counts(packed)) if packed else RunCounts()
