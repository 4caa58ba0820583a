"""Statistics from the counters of the scripts: totals and per domain. Work is bounded by what is shown."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from crawler.engine.client import Call, Engine
from crawler.frontier.arguments import NamesArgs
from crawler.frontier.codec import (
    pairs_of,
    unpack_letter,
    unpack_queue,
)
from crawler.frontier.deferred import PAUSED, REQUISITES
from crawler.frontier.keys import Keys
from crawler.model import CommitEntry, Rights
from crawler.rules.rights import PURPOSES

TOTAL_FIELDS = (
    "added", "done", "spilled", "spilled_deferred", "bytes", "retries", "dead", "expired", "deferrals", "released",
    "beyond", "revived", "s0", "s1", "s2", "s3", "s4", "s5", "s9", "items", "items_invalid", "unchanged", "duplicates",
    "duplicate_bytes", "scheduled", "run_fetched", "run_bytes", "run_urls", "requisites", "requisite_bytes",
    "requisite_robots",
)  # fmt: skip
READ_MAX = 256  # queues that one call reads
NAMES_MAX = 256  # names that one call of names_after returns
NAMES_TO_SPARE = 4  # more than a partition's share of a page, so that few are asked twice
LOOKED_AT = 50  # dead letters, or rows of deferred URLs, of one partition: for an example
# Totals by reason, of which the scripts keep an example (lua/_losses.lua).
DEAD, REFUSED, DEFERRED, LOST = "dead:", "refused:", "deferred:", "lost:"
ITEMS_INVALID = "items_invalid"
HANDLED = "handled:"  # and the name of the handler that took a committed page
UNCHANGED = "unchanged"
DUPLICATES, DUPLICATE_BYTES = "duplicates", "duplicate_bytes"
REQUISITE_ROBOTS = "requisite_robots"  # robots.txt files that were read for requisites
NAMED = "named"  # URLs of pages that the sitemaps of runs have
# Of LOST; behind the first one follows a value of WARC-Truncated.
CUT_BODY, LINKS, NOT_DECODED, OF_SITEMAP = "body:", "links", "decode_error", "sitemap"
CUT_REQUISITES = "requisites"  # of a page, beyond 2,000
SEED_LED_AWAY, SCRIPTED, UNSIGNED = "seed_redirect", "scripts", "signature"
OF_RIGHTS = "rights"  # the body was not kept, because of its rights
SAID = "said:"  # and PURPOSE:y or PURPOSE:n: committed pages of which somebody says so
# Values of a queue's record that are not numbers.
_TEXTS = frozenset({"borrower", "waiter", "domain", "stop", "users", "turns"})


def lost_of(*, truncated: str, decode_error: str) -> str:
    """The reason, of LOST, for which a part of a committed page may be missing; "": none. A page counts once."""
    return f"{CUT_BODY}{truncated}" if truncated else NOT_DECODED if decode_error else ""


def lost_in(entry: CommitEntry) -> str:
    """The same of a page by the line of its commit."""
    return OF_RIGHTS if entry.is_withheld else lost_of(truncated=entry.truncated, decode_error=entry.decode_error)


def said_in(rights: Rights | None) -> dict[str, int]:
    """The totals, of SAID, that a page adds to."""
    if rights is None:
        return {}
    return {f"{SAID}{purpose}:{word}": 1 for purpose in PURPOSES if (word := getattr(rights, purpose))}


def told_in(entry: CommitEntry) -> dict[str, int]:
    """The totals that a committed page adds to, besides those of RestateItem, as far as its line tells."""
    told = said_in(entry.rights)
    if entry.original is None:
        return told
    more = {DUPLICATES: 1, DUPLICATE_BYTES: entry.body_bytes} if entry.is_duplicate else {UNCHANGED: 1}
    return told | more


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over all partitions. `status` by class ('2' ...), `errors` by failure kind, `refused` by reason."""

    added: int = 0
    done: int = 0
    spilled: int = 0  # pending ones that are in files
    scheduled: int = 0  # pending ones that become visible later
    first_visible_at: float | None = None  # the first of these; wall clock, s
    fetched: int = 0
    bytes: int = 0
    retries: int = 0
    dead: int = 0
    expired: int = 0
    deferred: int = 0  # now
    spilled_deferred: int = 0  # deferred ones that are in files
    beyond: int = 0  # deferred by the crawl's budget of URLs
    taken_in: int = 0  # URLs that were found and are not deferred
    run_fetched: int = 0  # by runs of jobs; the next two, too
    run_bytes: int = 0
    run_urls: int = 0
    items: int = 0
    items_invalid: int = 0  # left out: the handler yielded an invalid item
    unchanged: int = 0  # of the fetched ones: as an earlier run of their job had archived them
    duplicates: int = 0  # of the fetched ones: their bodies are in the archive once
    duplicate_bytes: int = 0  # of these bodies, which the archive does not have again
    sitemaps: int = 0  # committed; they are not in `fetched`
    requisites: int = 0  # likewise; their bytes are not in `bytes`
    requisite_bytes: int = 0
    requisite_robots: int = 0  # robots.txt files that were read for them
    requisites_met: int = 0  # found, whatever became of them; budgets of URLs leave them out
    status: Mapping[str, int] = msgspec.field(default_factory=dict)
    errors: Mapping[str, int] = msgspec.field(default_factory=dict)
    refused: Mapping[str, int] = msgspec.field(default_factory=dict)
    dead_by: Mapping[str, int] = msgspec.field(default_factory=dict)  # dead letters by reason
    deferred_by: Mapping[str, int] = msgspec.field(default_factory=dict)
    lost: Mapping[str, int] = msgspec.field(default_factory=dict)  # parts of committed pages, by reason
    rights: Mapping[str, int] = msgspec.field(default_factory=dict)  # committed pages by "PURPOSE:y" and "PURPOSE:n"
    handled: Mapping[str, int] = msgspec.field(default_factory=dict)  # committed pages by the name of their handler

    @property
    def pending(self) -> int:
        return self.added - self.done

    @property
    def own_fetched(self) -> int:
        """Without runs of jobs, as budgets count; the next two, too."""
        return self.fetched - self.run_fetched

    @property
    def own_bytes(self) -> int:
        return self.bytes - self.run_bytes

    @property
    def own_taken_in(self) -> int:
        return self.taken_in - self.run_urls - self.requisites_met + self.deferred_by.get(REQUISITES, 0)


