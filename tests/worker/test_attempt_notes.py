"""Which record of an attempt follows from each outcome, and from what the engine said to it."""

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from crawler.archive.history import Attempt, Became, status_of
from crawler.frontier.owner import Fence, Settlement
from crawler.model import AckOutcome, FailureKind, ParsedPage, RefusalReason, Response
from crawler.worker.attempts import AttemptNotes
from crawler.worker.commit import AckStage
from crawler.worker.outcomes import Committable, Failed, Outcome, Refused
from tests.worker.test_schedule import claim

CLAIM = replace(claim(1), attempts=1, claimed_at=100.0)
RESPONSE = Response(
    url=CLAIM.url, status=404, reason="", http_version="1.1", headers=(), raw_body=b"", body=b"", request_head=b"",
    remote_ip="", started_at=101.0, fetch_ms=500,
)  # fmt: skip
SETTLED = Settlement(next_fetch_ms=0)


def committable() -> Committable:
    return Committable(claim=CLAIM, response=RESPONSE, page=ParsedPage(), settlement=SETTLED, finished_at=101.5)


def failed(retry_in_ms: int) -> Failed:
    return Failed(
        claim=CLAIM, kind=FailureKind.CONNECT, detail="refused", settlement=SETTLED, retry_in_ms=retry_in_ms,
        started_at=101.0, failed_at=102.0,
    )  # fmt: skip


def noted(outcome: Outcome, *, is_lost: bool = False) -> Attempt:
    notes: list[Attempt] = []
    writer: Any = SimpleNamespace(add=notes.append)
    history = AttemptNotes(writer, node="host-0", session="aa11")
    (history.lost if is_lost else history.accepted)(outcome)
    (one,) = notes
    assert (one.url, one.fp, one.domain, one.epoch) == (CLAIM.url, CLAIM.fingerprint, CLAIM.domain, CLAIM.epoch)
    assert (one.node, one.session, one.claimed) == ("host-0", "aa11", 100.0)
    return one


@pytest.mark.parametrize(
    ("outcome", "became", "number", "status", "times"),
    [
        (committable(), Became.COMMITTED, 2, "finished", {"started": 101.0, "finished": 101.5}),
        (failed(0), Became.RETRY, 2, "failed", {"started": 101.0, "failed": 102.0}),
        (failed(-1), Became.DEAD, 2, "failed", {"started": 101.0, "failed": 102.0}),
        (Failed.finally_(CLAIM, FailureKind.HOST_DEAD, ""), Became.DEAD, 1, "failed", {}),
        (Refused(claim=CLAIM, reason=RefusalReason.ROBOTS), Became.REFUSED, 1, "refused", {}),
    ],
)
def test_each_accepted_outcome_is_recorded_as_its_kind(
    outcome: Outcome, became: Became, number: int, status: str, times: dict[str, float]
) -> None:
    one = noted(outcome)
    assert (one.became, one.attempt, status_of(one.times)) == (became, number, status)
    assert times.items() <= one.times.items()
    lost = noted(outcome, is_lost=True)
    assert (lost.became, lost.attempt, status_of(lost.times)) == (Became.LOST, number, "lost")
    assert times.items() <= lost.times.items()


def test_results_and_failures_are_recorded() -> None:
    assert noted(committable()).http_status == 404
    assert (noted(failed(0)).kind, noted(failed(0)).detail) == ("connect", "refused")
    assert noted(Refused(claim=CLAIM, reason=RefusalReason.ROBOTS)).kind == "robots"


@pytest.mark.parametrize(
    ("outcome", "attempts"), [(failed(-1), 2), (Failed.finally_(CLAIM, FailureKind.POISON_URL, ""), 1)]
)
def test_a_dead_letter_counts_only_real_attempts(outcome: Failed, attempts: int) -> None:
    letters: list[Any] = []

    def dead_letter(fence: Fence, claim: Any, settled: Settlement, letter: Any, *, is_attempt: bool) -> None:
        letters.append((letter, is_attempt))

    ownership: Any = SimpleNamespace(fence_of=lambda _: Fence(1, "aa11", 1, 0))
    frontier: Any = SimpleNamespace(engine=SimpleNamespace(fails_in_parts=False), dead_letter=dead_letter)
    AckStage(frontier, ownership)._call(outcome)
    ((letter, is_attempt),) = letters
    assert (letter.attempts, letter.failed_at, is_attempt) == (attempts, outcome.failed_at, attempts == 2)


async def test_the_repeated_end_of_a_claim_counts_as_ours() -> None:
    """Sent again, it finds the claim gone, most likely by our own first call. A claim that is gone at the first call
    belonged to another session; one whose lease is lost meanwhile is reported, too.
    """
    from crawler.errors import EngineDown

    fences = {1: Fence(1, "aa11", 1, 0), 2: Fence(2, "aa11", 1, 0)}
    held = {1, 2, 3}
    replies: list[list[Any]] = [[EngineDown("no answer"), AckOutcome.GONE, EngineDown("no answer")], [AckOutcome.GONE]]

    async def end(calls: list[Any]) -> list[Any]:
        held.discard(3)
        return replies.pop(0)

    ownership: Any = SimpleNamespace(
        holds=lambda c: int(c.fingerprint) in held, fence_of=lambda p: fences.get(p, fences[1])
    )
    frontier: Any = SimpleNamespace(engine=SimpleNamespace(fails_in_parts=False), end=end, refuse=lambda *_: None)
    told: dict[str, AckOutcome | None] = {}
    outcomes = [Refused(claim=claim(n), reason="robots") for n in (1, 2, 3)]
    await AckStage(frontier, ownership).end(outcomes, lambda o, reply: told.update({o.claim.fingerprint: reply}))
    assert told == {"1": AckOutcome.ALREADY_YOURS, "2": AckOutcome.GONE, "3": None}
