"""Each move of the table of states, by each script that makes it, on a real engine: where a URL is, what counts it."""

import re
from collections import Counter
from typing import Any

import pytest

from crawler.frontier.codec import DeadLetter
from crawler.frontier.dead_letters import DeadLetters
from crawler.frontier.deferred import ChangeKind, DeferredUrls, QueueChange
from crawler.frontier.messages import AddBudget
from crawler.frontier.operator import Purge
from crawler.frontier.owner import Aside, Settlement
from crawler.frontier.restore import DoneUrl, Restoring, SeenUrl
from crawler.frontier.runs import Runs
from crawler.frontier.scripts import NAMES, script
from crawler.frontier.states import BOOKS, ENDED, MOVES, PENDING, State
from crawler.model import Candidate, Claim, RefusalReason
from tests.frontier.door import HASH_KEY, Door, found
from tests.frontier.raw import RawPartition, dump

QUEUE, ORIGIN = "a.test", "http://a.test"
SETTLED = Settlement(next_fetch_ms=0, delay_ms=0)
LATER_S = 10**6
TRAP, DEEP, RUN = "trap:calendar", "depth", "job.1.1"
MOVING = re.compile(r"\bState\.|add_items\(|put_back\(|put_pending\(|release_best\(")  # how scripts move URLs
WALK = [(of, to, script) for (of, to), scripts in MOVES.items() for script in scripts]


