"""The history of attempts: one record for each, written when its outcome is known, and a line of -v."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from crawler.archive.history import Attempt, Became, HistoryWriter
from crawler.errors import ArchiveError
from crawler.model import Claim
from crawler.runtime.clocks import wall_s
from crawler.runtime.ticks import tick
from crawler.worker import url_lines
from crawler.worker.archive import DETAIL_MAX, WRITE_EVERY_S
from crawler.worker.outcomes import Committable, Failed, Outcome, Refused

log = logging.getLogger(__name__)


class AttemptNotes:
    """Notes the attempts of one session."""

    def __init__(
        self, writer: HistoryWriter, *, node: str, session: str, failed: Callable[[Failed], None] = lambda _: None
    ) -> None:
        """`failed` is called with each attempt that failed, once the engine has accepted that."""
        self._writer = writer
        self._failed = failed
        self.node = node
        self.session = session

    def accepted(self, outcome: Outcome) -> None:
        """The engine accepted this outcome. A deferral is not an attempt."""
        url_lines.accepted(outcome)
        if isinstance(outcome, Committable):
            self._note(outcome.claim, Became.COMMITTED, **_of_response(outcome))
        elif isinstance(outcome, Failed):
            self._failed(outcome)
            became = Became.RETRY if outcome.retry_in_ms >= 0 else Became.DEAD
            self._note(outcome.claim, became, is_attempt=outcome.is_attempt, **_of_failure(outcome))
        elif isinstance(outcome, Refused):
            self._note(outcome.claim, Became.REFUSED, is_attempt=False, **_of_refusal(outcome))

    def lost(self, outcome: Outcome) -> None:
        """The engine rejected the outcome: another session had the claim by then, or it had ended."""
        url_lines.lost(outcome)
        if isinstance(outcome, Committable):
            self._note(outcome.claim, Became.LOST, lost=_now(), **_of_response(outcome))
        elif isinstance(outcome, Failed):
            self._note(outcome.claim, Became.LOST, is_attempt=outcome.is_attempt, lost=_now(), **_of_failure(outcome))
        elif isinstance(outcome, Refused):
            self._note(outcome.claim, Became.LOST, is_attempt=False, lost=_now(), **_of_refusal(outcome))

    def cut_off(self, claim: Claim, started_at: float, status: int = 0) -> None:
        """A request that was started has no outcome: it was cut off, or the lease was gone at its end, or it has to be
        sent again after an answer with this status.
        """
        self._note(claim, Became.LOST, started=round(started_at, 3), lost=_now(), http_status=status)

    async def run(self) -> None:
        """Write the notes to disk until cancelled. They are for people: a full disk does not stop the crawl."""
        while True:
            await tick(WRITE_EVERY_S)
            try:
                if self._writer.has_any:
                    await asyncio.to_thread(self._writer.write)
            except ArchiveError as error:
                log.warning("history.not_written", extra={"error": str(error)})

    def _note(self, claim: Claim, became: Became, *, is_attempt: bool = True, **known: Any) -> None:
        self._writer.add(
            Attempt(
                url=claim.url, fp=claim.fingerprint, domain=claim.domain, attempt=claim.attempts + is_attempt,
                became=became, node=self.node, session=self.session, epoch=claim.epoch,
                queued=claim.queued_at, claimed=round(claim.claimed_at, 3), **known,
            )
        )  # fmt: skip


def _of_response(outcome: Committable) -> dict[str, Any]:
    response = outcome.response
    return {
        "started": round(response.started_at, 3),
        "finished": round(outcome.finished_at, 3),
        "http_status": response.status,
    }


def _of_failure(outcome: Failed) -> dict[str, Any]:
    return {
        "started": round(outcome.started_at, 3),
        "failed": round(outcome.failed_at, 3),
        "kind": str(outcome.kind),
        "detail": outcome.detail[:DETAIL_MAX],
    }


def _of_refusal(outcome: Refused) -> dict[str, Any]:
    return {"refused": round(outcome.refused_at, 3), "kind": str(outcome.reason)}


def _now() -> float:
    return round(wall_s(), 3)
