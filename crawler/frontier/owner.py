"""The frontier: typed wrappers around the partition scripts. Knows keys and scripts, not who owns what or when to call.

Every owner's call carries (session, epoch, now_ms); FENCED means that the lease is gone and nothing was written.
Calls come in batches over partitions and go out as pipelines.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, cast

import msgspec

from crawler.engine.client import Call, Engine, Gathering
from crawler.errors import EngineDown, EngineError
from crawler.frontier.arguments import (
    AckArgs,
    AckItem,
    AddArgs,
    AddBudgetArgs,
    BookArgs,
    ClaimArgs,
    CrashArgs,
    DeadLetterArgs,
    DeferArgs,
    FenceArgs,
    RefuseArgs,
    RetryArgs,
    ReturnItem,
    UrlStatesArgs,
)
from crawler.frontier.codec import (
    DeadLetter,
    FailedAttempt,
    item_of,
    pack,
    pack_entry,
    pack_failure,
    pack_letter,
    unpack_log,
)
from crawler.frontier.keys import Keys
from crawler.frontier.messages import (
    AckReply,
    AddBudget,
    AddReply,
    ClaimReply,
    FetchBudget,
    ack_replies,
    claim_reply,
    joined,
    merged,
    outcome_of,
    with_depths,
    with_twins,
)
from crawler.model import (
    UNANSWERED,
    AckOutcome,
    Candidate,
    Claim,
    CommitEntry,
)
from crawler.rules.places import Fingerprints, twin_of

ADD_ITEMS_MAX = 128  # per call: one to four ms of the engine, by how many queues they are for
ACK_MAX = 32  # commits per call
DRAIN_MAX = 1000  # entries per call
JARS_MAX = 2_000  # of a partition: at most 60 MB
WRITTEN_PAUSE_S = 0.05  # an fsync of the engine takes about as long
FIRST = 0, 0, "WITHSCORES"
# Keys of a partition that exist if something is to be claimed, and how they are read: queues, users, scheduled URLs.
AWAKE_KINDS = (("ready", "ZRANGE", FIRST), ("users", "EXISTS", ()), ("at", "ZRANGE", FIRST))
NO_BUDGET, NO_LIMIT = FetchBudget(), AddBudget()
UNSEEN = ord("0")  # as lua/url_states.lua says
NOTHING: Mapping[int, bytes] = {}


class Fence(msgspec.Struct, frozen=True, gc=False):
    """What every write of an owner names, with the partition's time by the owner's reckoning."""

    partition: int
    session: str
    epoch: int
    now_ms: int


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True):
    """How much to hand out, and how early; see lua/claim.lua. Times in ms; `at_s`: when it is asked (wall clock, s)."""

    request_id: str
    urls_max: int
    per_queue_max: int
    ahead_ms: int
    visibility_ms: int
    default_delay_ms: int
    out_max: int
    lead_ms: int = 0
    at_s: float = 0.0
    budget: FetchBudget = NO_BUDGET
    weights: Mapping[str, float] = {}  # of users; 1 for all others
    probe_ms: int = 60_000  # until the next probe of a silent origin, if nothing is heard of this one
    own_max: int = 2**31  # at most so many that are not of a run


class Awake(NamedTuple):
    """A partition with something to claim: when a queue is due (ms of the partition's clock; 0: maybe now), and when a
    scheduled URL becomes visible (wall time, ms).
    """

    partition: int
    due_ms: int | None
    visible_ms: int | None


class Settlement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How the end of a request moves its queue's clock: ms on the partition clock; delay -1 leaves it."""

    next_fetch_ms: int
    delay_ms: int = -1


class Aside(NamedTuple):
    """An origin whose URLs are set aside: until when, and since when it has been silent (ms, partition clock; -1: it
    is not known to be).
    """

    origin: str
    due_ms: int
    since_ms: int


NOT_ASIDE = Aside("", 0, 0)


class Ack(msgspec.Struct, frozen=True, kw_only=True):
    """One commit: the claim, its entry, the out-links of its own partition (of the same user), the queue's clock.

    `counts`: further counters of the statistics, by their names.
    """

    claim: Claim
    fence: Fence
    entry: CommitEntry
    items: Sequence[Candidate]
    settlement: Settlement
    refused: Mapping[str, int]
    counts: Mapping[str, int] = {}


class Frontier:
    """One crawl's frontier in one engine, spoken to by one session.

    `is_limited`: the crawl has a limit or a budget of depth, so the depth of a waiting URL is lowered when a shorter
    path is found. That of a run's URLs always is. A call to a script is for URLs of one run, or of the crawl itself.
    """

    def __init__(
        self,
        engine: Engine,
        keys: Keys,
        *,
        session: str,
        hash_key: bytes,
        default_delay_ms: int,
        is_limited: bool = False,
        add_budget: AddBudget = NO_LIMIT,
        has_requisites: bool = False,
    ) -> None:
        self.engine, self.keys = engine, keys
        self.session = session
        self.fingerprints = Fingerprints(hash_key)
        self._hash_key = hash_key.hex()
        self.default_delay_ms = default_delay_ms
        self.is_limited = is_limited
        self.add_budget = add_budget
        self.has_requisites = has_requisites
        self._gathered = Gathering(engine)
        self.note_told: Callable[[Iterable[tuple[int, AddArgs]]], None] | None = None  # before calls of `add` are sent

    async def add(
        self, by_partition: Mapping[int, Sequence[Candidate]], *, hints_us: bool = False
    ) -> dict[int, AddReply | EngineError]:
        """Add URLs to their partitions (any session may); idempotent. An EngineError stands where a call failed.

        `hints_us`: also this session gets hints, as it does not see from the replies which of its partitions are due.
        """
        session = "" if hints_us else self.session
        runs = {(c.run, c.user) for candidates in by_partition.values() for c in candidates}
        if len(runs) > 1:
            return await self._add_by_run(by_partition, session)
        (run, user), calls, owners = next(iter(runs), ("", "")), [], []
        for partition, candidates in by_partition.items():
            for start in range(0, len(candidates), ADD_ITEMS_MAX):
                values = self._values(candidates[start : start + ADD_ITEMS_MAX])
                calls.append(self._call_add(partition, run, user, values, session))
                owners.append(partition)
        replies: dict[int, AddReply | EngineError] = {}
        for partition, raw in zip(owners, await self._send_adds(owners, calls), strict=True):
            replies[partition] = joined(replies.get(partition), raw)
        return replies

    async def _add_by_run(
        self, by_partition: Mapping[int, Sequence[Candidate]], session: str
    ) -> dict[int, AddReply | EngineError]:
        """The same for URLs of several runs and users."""
        calls, asked = [], list[tuple[int, list[int]]]()
        for partition, candidates in by_partition.items():
            by_run: dict[tuple[str, str], list[int]] = {}
            for number, c in enumerate(candidates):
                by_run.setdefault((c.run, c.user), []).append(number)
            for (run, user), numbers in by_run.items():
                for start in range(0, len(numbers), ADD_ITEMS_MAX):
                    some = numbers[start : start + ADD_ITEMS_MAX]
                    values = self._values(candidates[n] for n in some)
                    calls.append(self._call_add(partition, run, user, values, session))
                    asked.append((partition, some))
        parts: dict[int, list[tuple[list[int], AddReply | EngineError]]] = {}
        for (partition, some), raw in zip(asked, await self._send_adds([p for p, _ in asked], calls), strict=True):
            parts.setdefault(partition, []).append((some, joined(None, raw)))
        return {partition: merged(mine) for partition, mine in parts.items()}

    async def _send_adds(self, partitions: Sequence[int], calls: Sequence[Call]) -> list[Any]:
        if self.note_told is not None:
            self.note_told((p, cast("AddArgs", call.args)) for p, call in zip(partitions, calls, strict=True))
        return await self.engine.run_many(calls)

    async def tell(self, told: Sequence[tuple[int, AddArgs]]) -> list[AddReply | EngineError]:
        """Send calls of `add` again, by partition, that this session or another one sent."""
        calls = [Call("add", (self.keys.meta(partition),), args) for partition, args in told]
        return [joined(None, raw) for raw in await self.engine.run_many(calls)]

    def _limits(self, run: str) -> int:
        return int(self.is_limited or run != "")

    def _values(self, candidates: Iterable[Candidate]) -> list[str | int]:
        """Those of each, one after another."""
        return [value for candidate in candidates for value in item_of(candidate)]

    def _add_budget(self) -> bytes:
        i = self.add_budget
        return pack(AddBudgetArgs(i.urls, i.hosts, i.requisites))

    def _call_add(self, partition: int, run: str, user: str, items: list[Any], session: str) -> Call:
        args = AddArgs(
            run=run, default_delay_ms=self.default_delay_ms, urls=pack(items), hints=self.keys.hints,
            session=session, is_limited=self._limits(run), budget=self._add_budget(), hash_key=self._hash_key,
            user=user,
        )  # fmt: skip
        return Call("add", (self.keys.meta(partition),), args)

    async def claim(self, wanted: Sequence[tuple[Fence, ClaimRequest]]) -> list[ClaimReply | EngineError]:
        """Claim from several partitions at once. A repeat with the same request id returns the same batch."""
        calls = [
            self._fenced(
                "claim",
                fence,
                pack(
                    ClaimArgs(
                        request_id=r.request_id, engine_run=self.engine.run_id_of(self.keys.meta(fence.partition)),
                        urls_max=r.urls_max, per_queue_max=r.per_queue_max, ahead_ms=r.ahead_ms,
                        visibility_ms=r.visibility_ms,
                        default_delay_ms=r.default_delay_ms, out_max=r.out_max, pages_max=r.budget.pages,
                        bytes_max=r.budget.bytes, lead_ms=r.lead_ms, at_ms=round(r.at_s * 1000),
                        weights=[value for pair in r.weights.items() for value in pair], probe_ms=r.probe_ms,
                        own_max=r.own_max,
                    )
                ),
            )
            for fence, r in wanted
        ]  # fmt: skip
        raws = await self.engine.run_many(calls)
        replies = [
            raw if isinstance(raw, EngineError) else claim_reply((f.partition, f.epoch), raw, self.fingerprints, r.at_s)
            for (f, r), raw in zip(wanted, raws, strict=True)
        ]
        replies = await self._deepened(replies)
        return await self._twinned(replies) if self.has_requisites else replies

    async def _deepened(self, replies: Sequence[ClaimReply | EngineError]) -> list[ClaimReply | EngineError]:
        """The claims as deep as the shortest path says; as they were added when the engine does not tell."""
        claims = [c for r in replies if isinstance(r, ClaimReply) for b in r.batches for c in b.claims]
        asked: dict[tuple[int, str], list[str]] = {}
        for claim in claims:
            if claim.depth and (self.is_limited or claim.run):
                asked.setdefault((claim.partition, claim.run), []).append(claim.fingerprint)
        if not asked:
            return list(replies)
        calls = [Call("depths", (self.keys.meta(p),), (run, *fps)) for (p, run), fps in asked.items()]
        depths: dict[str, int] = {}
        for fps, raw in zip(asked.values(), await self.engine.run_many(calls), strict=True):
            if not isinstance(raw, EngineError):
                depths.update((fp, int(depth)) for fp, depth in zip(fps, raw, strict=True) if int(depth) >= 0)
        return [r if isinstance(r, EngineError) else with_depths(r, depths) for r in replies]

    async def _twinned(self, replies: Sequence[ClaimReply | EngineError]) -> list[ClaimReply | EngineError]:
        """The claims whose URL is known as a page and as a requisite, marked so; all where the engine does not tell."""
        asked: dict[int, list[str]] = {}
        for claim in (c for r in replies if isinstance(r, ClaimReply) for b in r.batches for c in b.claims):
            if not claim.run and claim.request is None:
                asked.setdefault(claim.partition, []).append(twin_of(claim.fingerprint))
        calls = [Call("url_states", (self.keys.meta(p),), (*UrlStatesArgs("", 1), *fps)) for p, fps in asked.items()]
        twins: set[str] = set()
        for fps, raw in zip(asked.values(), await self.engine.run_many(calls) if calls else (), strict=True):
            is_told = not isinstance(raw, EngineError)
            twins.update(twin_of(fp) for n, fp in enumerate(fps) if not is_told or raw[n] != UNSEEN)
        return [r if isinstance(r, EngineError) or not twins else with_twins(r, twins) for r in replies]

    async def logged(self, partition: int, fingerprint: str) -> CommitEntry | None:
        """A commit that may not be in an index yet. Raises EngineError."""
        stored = await self.engine.command("HGET", self.keys.of(partition, "l"), f"{fingerprint}:1")
        return unpack_log(stored)[1] if stored else None

    async def ack(self, acks: Sequence[Ack]) -> list[AckReply | EngineError]:
        """Commit fetched URLs, many of a partition in one call; safe to repeat."""
        groups: dict[tuple[Fence, str, str], list[int]] = {}
        for number, a in enumerate(acks):
            groups.setdefault((a.fence, a.claim.run, a.claim.user), []).append(number)
        calls, asked = [], []
        for (fence, run, user), numbers in groups.items():
            for some in _bounded(acks, numbers):
                args = AckArgs(
                    session=fence.session, epoch=fence.epoch, now_ms=fence.now_ms, run=run,
                    default_delay_ms=self.default_delay_ms, is_limited=self._limits(run), budget=self._add_budget(),
                    user=user,
                )  # fmt: skip
                items = (self.pack_ack(acks[i]) for i in some)
                calls.append(Call("ack", (self.keys.meta(fence.partition),), (*args, *items)))
                asked.append(some)
        replies: dict[int, AckReply | EngineError] = {}
        for some, raw in zip(asked, await self.engine.run_many(calls), strict=True):
            replies.update(zip(some, ack_replies(raw, len(some)), strict=True))
        return [replies[i] for i in range(len(acks))]

    def pack_ack(self, a: Ack) -> bytes:
        """What the script reads of it."""
        c, e, s = a.claim, a.entry, a.settlement
        counts = [value for reason, n in a.refused.items() for value in (f"refused:{reason}", n)]
        counts += [value for named in a.counts.items() for value in named] if a.counts else ()
        item = AckItem(
            fingerprint=c.fingerprint, token=c.token, log_key=f"{c.fingerprint}:{c.visit}", queue=c.queue,
            next_fetch_ms=s.next_fetch_ms, delay_ms=s.delay_ms, status_class=f"s{e.counted_status // 100}",
            bytes=e.body_bytes, fetch_ms=e.fetch_ms, entry=pack_entry(e), seed=c.run or c.seed_number,
            counts_size=len(counts),
        )  # fmt: skip
        return pack((*item, *counts, *(self._values(a.items) if a.items else ())))

    def retry(
        self, fence: Fence, claim: Claim, s: Settlement, *, due_ms: int, kind: str, at_s: float = 0.0, detail: str = ""
    ) -> Call:
        """For `end`: an attempt that failed at a wall time, due again at `due_ms` on the partition clock."""
        args = RetryArgs(
            fingerprint=claim.fingerprint, token=claim.token, next_fetch_ms=s.next_fetch_ms,
            delay_ms=s.delay_ms, due_ms=due_ms, kind=kind, attempt=pack_failure(FailedAttempt(at_s, kind, detail)),
            seed=claim.run or claim.seed_number, is_unanswered=int(kind in UNANSWERED),
        )  # fmt: skip
        return self._fenced("retry", fence, pack(args))

    def dead_letter(
        self, fence: Fence, claim: Claim, s: Settlement, letter: DeadLetter, *, is_attempt: bool = True
    ) -> Call:
        """For `end`: give a URL up; the letter is kept, with all failed attempts. Was the last one just now?"""
        attempt = pack_failure(FailedAttempt(letter.failed_at, letter.reason, letter.detail)) if is_attempt else ""
        args = DeadLetterArgs(
            fingerprint=claim.fingerprint, token=claim.token, next_fetch_ms=s.next_fetch_ms,
            delay_ms=s.delay_ms, letter=pack_letter(letter), kind=letter.reason,
            attempt=attempt, seed=claim.run or claim.seed_number, is_unanswered=int(letter.reason in UNANSWERED),
        )  # fmt: skip
        return self._fenced("dead_letter", fence, pack(args))

    def refuse(self, fence: Fence, claim: Claim, reason: str) -> Call:
        """For `end`: a claimed URL that must not be fetched; counted by reason."""
        args = RefuseArgs(
            fingerprint=claim.fingerprint, token=claim.token, reason=reason,
            seed=claim.run or claim.seed_number, url=claim.url,
        )  # fmt: skip
        return self._fenced("refuse", fence, pack(args))

    def defer(self, fence: Fence, claim: Claim, reason: str) -> Call:
        """For `end`: a claimed URL is kept, and not fetched until it is released. One of a run is refused instead."""
        return self._fenced("defer", fence, pack(DeferArgs(claim.fingerprint, claim.token, reason)))

    async def end(self, calls: Sequence[Call]) -> list[AckOutcome | EngineError]:
        """Send the ends of claims that `retry`, `dead_letter`, `refuse` and `defer` made."""
        replies = await self.engine.run_many(calls)
        return [raw if isinstance(raw, EngineError) else outcome_of(raw) for raw in replies]

    def return_claims(self, fence: Fence, claims: Iterable[tuple[Claim, int]], *, aside: Aside | None = None) -> Call:
        """For `end`: return unfetched claims; the number is the next fetch (ms) of a started one, or 0. `aside`: their
        origin does not answer, and they are kept apart until it is probed.
        """
        origin = aside or NOT_ASIDE
        return self._fenced("return_claims", fence, pack([ReturnItem(c.token, at, *origin) for c, at in claims]))

    async def recall(
        self, fence: Fence, queue: str, origin: str, *, is_good: bool = False, due_ms: int = 0
    ) -> AckOutcome:
        """Put all URLs of an origin that were set aside back into their queue, with the next claims: it answers
        (`is_good`), or they are to be given up. With `due_ms`, one of them at that time. Raises EngineError.
        """
        (reply,) = await self.end([self._fenced("recall", fence, queue, origin, due_ms, int(is_good))])
        if isinstance(reply, EngineError):
            raise reply
        return reply

    async def extend_claims(self, claims: Mapping[int, tuple[Fence, Sequence[Claim]]], *, visibility_ms: int) -> None:
        """Claims that are still worked on stay invisible for longer. What a lost lease refuses is left to expire."""
        calls = []
        for fence, mine in claims.values():
            calls.append(self._fenced("extend_claims", fence, visibility_ms, *(c.token for c in mine)))
        await self.engine.run_many(calls)

    async def written(self, partitions: Iterable[int]) -> set[int]:
        """Those of the partitions whose commits until now survive a kill of the engine. Raises EngineError."""
        metas = {self.keys.meta(partition): partition for partition in partitions}
        return {metas[meta] for meta in await self.engine.written(metas)}

    async def dependable(self, partitions: Iterable[int]) -> set[int]:
        """Those of the partitions that keep their state whenever others keep later changes. Raises EngineError."""
        metas = {self.keys.meta(partition): partition for partition in partitions}
        return {metas[meta] for meta in await self.engine.dependable(metas)}

    async def note_sent(self, fence: Fence, claim: Claim) -> AckOutcome:
        """Note that the request of a claim, which must not be repeated, is about to be sent. Returns when an engine
        that is killed keeps the note. Raises EngineError.
        """
        meta = self.keys.meta(fence.partition)
        run_id = self.engine.run_id_of(meta)
        (reply,) = await self.end([self._fenced("note_sent", fence, claim.token)])
        if isinstance(reply, EngineError):
            raise reply
        while reply is AckOutcome.COMMITTED and not await self.engine.written([meta]):  # noqa: ASYNC110 - no event
            await asyncio.sleep(WRITTEN_PAUSE_S)
        if self.engine.run_id_of(meta) != run_id:
            raise EngineDown("the server is another one than the one that was told of the request")
        return reply

    async def record_crash(self, session: str, worked_on: Mapping[int, Sequence[str]], *, deaths: int = 1) -> int:
        """Note that a session's process died while it worked on these fingerprints; for how many of them that is news.

        `deaths`: as how many it counts. Any session may tell, any number of times. Raises EngineError.
        """
        calls = [
            Call("record_crash", (self.keys.meta(p),), (*CrashArgs(session, deaths), *fps))
            for p, fps in worked_on.items()
        ]
        return sum(int(reply[1]) for reply in await self.engine.run_all(calls))

    async def drain_log(
        self, entries: Iterable[tuple[Fence, Sequence[CommitEntry]]], activity: Mapping[int, bytes] = NOTHING
    ) -> None:
        """Clear commit entries that are on disk; what a lost lease refuses is the next owner's to drain.

        `activity`: what to note for the partitions, as worker/watch.py packs it. Never send it a second time.
        """
        calls = []
        for fence, mine in entries:
            keys = [f"{e.fingerprint}:{e.visit}" for e in mine]
            noted = activity.get(fence.partition, b"")
            calls += [
                self._fenced("drain_log", fence, b"" if i else noted, *keys[i : i + DRAIN_MAX])
                for i in range(0, len(keys) or 1, DRAIN_MAX)
            ]
        await self.engine.run_all(calls)

    async def undrained(self, partition: int) -> list[CommitEntry]:
        """Commit entries that a dead session left in the partition's log."""
        raw = await self.engine.command("HVALS", self.keys.of(partition, "l"))
        return [unpack_log(value)[1] for value in raw]

    async def book_request(
        self, fence: Fence, queue: str, settlement: Settlement, *, origin: str = "", robots: bytes = b""
    ) -> AckOutcome:
        """Book a request made outside of a claim, and share the robots.txt it brought."""
        call = self.pace_call(fence, queue, settlement, origin=origin, robots=robots)
        return outcome_of(await self._gathered.run(call))

    def pace_call(self, fence: Fence, queue: str, s: Settlement, *, origin: str = "", robots: bytes = b"") -> Call:
        """The same, for `end`."""
        args = BookArgs(
            session=fence.session, epoch=fence.epoch, now_ms=fence.now_ms, queue=queue, next_fetch_ms=s.next_fetch_ms,
            delay_ms=s.delay_ms, origin=origin, robots=robots,
        )  # fmt: skip
        return Call("book_request", (self.keys.meta(fence.partition),), args)

    async def store_jar(self, fence: Fence, name: str, sealed: bytes) -> AckOutcome:
        """Keep the cookies of a site and session for the partition's next owner. Raises EngineError."""
        (reply,) = await self.end([self._fenced("store_jar", fence, name, sealed, JARS_MAX)])
        if isinstance(reply, EngineError):
            raise reply
        return reply

    async def jar(self, partition: int, name: str) -> bytes | None:
        """What an owner stored. Raises EngineError."""
        found: bytes | None = await self.engine.command("HGET", self.keys.of(partition, "jars"), name)
        return found

    async def robots(self, partition: int, origin: str) -> bytes | None:
        """The robots blob that some owner shared for an origin."""
        (blob,) = await self._gathered.run(Call("read_queues", (self.keys.meta(partition),), ("robots", origin)))
        return bytes(blob) or None

    async def awake(self, partitions: Sequence[int]) -> list[Awake]:
        """Those of the partitions in which something is to be claimed, now or later. What is on a shard that is down
        is left out. Raises EngineError.
        """
        if not partitions:
            return []
        asked = {
            kind: [(command, self.keys.of(p, kind), *options) for p in partitions]
            for kind, command, options in AWAKE_KINDS
        }
        may_exist = await self.engine.may_exist([[command[1] for command in commands] for commands in asked.values()])
        asked = {kind: asked[kind] for kind, may in zip(asked, may_exist, strict=True) if may}  # most are nowhere
        found = iter(or_nothing(await self.engine.replies_of([*chain.from_iterable(asked.values())])))
        replies = {kind: [next(found) for _ in commands] for kind, commands in asked.items()}
        nothing = [None] * len(partitions)
        by_partition = zip(partitions, *(replies.get(kind, nothing) for kind, _, _ in AWAKE_KINDS), strict=True)
        return [
            Awake(p, 0 if users else _first_score(ready), _first_score(at))
            for p, ready, users, at in by_partition
            if ready or users or at
        ]

    def _fenced(self, name: str, fence: Fence, *args: Any) -> Call:
        first = FenceArgs(fence.session, fence.epoch, fence.now_ms)
        return Call(name, (self.keys.meta(fence.partition),), (*first, *args))


def _first_score(first: Sequence[bytes] | None) -> int | None:
    return int(float(first[1])) if first else None


def or_nothing(replies: Sequence[Any]) -> list[Any]:
    """None in the place of an error: of a partition whose shard is down, nothing is known."""
    return [None if isinstance(reply, EngineError) else reply for reply in replies]


def _bounded(acks: Sequence[Ack], numbers: Sequence[int]) -> Iterator[list[int]]:
    """What goes into one call: at most ACK_MAX commits, and links for about a millisecond of the engine."""
    some: list[int] = []
    links = 0
    for number in numbers:
        more = len(acks[number].items)
        if some and (len(some) == ACK_MAX or links + more > ADD_ITEMS_MAX):
            yield some
            some, links = [], 0
        some.append(number)
        links += more
    if some:
        yield some