class Walk:
    """One URL, and what is done with it. `why_of`, `why_to`: the reason of its state, before and after."""

    def __init__(self, door: Door, of: State, to: State, script: str) -> None:
        self.door, self.of, self.to, self.script = door, of, to, script
        self.why_of = self.why_to = ""
        self.url = found("it")
        self.claim: Claim | None = None

    async def claimed(self) -> Claim:
        self.door.now += 100_000
        claims = {claim.url: claim for claim in await self.door.claim(at_s=0.0, probe_ms=10**9)}
        await self.door.return_claims(*(claim for url, claim in claims.items() if url != self.url.url))
        return claims[self.url.url]

    async def end(self, call: Any) -> None:
        (outcome,) = await self.door.frontier.end([call])
        assert not isinstance(outcome, Exception)

    def letter(self) -> DeadLetter:
        self.why_of = self.why_to = "timeout"
        return DeadLetter(
            url=self.url.url, queue=QUEUE, domain=QUEUE, depth=1, reason="timeout", detail="", attempts=1,
            failed_at=1.0, run=self.url.run,
        )  # fmt: skip

    def done(self) -> DoneUrl:
        return DoneUrl(
            fingerprint=self.url.fingerprint, partition=0, domain=QUEUE, queue=QUEUE, status=200, body_bytes=0,
            fetch_ms=0,
        )  # fmt: skip

    async def arrange(self) -> None:
        """The URL is in the state from which it is moved."""
        door, f = self.door, self.door.frontier
        await f.book_request(door.fence, QUEUE, SETTLED)
        if self.of is State.UNSEEN:
            return
        if self.of is State.SCHEDULED:
            self.url = found("it", visible_at=LATER_S)
        if self.of is State.DEFERRED:
            self.why_of = TRAP
            if self.script in ("add", "ack"):
                f.is_limited, self.why_of = True, DEEP
                self.url = found("it", depth=9, deferred=DEEP)
            elif self.script == "admit_hosts":
                f.add_budget, self.why_of = AddBudget(hosts=1), "hosts"
                await door.add(found("other", url="http://b.a.test/"))
            else:
                self.url = found("it", deferred=TRAP)
        if (self.script, self.to) in (("defer", State.REFUSED), ("requeue_dead", State.REFUSED)):
            self.url = found("it", run=RUN)
            await door.engine.command(
                "HSET", door.keys.of(Runs(door.engine, door.keys, 1).home(RUN), "runs"), RUN, "{}"
            )
        await door.add(self.url)
        if self.of in (State.CLAIMED, State.ASIDE, State.RETRYING, State.COMMITTED, State.DEAD):
            self.claim = await self.claimed()
        if self.of is State.ASIDE:
            await self.end(f.return_claims(door.fence, [(self.claim, 0)], aside=Aside(ORIGIN, door.now + 1000, 0)))
        elif self.of is State.RETRYING:
            due = door.now + 1000
            await self.end(f.retry(door.fence, self.claim, SETTLED, due_ms=due, kind="tls"))
        elif self.of is State.COMMITTED:
            await door.ack(self.claim)
        elif self.of is State.DEAD:
            await self.end(f.dead_letter(door.fence, self.claim, SETTLED, self.letter()))

    async def move(self) -> None:
        await getattr(self, self.script)()

    def _arriving(self) -> Candidate:
        """As it is found (again), so that it comes where it is to come."""
        depth = {"depth": 1} if self.of is State.DEFERRED else {}
        if self.to is State.SCHEDULED:
            return found("it", visible_at=LATER_S, **depth)
        if self.to is State.DEFERRED:
            self.why_to = TRAP
            return found("it", deferred=TRAP, **depth)
        if self.to is State.REFUSED:
            self.why_to = TRAP
            return found("it", deferred=TRAP, run=RUN)
        return found("it", **depth)

    async def add(self) -> None:
        self.url = self._arriving()
        await self.door.add(self.url)

    async def ack(self) -> None:
        if self.of is State.CLAIMED:
            await self.door.ack(self.claim)
            return
        url, parent = self._arriving(), found("parent", run=RUN if self.to is State.REFUSED else "")
        await self.door.add(parent)
        self.door.now += 100_000
        (claim,) = await self.door.claim(at_s=0.0)
        self.before = self.books()
        await self.door.ack(claim, url)
        self.url = url

    async def claim_again(self, **request: Any) -> None:
        """Nothing is handed out: only what is due goes back."""
        self.door.now += 10**9
        await self.door.claim(urls_max=0, probe_ms=10**12, **request)

    async def claim_it(self) -> None:
        if self.of is State.QUEUED:
            self.claim = await self.claimed()
        else:
            await self.claim_again(at_s=float(LATER_S if self.of is State.SCHEDULED else 0))

    async def return_claims(self) -> None:
        f, claim = self.door.frontier, self.claim
        if self.of is State.QUEUED:
            await self.door.add(found("other", score=9.0))
            self.door.now += 100_000
            (claim,) = await self.door.claim(urls_max=1)
            self.before = self.books()
        aside = Aside(ORIGIN, 10**9, 0) if self.to is State.ASIDE else None
        await self.end(f.return_claims(self.door.fence, [(claim, 0)], **({"aside": aside} if aside else {})))

    async def purge(self) -> None:
        self.why_to = "purged"
        assert await Purge(self.door.frontier, DeferredUrls(self.door.frontier, 1)).purge(0, QUEUE) == 1

    async def restate(self) -> None:
        restoring = Restoring(self.door.engine, self.door.keys, hash_key=HASH_KEY)
        if self.to is State.UNSEEN:
            assert await restoring.reopen([self.done()]) == 1
        elif self.of is State.CLAIMED and self.to is State.REFUSED:
            self.why_to = "purged"
            pending = [pair async for some in restoring.all_pending(0) for pair in some]
            ours = [(fp, place) for fp, place in pending if fp == self.url.fingerprint]
            assert await restoring.refuse(0, QUEUE, ours, RefusalReason.PURGED) == 1
        elif self.to is State.REFUSED:
            self.why_to = "fetched_before"
            seen = SeenUrl(self.url.fingerprint, 0, QUEUE, QUEUE)
            assert await restoring.mark_seen([seen], "fetched_before") == 1
        elif self.of is State.UNSEEN:
            assert await restoring.restore([self.done()]) == 1
        else:
            pending = [pair async for some in restoring.all_pending(0) for pair in some]
            place = next(place for fp, place in pending if fp == self.url.fingerprint)
            assert await restoring.withdraw([(place, self.done())]) == 1

    async def retry(self) -> None:
        await self.end(self.door.frontier.retry(self.door.fence, self.claim, SETTLED, due_ms=10**9, kind="tls"))

    async def dead_letter(self) -> None:
        await self.end(self.door.frontier.dead_letter(self.door.fence, self.claim, SETTLED, self.letter()))

    async def refuse(self) -> None:
        self.why_to = "robots"
        await self.end(self.door.frontier.refuse(self.door.fence, self.claim, "robots"))

    async def defer(self) -> None:
        if self.to is State.QUEUED:
            await self.door.add(found("other", deferred=TRAP))
            await self._release()
            self.before = self.books()
        self.why_to = TRAP
        await self.end(self.door.frontier.defer(self.door.fence, self.claim, TRAP))

    async def _release(self) -> None:
        change = QueueChange(QUEUE, ChangeKind.RELEASE, TRAP, 1)
        await DeferredUrls(self.door.frontier, 1).change_queues(0, [change])

    async def change_queues(self) -> None:
        await self._release()

    async def admit_hosts(self) -> None:
        (member,) = self.raw().zset(f"q:{QUEUE}|hosts")
        assert await DeferredUrls(self.door.frontier, 1).admit(0, QUEUE, QUEUE, 2, [("", member, QUEUE)]) == 1

    async def requeue_dead(self) -> None:
        letters = DeadLetters(self.door.frontier, 1)
        (letter,) = [one async for some in letters.read() for one in some]
        fp = self.url.fingerprint
        if self.to is State.REFUSED:
            change = QueueChange(QUEUE, ChangeKind.STOP, "blocked")
            await DeferredUrls(self.door.frontier, 1).change_queues(0, [change])
            self.why_to = "blocked"
            self.before = self.books()
        assert await letters.requeue([letter], {fp: LATER_S} if self.to is State.SCHEDULED else {}) == 1

    async def discard_dead(self) -> None:
        self.why_to = "discarded"
        letters = DeadLetters(self.door.frontier, 1)
        assert await letters.discard([one async for some in letters.read() for one in some], "discarded") == 1

    # What the engine has

    def raw(self) -> RawPartition:
        with self.door.node as node:
            return RawPartition.of(dump(node, self.door.keys.of(0, "*")), self.door.keys, 0)

    def place(self) -> State | None:
        """Where it is; None where nothing but the seen-set, or nothing at all, has it."""
        raw, fp = self.raw(), self.url.fingerprint
        tokens = {token for token, (one, *_) in raw.delivered().items() if one == fp}
        found = {
            State.QUEUED: fp in raw.queued(), State.ASIDE: fp in raw.aside(), State.DEFERRED: fp in raw.deferred(),
            State.SCHEDULED: fp in raw.scheduled(), State.CLAIMED: bool(tokens & raw.zset("x").keys()),
            State.RETRYING: bool(tokens & raw.zset("r").keys()), State.DEAD: fp in raw.hash("dead"),
            State.COMMITTED: f"{fp}:1" in raw.hash("l"),
        }  # fmt: skip
        places = [state for state, is_there in found.items() if is_there]
        assert len(places) <= 1, places
        return places[0] if places else None

    def books(self) -> Counter[str]:
        raw = self.raw()
        left_out = ("session", "node", "epoch", "engine", "hash_key", "request", "clock", "hold", "turns")
        totals = {f"total {name}": n for name, n in raw.numbers("m", *left_out).items()}
        record = {k: v for k, v in raw.record(QUEUE).items() if isinstance(v, int)}
        return Counter(totals | {f"queue {name}": n for name, n in record.items()})

    def expected(self) -> Counter[str]:
        """How the table says that the books change."""
        change: Counter[str] = Counter()
        for state, reason, n in ((self.of, self.why_of, -1), (self.to, self.why_to, 1)):
            if state is State.UNSEEN:
                continue
            of = BOOKS[state]
            for where, names in (("total", of.totals), ("queue", of.queue)):
                change.update({f"{where} {name}{reason if name.endswith(':') else ''}": n for name in names})
            if n == 1:
                change.update({"total done": state in ENDED, f"total {of.begun}": bool(of.begun)})
            elif state in ENDED:
                change.update({"total added": 1, f"total {of.back}": 1})
        if State.UNSEEN in (self.of, self.to):
            change["total added"] += 1 if self.of is State.UNSEEN else -1
        if self.script == "ack" and self.of is not State.CLAIMED:
            change["total done"] += 1  # the page that leads to it
        if (self.script, self.of) == ("return_claims", State.QUEUED):
            change["queue aside"] += 1  # the claim that is returned
        return change


