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
from crawler.pipeline.schedule import Workbench
from crawler.pipeline.turn import Turn, TurnEnd
from tests.pipeline.test_schedule import batch
from tests.pipeline.turn_lab import runner_of, turn_of

ENDS = {
    "requeue": (turns.Requeue(), "here"),
    "requeue at the tail": (turns.Requeue(at_tail=True), "here"),
    "await address": (turns.AwaitAddress("192.0.2.1"), "here"),
    "return": (turns.ReturnToEngine(), "returned"),
    "lease lost": (turns.LeaseLost(), "dropped"),
    "deliver": (turns.Deliver(Refused(claim=batch(1).claims[0], reason="robots")), "delivered"),
}


class Places:
    """Where claims went."""

    def __init__(self) -> None:
        self.bench = Workbench(concurrency_per_queue=1)
        self.bench.put(batch(1))
        self.delivered: list[Outcome] = []
        self.returned: list[Claim] = []
        self.dropped: list[int] = []

    async def run(self, work: Callable[[Turn], Awaitable[TurnEnd]]) -> None:
        async def return_claim(claim: Claim) -> None:
            self.returned.append(claim)

        runner = runner_of(
            self.bench, deliver=self.delivered.append, return_claim=return_claim, dropped=self.dropped.append
        )
        lane, claim = await self.bench.take()
        await runner.run(turn_of(self.bench, lane, claim), work)

    def count(self) -> dict[str, int]:
        found = {
            "here": self.bench.waiting,
            "returned": len(self.returned),
            "dropped": len(self.dropped),
            "delivered": len(self.delivered),
        }
        return {place: n for place, n in found.items() if n}


@pytest.mark.parametrize("is_over", [True, False], ids=["after the request", "before it"])
@pytest.mark.parametrize("name", ENDS)
async def test_an_end_frees_the_slot_once_and_leaves_the_claim_in_one_place(name: str, is_over: bool) -> None:
    end, place = ENDS[name]
    places = Places()

    async def work(turn: Turn) -> TurnEnd:
        if is_over:
            turn.request_over(wait_ms=0)
        return end

    await places.run(work)
    assert places.bench.active == 0
    assert places.count() == {place: 1}


async def test_a_queue_that_is_given_up_ends_its_waiting_claims_too() -> None:
    places = Places()
    places.bench.put(batch(2, 3))

    async def work(turn: Turn) -> TurnEnd:
        return turns.QueueGivenUp(lambda claim: Failed.finally_(claim, FailureKind.HOST_DEAD, ""))

    await places.run(work)
    assert [outcome.claim.fingerprint for outcome in places.delivered] == ["1", "2", "3"]
    assert (places.bench.active, places.bench.waiting) == (0, 0)


async def test_an_engine_that_fails_after_the_request_does_not_free_the_slot_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "ENGINE_PAUSE_S", 0)
    places = Places()

    async def work(turn: Turn) -> TurnEnd:
        turn.request_over(wait_ms=0)
        raise EngineDown("no answer")

    await places.run(work)
    assert places.bench.active == 0
    assert places.count() == {"here": 1}


async def test_a_request_that_is_over_twice_is_an_error_of_ours() -> None:
    bench = Workbench(concurrency_per_queue=1)
    bench.put(batch(1))
    turn = turn_of(bench, *await bench.take())
    turn.request_over(wait_ms=0)
    with pytest.raises(InvariantError, match="over before"):
        turn.request_over(wait_ms=0)


async def test_a_claim_whose_name_is_looked_up_comes_back_when_it_is_answered() -> None:
    places, answers = Places(), list[Callable[[], None]]()

    async def work(turn: Turn) -> TurnEnd:
        return turns.AwaitName(answers.append)

    await places.run(work)
    assert (places.bench.active, places.bench.waiting) == (1, 0), "the queue stands still meanwhile"
    answers[0]()
    assert (places.bench.active, places.bench.waiting) == (0, 1)
    await asyncio.wait_for(places.bench.take(), 1)


def test_only_the_turn_runner_ends_turns_and_puts_claims_back() -> None:
    folder = Path(turns.__file__).parent
    call = re.compile(r"bench\.(finished|put_back|park|abandon)\(")
    callers = {path.name for path in folder.glob("*.py") if call.search(path.read_text())}
    assert callers == {"turn.py"}
