"""Operator commands on a crawl: overrides are stored for the instances, and applied to the queues in the engine.

They work whether or not instances run. Every call may be repeated; all raise EngineError, `purge` and `release` also
ArchiveError.
"""

import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from crawler.engine.client import Engine
from crawler.frontier.arguments import PurgeArgs, PurgeItem
from crawler.frontier.codec import PendingUrl, as_queued, listed, pack, pairs_of, parts_of, read_stamp
from crawler.frontier.deferred import BLOCKED, PAUSED, RIGHTS, ChangeKind, DeferredRow, DeferredUrls, QueueChange
from crawler.frontier.keys import Keys
from crawler.frontier.owner import Frontier
from crawler.frontier.pending import DELIVERED, SCHEDULED, Found, PendingUrls
from crawler.frontier.spilling import ID_LENGTH, BlockFiles, NoFiles, Spilling, Stub
from crawler.model import RefusalReason
from crawler.rules.login_pace import LoginRecord
from crawler.rules.places import partition_of, registrable_domain

# An operator's overrides: what is paused or blocked, domains with their own delay or boost, and users' weights.
#
# They are stored in the engine, so they survive instances.

UrlTest = Callable[[str], bool]
WHY_MAX = 300  # characters
EVERYWHERE = "*"  # in place of a domain


class OverrideKind(StrEnum):
    """Kinds of overrides. LEAST is a note for audits: the shortest delay that a domain ever had (ms)."""

    PAUSED = PAUSED
    BLOCKED = BLOCKED
    DELAY = "delay"
    BOOST = "boost"
    LEAST = "least"
    WEIGHT = "weight"  # of a user, not of a domain
    LOGIN = "login"  # why the login failed for which a domain is blocked: a text
    LOGINS = "logins"  # a note of the logins of a domain: a LoginRecord


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """All overrides at one time; delays in ms, boosts from -9 to 9. `version` grows with each change.

    `weights`: of the users that have another one than 1.
    """

    version: int = 0
    paused: frozenset[str] = frozenset()
    blocked: frozenset[str] = frozenset()
    delays_ms: Mapping[str, int] = msgspec.field(default_factory=dict)
    least_ms: Mapping[str, int] = msgspec.field(default_factory=dict)
    boosts: Mapping[str, int] = msgspec.field(default_factory=dict)
    weights: Mapping[str, float] = msgspec.field(default_factory=dict)
    login_failures: Mapping[str, str] = msgspec.field(default_factory=dict)  # of blocked domains
    logins: Mapping[str, LoginRecord] = msgspec.field(default_factory=dict)

    @property
    def is_paused(self) -> bool:
        """Is the whole crawl paused?"""
        return EVERYWHERE in self.paused

    def has(self, domain: str) -> bool:
        """Does any command hold for this domain?"""
        return any(domain in some for some in (self.paused, self.blocked, self.delays_ms, self.boosts))

    def stop_of(self, domain: str) -> str:
        """The reason for which the queues of a domain are stopped, or ""."""
        if domain in self.blocked:
            return BLOCKED
        return PAUSED if domain in self.paused else ""

    def holds_back(self, domain: str) -> bool:
        """Must no request to this domain start?"""
        return self.is_paused or bool(self.stop_of(domain))