def test_each_state_but_unseen_has_books_and_is_pending_or_ended_and_can_be_reached() -> None:
    assert {*BOOKS} == {*PENDING, *ENDED} == {*State} - {State.UNSEEN}
    assert not {*PENDING} & {*ENDED}
    assert {to for _, to in MOVES} == {*State}
    assert {of for of, _ in MOVES} == {*State} - {State.REFUSED}, "nothing leads away from what is refused"
    assert {name for scripts in MOVES.values() for name in scripts} <= {*NAMES}


@pytest.mark.parametrize(("of", "to", "script"), WALK, ids=lambda value: str(value))
async def test_each_move_of_the_table(door: Door, of: State, to: State, script: str) -> None:
    walk = Walk(door, of, to, script)
    await walk.arrange()
    assert walk.place() in (of, None)
    walk.before = walk.books()
    await (walk.claim_it() if script == "claim" else walk.move())
    assert walk.place() in ({to} if to not in (State.REFUSED, State.COMMITTED, State.UNSEEN) else {to, None})
    after, expected = walk.books(), walk.expected()
    for name in {f"total {name}" for name in ("added", "done", "revived", "released", "deferrals")} | expected.keys():
        assert after[name] - walk.before[name] == expected[name], name


def test_every_other_pair_is_impossible() -> None:
    """Where nothing leads from: an end that is not taken back, and what nobody has seen."""
    states = set(State)
    assert {of for of, _ in MOVES} == states - {State.REFUSED}
    assert {to for _, to in MOVES} == states
    assert all((state, state) not in MOVES for state in states - {State.DEFERRED})
    movers = {script for scripts in MOVES.values() for script in scripts}
    assert movers == {name for name in NAMES if MOVING.search(script(name).source)}
