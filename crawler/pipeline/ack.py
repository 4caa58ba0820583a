"""Step 9, ack: ends claims. Each call is repeated until it is answered; to repeat one is safe."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from crawler.engine.client import Call
from crawler.errors import EngineError, InvariantError
from crawler.frontier.codec import DeadLetter
from crawler.frontier.messages import AckReply
from crawler.frontier.owner import Ack, Fence, Frontier
from crawler.membership.ownership import HeldPartitions
from crawler.model import AckOutcome, Claim
from crawler.pipeline.outcome import Deferred, Failed, Refused
from crawler.runtime.clock import ENGINE_PAUSE_S

log = logging.getLogger(__name__)

Ended = Failed | Refused | Deferred


async def keep_claims(
    frontier: Frontier, held: HeldPartitions, in_work: Callable[[], list[Claim]], *, visibility_ms: int
) -> None:
    """Extend claims while they are worked on, until cancelled: a slow page is not delivered twice."""
    while True:
        await asyncio.sleep(visibility_ms / 4000)
        mine: dict[int, tuple[Fence, list[Claim]]] = {}
        for claim in in_work():
            fence = held.fence_of(claim.partition)
            if fence is not None and held.holds(claim):
                mine.setdefault(claim.partition, (fence, []))[1].append(claim)
        with contextlib.suppress(EngineError):  # three more tries before a claim expires
            await frontier.extend_claims(mine, visibility_ms=visibility_ms)


class AckStage:
    """Sends acks, retries, dead letters, refusals and deferrals."""

    def __init__(self, frontier: Frontier, held: HeldPartitions) -> None:
        self._frontier = frontier
        self._held = held

    async def ack(self, acks: Sequence[Ack]) -> list[AckReply | None]:
        """Commit; None for an ack that was given up because its lease is gone."""
        answers: dict[int, AckReply | None] = {}
        while missing := [i for i in range(len(acks)) if i not in answers]:
            asked = [i for i in missing if self._held.holds(acks[i].claim)]
            answers |= dict.fromkeys(set(missing).difference(asked))
            for i, reply in zip(asked, await self._answers([acks[i] for i in asked]), strict=True):
                if isinstance(reply, AckReply):
                    answers[i] = reply
                    self._held.committed(acks[i].claim.partition, reply.sequence)
            if len(answers) < len(acks):
                await asyncio.sleep(ENGINE_PAUSE_S)
        return [answers[i] for i in range(len(acks))]

    async def _answers(self, acks: Sequence[Ack]) -> Sequence[AckReply | EngineError]:
        try:
            replies = await self._frontier.ack(acks)
        except EngineError as error:
            replies = [error] * len(acks)
        _log_errors("ack.engine_error", replies)
        return replies

    def find_invalid(self, acks: Sequence[Ack]) -> dict[int, Exception]:
        """The acks that can't be encoded as a call, by number, with the error."""
        found: dict[int, Exception] = {}
        for number, ack in enumerate(acks):
            try:
                self._frontier.pack_ack(ack)
            except Exception as error:  # noqa: BLE001 - any error here comes from the page's content
                found[number] = error
        return found

    async def end(self, ended: Sequence[Ended], answered: Callable[[Ended, AckOutcome | None], None]) -> None:
        """Send all ends except acks; `answered` gets the engine's reply to each.

        None: the lease was gone before. ALREADY_YOURS: it probably ended with an earlier call whose reply was lost.
        """
        left, is_repeat = list(ended), False
        while left:
            asked = [o for o in left if self._held.holds(o.claim)]
            for outcome in left:
                if not self._held.holds(outcome.claim):
                    answered(outcome, None)
            try:
                replies = await self._frontier.end([self._call(o) for o in asked])
            except EngineError as error:
                replies = [error] * len(asked)
            _log_errors("end.engine_error", replies)
            left = []
            for outcome, reply in zip(asked, replies, strict=True):
                if isinstance(reply, EngineError):
                    left.append(outcome)
                else:
                    is_done = is_repeat and reply is AckOutcome.GONE
                    answered(outcome, AckOutcome.ALREADY_YOURS if is_done else reply)
            is_repeat = True
            if left:
                await asyncio.sleep(ENGINE_PAUSE_S)

    def _call(self, outcome: Ended) -> Call:
        claim, frontier = outcome.claim, self._frontier
        fence = self._held.fence_of(claim.partition)
        if fence is None:
            raise InvariantError(f"partition {claim.partition} is not held: {claim.url}")
        if isinstance(outcome, Refused):
            return frontier.refuse(fence, claim, outcome.reason)
        if isinstance(outcome, Deferred):
            return frontier.defer(fence, claim, outcome.reason)
        if outcome.retry_in_ms >= 0:
            due_ms = fence.now_ms + outcome.retry_in_ms
            return frontier.retry(
                fence, claim, outcome.settlement,
                due_ms=due_ms, kind=outcome.kind, at_s=outcome.failed_at, detail=outcome.detail,
            )  # fmt: skip
        letter = _dead_letter_of(outcome)
        return frontier.dead_letter(fence, claim, outcome.settlement, letter, is_attempt=outcome.is_attempt)


def _dead_letter_of(outcome: Failed) -> DeadLetter:
    claim = outcome.claim
    return DeadLetter(
        url=claim.url,
        queue=claim.queue,
        domain=claim.domain,
        depth=claim.depth,
        reason=outcome.kind,
        detail=outcome.detail[:500],
        attempts=claim.attempts + outcome.is_attempt,
        failed_at=outcome.failed_at,
        seed=claim.seed,
        seed_number=claim.seed_number,
        run=claim.run,
        redirects=claim.redirects,
        score=claim.score,
        label=claim.label,
        trace=outcome.trace,
        user=claim.user,
    )


def _log_errors(event: str, replies: Sequence[object]) -> None:
    errors = {str(reply) for reply in replies if isinstance(reply, EngineError)}
    if errors:
        log.warning(event, extra={"errors": sorted(errors)[:3]})
