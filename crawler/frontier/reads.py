"""Statistics from the counters of the scripts: totals and per domain. Work is bounded by what is shown."""

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import msgspec
from msgspec.structs import replace

from crawler.engine.client import Call, Engine
from crawler.frontier.arguments import LocateArgs, NamesArgs, UrlStatesArgs
from crawler.frontier.codec import (
    DeadLetter,
    PendingUrl,
    pairs_of,
    unpack_letter,
    unpack_log,
    unpack_queue,
)
from crawler.frontier.record import Keys
from crawler.frontier.waiting import PAUSED, BlockFiles, PendingUrls
from crawler.model import Candidate, CommitEntry, RefusalReason
from crawler.rules.jobs import name_of
from crawler.rules.urls import Fingerprints

TOTAL_FIELDS = (
    "added", "done", "spilled", "spilled_parked", "bytes", "retries", "dead", "expired", "parked", "released", "beyond",
    "revived", "s0", "s1", "s2", "s3", "s4", "s5", "items", "items_invalid", "unchanged", "scheduled",
    "run_fetched", "run_bytes", "run_urls",
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
# Of LOST; behind the first one follows a value of WARC-Truncated.
CUT_BODY, LINKS, NOT_DECODED, OF_SITEMAP = "body:", "links", "decode_error", "sitemap"
SEED_LED_AWAY, SCRIPTED = "seed_redirect", "scripts"
# Values of a queue's record that are not numbers.
_TEXTS = frozenset({"borrower", "waiter", "domain", "stop", "users", "turns"})


def lost_of(*, truncated: str, decode_error: str) -> str:
    """The reason, of LOST, for which a part of a committed page may be missing; "": none. A page counts once."""
    return f"{CUT_BODY}{truncated}" if truncated else NOT_DECODED if decode_error else ""


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
    beyond: int = 0  # deferred by the crawl's quota of URLs
    taken_in: int = 0  # URLs that were found and are not deferred
    run_fetched: int = 0  # by runs of jobs; the next two, too
    run_bytes: int = 0
    run_urls: int = 0
    items: int = 0
    items_invalid: int = 0  # left out: the handler yielded an invalid item
    unchanged: int = 0  # of the fetched ones: as an earlier run of their job had archived them
    sitemaps: int = 0  # committed; they are not in `fetched`
    status: Mapping[str, int] = msgspec.field(default_factory=dict)
    errors: Mapping[str, int] = msgspec.field(default_factory=dict)
    refused: Mapping[str, int] = msgspec.field(default_factory=dict)
    dead_by: Mapping[str, int] = msgspec.field(default_factory=dict)  # dead letters by reason
    deferred_by: Mapping[str, int] = msgspec.field(default_factory=dict)
    lost: Mapping[str, int] = msgspec.field(default_factory=dict)  # parts of committed pages, by reason
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
        return self.taken_in - self.run_urls


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
            expired=sums["expired"], deferred=sums["parked"] - sums["released"],
            spilled_deferred=sums["spilled_parked"], beyond=sums["beyond"],
            taken_in=sums["added"] - sums["revived"] - sums["parked"],
            run_fetched=sums["run_fetched"], run_bytes=sums["run_bytes"], run_urls=sums["run_urls"],
            items=sums["items"], items_invalid=sums["items_invalid"], unchanged=sums[UNCHANGED], sitemaps=sums["s0"],
            fetched=sum(_by(sums, "s").values()), status=_by(sums, "s"),
            errors=_by(sums, "e:"), refused=_by(sums, REFUSED),
            dead_by=_by(sums, DEAD), deferred_by=_by(sums, DEFERRED), lost=_by(sums, LOST),
            handled=_by(sums, HANDLED),
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
            else ("HRANDFIELD", self._keys.of(where[name], "parks"), LOOKED_AT)
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
    is_total = name in TOTAL_FIELDS or name.startswith(("e:", DEAD, REFUSED, DEFERRED, LOST, HANDLED))
    return name if is_total else ""


def _by(sums: Mapping[str, int], prefix: str) -> dict[str, int]:
    """Fields with a prefix; 's' means the status classes s1 to s5 only."""
    if prefix == "s":
        return {name[1]: n for name, n in sums.items() if len(name) == 2 and name[0] == "s" and name[1] != "0" and n}
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
        status=_by(sums, "s"), errors=_by(sums, "e:"), refused=_by(sums, REFUSED),
        delay_ms=sums.get("delay", -1), next_fetch_in_ms=max(0, sums.get("next", 0) - int(meta[0] or 0)),
        owner=(meta[1] or b"").decode() if meta[3] else "", epoch=int(meta[2] or 0),
    )  # fmt: skip


# Read-only queries for people: where a URL is, the progress of a crawl, some dead letters.
#
# The work is bounded by the number of partitions, by what is shown, or by the queue of the one URL.


