"""What the frontier takes of the engine's memory: for a URL that was seen, for a pending URL, for an idle domain.

A pending URL is measured in memory and spilled to disk. Starts embedded engines. For comparison it measures the layout
of scrapy-redis: a set of SHA-1 digests, and a sorted set of pickled requests.
"""

import asyncio
import hashlib
import json
import pickle
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import redis

from crawler.archive.spill_files import SpillFiles
from crawler.frontier.owner import Settlement
from crawler.frontier.spilling import Spilling
from crawler.model import Claim, Request
from crawler.rules.places import partition_of
from scripts.bench_lib import arguments
from scripts.bench_lib.frontier_session import FrontierSession, candidate, claims_in, embedded_engine

PARTITIONS = 64
BATCH = 256
REDIS_BATCH = 1000
DELAY_MS = 1000
ROBOTS = b"1795310558 User-agent: *\nDisallow: /admin/\nDisallow: /search\n"  # as the engine stores it
BEGAN_AT = 1.8e9  # wall clock, s
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-"
URLS_A_DOMAIN = (10_000, 300, 3)
SPILLED_FROM = 300  # URLs a domain: shorter queues stay in memory


def main(words: Sequence[str]) -> int:
    parser = arguments.parser("memory", __doc__)
    parser.add_argument("--urls", type=arguments.positive_int, default=300_000, help="how many URLs")
    parser.add_argument("--meta", type=json.loads, default={}, help="data that each URL carries, as JSON")
    options = parser.parse_args(words)
    urls, request = options.urls, Request(meta=options.meta) if options.meta else None
    if urls < max(URLS_A_DOMAIN):
        parser.error(f"--urls {urls}: use at least {max(URLS_A_DOMAIN)}, the URLs of the largest domain")
    print(f"{urls:,} URLs, bytes of the engine's used_memory each\n")
    for name, measured in (("ours", ours), ("scrapy_redis", scrapy_redis)):
        for of in URLS_A_DOMAIN:
            with embedded_engine() as url:
                for line in asyncio.run(measured(url, random.Random(1), urls, of, request)):
                    print(f"{name:<14} {of:>6,} a domain   {line}", flush=True)
    return 0


class MemoryBench:
    """Fills a frontier, spills it to disk and crawls it."""

    def __init__(self, url: str, request: Request | None) -> None:
        self.request = request
        self.session = FrontierSession(url, partitions=PARTITIONS, delay_ms=DELAY_MS)

    async def add(self, domain: str, paths: Sequence[str]) -> None:
        partition = partition_of(domain, PARTITIONS)
        found = [
            candidate(
                f"https://{domain}{path}", domain, partition, depth=3, score=-3 - n / 8640, found_at=BEGAN_AT + n,
                seed_number=1 + partition * 4, request=self.request,
            )
            for n, path in enumerate(paths)
        ]  # fmt: skip
        for start in range(0, len(found), BATCH):
            await self.session.frontier.add({partition: found[start : start + BATCH]})

    async def spill(self, folder: Path) -> int:
        """Move to disk what an owner may move; how many URLs."""
        session = self.session
        spilling, files = Spilling(session.engine, session.keys, default_delay_ms=0), SpillFiles(folder, "benchsession")
        fences = {p: session.fence(p) for p in range(PARTITIONS)}
        while found := await spilling.longest(fences):
            for blocks, partition, queue in found:
                worst = await spilling.worst(partition, queue, min(blocks - 1, 64))
                places = files.write(partition, fences[partition].epoch, [block.packed() for block in worst])
                await spilling.spill(fences[partition], list(zip(worst, places, strict=True)))
        counts = await session.engine.commands([("HGET", session.keys.meta(p), "spilled") for p in fences])
        return sum(int(n or 0) for n in counts)

    async def crawl(self, domains: Sequence[str]) -> None:
        """Commit all pending URLs of these domains."""
        session = self.session
        partitions = sorted({partition_of(domain, PARTITIONS) for domain in domains})
        settlement = Settlement(next_fetch_ms=0, delay_ms=DELAY_MS)
        for domain in domains:
            fence = session.fence(partition_of(domain, PARTITIONS))
            await session.frontier.book_request(fence, domain, settlement, origin=f"https://{domain}", robots=ROBOTS)
        while partitions:
            await session.frontier.ack([session.ack(claim) for claim in await self._claim(partitions)])
            await session.drop_logs(partitions)
            session.now_ms += DELAY_MS
            ready = await session.engine.commands([("EXISTS", session.keys.of(p, "ready")) for p in partitions])
            partitions = [p for p, is_there in zip(partitions, ready, strict=True) if is_there]

    async def compact_idle(self) -> None:
        """Let more than a minute pass, so that the records of idle domains are compacted."""
        self.session.now_ms += 100_000
        idle = list(range(PARTITIONS))
        while idle:
            await self._claim(idle)
            counts = await self.session.engine.commands([("ZCARD", self.session.keys.of(p, "idle")) for p in idle])
            idle = [p for p, n in zip(idle, counts, strict=True) if n]

    async def _claim(self, partitions: Sequence[int]) -> list[Claim]:
        request = self.session.claim_request(
            urls_max=BATCH, per_queue_max=BATCH, ahead_ms=DELAY_MS, visibility_ms=10**9, out_max=10**6
        )
        return claims_in(await self.session.frontier.claim([(self.session.fence(p), request) for p in partitions]))