class OverrideStore:
    """The overrides of one crawl. Each call is safe to repeat; all raise EngineError."""

    def __init__(self, engine: Engine, keys: Keys) -> None:
        self._engine = engine
        self._keys = keys

    async def read(self) -> Overrides:
        """All overrides; the version is read first, so it is never too new."""
        version, raw = await self._engine.commands(
            [("HGET", self._keys.crawl, "overrides"), ("HGETALL", self._keys.overrides)]
        )
        found: dict[str, dict[str, int]] = {kind: {} for kind in OverrideKind}
        weights: dict[str, float] = {}
        failures: dict[str, str] = {}
        logins: dict[str, LoginRecord] = {}
        for name, value in pairs_of(raw):
            kind, _, domain = name.decode().partition(" ")
            if kind == OverrideKind.WEIGHT:
                weights[domain] = float(value)
            elif kind == OverrideKind.LOGIN:
                failures[domain] = value.decode()
            elif kind == OverrideKind.LOGINS:
                logins[domain] = msgspec.json.decode(value, type=LoginRecord)
            else:
                found[kind][domain] = int(value)
        return Overrides(
            version=int(version or 0),
            paused=frozenset(found[OverrideKind.PAUSED]),
            blocked=frozenset(found[OverrideKind.BLOCKED]),
            delays_ms=found[OverrideKind.DELAY],
            least_ms=found[OverrideKind.LEAST],
            boosts=found[OverrideKind.BOOST],
            weights=weights,
            login_failures=failures,
            logins=logins,
        )

    async def give(self, kind: OverrideKind, domain: str, value: float = 1) -> bool:
        """Set an override; False when it had this value already. Instances read it within a second."""
        before, *_ = await self._engine.commands(
            [
                ("HGET", self._keys.overrides, _name(kind, domain)),
                ("HSET", self._keys.overrides, _name(kind, domain), value),
                ("HINCRBY", self._keys.crawl, "overrides", 1),
            ]
        )
        return before is None or float(before) != value

    async def note_login(self, domain: str, why: str) -> None:
        """Note why the login of a domain failed, which is blocked for that."""
        await self._engine.command("HSET", self._keys.overrides, _name(OverrideKind.LOGIN, domain), why[:WHY_MAX])

    async def login_record(self, domain: str) -> LoginRecord:
        """What is known of the logins of a domain."""
        raw = await self._engine.command("HGET", self._keys.overrides, _name(OverrideKind.LOGINS, domain))
        return msgspec.json.decode(raw, type=LoginRecord) if raw else LoginRecord()

    async def note_logins(self, domain: str, record: LoginRecord) -> None:
        """Note the logins of a domain."""
        name = _name(OverrideKind.LOGINS, domain)
        await self._engine.command("HSET", self._keys.overrides, name, msgspec.json.encode(record))

    async def cancel(self, kind: OverrideKind, domain: str) -> bool:
        """Remove an override; False when there was none."""
        gone, _ = await self._engine.commands(
            [("HDEL", self._keys.overrides, _name(kind, domain)), ("HINCRBY", self._keys.crawl, "overrides", 1)]
        )
        return bool(gone)


def _name(kind: OverrideKind, domain: str) -> str:
    return f"{kind} {domain}"


BY_OPERATOR = (PAUSED, BLOCKED)  # reasons of stops that an operator may end; budgets have others
PURGE_MAX = 128  # URLs a call: a block
LOOKS_MAX = 5  # at a partition, while URLs move
QUEUE = ""  # in place of a row's reason: the queue's own blocks
RETRIES = "*"


class Purged(NamedTuple):
    """How many URLs were dropped, and how many that match were not: they are claimed, or it was a dry run."""

    dropped: int
    left: int


