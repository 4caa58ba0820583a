"""The frontier: typed wrappers around the partition scripts. Knows keys and scripts, not who owns what or when to call.

Every owner's call carries (session, epoch, now_ms); FENCED means that the lease is gone and nothing was written.
Calls come in batches over partitions and go out as pipelines.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crawler.errors import EngineError
from crawler.frontier.client import Call, Engine
from crawler.frontier.keys import Keys
from crawler.frontier.records import (
    DeadLetter,
    item_of,
    pack,
    pack_entry,
    pack_letter,
    unpack_log,
    unpack_record,
)
from crawler.model import AckOutcome, AddOutcome, Candidate, Claim, CommitEntry

ADD_ITEMS_MAX = 256  # per call: about 1 ms of the engine
DRAIN_MAX = 1000  # entries per call


@dataclass(frozen=True, slots=True)
class Fence:
    """What every write of an owner names, with the partition's time by the owner's reckoning."""

    partition: int
    session: str
    epoch: int
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """How much to hand out; see lua/claim.lua. Times in ms."""

    request_id: str
    urls_max: int
    per_queue_max: int
    ahead_ms: int
    visibility_ms: int
    default_delay_ms: int
    out_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueBatch:
    """Claims of one queue, best first; `delay_ms` is -1 while no robots.txt was read for it."""

    queue: str
    delay_ms: int
    claims: tuple[Claim, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimReply:
    """`status` is OK, FENCED or RECOVER; `next_due_ms` on the partition clock, -1 when nothing waits."""

    status: str
    next_due_ms: int = -1
    batches: tuple[QueueBatch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """How the end of a request moves its queue's clock: ms on the partition clock; delay -1 leaves it."""

    next_fetch_ms: int
    delay_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """One commit: the claim, its entry, the out-links of its own partition, the queue's clock."""

    claim: Claim
    fence: Fence
    entry: CommitEntry
    items: Sequence[Candidate]
    settlement: Settlement
    refused: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AckReply:
    """`woken`: sleeping queues of the partition that the out-links woke."""

    outcome: AckOutcome
    sequence: int = 0
    woken: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AddReply:
    """Outcomes in the order of the candidates; `woken` sleeping queues."""

    outcomes: tuple[AddOutcome, ...]
    woken: int


