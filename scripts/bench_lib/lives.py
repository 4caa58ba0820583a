"""Whole lives of URLs in one embedded engine: they are added, claimed and committed, over many domains with a delay.

Prints URLs per second of the engine's CPU, the client's CPU for a URL, and how long single calls took the engine. With
--together, this many URLs of a domain are added and claimed at once, as the links of a page are; by default one, which
is the hardest case for the engine. With --links, each page has this many links into its own partition; four in five of
them are known.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Iterator, Sequence

from crawler.crawl.build import tune_process
from crawler.engine.client import Engine
from crawler.frontier.messages import ClaimReply
from crawler.model import Candidate, Claim
from crawler.rules.places import partition_of
from scripts.bench_lib import arguments
from scripts.bench_lib.frontier_session import FrontierSession, candidate, claims_in, embedded_engine

PARTITIONS = 256
PARTITIONS_AT_ONCE = 16  # in one pipeline
ADDED_AT_ONCE = 64  # URLs a call
DELAY_MS = 1000
URLS_MAX = 64  # a claim
KNOWN_SHARE = 0.8  # of the links of a page
PERCENTILES = ("CONFIG", "SET", "latency-tracking", "yes", "latency-tracking-info-percentiles", "50 99 99.9")


class Lives:
    """Takes URLs through their lives, and counts the client's CPU."""

    def __init__(self, url: str, together: int) -> None:
        self.session = FrontierSession(url, partitions=PARTITIONS, delay_ms=DELAY_MS)
        self.client_s = 0.0
        self._together = together
        self._domains: dict[int, list[str]] = {}

    async def open(self, domains: int) -> None:
        await self.session.open()
        for n in range(domains):
            name = f"site-{n}.example"
            self._domains.setdefault(partition_of(name, PARTITIONS), []).append(name)

    async def add_all(self, per_domain: int) -> None:
        """In an order in which a crawl might find them: domains mixed, those of a partition some at a time."""
        calls = []
        for partition, names in self._domains.items():
            urls = [
                (name, n)
                for first in range(0, per_domain, self._together)
                for name in names
                for n in range(first, min(first + self._together, per_domain))
            ]
            calls += [(partition, urls[i : i + ADDED_AT_ONCE]) for i in range(0, len(urls), ADDED_AT_ONCE)]
        random.Random(1).shuffle(calls)
        group: dict[int, list[Candidate]] = {}
        for partition, urls in calls:
            if partition in group or len(group) == PARTITIONS_AT_ONCE:
                await self._add(group)
                group = {}
            group[partition] = [_candidate(name, f"item-{n}", n) for name, n in urls]
        await self._add(group)

    async def crawl(self, urls: int, links: int) -> int:
        """Claim and commit until this many URLs are done; returns how many."""
        done = 0
        while done < urls:
            self.session.now_ms += DELAY_MS
            todo = list(self._domains)
            while todo and done < urls:
                some, todo = todo[:PARTITIONS_AT_ONCE], todo[PARTITIONS_AT_ONCE:]
                replies = await self._claim(some)
                claims = claims_in(replies)
                todo += [p for p, r in zip(some, replies, strict=True) if len(claims_in([r])) >= URLS_MAX // 2]
                await self._ack(claims, links, done)
                done += len(claims)
            await self.session.drop_logs(self._domains)
        return done

    async def _add(self, group: dict[int, list[Candidate]]) -> None:
        with self._counted():
            await self.session.frontier.add(group)

    async def _claim(self, partitions: Sequence[int]) -> list[ClaimReply]:
        request = self.session.claim_request(
            urls_max=URLS_MAX, per_queue_max=URLS_MAX, ahead_ms=max(2, self._together) * DELAY_MS,
            visibility_ms=300_000, out_max=2 * URLS_MAX,
        )  # fmt: skip
        with self._counted():
            replies = await self.session.frontier.claim([(self.session.fence(p), request) for p in partitions])
        assert all(isinstance(reply, ClaimReply) for reply in replies)
        return replies  # type: ignore[return-value]

    async def _ack(self, claims: Sequence[Claim], links: int, done: int) -> None:
        known, acks = int(links * KNOWN_SHARE), []
        for n, claim in enumerate(claims, done):
            paths = [f"item-{i}" for i in range(known)] + [f"new-{n}-{i}" for i in range(links - known)]
            items = [_candidate(claim.domain, path, n) for path in paths]
            acks.append(self.session.ack(claim, items, {"scope": 3}))
        with self._counted():
            await self.session.frontier.ack(acks)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        began = time.process_time()
        yield
        self.client_s += time.process_time() - began


def main(words: Sequence[str]) -> int:
    parser = arguments.parser("lives", __doc__)
    parser.add_argument("--urls", type=arguments.positive_int, default=1_000_000, help="how many")
    parser.add_argument("--domains", type=arguments.positive_int, default=100_000, help="over how many domains")
    parser.add_argument("--together", type=arguments.positive_int, default=1, help="URLs of a domain at once")
    parser.add_argument("--links", type=int, default=0, help="links of each page")
    options = parser.parse_args(words)
    if options.urls < options.domains:
        parser.error(f"--urls {options.urls}: use at least --domains {options.domains}")
    tune_process()  # as each instance does at its start
    with embedded_engine() as url:
        asyncio.run(run(url, options.urls // options.domains, options.domains, options.together, options.links))
    return 0


async def run(url: str, per_domain: int, domains: int, together: int, links: int) -> None:
    lives = Lives(url, together)
    session = lives.session
    try:
        await lives.open(domains)
        await session.engine.command(*PERCENTILES)
        began_s = await session.engine_cpu_s()
        await lives.add_all(per_domain)
        added_s = await session.engine_cpu_s()
        done = await lives.crawl(per_domain * domains, links)
        ended_s = await session.engine_cpu_s()
        print(f"{done:,} URLs: {done / (ended_s - began_s):,.0f} whole lives per second of the engine's CPU")
        us_each = 1e6 / done
        print(f"engine  {us_each * (added_s - began_s):.1f} us to add, {us_each * (ended_s - added_s):.1f} us to crawl")
        print(f"client  {us_each * lives.client_s:.1f} us")
        print(f"a call  {await _call_times(session.engine)}")
    finally:
        await session.close()


async def _call_times(engine: Engine) -> str:
    found = await engine.command("INFO", "latencystats")
    text = found.get("latency_percentiles_usec_fcall") if isinstance(found, dict) else None
    return ", ".join(f"{name} {float(us) / 1000:.2f} ms" for name, us in text.items()) if text else "unknown"


def _candidate(domain: str, path: str, age: int) -> Candidate:
    url = f"https://{domain}/library/section/{path}.html"
    return candidate(url, domain, partition_of(domain, PARTITIONS), depth=2, score=-2 - age / 8640)