class OperatorCommands:
    """Stores overrides of one crawl and changes its queues. `queue_by`: "domain" or "host"."""

    def __init__(self, frontier: Frontier, partitions: int, *, queue_by: str, files: BlockFiles | None = None) -> None:
        self._frontier = frontier
        self._partitions = partitions
        self._by_domain = queue_by == "domain"
        self._files = files
        self.book = OverrideStore(frontier.engine, frontier.keys)
        self.deferred_urls = DeferredUrls(frontier, partitions, files)

    def partition_of(self, domain: str) -> int:
        """Where a domain's queues are."""
        return partition_of(domain, self._partitions)

    async def carry_out(self, domain: str, queues: Collection[str] = ()) -> int:
        """Stop or start queues of a domain (all known ones, when none are named); how many URLs they have.

        The overrides are read again at the end: of two concurrent calls, the last one sees the last override.
        """
        overrides = await self.book.read()
        partition = self.partition_of(domain)
        known = queues or await self.queues_of(domain)
        while True:
            stop = overrides.stop_of(domain)
            steps = _steps(known, await self.deferred_urls.stops(partition), stop)
            urls = sum(await self.deferred_urls.change_queues(partition, steps))
            overrides = await self.book.read()
            if overrides.stop_of(domain) == stop:
                return urls

    async def delay(self, domain: str, delay_ms: int | None) -> None:
        """Set a domain's delay from now on; None: the one from robots.txt and the settings."""
        if delay_ms is None:
            await self.book.cancel(OverrideKind.DELAY, domain)
        else:
            least_ms = (await self.book.read()).least_ms.get(domain, delay_ms)
            await self.book.give(OverrideKind.LEAST, domain, min(least_ms, delay_ms))
            await self.book.give(OverrideKind.DELAY, domain, delay_ms)
        partition = self.partition_of(domain)
        await self.set_delay(partition, dict.fromkeys(await self.queues_of(domain), -1), delay_ms)

    async def set_delay(self, partition: int, due_ms: Mapping[str, int], delay_ms: int | None) -> None:
        """Apply a delay to these queues of a domain. `due_ms`: see QueueChange."""
        n = -1 if delay_ms is None else delay_ms
        changes = [QueueChange(queue, ChangeKind.DELAY, "", n, at_ms) for queue, at_ms in due_ms.items()]
        await self.deferred_urls.change_queues(partition, changes)

    async def boost(self, domain: str, n: int) -> None:
        """Set a domain's boost: its due queues go before those with a lower one; n from -9 to 9, 0 is the default.

        The overrides are read again at the end, as by `carry_out`.
        """
        if n:
            await self.book.give(OverrideKind.BOOST, domain, n)
        else:
            await self.book.cancel(OverrideKind.BOOST, domain)
        partition, overrides = self.partition_of(domain), await self.book.read()
        while True:
            held = overrides.boosts.get(domain, 0)
            # The domain first, in a call of its own: new hosts follow it.
            await self.deferred_urls.change_queues(partition, [QueueChange(domain, ChangeKind.BOOST, "", held)])
            known = await self.queues_of(domain)
            changes = [QueueChange(queue, ChangeKind.BOOST, "", held) for queue in known]
            await self.deferred_urls.change_queues(partition, changes)
            overrides = await self.book.read()
            if overrides.boosts.get(domain, 0) == held:
                return

    async def purge(self, domain: str) -> int:
        """Drop all waiting and deferred URLs of a domain, but not claimed ones; how many."""
        purge, partition = Purge(self._frontier, self.deferred_urls, self._files), self.partition_of(domain)
        return sum([await purge.purge(partition, queue) for queue in await self.queues_of(domain)])

    async def purge_matching(self, matches: UrlTest, domain: str = "", *, is_dry: bool = False) -> Purged:
        """Drop the waiting and deferred URLs that match, of one domain or of all; or only count them.

        Restartable at any time: what is dropped is gone from its queue, and counted.
        """
        purge = Purge(self._frontier, self.deferred_urls, self._files)
        dropped = left = 0

        def is_meant(url: PendingUrl) -> bool:
            return domain in ("", self._domain_of(url.queue)) and matches(url.url)

        for partition in [self.partition_of(domain)] if domain else range(self._partitions):
            found = await purge.matching(partition, is_meant, is_dry=is_dry)
            dropped, left = dropped + found.dropped, left + found.left
        return Purged(dropped, left)

    async def release(self, domain: str = "", reason: str = "", urls_max: int = 0) -> int:
        """Release at most `urls_max` (0: all) deferred URLs, of one domain and reason or of all; how many.

        Queues that a budget stopped are started. Blocked and paused ones stay so. A release because of rights holds for
        what comes later, too, also where nothing is deferred: runs of jobs defer nothing.
        """
        partitions = [self.partition_of(domain)] if domain else range(self._partitions)
        left = urls_max or sys.maxsize
        for partition in partitions:
            stops = await self.deferred_urls.stops(partition)
            deferred = await self.deferred_urls.of_partition(partition)
            # Stopped queues first: otherwise some URLs would count twice.
            for one in sorted(deferred, key=lambda one: stops.get(one.queue) != one.reason):
                if reason in ("", one.reason, one.kind) and domain in ("", self._domain_of(one.queue)) and left > 0:
                    left -= await self._release(one, stops.get(one.queue, ""), left)
        if domain and reason == RIGHTS:
            freed = [QueueChange(queue, ChangeKind.RELEASE, RIGHTS) for queue in await self.queues_of(domain)]
            await self.deferred_urls.change_queues(self.partition_of(domain), freed)
        return (urls_max or sys.maxsize) - left

    async def _release(self, one: DeferredRow, stop: str, n: int) -> int:
        if stop in BY_OPERATOR:
            return 0
        if one.reason == stop:
            (started,) = await self.deferred_urls.change_queues(
                one.partition, [QueueChange(one.queue, ChangeKind.START, stop)]
            )
            return started
        return await self.deferred_urls.release(one.partition, one.queue, one.reason, min(one.urls, n))

    def _domain_of(self, queue: str) -> str:
        return queue if self._by_domain else registrable_domain(queue)

    async def queues_of(self, domain: str) -> list[str]:
        """The queues of a domain; with queues by host those that have URLs or are stopped."""
        if self._by_domain:
            return [domain]
        partition = self.partition_of(domain)
        names = await PendingUrls(self._frontier.engine, self._frontier.keys).queues(partition)
        rows = await self.deferred_urls.of_partition(partition)
        names |= {*(await self.deferred_urls.stops(partition)), *(p.queue for p in rows)}
        return sorted({queue for queue in names if self._domain_of(queue) == domain} | {domain})

    async def overrides(self) -> Overrides:
        """The current overrides."""
        return await self.book.read()


