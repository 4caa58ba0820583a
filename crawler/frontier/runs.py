"""Active runs of jobs in the engine: their records, the partitions they touched, their counts, and their end.

What concerns a run as a whole is in the partition of its job (rules/jobs.py home_of). Who writes the records there is
not known here. A partition is noted as touched before any URL of the run is added to it. So a run costs what its
partitions cost: when it has ended, each of these is closed, and nothing of the run is left.

Any session may make any of these calls, and repeat them. Each raises EngineError.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from crawler.engine.client import Call, Engine
from crawler.frontier.arguments import TouchArgs
from crawler.frontier.codec import pack
from crawler.frontier.keys import Keys
from crawler.rules.job_runs import RunCounts, RunRecord, home_of

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

    async def active_count(self) -> int:
        """How many runs are active."""
        counts = await self._engine.commands([("HLEN", self._keys.of(p, "runs")) for p in range(self._partitions)])
        return sum(int(n) for n in counts)

    async def touch(self, run: str, partitions: Iterable[int], roots: Iterable[str] = ()) -> bool:
        """Note that these partitions are to get URLs of the run, and roots of its scope; False when it has ended."""
        return not await self.touch_all({run: partitions}, roots)

    async def touch_all(self, partitions: Mapping[str, Iterable[int]], roots: Iterable[str] = ()) -> set[str]:
        """The same for several runs; those that have ended."""
        noted = sorted(roots)
        calls = [
            Call("touch_run", (self._keys.meta(self.home(run)),), TouchArgs(run, pack(sorted(mine)), pack(noted)))
            for run, mine in partitions.items()
        ]
        replies = await self._engine.run_all(calls)
        return {run for run, (answer,) in zip(partitions, replies, strict=True) if bytes(answer) == b"ENDED"}

    async def keeps(self, run: str) -> bool:
        """Is what was noted of a run kept whenever others keep later changes?"""
        return bool(await self._engine.dependable([self._keys.meta(self.home(run))]))

    async def touched(self, run: str) -> frozenset[int]:
        """The partitions that have, or had, URLs of the run."""
        return frozenset(int(p) for p in await self._engine.command("SMEMBERS", self._of(run, "touched")))

    async def seen_in(self, run: str, partitions: Iterable[int]) -> set[int]:
        """Those of the partitions that have a seen-set of the run."""
        asked = list(partitions)
        found = await self._engine.commands([("HEXISTS", self._keys.meta(p), f"seen{run}") for p in asked])
        return {p for p, is_there in zip(asked, found, strict=True) if is_there}

    async def counts(self, run: str, partitions: Collection[int]) -> dict[int, RunCounts]:
        """What became of its URLs, by partition. Partitions are read one by one, so the sums are no snapshot."""
        calls = [Call("read_queues", (self._keys.meta(p),), ("counts", run)) for p in partitions]
        replies = await self._engine.run_all(calls)
        return {p: _run_counts(bytes(raw)) for p, (raw,) in zip(partitions, replies, strict=True)}

    async def passes(self, runs: Sequence[str]) -> list[dict[int, RunCounts]]:
        """One pass over each of these runs: the partitions it touched, then its counts in each of them."""
        raw = await self._engine.commands([("SMEMBERS", self._of(run, "touched")) for run in runs])
        touched = [sorted(int(p) for p in members) for members in raw]
        calls = [
            Call("read_queues", (self._keys.meta(p),), ("counts", run))
            for run, mine in zip(runs, touched, strict=True)
            for p in mine
        ]
        replies = iter(await self._engine.run_all(calls))
        return [{p: _run_counts(bytes(next(replies)[0])) for p in mine} for mine in touched]

    async def active_in(self, partitions: Iterable[int]) -> dict[int, list[RunRecord]]:
        """The active runs whose jobs are in these partitions, without the roots that were opened since."""
        wanted = list(partitions)
        raw = await self._engine.commands([("HVALS", self._keys.of(p, "runs")) for p in wanted])
        return {p: [_decode(one) for one in records] for p, records in zip(wanted, raw, strict=True)}

    async def closing_in(self, partitions: Iterable[int]) -> dict[int, list[str]]:
        """Ended runs of these partitions that may have left something."""
        wanted = list(partitions)
        raw = await self._engine.commands([("SMEMBERS", self._keys.of(p, "closing")) for p in wanted])
        return {p: sorted(run.decode() for run in members) for p, members in zip(wanted, raw, strict=True)}

    async def all_closing(self) -> frozenset[str]:
        """Ended runs that may have left something, by a look at each partition."""
        return frozenset(run for runs in (await self.closing_in(range(self._partitions))).values() for run in runs)

    async def close(self, what: Iterable[tuple[str, int]]) -> None:
        """Forget ended runs in these partitions: seen-sets and counts. Nothing is added for them there any more."""
        left = list(what)
        while left:
            calls = [Call("close_run", (self._keys.meta(p),), (run,)) for run, p in left]
            replies = await self._engine.run_all(calls)
            left = [one for one, is_more in zip(left, replies, strict=True) if int(is_more)]

    async def close_everywhere(self, runs: Sequence[str]) -> bool:
        """Forget ended runs, in all partitions that they touched and in those of their jobs. False: try again, as a
        failover may undo what was just done in some.
        """
        raw = await self._engine.commands([("SMEMBERS", self._of(run, "touched")) for run in runs])
        await self.close((run, int(p)) for run, members in zip(runs, raw, strict=True) for p in members)
        touched = {self._keys.meta(int(p)) for members in raw for p in members}
        if touched and await self._engine.dependable(touched) != touched:
            return False
        commands: list[tuple[object, ...]] = []
        for run in runs:
            commands.append(("DEL", self._of(run, "touched"), self._of(run, "roots")))
            commands.append(("SREM", self._keys.of(self.home(run), "closing"), run))
        await self._engine.commands(commands)
        return True

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
