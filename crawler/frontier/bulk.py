"""Bulk queries for audits: the states of very many URLs, and recounts of partitions. Reads only."""

import enum
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from crawler.engine.client import Call, Engine
from crawler.frontier.arguments import UrlStatesArgs
from crawler.frontier.codec import (
    pairs_of,
    unpack_log,
    unpack_queue,
)
from crawler.frontier.keys import Keys
from crawler.frontier.pending import PendingUrls
from crawler.frontier.spilling import BlockFiles
from crawler.model import CommitEntry, RefusalReason
from crawler.rules.places import Fingerprints

STATES_MAX = 256  # URLs per call: well below a millisecond of the engine
# Reasons that count links that never became URLs of the crawl; all others end a URL.
_NEVER_ADDED = frozenset({
    RefusalReason.SCOPE, RefusalReason.DEPTH, RefusalReason.REDIRECTS, RefusalReason.FORGOTTEN, RefusalReason.RUN_URLS
})  # fmt: skip
# At least one of these counters of a partition changes whenever a URL is added, ends, or moves.
MOVING = (b"added", b"done", b"dead", b"deferrals", b"released", b"request", b"moves", b"dropped")
SEEN = b"seen"  # and the run: the counter of its seen-set


class UrlState(enum.IntEnum):
    """Shared with lua/url_states.lua, which returns ENDED for PENDING.

    COMMITTED: not yet in an index; ENDED: indexed, refused, or lost.
    """

    UNSEEN = 0
    PENDING = 1
    COMMITTED = 2
    DEAD = 3
    ENDED = 4


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """One partition: the counters of the scripts, next to what was counted again.

    `is_steady` is False when URLs came, went or moved during the count: some may be counted twice or not at all. An
    engine that was restarted meanwhile may have gone back to the numbers before.
    """

    partition: int
    added: int
    done: int
    seen_counter: int
    seen: int  # members of the seen-sets, with those of runs that were closed
    pending: int  # URLs in queues, claims and retries
    committed: int  # by the counters of status classes
    run_pages: int  # those of them that are of runs of jobs
    dead_counter: int
    dead: int  # dead letters
    revived: int  # done once, and then put back from a dead letter: they count as added again
    deferrals: int  # how often a URL was deferred, which counts as done
    released: int  # how often a URL was released, which counts as added again
    deferred: int  # URLs that are deferred now
    refused: int  # URLs ended as refused; links that were never added are not among them
    forgotten: int  # of committed: pages of forgotten domains that are in no index
    log_entries: int
    runs: tuple[str, ...]  # of jobs, with URLs seen
    is_steady: bool


