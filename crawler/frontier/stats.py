"""Statistics as the scripts count them: totals and per domain. Work is bounded by what is shown."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from crawler.frontier.client import Engine
from crawler.frontier.keys import Keys
from crawler.frontier.records import pairs_of

TOTAL_FIELDS = ("added", "done", "bytes", "retries", "dead", "expired", "s1", "s2", "s3", "s4", "s5")


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over all partitions. `status` by class ('2' ...), `errors` by failure kind, `refused` by reason."""

    added: int = 0
    done: int = 0
    fetched: int = 0
    bytes: int = 0
    retries: int = 0
    dead: int = 0
    expired: int = 0
    status: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)

    @property
    def pending(self) -> int:
        return self.added - self.done


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainStats:
    """One domain. Times in ms on its partition's clock; delay -1 until a robots.txt was read."""

    domain: str
    partition: int
    queued: int = 0
    claimed: int = 0
    retrying: int = 0
    fetched: int = 0
    bytes: int = 0
    retries: int = 0
    dead: int = 0
    fetch_ms: int = 0
    status: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    delay_ms: int = -1
    next_fetch_in_ms: int = 0
    owner: str = ""
    epoch: int = 0

    @property
    def pending(self) -> int:
        return self.queued + self.claimed + self.retrying


class Stats:
    """Reads what the scripts counted."""

    def __init__(self, engine: Engine, keys: Keys, partitions: int) -> None:
        self._engine = engine
        self._keys = keys
        self._partitions = partitions

    async def totals(self) -> Totals:
        """One pass over the partitions' meta hashes."""
        sums: Counter[str] = Counter()
        raw = await self._engine.commands([("HGETALL", self._keys.meta(p)) for p in range(self._partitions)])
        for meta in raw:
            for name, value in _counters(meta).items():
                sums[name] += value
        return Totals(
            added=sums["added"], done=sums["done"], bytes=sums["bytes"], retries=sums["retries"], dead=sums["dead"],
            expired=sums["expired"], fetched=sum(_by(sums, "s").values()), status=_by(sums, "s"),
            errors=_by(sums, "e:"), refused=_by(sums, "refused:"),
        )  # fmt: skip

    async def top_domains(self, limit: int) -> list[tuple[str, int]]:
        """(domain, partition) of the domains with most pages fetched, at most `limit`."""
        commands = [
            ("ZREVRANGE", self._keys.of(p, "domains"), 0, limit - 1, "WITHSCORES") for p in range(self._partitions)
        ]
        found: list[tuple[float, str, int]] = []
        for partition, flat in enumerate(await self._engine.commands(commands)):
            found.extend((-float(flat[i + 1]), flat[i].decode(), partition) for i in range(0, len(flat), 2))
        return [(domain, partition) for _, domain, partition in sorted(found)[:limit]]

    async def domain_count(self) -> int:
        """How many domains the crawl has met."""
        return sum(await self.domain_counts(range(self._partitions)))

    async def domain_counts(self, partitions: Iterable[int]) -> list[int]:
        """How many domains were met, for each of the given partitions."""
        found = await self._engine.commands([("ZCARD", self._keys.of(p, "domains")) for p in partitions])
        return [int(count) for count in found]

    async def pending_counts(self, partitions: Iterable[int]) -> list[int]:
        """How many URLs are pending, for each of the given partitions."""
        found = await self._engine.commands([("HMGET", self._keys.meta(p), "added", "done") for p in partitions])
        return [int(added or 0) - int(done or 0) for added, done in found]

    async def domains(self, wanted: list[tuple[str, int]]) -> list[DomainStats]:
        """Statistics of the given (domain, partition) pairs."""
        commands: list[tuple[str, ...]] = []
        for domain, partition in wanted:
            commands.append(("HGETALL", self._keys.of(partition, f"d:{domain}")))
            commands.append(("HMGET", self._keys.of(partition, f"w:{domain}"), "next", "delay"))
            commands.append(("HMGET", self._keys.meta(partition), "clock", "node", "epoch", "session"))
        raw = await self._engine.commands(commands)
        return [
            _domain_stats(domain, partition, *raw[3 * i : 3 * i + 3]) for i, (domain, partition) in enumerate(wanted)
        ]


def _counters(flat: object) -> dict[str, int]:
    known: dict[str, int] = {}
    for key, value in pairs_of(flat):
        name = key.decode()
        if name in TOTAL_FIELDS or name.startswith(("e:", "refused:")):
            known[name] = int(value)
    return known


def _by(sums: Mapping[str, int], prefix: str) -> dict[str, int]:
    """Fields under a prefix; 's' means the status classes s1..s5 only."""
    if prefix == "s":
        return {name[1]: n for name, n in sums.items() if len(name) == 2 and name[0] == "s" and n}
    return {name.removeprefix(prefix): n for name, n in sums.items() if name.startswith(prefix) and n}


def _domain_stats(domain: str, partition: int, flat: object, queue: list[bytes], meta: list[bytes]) -> DomainStats:
    sums = {key.decode(): int(value) for key, value in pairs_of(flat)}
    clock = int(meta[0] or 0)
    return DomainStats(
        domain=domain, partition=partition, queued=sums.get("queued", 0), claimed=sums.get("claimed", 0),
        retrying=sums.get("retrying", 0), fetched=sum(_by(sums, "s").values()), bytes=sums.get("bytes", 0),
        retries=sums.get("retries", 0), dead=sums.get("dead", 0), fetch_ms=sums.get("fetch_ms", 0),
        status=_by(sums, "s"), errors=_by(sums, "e:"), refused=_by(sums, "refused:"),
        delay_ms=int(queue[1]) if queue[1] else -1, next_fetch_in_ms=max(0, int(float(queue[0] or 0)) - clock),
        owner=(meta[1] or b"").decode() if meta[3] else "", epoch=int(meta[2] or 0),
    )  # fmt: skip
