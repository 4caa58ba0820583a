"""CPU of each call of the frontier for a URL, in microseconds: of the engine (its own counters) and of this client.

Starts an embedded engine with its append-only file on; with --redis it uses that engine.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from crawler.frontier.owner import Ack, Settlement
from crawler.model import Candidate, Claim
from scripts.bench_lib import arguments
from scripts.bench_lib.frontier_session import FrontierSession, candidate, claims_in, embedded_engine

PARTITIONS = 64
DOMAINS = 4  # per partition
BATCH = 256
ACKED_AT_ONCE = 64
LINKS, LINKS_SEEN = 50, 40  # of one page, to its own partition

Batch = dict[int, list[Candidate]]


@dataclass
class Cost:
    """What the calls of one kind took."""

    name: str
    urls: int
    engine_s: float
    client_s: float
    wall_s: float
    aof_bytes: int

    def line(self) -> str:
        engine, client, wall = (1e6 * s / self.urls for s in (self.engine_s, self.client_s, self.wall_s))
        aof = self.aof_bytes / self.urls
        return f"{self.name:<34} {self.urls:>8} {engine:>9.2f} {client:>9.2f} {wall:>9.2f} {aof:>8.0f}"


class CostBench:
    """Makes one kind of call at a time and notes its cost."""

    def __init__(self, url: str) -> None:
        self.session = FrontierSession(url, partitions=PARTITIONS, delay_ms=0, crawl=f"bench-{time.time_ns()}")
        self.frontier = self.session.frontier
        self.costs: list[Cost] = []

    async def open(self) -> None:
        await self.session.open()
        for p in range(PARTITIONS):
            for d in range(DOMAINS):
                await self.frontier.book_request(
                    self.session.fence(p), domain_of(p, d), Settlement(next_fetch_ms=0, delay_ms=0)
                )

    @contextlib.asynccontextmanager
    async def measured(self, name: str, urls: int) -> AsyncIterator[None]:
        engine_s, aof = await self.session.engine_cpu_s(), await self._aof_bytes()
        client_s, wall_s = time.process_time(), time.perf_counter()
        yield
        client_s, wall_s = time.process_time() - client_s, time.perf_counter() - wall_s
        engine_s, aof = await self.session.engine_cpu_s() - engine_s, await self._aof_bytes() - aof
        self.costs.append(Cost(name, urls, engine_s, client_s, wall_s, aof))

    async def _aof_bytes(self) -> int:
        text = await self.session.engine.command("INFO", "persistence")
        fields = text if isinstance(text, dict) else dict(f.split(":", 1) for f in text.decode().split() if ":" in f)
        return int(fields.get("aof_current_size", 0))

    async def add(self, name: str, batches: list[Batch]) -> None:
        async with self.measured(name, sum(len(c) for b in batches for c in b.values())):
            for batch in batches:
                await self.frontier.add(batch)

    async def claim(self, rounds: int, urls_max: int) -> list[Claim]:
        claims: list[Claim] = []
        limits = {"per_queue_max": 16, "ahead_ms": 2000, "visibility_ms": 300_000, "out_max": 100_000}
        calls = [
            [
                (self.session.fence(p), self.session.claim_request(urls_max=urls_max, **limits))
                for p in range(PARTITIONS)
            ]
            for _ in range(rounds)
        ]
        async with self.measured(f"claim {urls_max} a call", rounds * PARTITIONS * urls_max):
            for requests in calls:
                claims += claims_in(await self.frontier.claim(requests))
        self.costs[-1].urls = len(claims)
        return claims

    async def ack(self, name: str, claims: list[Claim], links: int, seen: int) -> None:
        acks = [self._ack(n, claim, links, seen) for n, claim in enumerate(claims)]
        async with self.measured(name, len(acks)):
            for start in range(0, len(acks), ACKED_AT_ONCE):
                await self.frontier.ack(acks[start : start + ACKED_AT_ONCE])

    def _ack(self, n: int, claim: Claim, links: int, seen: int) -> Ack:
        domain = int(claim.domain.split("-")[2].split(".")[0])
        paths = [f"old/{(n * 7 + i) % 200}" for i in range(seen)] + [f"new/{n}/{i}" for i in range(links - seen)]
        return self.session.ack(claim, [url_of(claim.partition, domain, path) for path in paths], {"scope": 3})


def domain_of(partition: int, domain: int) -> str:
    return f"domain-{partition}-{domain}.test"


def url_of(partition: int, domain: int, path: str) -> Candidate:
    name = domain_of(partition, domain)
    return candidate(f"https://{name}/library/section/{path}/index.html", name, partition, depth=2, score=-2.0001)


def batches_of(paths: list[str], size: int) -> list[Batch]:
    """Each path in one domain of each partition, `size` of them a call."""
    return [
        batch_of(start // size % DOMAINS, paths[start : start + size]) for start in range(0, len(paths), size)
    ]  # fmt: skip


def batch_of(domain: int, paths: list[str]) -> Batch:
    return {p: [url_of(p, domain, path) for path in paths] for p in range(PARTITIONS)}


def main(words: Sequence[str]) -> int:
    parser = arguments.parser("frontier", __doc__)
    parser.add_argument("--redis", metavar="URL", help="an engine to write to; its other keys stay")
    options = parser.parse_args(words)
    with contextlib.nullcontext(options.redis) if options.redis else embedded_engine() as url:
        asyncio.run(run(url))
    return 0


async def run(url: str) -> None:
    bench = CostBench(url)
    await bench.open()
    try:
        new = [f"new-{i}" for i in range(4 * BATCH)]
        await bench.add("add 256 new", batches_of(new, BATCH))
        mixed = [p for i in range(BATCH) for p in (f"more-{i}", *new[4 * i : 4 * i + 4])]
        await bench.add("add 256, 80 % pending already", batches_of(mixed[: 4 * BATCH], BATCH))
        await bench.add("add 16 new", batches_of([f"few-{i}" for i in range(256)], 16))
        for domain in range(DOMAINS):  # links of the pages below, which are seen then
            await bench.frontier.add(batch_of(domain, [f"old/{i}" for i in range(200)]))
        many = await bench.claim(8, 64)
        few = await bench.claim(16, 4)
        await bench.ack("ack without links", few, 0, 0)
        await bench.ack(f"ack, {LINKS} links, {LINKS_SEEN} seen", many[:8192], LINKS, LINKS_SEEN)
    finally:
        await bench.session.close()
    print(f"{'':<34} {'URLs':>8} {'engine us':>9} {'client us':>9} {'wall us':>9} {'AOF B':>8}")
    for cost in bench.costs:
        print(cost.line())
