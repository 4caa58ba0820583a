"""A session that owns all partitions of an engine and takes URLs through their whole lives: added, claimed, committed.

What the client spends on it is counted here; what the engine spends, its own INFO says. Knows nothing of the web.
"""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from crawler.engine.client import Engine
from crawler.frontier.frontier import Ack, ClaimRequest, Fence, Frontier, Settlement
from crawler.frontier.keys import Keys
from crawler.frontier.leases import Leases
from crawler.frontier.messages import ClaimReply
from crawler.model import Candidate, Claim, CommitEntry
from crawler.rules.fingerprint import Fingerprints, partition_of

PARTITIONS = 256
HASH_KEY = bytes(16)
FINGERPRINTS = Fingerprints(HASH_KEY)
AT_ONCE = 16  # partitions in one pipeline
ADDED_AT_ONCE = 64  # URLs a call
DELAY_MS = 1000
URLS_MAX = 64  # a claim
REPEATS = 0.8


@dataclass
class Cost:
    engine_s: float = 0.0
    client_s: float = 0.0


class Bench:
    """One session that owns all partitions."""

    def __init__(self, engine: Engine, together: int) -> None:
        self.engine = engine
        self.together = together
        self.keys = Keys("bench")
        self.frontier = Frontier(
            engine, self.keys, session="bench", hash_key=HASH_KEY, run=0, default_delay_ms=DELAY_MS
        )
        self.epochs: dict[int, int] = {}
        self.domains: dict[int, list[str]] = {}
        self.now_ms = 1
        self.serial = 0
        self.cost = Cost()

    async def open(self, domains: int) -> None:
        leases = Leases(self.engine, self.keys, hash_key=HASH_KEY)
        free = await leases.read(range(PARTITIONS))
        for got in await leases.acquire("bench", "bench", [(lease, 0) for lease in free]):
            self.epochs[got.partition] = got.epoch
        for n in range(domains):
            name = f"site-{n}.example"
            self.domains.setdefault(partition_of(name, PARTITIONS), []).append(name)

    async def add_all(self, per_domain: int) -> None:
        """In an order in which they might be found: domains mixed, those of a partition some at a time."""
        calls = []
        for partition, names in self.domains.items():
            found = [
                (name, n)
                for first in range(0, per_domain, self.together)
                for name in names
                for n in range(first, min(first + self.together, per_domain))
            ]
            calls += [(partition, found[i : i + ADDED_AT_ONCE]) for i in range(0, len(found), ADDED_AT_ONCE)]
        random.Random(1).shuffle(calls)
        group: dict[int, list[Candidate]] = {}
        for partition, found in calls:
            if partition in group or len(group) == AT_ONCE:
                await self._add(group)
                group = {}
            group[partition] = [candidate(name, f"item-{n}", n) for name, n in found]
        await self._add(group)

    async def _add(self, group: dict[int, list[Candidate]]) -> None:
        began = time.process_time()
        await self.frontier.add(group)
        self.cost.client_s += time.process_time() - began

    async def crawl(self, urls: int, links: int) -> int:
        """Claim and commit until so many are done; how many."""
        done = 0
        while done < urls:
            self.now_ms += DELAY_MS
            todo = list(self.domains)
            while todo and done < urls:
                some, todo = todo[:AT_ONCE], todo[AT_ONCE:]
                replies = await self._claim(some)
                claims = [c for reply in replies for batch in reply.batches for c in batch.claims]
                todo += [p for p, r in zip(some, replies, strict=True) if sum(len(b.claims) for b in r.batches) >= 32]
                await self._ack([self._commit(claim, links, done + n) for n, claim in enumerate(claims)])
                done += len(claims)
            await self.engine.commands([("DEL", self.keys.of(p, "l")) for p in self.domains])  # as a drain does
        return done

    async def _claim(self, partitions: Sequence[int]) -> list[ClaimReply]:
        self.serial += 1
        request = ClaimRequest(
            request_id=f"bench-{self.serial}", urls_max=URLS_MAX, per_queue_max=URLS_MAX,
            ahead_ms=max(2, self.together) * DELAY_MS, visibility_ms=300_000, default_delay_ms=DELAY_MS,
            out_max=2 * URLS_MAX,
        )  # fmt: skip
        began = time.process_time()
        replies = await self.frontier.claim([(self._fence(p), request) for p in partitions])
        self.cost.client_s += time.process_time() - began
        assert all(isinstance(reply, ClaimReply) for reply in replies)
        return replies  # type: ignore[return-value]

    async def _ack(self, acks: Sequence[Ack]) -> None:
        began = time.process_time()
        await self.frontier.ack(acks)
        self.cost.client_s += time.process_time() - began

    def _commit(self, claim: Claim, links: int, n: int) -> Ack:
        entry = CommitEntry(
            url=claim.url, fingerprint=claim.fingerprint, visit=1, status=200, fetched_at=1.7e9, title="A page of it",
            content_type="text/html", body_bytes=31_000, digest="sha1:" + "A" * 32, times={"claimed": 1.7e9},
        )  # fmt: skip
        known = int(links * REPEATS)
        paths = [f"item-{i}" for i in range(known)] + [f"new-{n}-{i}" for i in range(links - known)]
        settled = Settlement(next_fetch_ms=self.now_ms + DELAY_MS, delay_ms=DELAY_MS)
        items = [candidate(claim.domain, path, n) for path in paths]
        return Ack(
            claim=claim, fence=self._fence(claim.partition), entry=entry, items=items, settlement=settled,
            refused={"scope": 3},
        )  # fmt: skip

    def _fence(self, partition: int) -> Fence:
        return Fence(partition, "bench", self.epochs[partition], self.now_ms)


def candidate(domain: str, path: str, age: int) -> Candidate:
    url = f"https://{domain}/library/section/{path}.html"
    return Candidate(
        url=url, fingerprint=FINGERPRINTS.of(url), partition=partition_of(domain, PARTITIONS), domain=domain,
        queue=domain, depth=2, score=-2 - age / 8640,
    )  # fmt: skip