class Frontier:
    """One crawl's frontier in one engine, spoken to by one session."""

    def __init__(self, engine: Engine, keys: Keys, *, session: str, run: int, default_delay_ms: int) -> None:
        self.engine = engine
        self.keys = keys
        self.session = session
        self.run = run
        self.default_delay_ms = default_delay_ms

    async def add(self, by_partition: Mapping[int, Sequence[Candidate]]) -> dict[int, AddReply | EngineError]:
        """Add URLs to their partitions (any session may); idempotent. An EngineError stands where a call failed."""
        calls, owners = [], []
        for partition, candidates in by_partition.items():
            for start in range(0, len(candidates), ADD_ITEMS_MAX):
                items = [item_of(c) for c in candidates[start : start + ADD_ITEMS_MAX]]
                calls.append(self._call_add(partition, items))
                owners.append(partition)
        replies: dict[int, AddReply | EngineError] = {}
        for partition, raw in zip(owners, await self.engine.run_many(calls), strict=True):
            replies[partition] = _joined(replies.get(partition), raw)
        return replies

    def _call_add(self, partition: int, items: list[Any]) -> Call:
        args = (self.run, self.default_delay_ms, pack(items), self.keys.hints, self.session)
        return Call("add", (self.keys.meta(partition),), args)

    async def claim(self, wanted: Sequence[tuple[Fence, ClaimRequest]]) -> list[ClaimReply | EngineError]:
        """Claim from several partitions at once. A repeat with the same request id returns the same batch."""
        calls = [
            self._fenced(
                "claim",
                fence,
                pack(
                    (
                        r.request_id, self.engine.run_id, r.urls_max, r.per_queue_max,
                        r.ahead_ms, r.visibility_ms, r.default_delay_ms, r.out_max,
                    )
                ),
            )
            for fence, r in wanted
        ]  # fmt: skip
        raws = await self.engine.run_many(calls)
        return [
            raw if isinstance(raw, EngineError) else _claim_reply(fence, raw)
            for (fence, _), raw in zip(wanted, raws, strict=True)
        ]

    async def ack(self, acks: Sequence[Ack]) -> list[AckReply | EngineError]:
        """Commit fetched URLs; safe to repeat."""
        calls = [self._fenced("ack", a.fence, self._pack_ack(a)) for a in acks]
        replies: list[AckReply | EngineError] = []
        for raw in await self.engine.run_many(calls):
            if isinstance(raw, EngineError):
                replies.append(raw)
            else:
                sequence = int(raw[1]) if len(raw) > 1 else 0
                woken = int(raw[3]) if len(raw) > 3 else 0
                replies.append(AckReply(outcome=_outcome(raw), sequence=sequence, woken=woken))
        return replies

    def _pack_ack(self, a: Ack) -> bytes:
        c, e, s = a.claim, a.entry, a.settlement
        items = [item_of(candidate) for candidate in a.items]
        return pack(
            (
                c.fingerprint, c.token, c.visit, c.queue, c.domain, s.next_fetch_ms, s.delay_ms, e.status // 100,
                e.body_bytes, e.fetch_ms, self.run, self.default_delay_ms, items, pack_entry(e),
                list(a.refused.items()),
            )
        )  # fmt: skip

    def retry(self, fence: Fence, claim: Claim, s: Settlement, *, due_ms: int, kind: str) -> Call:
        """For `end`: a failed attempt, due again at `due_ms` on the partition clock."""
        args = (claim.fingerprint, claim.token, claim.queue, claim.domain, s.next_fetch_ms, s.delay_ms, due_ms)
        return self._fenced("retry", fence, pack((*args, kind)))

    def dead(self, fence: Fence, claim: Claim, s: Settlement, letter: DeadLetter) -> Call:
        """For `end`: give a URL up; the letter is kept."""
        args = (claim.fingerprint, claim.token, claim.queue, claim.domain, s.next_fetch_ms, s.delay_ms)
        return self._fenced("dead", fence, pack((*args, pack_letter(letter), letter.reason)))

    def refuse(self, fence: Fence, claim: Claim, reason: str) -> Call:
        """For `end`: a claimed URL that must not be fetched; counted by reason."""
        return self._fenced("refuse", fence, pack((claim.fingerprint, claim.token, claim.queue, claim.domain, reason)))

    async def end(self, calls: Sequence[Call]) -> list[AckOutcome | EngineError]:
        """Send endings that `retry`, `dead` and `refuse` made."""
        replies = await self.engine.run_many(calls)
        return [raw if isinstance(raw, EngineError) else _outcome(raw) for raw in replies]

    def give_back_call(self, fence: Fence, claims: Iterable[tuple[Claim, int]]) -> Call:
        """For `end`: return unfetched claims; the number is the next fetch (ms) of a started one, or 0."""
        packed = [(c.fingerprint, c.token, c.queue, c.domain, at) for c, at in claims]
        return self._fenced("give_back", fence, pack(packed))

    async def give_back(self, fence: Fence, claims: Iterable[tuple[Claim, int]]) -> AckOutcome:
        """The same at once, for one partition."""
        call = self.give_back_call(fence, claims)
        return _outcome(await self.engine.run(call.name, call.keys, *call.args))

    async def extend(self, claims: Mapping[int, tuple[Fence, Sequence[Claim]]], *, visibility_ms: int) -> None:
        """Claims that are still worked on stay invisible for longer. What a lost lease refuses is left to expire."""
        calls = []
        for fence, mine in claims.values():
            pairs = [text for c in mine for text in (c.fingerprint, c.token)]
            calls.append(self._fenced("extend", fence, visibility_ms, *pairs))
        await self.engine.run_many(calls)

    async def died(self, session: str, started: Mapping[int, Sequence[str]]) -> int:
        """Note that a session's process died with these fingerprints under way; how many of them are pending.

        Any session may tell, any number of times. Raises EngineError.
        """
        calls = [Call("died", (self.keys.meta(p),), (session, *fps)) for p, fps in started.items()]
        noted = 0
        for reply in await self.engine.run_many(calls):
            if isinstance(reply, EngineError):
                raise reply
            noted += int(reply[1])
        return noted

    async def drain(self, entries: Sequence[tuple[Fence, Sequence[CommitEntry]]]) -> None:
        """Clear commit entries that are on disk; what a lost lease refuses is the next owner's to drain."""
        calls = []
        for fence, mine in entries:
            keys = [f"{e.fingerprint}:{e.visit}" for e in mine]
            calls += [self._fenced("drain", fence, *keys[i : i + DRAIN_MAX]) for i in range(0, len(keys), DRAIN_MAX)]
        for reply in await self.engine.run_many(calls):
            if isinstance(reply, EngineError):
                raise reply

    async def undrained(self, partition: int) -> list[CommitEntry]:
        """Commit entries that a dead session left in the partition's log."""
        raw = await self.engine.command("HVALS", self.keys.of(partition, "l"))
        return [unpack_log(value)[1] for value in raw]

    async def pace(
        self, fence: Fence, queue: str, settlement: Settlement, *, origin: str = "", robots: bytes = b""
    ) -> AckOutcome:
        """Book a request made outside of a claim, and share the robots.txt it brought."""
        call = self._fenced("pace", fence, queue, settlement.next_fetch_ms, settlement.delay_ms, origin, robots)
        return _outcome(await self.engine.run(call.name, call.keys, *call.args))

    async def robots(self, partition: int, origin: str) -> bytes | None:
        """The robots blob that some owner shared for an origin."""
        blob: bytes | None = await self.engine.command("HGET", self.keys.of(partition, "robots"), origin)
        return blob

    async def awake(self, partitions: Sequence[int]) -> list[int]:
        """Those of the partitions in which some queue is ready or will be."""
        if not partitions:
            return []
        keys = [self.keys.of(p, "ready") for p in partitions]
        if not self.engine.is_cluster and not await self.engine.command("EXISTS", *keys):
            return []  # the common case, in one command
        found = await self.engine.commands([("EXISTS", key) for key in keys])
        return [p for p, exists in zip(partitions, found, strict=True) if exists]

    def _fenced(self, name: str, fence: Fence, *args: Any) -> Call:
        return Call(name, (self.keys.meta(fence.partition),), (fence.session, fence.epoch, fence.now_ms, *args))