def _steps(queues: Iterable[str], stops: dict[str, str], wanted: str) -> list[QueueChange]:
    """The changes that give queues the wanted stop. A pause does not change a queue whose quota is used up."""
    steps = []
    for queue in queues:
        has = stops.get(queue, "")
        if wanted == BLOCKED or (wanted and has in ("", *BY_OPERATOR)):
            steps.append(QueueChange(queue, ChangeKind.STOP, wanted))
        elif not wanted and has in BY_OPERATOR:
            steps.append(QueueChange(queue, ChangeKind.START, has))
    return steps


class Purge:
    """Drops the waiting or deferred URLs of a queue, or those of a partition that match, in bounded calls.

    Of a queue it reads and drops the best block until there is none; a block in a file is brought back first. Needs no
    lease, and may run while others claim. Raises EngineError, and ArchiveError without files.
    """

    def __init__(self, frontier: Frontier, deferred_urls: DeferredUrls, files: BlockFiles | None = None) -> None:
        self._frontier = frontier
        self._deferred_urls = deferred_urls
        self._files = files or NoFiles()
        self._spilling = Spilling(frontier.engine, frontier.keys, default_delay_ms=frontier.default_delay_ms)

    async def purge(self, partition: int, queue: str) -> int:
        """Drop all URLs of a queue except claimed ones: they count as refused, and stay seen. How many."""
        rows = {one.reason for one in await self._deferred_urls.of_queue(partition, queue)}
        pending = PendingUrls(self._frontier.engine, self._frontier.keys)
        dropped = await self._single(partition, queue, RETRIES, pending.deliveries(partition))
        dropped += await self._single(partition, queue, SCHEDULED, pending.scheduled(partition))
        rows |= {row.partition("|")[2] for row in await pending.rows_of(partition, queue)} - {QUEUE}
        for reason in (QUEUE, *sorted(rows)):
            dropped += await self._row(partition, queue, reason)
        return dropped

    async def matching(self, partition: int, matches: Callable[[PendingUrl], bool], *, is_dry: bool = False) -> Purged:
        """Drop the waiting and deferred URLs of a partition that match; or only count them. A block in a file is
        brought back first, if it has one. What moves while it is read is looked for again.
        """
        dropped = left = 0
        for _ in range(LOOKS_MAX):
            retried = moved = 0
            tokens = set[str]()
            async for row, block, some in self._found(partition, matches):
                gone = 0 if is_dry else await self._drop(partition, row, block, some)
                if row == DELIVERED:
                    tokens.update(one.name for one in some)  # which may be read twice
                    retried += gone
                else:
                    moved += len(some) - gone
                dropped += gone
            left = len(tokens) - retried + moved
            if is_dry or not moved:
                break
        return Purged(dropped, left)

    async def _found(
        self, partition: int, matches: Callable[[PendingUrl], bool]
    ) -> AsyncIterator[tuple[str, str, list[Found]]]:
        """Row, block, and those in it that match. In place of a row also DELIVERED and SCHEDULED."""
        pending = PendingUrls(self._frontier.engine, self._frontier.keys, self._files)
        for reading in (pending.read, pending.deferred):
            async for some in reading(partition):
                by_place: dict[tuple[str, str], list[Found]] = {}
                for one in some:
                    if matches(one.url):
                        row = one.block if one.block in (DELIVERED, SCHEDULED) else one.row
                        by_place.setdefault((row, one.block), []).append(one)
                for (row, block), found in by_place.items():
                    yield row, block, found

    async def _drop(self, partition: int, row: str, block: str, some: Sequence[Found]) -> int:
        if Stub.of(block) and row not in (DELIVERED, SCHEDULED):
            await self._spilling.bring_back(partition, row, block, self._files)
        reason = {DELIVERED: RETRIES, SCHEDULED: SCHEDULED}.get(row, row.partition("|")[2])
        by_queue: dict[str, list[Found]] = {}
        for one in some:
            by_queue.setdefault(one.url.queue, []).append(one)
        dropped = 0
        for queue, found in by_queue.items():
            items = [self._item(one, block[:ID_LENGTH]) for one in found]
            for start in range(0, len(items), PURGE_MAX):
                dropped += await self._call(partition, queue, reason, items[start : start + PURGE_MAX])
        return dropped

    def _item(self, one: Found, block: str) -> tuple[str, str, int | str, str]:
        url = one.url
        return url.fingerprint(self._frontier.fingerprints), one.name, url.run or url.seed_number, block

    async def _row(self, partition: int, queue: str, reason: str) -> int:
        f, dropped = self._frontier, 0
        row = f"{queue}|{reason}" if reason else queue
        head = f.keys.of(partition, f"q:{row}")
        while True:
            members = await f.engine.command("ZRANGE", head, 0, PURGE_MAX - 1)
            if not members:
                if await self._spilling.bring_back_next(partition, row, self._files):
                    continue
                return dropped
            raw = await f.engine.command("HGETALL", f.keys.of(partition, f"g:{queue}"))
            origins = {letter.decode(): origin.decode() for letter, origin in pairs_of(raw) if len(letter) == 1}
            items = []
            for text in (member.decode() for member in members):
                member, *_ = as_queued(row, text, 0)
                url, stamp = parts_of(member, queue, listed(member, origins))
                known = read_stamp(stamp, 0.0)
                fp = f.fingerprints.of_run(known.run).of(url, known.request, known.label)
                items.append((fp, text, known.run or known.seed_number))
            dropped += await self._call(partition, queue, reason, items)

    async def _single(self, partition: int, queue: str, kind: str, found: AsyncIterator[list[Found]]) -> int:
        """Drop those of a kind that are stored one by one among URLs of other queues."""
        f, dropped = self._frontier, 0
        async for some in found:
            items = [
                PurgeItem(one.url.fingerprint(f.fingerprints), one.name, one.url.run or one.url.seed_number)
                for one in some
                if one.url.queue == queue
            ]
            for start in range(0, len(items), PURGE_MAX):
                dropped += await self._call(partition, queue, kind, items[start : start + PURGE_MAX])
        return dropped

    async def _call(self, partition: int, queue: str, reason: str, items: Sequence[tuple[Any, ...]]) -> int:
        f = self._frontier
        args = PurgeArgs(RefusalReason.PURGED.value, queue, reason, pack(items))
        return int(await f.engine.run("purge", (f.keys.meta(partition),), *args))
