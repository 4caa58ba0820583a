"""Throws away what waits or is parked of a queue, in bounded calls. Must not know who wants that, or why.

The best block of a queue is read and dropped, until there is none: the next one takes its place each time. One that is
in a file is brought back before.
"""

from collections.abc import Sequence

from crawler.frontier.codec import as_queued, listed, pack, pairs_of, parts_of
from crawler.frontier.deferred import DeferredUrls
from crawler.frontier.frontier import Frontier
from crawler.frontier.pending import PendingUrls
from crawler.frontier.spill import BlockFiles, NoFiles, Spilling
from crawler.frontier.stamps import seed_number_of
from crawler.model import RefusalReason

PURGE_MAX = 128  # URLs a call: a block
QUEUE = ""  # in place of a row's reason: the queue's own blocks
RETRIES = "*"


class Purge:
    """Of one crawl; needs no lease, and may run while others claim. Raises EngineError, ArchiveError without files."""

    def __init__(self, frontier: Frontier, deferred_urls: DeferredUrls, files: BlockFiles | None = None) -> None:
        self._frontier = frontier
        self._deferred_urls = deferred_urls
        self._files = files or NoFiles()
        self._spilling = Spilling(frontier.engine, frontier.keys, default_delay_ms=frontier.default_delay_ms)

    async def purge(self, partition: int, queue: str) -> int:
        """Drop all URLs of a queue but those that are claimed: they count as refused, and stay seen. How many."""
        rows = {one.reason for one in await self._deferred_urls.of_queue(partition, queue)}
        dropped = await self._retries(partition, queue)
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
                member, _ = as_queued(row, text, 0)
                url, stamp = parts_of(member, queue, listed(member, origins))
                items.append((f.fingerprints.of(url), text, seed_number_of(stamp)))
            dropped += await self._call(partition, queue, reason, items)

    async def _retries(self, partition: int, queue: str) -> int:
        f, items = self._frontier, list[tuple[str, str, int]]()
        async for some in PendingUrls(f.engine, f.keys).deliveries(partition):
            mine = (d for d in some if d.url.queue == queue)
            items += [(f.fingerprints.of(d.url.url), d.name, d.url.seed_number) for d in mine]
        starts = range(0, len(items), PURGE_MAX)
        return sum([await self._call(partition, queue, RETRIES, items[i : i + PURGE_MAX]) for i in starts])

    async def _call(self, partition: int, queue: str, reason: str, items: Sequence[tuple[str, str, int]]) -> int:
        f = self._frontier
        args = (f.run, RefusalReason.PURGED.value, queue, reason, pack(items))
        return int(await f.engine.run("purge", (f.keys.meta(partition),), *args))
