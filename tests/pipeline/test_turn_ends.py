"""Each end of a turn frees its queue's slot once, and leaves the claim in one place."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from crawler.errors import EngineDown, InvariantError
from crawler.model import Claim, FailureKind
from crawler.pipeline import turn as turns
from crawler.pipeline.outcome import Failed, Outcome, Refused
from crawler.pipeline.schedule import Scheduler
from crawler.pipeline.turn import Turn, TurnEnd
from crawler.runtime.counters import OpenClaims
from tests.pipeline.test_schedule import batch
from tests.pipeline.turn_lab import claims_open, runner_of, turn_of

ENDS = {
    "requeue": (turns.Requeue(), "here"),
    "requeue at the tail": (turns.Requeue(at_tail=True), "here"),
    "await address": (turns.AwaitAddress("192.0.2.1"), "here"),
    "return": (turns.ReturnToEngine(), "returned"),
    "lease lost": (turns.LeaseLost(), "dropped"),
    "deliver": (turns.Deliver(Refused(claim=batch(1).claims[0], reason="robots")), "delivered"),
}


class TurnHarness:
    """Runs one turn, and records where its claims go."""

    def __init__(self) -> None:
        self.open_claims = claims_open(batch(1).claims)
        self.scheduler = Scheduler(self.open_claims, concurrency_per_queue=1)
        self.scheduler.put(batch(1))
        self.delivered: list[Outcome] = []
        self.returned: list[Claim] = []

    async def run(self, work: Callable[[Turn], Awaitable[TurnEnd]]) -> None:
        async def return_claim(claim: Claim) -> None:
            self.returned.append(claim)

        runner = runner_of(
            self.scheduler, deliver=self.delivered.append, return_claim=return_claim, open_claims=self.open_claims
        )
        slot, claim = await self.scheduler.take()
        await runner.run(turn_of(self.scheduler, slot, claim), work)

    def count(self) -> dict[str, int]:
        found = {
            "here": self.scheduler.waiting,
            "returned": len(self.returned),
            "dropped": 1 - self.open_claims.total,
            "delivered": len(self.delivered),
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


async def test_a_queue_that_is_given_up_ends_its_waiting_claims_too() -> None:
    harness = TurnHarness()
    harness.scheduler.put(batch(2, 3))

    async def work(turn: Turn) -> TurnEnd:
        return turns.QueueGivenUp(lambda claim: Failed.finally_(claim, FailureKind.HOST_DEAD, ""))

    await harness.run(work)
    assert [outcome.claim.fingerprint for outcome in harness.delivered] == ["1", "2", "3"]
    assert (harness.scheduler.active, harness.scheduler.waiting) == (0, 0)


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
    turn = turn_of(scheduler, *await scheduler.take())
    turn.request_over(wait_ms=0)
    with pytest.raises(InvariantError, match="over before"):
        turn.request_over(wait_ms=0)


async def test_a_claim_is_requeued_when_its_name_is_looked_up() -> None:
    harness, answers = TurnHarness(), list[Callable[[], None]]()

    async def work(turn: Turn) -> TurnEnd:
        return turns.AwaitName(answers.append)

    await harness.run(work)
    assert (harness.scheduler.active, harness.scheduler.waiting) == (1, 0), "the queue stands still meanwhile"
    answers[0]()
    assert (harness.scheduler.active, harness.scheduler.waiting) == (0, 1)
    await asyncio.wait_for(harness.scheduler.take(), 1)


def test_only_the_turn_runner_ends_turns_and_puts_claims_back() -> None:
    folder = Path(turns.__file__).parent
    call = re.compile(r"scheduler\.(finished|requeue|wait_at|abandon)\(")
    callers = {path.name for path in folder.glob("*.py") if call.search(path.read_text())}
    assert callers == {"turn.py"}
