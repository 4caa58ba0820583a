"""A session that owns all partitions of a crawl in an engine: what the benchmarks of the frontier alone work with."""

import contextlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from crawler.engine.client import Engine
from crawler.engine.embedded import EmbeddedEngine
from crawler.frontier.keys import Keys
from crawler.frontier.leases import Leases
from crawler.frontier.messages import ClaimReply
from crawler.frontier.owner import Ack, ClaimRequest, Fence, Frontier, Settlement
from crawler.frontier.scripts import library
from crawler.model import Candidate, Claim, CommitEntry
from crawler.rules.places import Fingerprints

SESSION = "bench"
HASH_KEY = bytes(16)
FINGERPRINTS = Fingerprints(HASH_KEY)


@contextlib.contextmanager
def embedded_engine() -> Iterator[str]:
    """URL of an engine in a temporary folder, with its append-only file on."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        embedded = EmbeddedEngine(Path(folder))
        embedded.ensure()
        try:
            yield embedded.url
        finally:
            embedded.stop()


class FrontierSession:
    """Owns all partitions after open(). `now_ms` is the clock of its calls."""

    def __init__(self, url: str, *, partitions: int, delay_ms: int, crawl: str = "bench") -> None:
        self.engine = Engine(url, library(), call_timeout_s=60.0)
        self.partitions = partitions
        self.delay_ms = delay_ms
        self.keys = Keys(crawl)
        self.frontier = Frontier(self.engine, self.keys, session=SESSION, hash_key=HASH_KEY, default_delay_ms=delay_ms)
        self.now_ms = 1
        self._epochs: dict[int, int] = {}
        self._serial = 0

    async def open(self) -> None:
        await self.engine.connect()
        leases = Leases(self.engine, self.keys, hash_key=HASH_KEY)
        free = await leases.read(range(self.partitions))
        for lease in await leases.acquire(SESSION, SESSION, [(lease, 0) for lease in free]):
            self._epochs[lease.partition] = lease.epoch

    async def close(self) -> None:
        await self.engine.close()

    async def engine_cpu_s(self) -> float:
        return (await self.engine.info()).cpu_s

    def fence(self, partition: int) -> Fence:
        return Fence(partition, SESSION, self._epochs[partition], self.now_ms)

    def claim_request(
        self, *, urls_max: int, per_queue_max: int, ahead_ms: int, visibility_ms: int, out_max: int
    ) -> ClaimRequest:
        self._serial += 1
        return ClaimRequest(
            request_id=f"bench-{self._serial}", urls_max=urls_max, per_queue_max=per_queue_max, ahead_ms=ahead_ms,
            visibility_ms=visibility_ms, default_delay_ms=self.delay_ms, out_max=out_max,
        )  # fmt: skip

    def ack(self, claim: Claim, items: Sequence[Candidate] = (), refused: Mapping[str, int] | None = None) -> Ack:
        """The commit of a page with these links; its queue is due again after the delay."""
        entry = CommitEntry(
            url=claim.url, fingerprint=claim.fingerprint, visit=1, status_text="200", fetched_at=1.7e9,
            title="A page of it", mime="text/html", body_bytes=31_000, digest="sha1:" + "A" * 32,
            times={"claimed": 1.7e9},
        )  # fmt: skip
        next_fetch_ms = self.now_ms + self.delay_ms if self.delay_ms else 0
        settlement = Settlement(next_fetch_ms=next_fetch_ms, delay_ms=self.delay_ms)
        return Ack(
            claim=claim, fence=self.fence(claim.partition), entry=entry, items=items, settlement=settlement,
            refused=dict(refused or {}),
        )  # fmt: skip

    async def drop_logs(self, partitions: Iterable[int]) -> None:
        """Delete the commit logs, as a drain to the index does."""
        await self.engine.commands([("DEL", self.keys.of(p, "l")) for p in partitions])


def claims_in(replies: Iterable[ClaimReply]) -> list[Claim]:
    return [claim for reply in replies for batch in reply.batches for claim in batch.claims]


def candidate(
    url: str, domain: str, partition: int, *, fingerprints: Fingerprints = FINGERPRINTS, **fields: Any
) -> Candidate:
    """A URL in the queue of its domain. `fields`: depth, score and others of a Candidate."""
    return Candidate(
        url=url, fingerprint=fingerprints.of(url), partition=partition, domain=domain, queue=domain, **fields
    )
