"""Operator commands on a crawl: overrides are stored for the instances, and applied to the queues in the engine.

They work whether or not instances run. Every call may be repeated; all raise EngineError, `purge` and `release` also
ArchiveError.
"""

import sys
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence

from crawler.frontier.codec import as_queued, listed, pack, pairs_of, parts_of, read_stamp
from crawler.frontier.deferred import BLOCKED, PAUSED, ChangeKind, DeferredRow, DeferredUrls, QueueChange
from crawler.frontier.frontier import Frontier
from crawler.frontier.overrides import OverrideKind, Overrides, OverrideStore
from crawler.frontier.pending import SCHEDULED, Found, PendingUrls
from crawler.frontier.spill import BlockFiles, NoFiles, Spilling
from crawler.model import RefusalReason
from crawler.rules.urls import partition_of, registrable_domain

BY_OPERATOR = (PAUSED, BLOCKED)  # reasons of stops that an operator may end; quotas have others
PURGE_MAX = 128  # URLs a call: a block
QUEUE = ""  # in place of a row's reason: the queue's own blocks
RETRIES = "*"


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

    async def release(self, domain: str = "", reason: str = "", urls_max: int = 0) -> int:
        """Release at most `urls_max` (0: all) deferred URLs, of one domain and reason or of all; how many.

        Queues that a quota stopped are started. Blocked and paused ones stay so.
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
        parks = await self.deferred_urls.of_partition(partition)
        names |= {*(await self.deferred_urls.stops(partition)), *(p.queue for p in parks)}
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
    """Drops the waiting or deferred URLs of a queue, in bounded calls.

    It reads and drops the best block of the queue until there is none; a block in a file is brought back first. Needs
    no lease, and may run while others claim. Raises EngineError, and ArchiveError without files.
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
                fp = f.fingerprints.of_run(known.run).of(url)
                items.append((fp, text, known.run or known.seed_number))
            dropped += await self._call(partition, queue, reason, items)

    async def _single(self, partition: int, queue: str, kind: str, found: AsyncIterator[list[Found]]) -> int:
        """Drop those of a kind that are stored one by one among URLs of other queues."""
        f, dropped = self._frontier, 0
        async for some in found:
            items = [
                (f.fingerprints.of_run(one.url.run).of(one.url.url), one.name, one.url.run or one.url.seed_number)
                for one in some
                if one.url.queue == queue
            ]
            for start in range(0, len(items), PURGE_MAX):
                dropped += await self._call(partition, queue, kind, items[start : start + PURGE_MAX])
        return dropped

    async def _call(self, partition: int, queue: str, reason: str, items: Sequence[tuple[str, str, int | str]]) -> int:
        f = self._frontier
        args = (f.run, RefusalReason.PURGED.value, queue, reason, pack(items))
        return int(await f.engine.run("purge", (f.keys.meta(partition),), *args))
