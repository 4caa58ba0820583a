"""Were two requests to one queue ever closer than its delay? By the web server's log."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import groupby

import msgspec

from crawler.audit.findings import Closest, Report
from crawler.audit.judge_robots import OriginRobots, origins_of
from crawler.audit.ledger import Ledger, LoggedRequest
from crawler.frontier.bulk import BulkLookup
from crawler.frontier.operator import Overrides
from crawler.routing.router import Router
from crawler.rules.pace import delay_ms
from crawler.rules.places import registrable_domain
from crawler.settings import Settings
from crawler.terminal.words import counted

BATCH = 500
COARSE_S = 1.0  # times in whole seconds; finer ones blur a pair by less than is worth telling

Queue = tuple[int, str]  # partition, queue


class Delays(msgspec.Struct, frozen=True):
    """What a queue waits after a request, in ms; `of_host` where the origins ask for different times."""

    default_ms: int
    of_host: dict[str, int] = msgspec.field(default_factory=dict)

    def after(self, request: LoggedRequest) -> int:
        return self.of_host.get(request.host, self.default_ms)


async def judge_politeness(
    ledger: Ledger,
    report: Report,
    states: BulkLookup,
    router: Router,
    settings: Settings,
    late: frozenset[int],
    *,
    overrides: Overrides,
) -> None:
    """Notes each pair that is too close, and the closest pair of all for its delay.

    `orders`: a domain whose delay an operator has ever set is judged by the shortest one that may have held for it.
    `late`: pages whose request was answered when its instance had lost the lease, as the instance said itself.
    """
    delays = StoredDelays(states, router, settings, overrides.least_ms)
    await delays.read([(p, q) for p, q in ledger.db.execute("SELECT DISTINCT partition, queue FROM requests")])
    requests = ledger.requests("ORDER BY partition, queue, started, ended")
    for queue, group in groupby(requests, key=lambda request: (request.partition, request.queue)):
        judge_queue(group, await delays.of(queue), report, late)
    if report.pairs_too_coarse:
        finding, pairs = report.findings.politeness, counted(report.pairs_too_coarse, "pair")
        finding.not_judged(f"{pairs} not judged: times in whole seconds")
    elif report.closest is None:
        report.findings.politeness.not_judged("no two requests to one queue that has a delay")


def judge_queue(
    requests: Iterable[LoggedRequest], delays: Delays, report: Report, late: frozenset[int] = frozenset()
) -> None:
    """The requests of one queue in the order of their start.

    A process that is paused between its last look at the deadline and the write to the socket sends one late request:
    nothing can fence a web server. It is counted apart.
    """
    before: LoggedRequest | None = None
    for request in requests:
        if before is not None and (delay_s := delays.after(before) / 1000):
            pair = Closest(queue=request.queue, gap_s=request.started - before.started, delay_s=delay_s)
            is_late = not late.isdisjoint((before.page, request.page))
            blur_s = max(before.blur, request.blur)
            if blur_s >= COARSE_S and pair.gap_s - blur_s < delay_s <= pair.gap_s + blur_s:
                report.pairs_too_coarse += 1  # it may have been too close, or not
                before = request
                continue
            if pair.gap_s + blur_s < delay_s:
                finding = report.findings.late if is_late else report.findings.politeness
                finding.add(
                    queue=request.queue, gap_s=round(pair.gap_s, 6), delay_s=delay_s,
                    first=before.shown, second=request.shown, at=request.started,
                )  # fmt: skip
            if not is_late and (report.closest is None or pair.share < report.closest.share):
                report.closest = pair
        before = request


class StoredDelays:
    """The delay in force for each queue: as the engine has stored it before the queue's first page was asked for."""

    def __init__(self, states: BulkLookup, router: Router, settings: Settings, ordered_ms: Mapping[str, int]) -> None:
        self._states = states
        self._ordered_ms = ordered_ms  # by domain
        self._router = router
        self._settings = settings
        self._stored: dict[Queue, int | None] = {}
        self._base_ms = int(settings.politeness.delay_s * 1000)
        self._partition = -1
        self._origins: dict[str, list[OriginRobots]] = {}

    async def read(self, queues: list[Queue]) -> None:
        """Read those of all queues; the smallest tells what instances were set to, whatever is set here."""
        for start in range(0, len(queues), BATCH):
            some = queues[start : start + BATCH]
            self._stored.update(zip(some, await self._states.delays(some), strict=True))
        known = [ms for (_, queue), ms in self._stored.items() if ms is not None and self._ordered(queue) is None]
        self._base_ms = min(known, default=self._base_ms)

    async def of(self, queue: Queue) -> Delays:
        """The delays of one queue. Cheapest when asked by partition."""
        stored, ordered_ms = self._stored[queue], self._ordered(queue[1])
        if ordered_ms is not None:
            return Delays(min(self._base_ms, ordered_ms))
        if stored is None:
            return Delays(self._base_ms)
        asked: defaultdict[str, list[float | None]] = defaultdict(list)
        for origin in (await self._origins_of(queue[0])).get(queue[1], []):
            asked[origin.host].append(origin.rules.crawl_delay_s)
        if len({delay for wanted in asked.values() for delay in wanted}) <= 1:
            return Delays(stored)
        # The stored one is that of the origin asked last: each host is judged by what its own robots.txt says.
        of_host = {host: min(map(self._delay_of, wanted)) for host, wanted in asked.items()}
        return Delays(self._base_ms, of_host)

    def _ordered(self, queue: str) -> int | None:
        """The shortest delay that an operator has set, ms."""
        return self._ordered_ms.get(registrable_domain(queue), self._ordered_ms.get(queue))

    def _delay_of(self, crawl_delay_s: float | None) -> int:
        cap_ms = int(self._settings.politeness.delay_max_s * 1000)
        return delay_ms(min_delay_ms=self._base_ms, crawl_delay_s=crawl_delay_s, delay_max_ms=cap_ms)

    async def _origins_of(self, partition: int) -> dict[str, list[OriginRobots]]:
        if partition != self._partition:
            by_queue: defaultdict[str, list[OriginRobots]] = defaultdict(list)
            for origin in await origins_of(self._states, partition):
                by_queue[self._router.placement.of(f"{origin.url}/")[1]].append(origin)
            self._partition, self._origins = partition, by_queue
        return self._origins
