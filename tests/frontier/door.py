"""One session's hands on a frontier, for tests: short names for what takes many words in the product."""

from typing import Any

import redis
from redis.crc import key_slot

from crawler.engine.client import Engine
from crawler.errors import EngineError
from crawler.frontier.keys import Keys
from crawler.frontier.leases import Acquired, Lease, Leases, SlotQueue
from crawler.frontier.messages import AckOutcome, AckReply, ClaimReply
from crawler.frontier.owner import Ack, ClaimRequest, Fence, Frontier, Settlement
from crawler.frontier.scripts import library
from crawler.model import Candidate, Claim, CommitEntry, Request
from crawler.rules.places import Fingerprints

DELAY_MS = 1000
HASH_KEY = b"of the test crawl"[:16]
FINGERPRINTS = Fingerprints(HASH_KEY)
CALL_S = 60.0  # no busy machine takes that long


def fingerprint(url: str, run: str = "", request: Request | None = None, label: str = "") -> str:
    return FINGERPRINTS.of_run(run).of(url, request, label)


def url_of(path: object, host: str = "a.test") -> str:
    return f"http://{host}/{path}"


def found(path: object, *, host: str = "a.test", depth: int = 1, score: float | None = None, **more: Any) -> Candidate:
    """A URL on its way into partition 0."""
    url, run = more.get("url", url_of(path, host)), more.get("run", "")
    fp = fingerprint(url, run, more.get("request"), more.get("label", ""))
    values: dict[str, Any] = {
        "url": url, "fingerprint": fp, "partition": 0, "domain": host, "queue": host, "depth": depth,
        "score": -float(depth) if score is None else score,
    }  # fmt: skip
    return Candidate(**{**values, **more})


class Door:
    """Session `ann` and the lease of partition 0. `now` is what she says the time is, in ms."""

    def __init__(self, url: str, nodes: list[Any], session: str = "ann") -> None:
        self.engine = Engine(url, library(), call_timeout_s=CALL_S)
        self.keys = Keys("t")
        self.frontier = Frontier(self.engine, self.keys, session=session, hash_key=HASH_KEY, default_delay_ms=DELAY_MS)
        self.slot_queue = SlotQueue(self.engine, self.keys, default_delay_ms=DELAY_MS)
        self.leases = Leases(self.engine, self.keys, hash_key=HASH_KEY)
        self.session, self.epoch, self.now, self._serial = session, 0, 0, 0
        self._nodes = nodes

    async def open(self) -> None:
        await self.engine.connect()
        await self.acquire()

    async def close(self) -> None:
        await self.engine.close()

    @property
    def node(self) -> "redis.Redis[bytes]":
        """A synchronous client of the server that holds partition 0; the caller closes it."""
        slot = key_slot(self.keys.meta(0).encode())
        return self._nodes[slot * len(self._nodes) // 16384].client()

    def nodes(self) -> list["redis.Redis[bytes]"]:
        return [node.client() for node in self._nodes]

    @property
    def fence(self) -> Fence:
        return Fence(0, self.session, self.epoch, self.now)

    async def acquire(self, session: str = "") -> Acquired | Lease | EngineError:
        self.session = session or self.session
        (lease,) = await self.leases.read([0])
        (got,) = await self.leases.acquire(self.session, f"node-{self.session}", [(lease, 0)])
        if isinstance(got, Acquired):
            self.epoch = got.epoch
        return got

    async def add(self, *candidates: Candidate) -> list[int]:
        reply = (await self.frontier.add({0: candidates}))[0]
        if isinstance(reply, EngineError):
            raise reply
        return [int(outcome) for outcome in reply.outcomes]

    def request(self, **other: Any) -> ClaimRequest:
        self._serial += 1
        values: dict[str, Any] = {
            "request_id": f"{self.session}-{self._serial}", "urls_max": 64, "per_queue_max": 64, "ahead_ms": 2000,
            "visibility_ms": 60_000, "default_delay_ms": DELAY_MS, "out_max": 128,
        }  # fmt: skip
        return ClaimRequest(**{**values, **other})

    async def claim_reply(self, request: ClaimRequest | None = None, **other: Any) -> ClaimReply:
        (reply,) = await self.frontier.claim([(self.fence, request or self.request(**other))])
        if isinstance(reply, EngineError):
            raise reply
        return reply

    async def claim(self, request: ClaimRequest | None = None, **other: Any) -> list[Claim]:
        return [c for b in (await self.claim_reply(request, **other)).batches for c in b.claims]

    async def return_claims(self, *claims: Claim) -> AckOutcome:
        """None of them was started."""
        (outcome,) = await self.frontier.end(
            [self.frontier.return_claims(self.fence, [(claim, 0) for claim in claims])]
        )
        if isinstance(outcome, EngineError):
            raise outcome
        return outcome

    async def ack(
        self,
        claim: Claim,
        *children: Candidate,
        next_ms: int = 0,
        delay_ms: int = 0,
        body_bytes: int = 0,
        status: int = 200,
    ) -> AckReply:
        entry = CommitEntry(
            url=claim.url,
            fingerprint=claim.fingerprint,
            mime="unk",
            visit=1,
            status_text=str(status),
            fetched_at=1.0,
            body_bytes=body_bytes,
            label=claim.label,
        )
        settlement = Settlement(next_fetch_ms=next_ms, delay_ms=delay_ms)
        ack = Ack(claim=claim, fence=self.fence, entry=entry, items=children, settlement=settlement, refused={})
        (reply,) = await self.frontier.ack([ack])
        if isinstance(reply, EngineError):
            raise reply
        return reply