def _outcome(raw: Sequence[Any]) -> AckOutcome:
    return AckOutcome(raw[0].decode())


def _joined(earlier: AddReply | EngineError | None, raw: Any) -> AddReply | EngineError:
    if isinstance(earlier, EngineError):
        return earlier
    if isinstance(raw, EngineError):
        return raw
    outcomes = tuple(AddOutcome(digit - 48) for digit in raw[0])
    if earlier is None:
        return AddReply(outcomes=outcomes, woken=int(raw[1]))
    return AddReply(outcomes=earlier.outcomes + outcomes, woken=earlier.woken + int(raw[1]))


def _claim_reply(fence: Fence, raw: Sequence[Any]) -> ClaimReply:
    status = raw[0].decode()
    if status != "OK":
        return ClaimReply(status=status)
    flat, position, batches = raw[2], 0, []
    while position < len(flat):
        queue, delay, n = flat[position].decode(), int(flat[position + 1]), int(flat[position + 2])
        position += 3
        triples = flat[position : position + 3 * n]
        claims = tuple(_claim(fence, *triples[i : i + 3]) for i in range(0, 3 * n, 3))
        batches.append(QueueBatch(queue=queue, delay_ms=delay, claims=claims))
        position += 3 * n
    return ClaimReply(status=status, next_due_ms=int(raw[1]), batches=tuple(batches))


def _claim(fence: Fence, fingerprint: bytes, token: bytes, packed: bytes) -> Claim:
    r = unpack_record(packed)
    return Claim(
        url=r.url, fingerprint=fingerprint.decode(), visit=r.visit, partition=fence.partition, epoch=fence.epoch,
        token=token.decode(), domain=r.domain, queue=r.queue, depth=r.depth, redirects=r.redirects,
        attempts=r.attempts, deliveries=r.deliveries, seed=bool(r.seed), score=r.score,
        deaths=r.deaths,
    )  # fmt: skip
