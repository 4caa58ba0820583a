"""Raised budgets: restarts queues that a smaller budget stopped, and releases the URLs that it deferred; and those that
waited for private addresses to be allowed.

Runs when an instance starts and for each partition that it acquires. Needs no lease. Each call may be repeated, and
does nothing where no budget has room.
"""

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

from crawler.errors import ArchiveError, EngineError
from crawler.frontier.deferred import (
    ALLOW_PRIVATE,
    BLOCKED,
    DEPTH,
    HOSTS,
    REQUISITES,
    ChangeKind,
    DeferredRow,
    DeferredUrls,
    QueueChange,
)
from crawler.frontier.messages import FetchBudget
from crawler.frontier.owner import Frontier
from crawler.frontier.pending import PendingUrls
from crawler.instance.deferred_share import PARTITIONS_MAX
from crawler.membership.held import HeldPartitions
from crawler.rules.places import label_of
from crawler.rules.remaining import is_left, is_within, room_of
from crawler.rules.urls import host_of
from crawler.runtime.tasks import Gate, open_gate
from crawler.runtime.ticks import tick
from crawler.settings import BudgetSettings

log = logging.getLogger(__name__)


RECORDS_MAX = 64  # a call


URLS = "urls"
ANY_NUMBER = 2**31


class RaisedBudgets:
    """Compares the budgets of one instance with the engine's records. Raises EngineError."""

    def __init__(
        self,
        frontier: Frontier,
        deferred_urls: DeferredUrls,
        budget: FetchBudget,
        *,
        allow_private: bool = False,
        requisite_bytes: int = 0,
    ) -> None:
        """`requisite_bytes`: what may be fetched of a queue to show pages; 0: no limit."""
        self._frontier = frontier
        self._deferred_urls = deferred_urls
        self._budget = budget
        self._allow_private = allow_private
        self._requisite_bytes = requisite_bytes

    async def release(self, partitions: Sequence[int]) -> int:
        """Start and release what the budgets allow in these partitions; how many URLs are pending again."""
        urls = 0
        for i in range(0, len(partitions), PARTITIONS_MAX):
            some = partitions[i : i + PARTITIONS_MAX]
            for partition, stops, deferred in await self._deferred_urls.survey(some):
                free = [p for p in deferred if stops.get(p.queue) != BLOCKED]
                urls += await self._start_queues(partition, stops)
                for reason in (URLS, REQUISITES):
                    beyond = {p.queue: p.urls for p in free if p.reason == reason}
                    urls += await self._release_beyond(partition, reason, beyond)
                urls += await self._release_all(self._allowed(free))
                urls += await self._release_by_hosts(partition, {p.queue: p for p in free if p.reason == HOSTS})
        return urls

    async def _start_queues(self, partition: int, stops: dict[str, str]) -> int:
        names = [queue for queue, reason in stops.items() if reason in ("pages", "bytes")]
        overrides = []
        for queue, known in (await self._records(partition, names)).items():
            if self._has_room(stops[queue], known):
                overrides.append(QueueChange(queue, ChangeKind.START, stops[queue]))
        return sum(await self._deferred_urls.change_queues(partition, overrides))

    def _has_room(self, reason: str, known: dict[str, Any]) -> bool:
        if reason == "bytes":
            return is_left(known.get("bytes", 0) - known.get("run_bytes", 0), self._budget.bytes)
        pages = sum(known.get(f"s{status}", 0) for status in range(1, 6)) - known.get("run_fetched", 0)
        return is_left(pages, self._budget.pages)

    async def _release_beyond(self, partition: int, reason: str, rows: dict[str, int]) -> int:
        """Release what the budget of URLs, or of requisites, admits now. `rows`: queue -> URLs beyond it."""
        add_budget, released = self._frontier.add_budget, 0
        budget = add_budget.urls if reason == URLS else add_budget.requisites
        for queue, known in (await self._records(partition, list(rows))).items():
            if reason == URLS:
                met = known.get("urls", 0) - known.get("run_urls", 0) - known.get("requisites", 0)
            elif is_left(known.get("requisite_bytes", 0), self._requisite_bytes):
                met = known.get("requisites", 0)
            else:
                continue
            n = room_of(met=met, deferred=rows[queue], budget=budget)
            upto = budget or (-1 if reason == URLS else ANY_NUMBER)  # -1 is for people: the bytes would not count then
            try:
                released += await self._deferred_urls.release(partition, queue, reason, n, upto=upto)
            except ArchiveError as error:  # the rest stays deferred
                log.warning("budget.unreadable", extra={"queue": queue, "error": str(error)})
        return released

    def _allowed(self, deferred: Sequence[DeferredRow]) -> list[DeferredRow]:
        """What is not too deep any more, or may be connected to now."""
        near = [p for p in deferred if p.kind == DEPTH and is_within(p.depth, self._budget.depth)]
        return near + [p for p in deferred if p.reason == ALLOW_PRIVATE and self._allow_private]

    async def _release_all(self, rows: Sequence[DeferredRow]) -> int:
        return sum([await self._deferred_urls.release(p.partition, p.queue, p.reason, p.urls) for p in rows])

    async def _release_by_hosts(self, partition: int, rows: dict[str, DeferredRow]) -> int:
        """Release URLs of hosts beyond a domain's budget of hosts, for as many hosts as it admits now."""
        add_budget = self._frontier.add_budget
        known = await self._records(partition, list(rows))
        domains = {queue: record.get("domain", queue) for queue, record in known.items()}
        admitted = 0
        for (queue, domain), taken in zip(
            domains.items(), await self._deferred_urls.hosts(partition, list(domains.values())), strict=True
        ):
            if not add_budget.hosts:
                admitted += await self._deferred_urls.release(partition, queue, HOSTS, rows[queue].urls)
            elif taken < add_budget.hosts:
                admitted += await self._release_row(partition, queue, domain, taken)
        return admitted

    async def _release_row(self, partition: int, queue: str, domain: str, taken: int) -> int:
        """Scan the whole row, which is not sorted by host; the hosts of its best URLs are admitted first.

        Scan again after some have left it, because its blocks move up then.
        """
        admitted, more = 0, set[str]()
        while some := await self._scan_row(partition, queue, domain, taken, more):
            admitted += some
        return admitted

    async def _scan_row(self, partition: int, queue: str, domain: str, taken: int, more: set[str]) -> int:
        """`taken`: hosts of the domain when the row was first read; `more`: those that it admits now."""
        hosts_max, admitted = self._frontier.add_budget.hosts, 0
        pending = PendingUrls(self._frontier.engine, self._frontier.keys)
        async for some in pending.row(partition, queue, HOSTS):
            urls = []
            labels = sorted({label_of(domain, host_of(found.url.url)) for found in some} - more)
            known = await self._deferred_urls.hosts_taken(partition, domain, labels)
            for found in some:
                host = host_of(found.url.url)
                label = label_of(domain, host)
                if label not in known and taken + len(more) < hosts_max:
                    more.add(label)
                if label in known or label in more:
                    urls.append((found.block, found.name, host))
            admitted += await self._deferred_urls.admit(partition, queue, domain, hosts_max, urls)
        return admitted

    async def _records(self, partition: int, queues: Sequence[str]) -> dict[str, dict[str, Any]]:
        found = dict[str, dict[str, Any]]()
        for i in range(0, len(queues), RECORDS_MAX):
            found.update(await self._deferred_urls.records(partition, queues[i : i + RECORDS_MAX]))
        return found


