"""What the steps of the frontier's state machine share: the sessions' hands, the fence, and what always holds."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant
from msgspec.structs import replace

from crawler.engine.client import Engine
from crawler.frontier.deferred import CRAWL_URLS
from crawler.frontier.keys import Keys
from crawler.frontier.leases import Acquired, Lease, Leases, SlotQueue
from crawler.frontier.messages import AddBudget, ClaimReply
from crawler.frontier.owner import ClaimRequest, Fence, Frontier, Settlement
from crawler.frontier.runs import Runs
from crawler.frontier.spilling import Block, Place, Urls
from crawler.model import REQUISITE, Candidate, Claim, Request
from crawler.rules.places import twin_of
from crawler.rules.urls import origin_of
from tests.frontier.declared import faults_of, typed
from tests.frontier.door import HASH_KEY, fingerprint
from tests.frontier.machine_checks import (
    check_counters,
    check_marks,
    check_moves,
    check_names,
    check_queues,
    check_states,
    check_users,
)
from tests.frontier.machine_runs import check_runs
from tests.frontier.model import PartitionModel
from tests.frontier.model_urls import (
    DEFAULT_DELAY_MS,
    DEPTH_MAX,
    HOSTS_MAX,
    IDLE_MS,
    SHORT_MS,
    USERS,
    State,
    row_of,
    rows_of,
)
from tests.frontier.raw import RawPartition, dump

SESSIONS = ("ann", "bob", "cyd")
PARTITIONS = (0, 1)
# Three queues of two domains in each partition, as with frontier.queue_by = "host".
HOSTS = (("a.test", "a.test"), ("x.b.test", "b.test"), ("y.b.test", "b.test"))
PATHS = 9
TWIN, TWIN_OF = 5, 3  # paths: the first one stands for the URL of the second one as a requisite
TRAP = "trap:path"  # what URLs are deferred for
DEFERRED = {2: CRAWL_URLS}  # by their depth: whoever finds these knows of no room for further URLs of the crawl
INTAKE = AddBudget(hosts=HOSTS_MAX)
REQUESTS = {  # of URLs, by their path
    2: Request(method="POST", body=b"q=a/b c", meta={"from": "a/b c"}),
    4: Request(meta={"page": 1}),
    7: Request(method="POST", key="again"),
}
RUNS = ("one.0.0", "two.0.0")  # of jobs

moments = st.sampled_from((0, 0, 0, 1, 700, -900))  # by how much a caller's clock is off
delays = st.sampled_from((-1, -1, 0, 500, 2500))
waits = st.sampled_from((0, 1, 800, 2500))
some = st.integers(0, 10**6)  # an index into whatever there is
deliveries = st.sampled_from(("live", "live", "live", "overtaken", "overtaken again", "any", "any again"))
partitions = st.sampled_from(PARTITIONS)
sessions = st.sampled_from(SESSIONS)


def candidate(partition: int, host: int, path: int, depth: int, run: str = "") -> Candidate:
    queue, domain = HOSTS[host]
    if path == TWIN and not run:
        return requisite_of(candidate(partition, host, TWIN_OF, depth))
    host = f"{path}.{queue}" if path > PATHS - 4 and queue == domain else queue
    url = f"http://{host}/{partition}/{path}"
    score = -depth - path / 1e3 - (RUNS.index(run) + 1 if run else 0) / 1e2  # no two alike in a queue
    too_deep = "depth" if depth > DEPTH_MAX and not run else ""  # what is too deep for a run is never added
    return Candidate(
        url=url, fingerprint=fingerprint(url, run, REQUESTS.get(path)), run=run, request=REQUESTS.get(path),
        partition=partition, domain=domain, queue=queue, depth=depth, score=score,
        deferred=DEFERRED.get(depth, too_deep), label="detail" if path % 3 == 1 else "",
    )  # fmt: skip


def requisite_of(page: Candidate) -> Candidate:
    """The same URL as a requisite, which has a state of its own."""
    return replace(
        page, label=REQUISITE, fingerprint=twin_of(page.fingerprint), score=-5 - page.depth / 1e3, deferred=""
    )


@st.composite
def candidates(draw: st.DrawFn, partition: int, most: int, run: str | None = None) -> list[Candidate]:
    """Of one run, or of any."""
    of = st.sampled_from(("", "", *RUNS)) if run is None else st.just(run)
    picked = st.tuples(st.integers(0, len(HOSTS) - 1), st.integers(0, PATHS - 1), st.integers(0, 5), of)
    return [candidate(partition, *what) for what in draw(st.lists(picked, min_size=1, max_size=most))]


@dataclass(frozen=True)
class Delivery:
    """A claim in somebody's hands, for ever: what is too late or of a lost lease must change nothing."""

    session: str
    claim: Claim