async def ours(url: str, rng: random.Random, urls: int, of: int, request: Request | None) -> list[str]:
    bench = MemoryBench(url, request)
    await bench.session.open()
    client = redis.Redis.from_url(url)
    before, path_bytes = used(client), 0
    domains = [f"site-{n}.example" for n in range(urls // of)]
    for domain in domains:
        some = list(paths(rng, of))
        path_bytes += sum(map(len, some))
        await bench.add(domain, some)
    queued, path = (used(client) - before) / urls, path_bytes / urls
    seen = sum(client.memory_usage(key, samples=0) for key in client.scan_iter("{bench:*}:s:*", count=10_000)) / urls
    lines = [f"queued {queued:6.1f}: path {path:.1f}, seen-set {seen:.1f}, the rest {queued - seen - path:.1f}"]
    if of >= SPILLED_FROM:
        full = used(client)
        with tempfile.TemporaryDirectory(prefix="bench-spill-") as folder:
            spilled = await bench.spill(Path(folder))
        on_disk = queued - seen - (full - used(client)) / spilled
        lines.append(f"on disk {on_disk:6.1f}: {spilled / urls:.0%} of the URLs")
    else:
        await bench.crawl(domains)
        await bench.compact_idle()
        lines.append(f"idle domain {(used(client) - before - seen * urls) / len(domains):6.1f}")
    client.close()
    await bench.session.close()
    return lines


async def scrapy_redis(url: str, rng: random.Random, urls: int, of: int, carried: Request | None) -> list[str]:
    """A digest in hexadecimal in a set, and a request as a pickled dictionary in a sorted set, for all domains."""
    client, meta = redis.Redis.from_url(url), carried.meta if carried else {}
    start, pipeline = used(client), client.pipeline(transaction=False)
    known = [f"https://site-{n // of}.example{path}" for n, path in enumerate(paths(rng, urls))]
    for one in known:
        pipeline.sadd("dupefilter", hashlib.sha1(one.encode()).hexdigest())
        if len(pipeline) >= REDIS_BATCH:
            pipeline.execute()
    pipeline.execute()
    seen = used(client)
    for one in known:
        request = {
            "url": one, "callback": "parse", "errback": None, "headers": {}, "method": "GET", "body": b"",
            "cookies": {}, "meta": {"depth": 3} | meta, "encoding": "utf-8", "priority": 0, "dont_filter": False,
            "flags": [], "cb_kwargs": {},
        }  # fmt: skip
        pipeline.zadd("requests", {pickle.dumps(request, protocol=-1): -3})
        if len(pipeline) >= REDIS_BATCH:
            pipeline.execute()
    pipeline.execute()
    queued = used(client)
    client.close()
    return [f"queued {(queued - seen) / urls:6.1f}, and seen {(seen - start) / urls:.1f}"]


def used(client: "redis.Redis[bytes]") -> int:
    client.memory_purge()
    return int(client.info("memory")["used_memory"])


def paths(rng: random.Random, count: int) -> Iterator[str]:
    """Like those of the web: 2 to 6 segments, about 45 characters."""
    for serial in range(count):
        parts = ["".join(rng.choices(LETTERS, k=rng.randint(4, 14))) for _ in range(rng.randint(2, 6))]
        yield "/" + "/".join(parts) + f"-{serial}"