class BulkLookup:
    """Bulk queries of one crawl."""

    def __init__(self, engine: Engine, keys: Keys, partitions: int, files: BlockFiles | None = None) -> None:
        self._engine = engine
        self._keys = keys
        self._partitions = partitions
        self._pending = PendingUrls(engine, keys, files)

    async def of(self, wanted: Mapping[int, Sequence[str]], run: str = "", *, visit: int = 1) -> dict[str, UrlState]:
        """State of each fingerprint, given by partition, in pipelines of calls with `STATES_MAX` each.

        Pending URLs are ENDED here, too: `pending` tells them apart.
        """
        calls, asked = [], []
        for partition, fingerprints in wanted.items():
            for start in range(0, len(fingerprints), STATES_MAX):
                some = fingerprints[start : start + STATES_MAX]
                asked.append(some)
                calls.append(Call("url_states", (self._keys.meta(partition),), (*UrlStatesArgs(run, visit), *some)))
        found: dict[str, UrlState] = {}
        for some, digits in zip(asked, await self._engine.run_all(calls), strict=True):
            found.update(zip(some, (UrlState(digit - 48) for digit in digits), strict=True))
        return found

    async def pending(self, fingerprints: Fingerprints, partition: int) -> set[str]:
        """Fingerprints of all waiting URLs of a partition: pending or deferred."""
        deferred = {
            one.url.fingerprint(fingerprints) async for some in self._pending.deferred(partition) for one in some
        }
        return deferred | await self._pending.fingerprints(fingerprints, partition)

    async def counters(self) -> list[tuple[int, int, int]]:
        """(partition, added, done) of the partitions in use, to see whether the crawl is moving."""
        metas = await self._engine.commands(
            [("HMGET", self._keys.meta(p), "added", "done") for p in range(self._partitions)]
        )
        return [(p, int(meta[0] or 0), int(meta[1] or 0)) for p, meta in enumerate(metas) if meta[0]]

    async def committed(self) -> int:
        """How many pages the whole crawl has committed."""
        fields = tuple(f"s{status}" for status in range(1, 6))
        metas = await self._engine.commands([("HMGET", self._keys.meta(p), *fields) for p in range(self._partitions)])
        return sum(int(count or 0) for meta in metas for count in meta)

    async def tally(self, partition: int) -> Tally:
        """Count one partition again. Its seen-sets, the crawl's and those of runs, are read bucket by bucket, so the
        cost grows with their size.
        """
        meta, key = self._keys.meta(partition), partial(self._keys.of, partition)
        before, run_id = dict(pairs_of(await self._engine.command("HGETALL", meta))), self._engine.run_id_of(meta)
        sets = [name[len(SEEN) :] for name in before if name.startswith(SEEN)]
        buckets = [(run.decode(), n) for run in sets for n in ("split", *range(int(before.get(b"buckets" + run, 1))))]
        sizes = await self._engine.commands([("SCARD", key(f"s{run}:{n}")) for run, n in buckets])
        pending = await self._pending.count(partition)
        dead, log_entries, deferred, flat = await self._engine.commands(
            [("HLEN", key("dead")), ("HLEN", key("l")), ("HGETALL", key("deferred")), ("HGETALL", meta)]
        )
        after = dict(pairs_of(flat))
        moving = {*MOVING, *(name for name in (*before, *after) if name.startswith((SEEN, b"buckets")))}
        counters = {name.decode(): int(value) for name, value in after.items() if value.lstrip(b"-").isdigit()}
        ended = {name for name in counters if name.startswith("refused:")} - {f"refused:{r}" for r in _NEVER_ADDED}
        return Tally(
            partition=partition,
            added=counters.get("added", 0),
            done=counters.get("done", 0),
            seen_counter=counters.get("dropped", 0) + sum(n for name, n in counters.items() if name.startswith("seen")),
            seen=counters.get("dropped", 0) + sum(sizes),
            pending=pending,
            committed=sum(counters.get(f"s{status}", 0) for status in (*range(6), 9)),  # 0: sitemaps; 9: requisites
            run_pages=counters.get("run_pages", 0),
            dead_counter=counters.get("dead", 0),
            dead=dead,
            revived=counters.get("revived", 0),
            deferrals=counters.get("deferrals", 0),
            released=counters.get("released", 0),
            deferred=sum(int(n) for _, n in pairs_of(deferred)),
            refused=sum(counters[name] for name in ended),
            forgotten=counters.get("forgotten", 0),
            log_entries=log_entries,
            runs=tuple(run.decode() for run in sets if run),
            is_steady=run_id == self._engine.run_id_of(meta) and all(before.get(n) == after.get(n) for n in moving),
        )

    async def undrained(self, partition: int) -> list[CommitEntry]:
        """Commits of a partition in the engine's log, whether they are also in an index or not."""
        return [unpack_log(v)[1] for v in await self._engine.command("HVALS", self._keys.of(partition, "l"))]

    async def robots(self, partition: int) -> dict[str, bytes]:
        """The shared robots.txt of each origin, by origin."""
        compact_stores = int(await self._engine.command("HGET", self._keys.meta(partition), "yb") or 1)
        found: dict[str, bytes] = {}
        for raw in await self._engine.commands(
            [("HGETALL", self._keys.of(partition, f"y:{n}")) for n in ("split", *range(compact_stores))]
        ):
            found.update((origin.decode(), blob) for origin, blob in pairs_of(raw))
        return found

    async def delays(self, wanted: Sequence[tuple[int, str]]) -> list[int | None]:
        """The stored delay in ms of each (partition, queue); None where none was stored."""
        calls = [Call("read_queues", (self._keys.meta(p),), ("queues", queue)) for p, queue in wanted]
        found: list[int | None] = []
        for reply in await self._engine.run_all(calls):
            delay = unpack_queue(reply[0]).get("delay", -1)
            found.append(delay if delay >= 0 else None)
        return found