class Disk:
    """Files as the machine has them: name -> the one block in it."""

    def __init__(self, files: Mapping[str, Urls]) -> None:
        self._files = files

    def read(self, partition: int, places: Sequence[Place]) -> list[bytes]:
        blocks = [self._files[file] for file, *_ in places]
        return [Block(partition=partition, queue="", id="", urls=urls).packed() for urls in blocks]


class FrontierSteps(RuleBasedStateMachine):
    """What the steps have in common, and what holds after each of them."""

    known = 2  # URLs of each queue at the start
    users: Sequence[str] = ("",)  # whose URLs are added

    def __init__(self, loop: asyncio.AbstractEventLoop, engine: Engine, raw: Any) -> None:
        super().__init__()
        self._loop, self._engine, self._raw = loop, engine, raw
        self._keys = Keys("t")
        self._leases = Leases(engine, self._keys, hash_key=HASH_KEY)
        self._frontiers = {
            s: Frontier(
                engine,
                self._keys,
                session=s,
                hash_key=HASH_KEY,
                default_delay_ms=DEFAULT_DELAY_MS,
                is_limited=True,
                add_budget=INTAKE,
            )
            for s in SESSIONS
        }
        self._slot_queue = SlotQueue(engine, self._keys, default_delay_ms=DEFAULT_DELAY_MS)
        self._models = {p: PartitionModel() for p in PARTITIONS}
        self._epochs: dict[tuple[str, int], int] = {}  # what each session believes to hold
        self._requests: dict[tuple[str, int], ClaimRequest] = {}  # the last one sent
        self._deliveries: list[Delivery] = []
        self._now = self._serial = self._waiters = 0
        self._wall = 1_800_000_000_000
        self._disk: dict[str, Urls] = {}  # file -> the one block in it
        self._spilled: set[tuple[int, str]] = set()  # queues whose order is that of their blocks: some were in files
        self._handed: dict[str, int] = {}  # queue -> clock of the last hand-out

    def _of_users(self, found: Sequence[Candidate]) -> list[Candidate]:
        """The same, shared out among the users."""
        return [replace(c, user=self.users[int(c.url.rpartition("/")[2]) % len(self.users)]) for c in found]

    def _do(self, call: Any) -> Any:
        return self._loop.run_until_complete(call)

    def _dump(self) -> dict[bytes, Any]:
        whole: dict[bytes, Any] = {}
        for client in self._raw:
            whole |= dump(client, "*")
        return whole

    @initialize()
    def empty(self) -> None:
        for client in self._raw:
            client.flushdb()
        runs = Runs(self._engine, self._keys, len(PARTITIONS))
        for run in RUNS:  # active, however soon a partition is closed
            self._do(self._engine.command("HSET", self._keys.of(runs.home(run), "runs"), run, "{}"))
            assert self._do(runs.touch(run, PARTITIONS))
        self._states = dict[int, dict[str, State]]()
        self._before = self._dump()
        for partition, session in zip(PARTITIONS, SESSIONS, strict=False):
            self._acquire(partition, session, 0, stale=False)
            known = [candidate(partition, host, path, 3) for host in range(len(HOSTS)) for path in range(self.known)]
            known = self._of_users(known)
            self._do(self._frontiers[session].add({partition: known}))
            self._models[partition].add(known)
            self._do(
                self._frontiers[session].book_request(
                    self._owner(partition, 0), HOSTS[1][0], Settlement(next_fetch_ms=0, delay_ms=0)
                )
            )
            self._models[partition].settle(HOSTS[1][0], 0, 0)
        self._untouched = False

    def _acquire(self, partition: int, session: str, floor: int, *, stale: bool) -> None:
        model = self._models[partition]
        seen = Lease(partition, model.session, "", model.epoch)
        if stale:
            seen = replace(seen, epoch=max(0, model.epoch - 1), session=SESSIONS[floor % 3])
        expected = model.lease(session, (seen.session, seen.epoch), floor)
        (reply,) = self._do(self._leases.acquire(session, f"node-{session}", [(seen, floor)]))
        self._untouched = expected is None
        if expected is None:
            assert isinstance(reply, Lease)
            assert (reply.session, reply.epoch) == (model.session, model.epoch)
            return
        assert isinstance(reply, Acquired)
        assert (reply.epoch, reply.clock_ms, reply.log_entries) == (expected, model.clock, len(model.log))
        assert expected > max(floor, self._epochs.get((session, partition), 0))
        self._epochs[session, partition] = expected

    # Which fence a step speaks under: mostly the one that holds, sometimes one that was lost.

    def _fence(self, session: str, partition: int, epoch: int, off: int) -> Fence:
        return Fence(partition, session, epoch, max(0, self._now + off))

    def _owner(self, partition: int, off: int) -> Fence:
        model = self._models[partition]
        return self._fence(model.session, partition, model.epoch, off)

    def _is_held(self, fence: Fence) -> bool:
        """Does the model take this fence (and carry its clock on)? If not, nothing may change."""
        ok = self._models[fence.partition].fence(fence.session, fence.epoch, fence.now_ms)
        self._untouched = not ok
        return ok

    def _claim(self, fence: Fence, request: ClaimRequest) -> None:
        model, session = self._models[fence.partition], fence.session or "ann"
        (reply,) = self._do(self._frontiers[session].claim([(fence, request)]))
        if not fence.session:
            self._untouched = True
            return
        self._requests[session, fence.partition] = request
        assert self._is_held(fence)
        assert reply.status == "OK"
        model.expire(round(request.at_s * 1000))
        self._come_back(model, fence.partition, reply)
        self._look_at_borrowers(model, fence.partition, waiting=False)  # who is done: the queue may be handed out then
        claims = [c for b in reply.batches for c in b.claims]
        if request.request_id == model.request:
            assert {c.fingerprint for c in claims} == model.claimed_by(request.request_id)
            assert all(model.is_claimed(c.fingerprint, c.token) for c in claims)
            assert all(batch.start_ms == model.start_ms(batch.queue) for batch in reply.batches)
        else:
            self._check_batches(model, request, reply, fence.partition)
            if claims:
                model.request = request.request_id
        for claim in claims:
            self._check_claim(model, claim, fence)
            self._deliveries.append(Delivery(session, claim))
        self._look_at_borrowers(model, fence.partition, waiting=True)
        raw = self._raw_of(self._dump(), fence.partition)
        assert set(reply.short) == set(raw.zset("short"))
        self._check_waits(model, raw, reply.waits, request.lead_ms)
        first, last = model.soonest({n for n in model.names() if not any(raw.zset(f"q:{r}") for r in rows_of(n))})
        first = min([first, *(int(at) + IDLE_MS for at in raw.zset("idle").values())])
        assert first - request.lead_ms <= reply.next_due_ms or (
            reply.short and reply.next_due_ms == model.clock + SHORT_MS
        )
        last = max(last, model.clock) if last >= 0 else last  # a queue that woke is due since then
        assert last < 0 or 0 <= reply.next_due_ms <= last

    def _come_back(self, model: PartitionModel, partition: int, reply: ClaimReply) -> None:
        """URLs of origins that were due are in their queues, or claimed already."""
        raw = self._raw_of(self._dump(), partition)
        gone = model.in_state(State.ASIDE) - set(raw.aside())
        back: dict[tuple[str, str], list[str]] = {}
        for candidate in (model.urls[f].candidate for f in gone):
            back.setdefault((candidate.queue, origin_of(candidate.url)), []).append(candidate.fingerprint)
        before = self._raw_of(self._before, partition)
        assert {*reply.probes} == model.come_back(back, {*before.zset("short"), *raw.zset("short")})

    def _check_waits(
        self, model: PartitionModel, raw: RawPartition, waits: Mapping[tuple[int, str], int], lead_ms: int
    ) -> None:
        """What a claim tells of boosts and users is when the first of their queues is due."""
        firsts: dict[tuple[int, str], int] = {}
        for (_, user), (due_ms, boost) in raw.ready().items():
            at_ms = max(0, int(due_ms) - lead_ms)
            firsts[boost, user] = min(at_ms, firsts.get((boost, user), at_ms))
        assert {key: at_ms for key, at_ms in waits.items() if at_ms >= 0} == (firsts if waits else {})
        boosts, users = {queue.boost for queue in model.queues.values()} | {0}, {"", *model.users()}
        if len(boosts) > 1 or len(users) > 1:
            assert {(boost, user) for boost in boosts for user in users} <= set(waits)

    def _raw_of(self, whole: dict[bytes, Any], partition: int) -> RawPartition:
        return RawPartition.of(whole, self._keys, partition, self._disk)

    def _look_at_borrowers(self, model: PartitionModel, partition: int, *, waiting: bool) -> None:
        raw = self._raw_of(self._dump(), partition)
        for name in model.names():
            queue, w = model.queue(name), raw.record(name)
            if queue.borrower or (waiting and queue.waiter):
                seen_ms = int(w["borrower_seen"]) if "borrower_seen" in w else None
                model.borrower_looked_at(
                    name, is_there=("borrower" if queue.borrower else "waiter") in w, seen_ms=seen_ms
                )

    def _check_batches(self, model: PartitionModel, request: ClaimRequest, reply: Any, partition: int) -> None:
        left, batches = request.urls_max, reply.batches
        boosts = [model.queue(b.queue).boost for b in batches]
        assert boosts == sorted(boosts, reverse=True)
        assert len({(b.queue, b.claims[0].user) for b in batches}) == len(batches)
        for name in dict.fromkeys(b.queue for b in batches):
            queue, mine = model.queue(name), [b for b in batches if b.queue == name]
            assert name in model.due_queues(request.lead_ms), "handed out too early, or with claims out"
            most, n = min(left, model.allowance(name, left)), sum(len(b.claims) for b in mine)
            rows = rows_of(name)
            assert n == most or (n < most and {*rows} & {*reply.short} and {*rows} & self._spilled_of(partition))
            for batch in mine:
                user = batch.claims[0].user
                assert batch.start_ms == model.start_ms(name)
                assert batch.aside == len(model.of_queue(name, State.ASIDE))
                assert batch.delay_ms == (-1 if queue.delay_ms is None else queue.delay_ms)
                waiting, got = model.of_row(name, user), [c.fingerprint for c in batch.claims]
                if row_of(name, user) in self._spilled_of(partition):
                    assert set(got) <= set(waiting)
                else:
                    assert got == waiting[: len(got)]
            left -= n
            if queue.waiter:
                queue.waiter, queue.borrower_seen = "", None
            for claim in (c for b in mine for c in b.claims):
                model.hand_out(claim.fingerprint, claim.token)
            left_over = {user for user in ("", *USERS) if model.of_row(name, user)}
            assert all(set(b.waiting) == left_over for b in mine if b.waiting or b.claims[0].user)
        assert left >= 0
        due = model.due_queues(request.lead_ms)
        short = {row.partition("|")[0] for row in reply.short}
        waiting = [n for n in due if n not in {b.queue for b in batches} | short]
        assert all(model.queue(n).boost <= min(boosts, default=9) for n in waiting), "one with less went before"
        assert not (waiting and left and request.urls_max >= len(HOSTS)), "due, but not handed out"

    def _check_claim(self, model: PartitionModel, claim: Claim, fence: Fence) -> None:
        url = model.urls[claim.fingerprint]
        assert (claim.url, claim.queue, claim.domain) == (url.candidate.url, url.candidate.queue, url.candidate.domain)
        assert (claim.depth, claim.score) == (url.depth, (url.score >> 21) / 4096)
        assert (claim.attempts, claim.deliveries, claim.visit) == (url.attempts, url.deliveries, 1)
        assert (claim.deaths, claim.label, claim.run) == (url.deaths, url.candidate.label, url.candidate.run)
        assert (claim.user, claim.request) == (url.user, url.request)
        assert (claim.partition, claim.epoch) == (fence.partition, fence.epoch)

    def _check_states(self, model: PartitionModel, raw: RawPartition) -> None:
        check_states(model, raw)

    def _pick(
        self, index: int, off: int, which: str, *, has_request: bool = False
    ) -> tuple[PartitionModel, Claim, Fence, bool]:
        """A delivery, the fence to speak under, and whether it still counts. Mostly one that does."""
        pools = {
            "live": [d for d in self._deliveries if self._counts(d)],
            "overtaken": [d for d in self._deliveries if self._is_pending(d) and not self._counts(d)],
        }
        pool = pools.get(which.removesuffix(" again")) or self._deliveries
        if has_request:
            pool = [d for d in pool if d.claim.request] or [d for d in self._deliveries if d.claim.request]
        delivery = pool[index % len(pool)]
        claim, session = delivery.claim, delivery.session
        model = self._models[claim.partition]
        fence = self._fence(session, claim.partition, claim.epoch, off)
        if which.endswith(" again") and session == model.session:
            # The same session, which acquired the lease again.
            fence = msgspec.structs.replace(fence, epoch=model.epoch)
        return model, claim, fence, self._is_held(fence) and model.is_claimed(claim.fingerprint, claim.token)

    def _is_pending(self, d: Delivery) -> bool:
        return self._models[d.claim.partition].urls[d.claim.fingerprint].state is State.CLAIMED

    def _counts(self, d: Delivery) -> bool:
        model = self._models[d.claim.partition]
        held = (model.session, model.epoch) == (d.session, d.claim.epoch)
        return held and model.is_claimed(d.claim.fingerprint, d.claim.token)

    def _settled(self, model: PartitionModel, claim: Claim, after: int, delay: int) -> Settlement:
        settlement = Settlement(next_fetch_ms=self._now + after, delay_ms=delay)
        model.settle(claim.queue, settlement.next_fetch_ms, delay)
        return settlement

    # What always holds

    @invariant()
    def engine_and_model_agree(self) -> None:
        if not hasattr(self, "_before"):
            return
        now = self._dump()
        if getattr(self, "_untouched", False):
            assert now == self._before, "a call without the fence left a trace"
        assert list(faults_of(self._keys, typed(now))) == []
        before, self._before, self._untouched = self._before, now, False
        for partition, model in self._models.items():
            raw = self._raw_of(now, partition)
            self._check_states(model, raw)
            self._states[partition] = check_moves(self._states.get(partition, {}), model)
            check_counters(model, raw)
            check_runs(model, raw, RUNS)
            check_names(model, raw)
            check_marks(self._raw_of(before, partition), raw)
            check_queues(model, raw, self._spilled_of(partition))
            check_users(model, raw)

    def _spilled_of(self, partition: int) -> set[str]:
        return {name for p, name in self._spilled if p == partition}