EVERY_S = 1.0


class RaisedBudgetsWatcher:
    """Applies raised budgets next to the pipeline; a crawl that had finished continues with what `prepare` releases."""

    def __init__(
        self,
        frontier: Frontier,
        deferred_urls: DeferredUrls,
        held: HeldPartitions,
        settings: BudgetSettings,
        *,
        allow_private: bool,
        requisite_bytes: int,
        wake: Callable[[int], None],
        pause: Gate = open_gate,
    ) -> None:
        """`wake`: called with a partition whose queues may be claimed now. `pause`: awaited before each look."""
        self._gate = pause
        self._raised = RaisedBudgets(
            frontier,
            deferred_urls,
            FetchBudget(pages=settings.pages, bytes=settings.bytes, depth=settings.depth),
            allow_private=allow_private,
            requisite_bytes=requisite_bytes,
        )
        self._held = held
        self._wake = wake
        self._seen: dict[int, int] = {}  # partition -> the epoch under which it was checked
        self._seen_at = -1  # the count of changes by then

    async def prepare(self, partitions: int) -> None:
        """Check the whole crawl before it can be judged finished. Raises EngineError."""
        await self._raised.release(range(partitions))

    async def run(self) -> None:
        """Check each acquired partition: its last owner may have had smaller budgets."""
        while True:
            await tick(EVERY_S)
            await self._gate()
            changes = self._held.changes
            if changes == self._seen_at:
                continue
            fresh = {p: h.epoch for p, h in self._held.items() if self._seen.get(p) != h.epoch}
            with contextlib.suppress(EngineError):
                if await self._raised.release(list(fresh)):
                    for partition in fresh:  # an owner gets no hint of its own releases
                        self._wake(partition)
                self._seen.update(fresh)
                self._seen_at = changes