FULL_LOOK_EVERY = 10
_PROGRESS = ("added", "done", "bytes", "retries", "dead", "s1", "s2", "s3", "s4", "s5", "scheduled")


class UrlLocation(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a partition knows about one URL. Times in ms on the partition's clock; None for missing values."""

    seen: bool
    record: PendingUrl | None  # if pending: queued, claimed, waiting for a retry, or scheduled
    claim_deadline_ms: int | None
    retry_at_ms: int | None
    visible_at: float | None = None  # if it is scheduled: wall clock, s
    probe_ms: int | None = None  # if it is set aside: when its origin is probed next
    silent_ms: int | None = None  # and since when it has been silent, if it is known to be
    place: int | None  # in its queue, 0 is the front
    letter: DeadLetter | None
    entry: CommitEntry | None  # committed, and not yet in an index segment
    clock_ms: int
    session: str
    node: str
    epoch: int
    next_fetch_ms: int
    delay_ms: int | None
    claims_out: int
    stop: str = ""  # why nothing of its queue is handed out
    deferred: str = ""  # why it is deferred, if it is


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over all partitions. `redirected` counts responses of 3xx. `busy`: the partitions that have pending URLs."""

    added: int = 0
    done: int = 0
    fetched: int = 0
    redirected: int = 0
    client_errors: int = 0  # 4xx
    server_errors: int = 0  # 5xx
    bytes: int = 0
    retries: int = 0
    dead: int = 0
    scheduled: int = 0  # pending ones that become visible later
    first_visible_at: float | None = None  # the first of these; wall clock, s
    busy: int = 0

    @property
    def pending(self) -> int:
        return self.added - self.done

    @property
    def failed(self) -> int:
        """Responses of 4xx and 5xx."""
        return self.client_errors + self.server_errors

    @property
    def failures(self) -> int:
        """Attempts that brought no response, and URLs that were given up for another reason."""
        return self.retries + self.dead


class UrlLookup:
    """Queries of one crawl."""

    def __init__(self, engine: Engine, keys: Keys, partitions: int, files: BlockFiles | None = None) -> None:
        self._engine = engine
        self._keys = keys
        self._partitions = partitions
        self._pending = PendingUrls(engine, keys, files)
        self._used: list[int] = []
        self._looks = 0

    async def locate(self, candidate: Candidate, *, run: int = 0, visit: int = 1) -> UrlLocation:
        """Everything about one URL; `run`: that of the crawl, unless the candidate has one of a job.

        Its queue is read block by block, so a URL that moves meanwhile may be missed.
        """
        c, pending = candidate, self._pending
        raw = await self._engine.run(
            "locate", (self._keys.meta(c.partition),), *LocateArgs(c.run or run, c.fingerprint, visit, c.queue)
        )
        place = await pending.place(c.partition, c.queue, c.url, run=c.run, now_s=c.found_at)
        if place is not None:
            return _location(raw, place[1], place=place[0])
        found = await pending.delivered(c.partition, c.url, c.run)
        if found is None:
            return await self._waiting(candidate, raw)
        key = partial(self._keys.of, c.partition)
        deadline, retried = await self._engine.commands([("ZSCORE", key(name), found.name) for name in ("x", "r")])
        return _location(raw, found.url, deadline=deadline, retry_at=retried)

    async def _waiting(self, c: Candidate, raw: list[bytes]) -> UrlLocation:
        """A URL that is neither queued nor claimed: it may be scheduled or deferred."""
        where = _location(raw)
        if not where.seen:
            return where
        known = unpack_queue(raw[-1])
        if known.get("aside") and (
            aside := await self._pending.set_aside(c.partition, c.queue, c.url, c.run, c.found_at)
        ):
            return replace(where, record=aside.url, probe_ms=aside.due_ms, silent_ms=aside.since_ms)
        if known.get("at") and (found := await self._pending.scheduled_one(c.partition, c.url)):
            return replace(where, record=found.url, visible_at=found.visible_at)
        return replace(where, deferred=await self._deferred(c))

    async def _deferred(self, c: Candidate) -> str:
        """The reason of the row that a deferred URL is in, or ""."""
        key = self._keys.of(c.partition, "parks")
        for row in await self._engine.command("HKEYS", key):
            queue, _, reason = row.decode().partition("|")
            if queue == c.queue and await self._pending.place(c.partition, queue, c.url, reason, now_s=c.found_at):
                return str(reason)
        return ""

    async def progress(self) -> Progress:
        """One pass over the counters of the partitions in use; every tenth time over all partitions.

        May run several times at once: until a pass over all has ended, each is one.
        """
        is_full = not self._used or self._looks % FULL_LOOK_EVERY == 0
        partitions = list(range(self._partitions)) if is_full else self._used
        self._looks += 1
        sums = [0] * len(_PROGRESS)
        found = await self._engine.commands([("HMGET", self._keys.meta(p), *_PROGRESS) for p in partitions])
        if is_full:
            self._used = [p for p, values in zip(partitions, found, strict=True) if values[0] is not None]
        for values in found:
            if values[0] is not None:
                sums = [total + int(value or 0) for total, value in zip(sums, values, strict=True)]
        holders = [p for p, values in zip(partitions, found, strict=True) if int(values[-1] or 0)]
        busy = sum(1 for values in found if int(values[0] or 0) > int(values[1] or 0))
        n = dict(zip(_PROGRESS, sums, strict=True))
        return Progress(
            added=n["added"], done=n["done"], fetched=sum(n[f"s{c}"] for c in range(1, 6)), redirected=n["s3"],
            client_errors=n["s4"], server_errors=n["s5"], bytes=n["bytes"], retries=n["retries"], dead=n["dead"],
            scheduled=n["scheduled"], first_visible_at=await first_visible_at(self._engine, self._keys, holders),
            busy=busy,
        )  # fmt: skip

    async def dead_letters(self, limit: int) -> list[DeadLetter]:
        """Some of the URLs that were given up, at most `limit`; seeds first."""
        sizes = await self._engine.commands([("HLEN", self._keys.of(p, "dead")) for p in range(self._partitions)])
        holders = [p for p, n in enumerate(sizes) if n][:limit]
        commands = [("HRANDFIELD", self._keys.of(p, "dead"), limit, "WITHVALUES") for p in holders]
        found = [unpack_letter(blob) for flat in await self._engine.commands(commands) for blob in flat[1::2]]
        return sorted(found, key=lambda letter: (not letter.seed, letter.failed_at))[:limit]


def _location(
    raw: list[bytes],
    record: PendingUrl | None = None,
    *,
    place: int | None = None,
    deadline: bytes | float | None = None,
    retry_at: bytes | float | None = None,
) -> UrlLocation:
    seen, letter, entry, clock, session, node, epoch, queue = raw
    known = unpack_queue(queue)
    stop = known.get("stop", "")
    return UrlLocation(
        seen=seen == b"1",
        record=record,
        claim_deadline_ms=None if deadline is None else int(float(deadline)),
        retry_at_ms=None if retry_at is None else int(float(retry_at)),
        place=place,
        letter=unpack_letter(letter) if letter else None,
        entry=unpack_log(entry)[1] if entry else None,
        clock_ms=_ms(clock),
        session=session.decode(),
        node=node.decode(),
        epoch=int(epoch or 0),
        next_fetch_ms=known.get("next", 0),
        delay_ms=known["delay"] if known.get("delay", -1) >= 0 else None,
        claims_out=known.get("out", 0),
        stop=stop,
        deferred=stop if place is not None and stop != PAUSED else "",
    )


def _ms(text: bytes) -> int:
    return int(float(text or 0))


# Bulk queries for audits: the states of very many URLs, and recounts of partitions. Reads only.

STATES_MAX = 256  # URLs per call: well below a millisecond of the engine
# Reasons that count links that never became URLs of the crawl; all others end a URL.
_NEVER_ADDED = frozenset({RefusalReason.SCOPE, RefusalReason.DEPTH, RefusalReason.REDIRECTS, RefusalReason.RUN_URLS})
# At least one of these counters of a partition changes whenever a URL is added, ends, or moves.
MOVING = (b"added", b"done", b"dead", b"parked", b"released", b"request", b"moves", b"dropped")
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
    deferred: int  # how often a URL was deferred, which counts as done
    released: int  # how often a URL was released, which counts as added again
    parks: int  # URLs that are deferred now
    refused: int  # URLs ended as refused; links that were never added are not among them
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

    async def of(self, run: int | str, wanted: Mapping[int, Sequence[str]], *, visit: int = 1) -> dict[str, UrlState]:
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
        dead, log_entries, parks, flat = await self._engine.commands(
            [("HLEN", key("dead")), ("HLEN", key("l")), ("HGETALL", key("parks")), ("HGETALL", meta)]
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
            committed=sum(counters.get(f"s{status}", 0) for status in range(6)),  # 0: sitemaps
            run_pages=counters.get("run_pages", 0),
            dead_counter=counters.get("dead", 0),
            dead=dead,
            revived=counters.get("revived", 0),
            deferred=counters.get("parked", 0),
            released=counters.get("released", 0),
            parks=sum(int(n) for _, n in pairs_of(parks)),
            refused=sum(counters[name] for name in ended),
            log_entries=log_entries,
            runs=tuple(run.decode() for run in sets if name_of(run.decode())),
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