class DomainStats(msgspec.Struct, frozen=True, kw_only=True):
    """One domain, or host where the queues are by host. Counts are totals of the crawl; times in ms."""

    domain: str
    partition: int
    queued: int  # not those that are deferred
    claimed: int  # by its owner: open requests, and URLs that are next
    retrying: int
    scheduled: int  # they become visible later
    set_aside: int  # their origins do not answer; one of each probes it from time to time
    pending: int  # the sum of these five
    fetched: int  # responses with any status
    bytes: int
    retries: int
    dead: int
    fetch_ms: int  # sum over all responses
    items: int
    items_invalid: int
    requisites: int  # fetched; they are not in `fetched`, nor their bytes in `bytes`
    requisite_bytes: int
    status: Mapping[str, int]  # responses by class: "2", "3", "4", "5"
    errors: Mapping[str, int]  # attempts without a response, by reason
    refused: Mapping[str, int]  # URLs that were not fetched, by reason
    delay_ms: int  # between two requests; -1 until a robots.txt was read
    next_fetch_in_ms: int
    owner: str  # node, or "" when there is none now
    epoch: int
    stop: str  # why none of its URLs is handed out, else ""


class Stats:
    """Reads the counters of the scripts."""

    def __init__(self, engine: Engine, keys: Keys, partitions: int) -> None:
        self._engine = engine
        self._keys = keys
        self._partitions = partitions

    async def totals(self) -> Totals:
        """One pass over the partitions' meta hashes."""
        return await self._totals(await self._counted())

    async def totals_and_examples(self) -> tuple[Totals, dict[str, str]]:
        """The same, and an example of each loss, by the name of its total: a URL, or a queue."""
        counted = await self._counted()
        return await self._totals(counted), await self._examples(counted)

    async def claimed(self) -> int:
        """How many URLs are claimed, by whomever."""
        return sum(await self._engine.commands([("ZCARD", self._keys.of(p, "x")) for p in range(self._partitions)]))

    async def waiting_by_user(self) -> Counter[str]:
        """How many URLs of each user are in queues, not those that are claimed."""
        waiting: Counter[str] = Counter()
        keys = [self._keys.of(p, "users") for p in range(self._partitions)]
        for found in await self._engine.commands([("HGETALL", key) for key in keys]):
            waiting.update({user.decode(): int(n) for user, n in pairs_of(found)})
        return waiting

    async def _counted(self) -> list[dict[str, int]]:
        raw = await self._engine.commands([("HGETALL", self._keys.meta(p)) for p in range(self._partitions)])
        return [_counters(meta) if meta else {} for meta in raw]

    async def _totals(self, counted: Sequence[Mapping[str, int]]) -> Totals:
        sums: Counter[str] = Counter()
        for known in filter(None, counted):  # of a small crawl, most have nothing
            sums.update(known)
        holders = [p for p, known in enumerate(counted) if known.get("scheduled")]
        return Totals(
            added=sums["added"], done=sums["done"], spilled=sums["spilled"], bytes=sums["bytes"],
            scheduled=sums["scheduled"], first_visible_at=await first_visible_at(self._engine, self._keys, holders),
            retries=sums["retries"], dead=sums["dead"],
            expired=sums["expired"], deferred=sums["deferrals"] - sums["released"],
            spilled_deferred=sums["spilled_deferred"], beyond=sums["beyond"],
            taken_in=sums["added"] - sums["revived"] - sums["deferrals"],
            run_fetched=sums["run_fetched"], run_bytes=sums["run_bytes"], run_urls=sums["run_urls"],
            items=sums["items"], items_invalid=sums["items_invalid"], unchanged=sums[UNCHANGED], sitemaps=sums["s0"],
            duplicates=sums[DUPLICATES], duplicate_bytes=sums[DUPLICATE_BYTES],
            requisites=sums["s9"], requisite_bytes=sums["requisite_bytes"], requisites_met=sums["requisites"],
            requisite_robots=sums[REQUISITE_ROBOTS],
            fetched=sum(_by(sums, "s").values()), status=_by(sums, "s"),
            errors=_by(sums, "e:"), refused=_by(sums, REFUSED),
            dead_by=_by(sums, DEAD), deferred_by=_by(sums, DEFERRED), lost=_by(sums, LOST),
            handled=_by(sums, HANDLED), rights=_by(sums, SAID),
        )  # fmt: skip

    async def _examples(self, counted: Sequence[Mapping[str, int]]) -> dict[str, str]:
        """One of each loss, from a partition that has most of it: one or two exchanges."""
        most: dict[str, tuple[int, int]] = {}
        for partition, known in enumerate(counted):
            for name, n in known.items():
                if n > most.get(name, (0, 0))[0]:
                    most[name] = n, partition
        losses = (DEAD, REFUSED, DEFERRED, LOST, ITEMS_INVALID)
        where = {name: partition for name, (_, partition) in most.items() if name.startswith(losses)}
        kept = await self._engine.commands([("HGET", self._keys.of(p, "losses"), name) for name, p in where.items()])
        found = {name: url.decode() for name, url in zip(where, kept, strict=True) if url}
        missing = [name for name in where if name not in found and name.startswith((DEAD, DEFERRED))]
        looks = [
            ("HRANDFIELD", self._keys.of(where[name], "dead"), LOOKED_AT, "WITHVALUES")
            if name.startswith(DEAD)
            else ("HRANDFIELD", self._keys.of(where[name], "deferred"), LOOKED_AT)
            for name in missing
        ]
        for name, some in zip(missing, await self._engine.commands(looks), strict=True):
            if example := _example(name, some):
                found[name] = example
        return found

    async def top_domains(self, limit: int) -> list[tuple[str, int]]:
        """(domain, partition) of the domains with most pages fetched, at most `limit`."""
        commands = [("ZREVRANGE", self._keys.of(p, "top"), 0, limit - 1, "WITHSCORES") for p in range(self._partitions)]
        found: list[tuple[float, str, int]] = []
        for partition, flat in enumerate(await self._engine.commands(commands)):
            found.extend((-float(flat[i + 1]), flat[i].decode(), partition) for i in range(0, len(flat), 2))
        return [(domain, partition) for _, domain, partition in sorted(found)[:limit]]

    async def domains_by_name(self, after: str, limit: int) -> list[tuple[str, int]]:
        """(domain, partition) of the first domains after a name in the order of their bytes, at most `limit`."""
        wanted = min(limit // self._partitions + NAMES_TO_SPARE, NAMES_MAX)
        found: list[tuple[bytes, int]] = []
        cursors = dict.fromkeys(range(self._partitions if limit > 0 else 0), after.encode())
        while cursors:
            calls = [Call("names_after", (self._keys.meta(p),), NamesArgs(name, wanted)) for p, name in cursors.items()]
            replies = dict(zip(cursors, await self._engine.run_all(calls), strict=True))
            found.extend((name, p) for p, names in replies.items() for name in names)
            found = sorted(found)[:limit]
            full = {p: names[-1] for p, names in replies.items() if len(names) == wanted}
            cursors = {p: last for p, last in full.items() if len(found) < limit or last < found[-1][0]}
        return [(name.decode(), p) for name, p in found]

    async def domain_count(self) -> int:
        """How many domains the crawl has found."""
        return sum(await self.domain_counts(range(self._partitions)))

    async def domain_counts(self, partitions: Iterable[int]) -> list[int]:
        """How many domains were found, for each of the given partitions."""
        found = await self._engine.commands([("HGET", self._keys.meta(p), "queues") for p in partitions])
        return [int(count or 0) for count in found]

    async def pending_counts(self, partitions: Iterable[int]) -> list[int]:
        """How many URLs are pending, for each of the given partitions."""
        found = await self._engine.commands([("HMGET", self._keys.meta(p), "added", "done") for p in partitions])
        return [int(added or 0) - int(done or 0) for added, done in found]

    async def domains(self, wanted: list[tuple[str, int]]) -> list[DomainStats]:
        """Statistics of the given (domain, partition) pairs."""
        partitions = list(dict.fromkeys(p for _, p in wanted))
        fields = ("clock", "node", "epoch", "session")
        raw = await self._engine.commands([("HMGET", self._keys.meta(p), *fields) for p in partitions])
        metas, records = dict(zip(partitions, raw, strict=True)), await self.records(wanted)
        return [_domain_stats(domain, p, known, metas[p]) for (domain, p), known in zip(wanted, records, strict=True)]

    async def records(self, wanted: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
        """What the engine has of the given (domain, partition) pairs, as `unpack_queue` returns it."""
        places: dict[int, list[int]] = {}
        for place, (_, partition) in enumerate(wanted):
            places.setdefault(partition, []).append(place)
        batches = [(p, mine[i : i + READ_MAX]) for p, mine in places.items() for i in range(0, len(mine), READ_MAX)]
        calls = [
            Call("read_queues", (self._keys.meta(p),), ("queues", *(wanted[place][0] for place in batch)))
            for p, batch in batches
        ]
        found: list[dict[str, Any]] = [{}] * len(wanted)
        for (_, batch), packed in zip(batches, await self._engine.run_all(calls), strict=True):
            for place, record in zip(batch, packed, strict=True):
                found[place] = unpack_queue(record)
        return found


async def first_visible_at(engine: Engine, keys: Keys, partitions: Sequence[int]) -> float | None:
    """When the first scheduled URL of these partitions becomes visible (wall clock, s); None when there is none."""
    firsts = await engine.commands([("ZRANGE", keys.of(p, "at"), 0, 0, "WITHSCORES") for p in partitions])
    return min((float(first[1]) / 1000 for first in firsts if first), default=None)


def _example(name: str, some: Sequence[bytes]) -> str:
    """One of a reason among some dead letters (fingerprints and letters in turn), or some rows of deferred URLs."""
    if name.startswith(DEAD):
        letters = [unpack_letter(stored) for stored in some[1::2]]
        return next((one.url for one in letters if one.reason == name.removeprefix(DEAD)), "")
    rows = [row.decode().partition("|") for row in some]
    reason = name.removeprefix(DEFERRED)
    return next((queue for queue, _, of in rows if of == reason or of.startswith(f"{reason}:")), "")


def _counters(flat: object) -> dict[str, int]:
    return {name: int(value) for key, value in pairs_of(flat) if (name := _counter(key))}


@lru_cache(maxsize=4096)  # most partitions have the same
def _counter(field: bytes) -> str:
    """The name of a total; "" for other fields of the meta hash."""
    name = field.decode()
    is_total = name in TOTAL_FIELDS or name.startswith(("e:", DEAD, REFUSED, DEFERRED, LOST, HANDLED, SAID))
    return name if is_total else ""


def _by(sums: Mapping[str, int], prefix: str) -> dict[str, int]:
    """Fields with a prefix; 's' means the status classes s1 to s5 only."""
    if prefix == "s":
        return {
            name[1]: n for name, n in sums.items() if len(name) == 2 and name[0] == "s" and name[1] in "12345" and n
        }
    return {name.removeprefix(prefix): n for name, n in sums.items() if name.startswith(prefix) and n}


_WAITING = {"claimed": "out", "retrying": "retrying", "scheduled": "at", "set_aside": "aside"}  # beside the queue


def _domain_stats(domain: str, partition: int, known: Mapping[str, Any], meta: list[bytes]) -> DomainStats:
    sums, stop = {name: value for name, value in known.items() if name not in _TEXTS}, known.get("stop", "")
    queued = sums.get("n", 0) if stop in ("", PAUSED) else 0
    waiting = {"queued": queued, **{name: sums.get(field, 0) for name, field in _WAITING.items()}}
    return DomainStats(
        domain=domain, partition=partition, stop=stop, **waiting, pending=sum(waiting.values()),
        fetched=sum(_by(sums, "s").values()), bytes=sums.get("bytes", 0),
        retries=sums.get("retries", 0), dead=sums.get("dead", 0), fetch_ms=sums.get("fetch_ms", 0),
        items=sums.get("items", 0), items_invalid=sums.get("items_invalid", 0),
        requisites=sums.get("s9", 0), requisite_bytes=sums.get("requisite_bytes", 0),
        status=_by(sums, "s"), errors=_by(sums, "e:"), refused=_by(sums, REFUSED),
        delay_ms=sums.get("delay", -1), next_fetch_in_ms=max(0, sums.get("next", 0) - int(meta[0] or 0)),
        owner=(meta[1] or b"").decode() if meta[3] else "", epoch=int(meta[2] or 0),
    )  # fmt: skip
