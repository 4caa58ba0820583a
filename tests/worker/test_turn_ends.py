"""Each end of a turn frees its queue's slot once, and leaves the claim in one place."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from crawler.errors import EngineDown, InvariantError
from crawler.model import Claim, FailureKind
from crawler.worker import turn as turns
from crawler.worker.open_claims import ClaimPlace, OpenClaims
from crawler.worker.outcomes import Failed, Outcome, Refused
from crawler.worker.schedule import Scheduler
from crawler.worker.turn import Turn, TurnEnd
from tests.support.patience import PATIENCE_S
from tests.worker.test_schedule import batch, claim
from tests.worker.turn_lab import claims_open, runner_of, turn_of

ENDS = {
    "requeue": (turns.Requeue(), "here"),
    "requeue at the tail": (turns.Requeue(at_tail=True), "here"),
    "await address": (turns.AwaitAddress("192.0.2.1"), "here"),
    "return": (turns.ReturnToEngine(), "returned"),
    "lease lost": (turns.LeaseLost(), "dropped"),
    "deliver": (turns.Deliver(Refused(claim=batch(1).claims[0], reason="robots")), "delivered"),
    "await reach": (turns.AwaitReach(lambda requeue: requeue()), "here"),
    "set aside": (turns.SetAside("http://a.test", 0, None), "set aside"),
}


class TurnHarness:
    """Runs one turn, and records where its claims go."""

    def __init__(self) -> None:
        self.open_claims = claims_open(batch(1).claims)
        self.scheduler = Scheduler(self.open_claims, concurrency_per_queue=1)
        self.scheduler.put(batch(1))
        self.delivered: list[Outcome] = []
        self.returned: list[Claim] = []
        self.aside: list[Claim] = []

    async def run(self, work: Callable[[Turn], Awaitable[TurnEnd]]) -> None:
        async def return_claim(claim: Claim) -> None:
            self.returned.append(claim)

        async def set_aside(claims: list[Claim], end: turns.SetAside) -> None:
            self.aside += claims

        runner = runner_of(
            self.scheduler, deliver=self.delivered.append, return_claim=return_claim, set_aside=set_aside,
            open_claims=self.open_claims,
        )  # fmt: skip
        slot, claim = await self.scheduler.next()
        await runner.run(turn_of(self.scheduler, slot, claim), work)

    def count(self) -> dict[str, int]:
        found = {
            "here": self.scheduler.waiting,
            "returned": len(self.returned),
            "dropped": 1 - self.open_claims.total,
            "delivered": len(self.delivered),
            "set aside": len(self.aside),
        }
        return {place: n for place, n in found.items() if n}


@pytest.mark.parametrize("is_over", [True, False], ids=["after the request", "before it"])
@pytest.mark.parametrize("name", ENDS)
async def test_each_end_frees_the_slot_once_and_keeps_one_claim(name: str, is_over: bool) -> None:
    end, place = ENDS[name]
    harness = TurnHarness()

    async def work(turn: Turn) -> TurnEnd:
        if is_over:
            turn.request_over(wait_ms=0)
        return end

    await harness.run(work)
    assert harness.scheduler.active == 0
    assert harness.count() == {place: 1}


PLACES = {
    "requeue": ClaimPlace.QUEUED,
    "requeue at the tail": ClaimPlace.QUEUED,
    "await address": ClaimPlace.AT_ADDRESS,
    "await reach": ClaimPlace.REACHING,
    "lease lost": None,
}


@pytest.mark.parametrize("name", PLACES)
async def test_after_its_turn_a_claim_is_where_the_end_says(name: str) -> None:
    harness, seen = TurnHarness(), list[ClaimPlace | None]()
    (one,) = batch(1).claims
    end = turns.AwaitReach(lambda _: None) if name == "await reach" else ENDS[name][0]

    def look() -> None:
        seen.append(harness.open_claims.place_of(one))

    async def work(turn: Turn) -> TurnEnd:
        look()
        turn.sent()
        look()
        turn.answered()
        look()
        turn.answered()
        return end

    look()
    await harness.run(work)
    look()
    assert seen == [
        ClaimPlace.QUEUED, ClaimPlace.IN_TURN, ClaimPlace.REQUESTED, ClaimPlace.ANSWERED, PLACES[name],
    ]  # fmt: skip


async def test_a_turn_tells_of_itself_in_four_events(caplog: pytest.LogCaptureFixture) -> None:
    async def work(turn: Turn) -> TurnEnd:
        turn.sent()
        turn.answered()
        turn.answered()  # by whoever only knows that nothing is sent any more
        return turns.Requeue()

    with caplog.at_level(logging.DEBUG, "crawler.worker.turn"):
        await TurnHarness().run(work)
    told = [(record.getMessage(), record.__dict__["url"]) for record in caplog.records]
    url = batch(1).claims[0].url
    assert told == [(f"turn.{event}", url) for event in ("began", "requested", "answered", "ended")]
    assert caplog.records[-1].__dict__["end"] == "Requeue"


def other_origin(n: int) -> Claim:
    """A claim of the same queue, of another origin."""
    return replace(claim(n), url=f"http://www.a.test/{n}")


async def test_an_origin_that_is_given_up_ends_its_waiting_claims_and_no_others() -> None:
    harness = TurnHarness()
    harness.scheduler.put(replace(batch(2), claims=(claim(2), other_origin(3), claim(4))))

    async def work(turn: Turn) -> TurnEnd:
        return turns.OriginGivenUp("http://a.test", lambda one: Failed.finally_(one, FailureKind.HOST_DEAD, ""))

    await harness.run(work)
    assert [outcome.claim.fingerprint for outcome in harness.delivered] == ["1", "2", "4"]
    assert (harness.scheduler.active, harness.scheduler.waiting) == (0, 1)
    assert (await asyncio.wait_for(harness.scheduler.next(), PATIENCE_S))[1].fingerprint == "3", (
        "the queue does not wait"
    )


async def test_waiting_claims_of_an_origin_are_set_aside_together_and_no_others() -> None:
    harness = TurnHarness()
    harness.scheduler.put(replace(batch(2), claims=(other_origin(2), claim(3), claim(4))))

    async def work(turn: Turn) -> TurnEnd:
        return turns.SetAside("http://a.test", 0, None)

    await harness.run(work)
    assert [one.fingerprint for one in harness.aside] == ["1", "3", "4"]
    assert (harness.scheduler.active, harness.scheduler.waiting) == (0, 1)
    assert (await asyncio.wait_for(harness.scheduler.next(), PATIENCE_S))[1].fingerprint == "2", (
        "the queue does not wait"
    )


async def test_an_engine_error_after_the_request_frees_the_slot_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "ENGINE_PAUSE_S", 0)
    harness = TurnHarness()

    async def work(turn: Turn) -> TurnEnd:
        turn.request_over(wait_ms=0)
        raise EngineDown("no answer")

    await harness.run(work)
    assert harness.scheduler.active == 0
    assert harness.count() == {"here": 1}


async def test_a_request_that_is_over_twice_is_an_error_of_ours() -> None:
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(batch(1))
    turn = turn_of(scheduler, *await scheduler.next())
    turn.request_over(wait_ms=0)
    with pytest.raises(InvariantError, match="over before"):
        turn.request_over(wait_ms=0)


async def test_others_of_its_queue_go_on_while_a_claim_waits_for_its_name() -> None:
    harness, answers = TurnHarness(), list[Callable[[], None]]()
    harness.scheduler.put(batch(2))

    async def work(turn: Turn) -> TurnEnd:
        return turns.AwaitReach(answers.append)

    await harness.run(work)
    assert (harness.scheduler.active, harness.scheduler.waiting) == (0, 1)
    slot, second = await asyncio.wait_for(harness.scheduler.next(), PATIENCE_S)
    assert second.fingerprint == "2"
    answers[0]()
    harness.scheduler.finished(slot, wait_ms=0)
    assert (await asyncio.wait_for(harness.scheduler.next(), PATIENCE_S))[1].fingerprint == "1"


async def test_a_queue_goes_on_once_a_request_that_is_apart_is_sent() -> None:
    """At its delay: an origin that may not answer holds up no other."""
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(batch(1, 2, delay_ms=0))
    turn = turn_of(scheduler, *await scheduler.next())
    turn.is_apart = True
    turn.slot.delay_ms = 5_000
    assert scheduler.active == 1
    turn.sent()
    assert (scheduler.active, scheduler.wait_of("a.test")) == (0, pytest.approx(5_001, abs=100))
    turn.request_over(wait_ms=60_000)
    assert (scheduler.active, scheduler.wait_of("a.test")) == (0, pytest.approx(5_001, abs=100)), "it has ended before"


async def test_a_request_that_is_apart_holds_a_queue_whose_delay_is_not_known() -> None:
    """Found by the simulation: the engine had forgotten a delay, robots.txt was asked for, and a page 80 ms later."""
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(batch(1, 2, delay_ms=-1))
    turn = turn_of(scheduler, *await scheduler.next())
    turn.is_apart = True
    turn.sent()
    assert scheduler.active == 1
    turn.request_over(wait_ms=5_000)
    assert (scheduler.active, scheduler.wait_of("a.test")) == (0, pytest.approx(5_000, abs=100))


async def test_a_request_that_is_not_apart_holds_its_queue_until_it_ends() -> None:
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(batch(1, 2))
    turn = turn_of(scheduler, *await scheduler.next())
    turn.sent()
    assert scheduler.active == 1
    turn.request_over(wait_ms=0)
    assert scheduler.active == 0


def test_only_the_turn_runner_ends_turns_and_puts_claims_back() -> None:
    folder = Path(turns.__file__).parent
    call = re.compile(r"scheduler\.(finished|requeue|wait_at|take_of)\(")
    callers = {path.name for path in folder.glob("*.py") if call.search(path.read_text())}
    assert callers == {"turn.py"}
