"""What the fetch stage hands to the committer: the end of one claim."""

from collections import Counter
from dataclasses import dataclass, field

from crawler.frontier.frontier import Settlement
from crawler.model import Claim, FailureKind, Page, Response


class NotEntitledError(Exception):
    """The deadline passed while the connection was made: nothing was sent."""


@dataclass(slots=True, kw_only=True)
class Committable:
    """A response to archive, route and ack. `redirect_to` is canonical; `started_at` ... are wall clock, s."""

    claim: Claim
    response: Response
    page: Page
    settlement: Settlement
    redirect_to: str = ""
    claimed_at: float = 0.0
    finished_at: float = 0.0
    scope_version: int = 0  # by which its links were judged
    refused: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, kw_only=True)
class Failed:
    """A failed attempt; `retry_in_ms` -1 means that it was the last one."""

    claim: Claim
    kind: FailureKind
    detail: str
    settlement: Settlement
    retry_in_ms: int

    @classmethod
    def finally_(cls, claim: Claim, kind: FailureKind, detail: str) -> "Failed":
        """Given up without an attempt."""
        return cls(claim=claim, kind=kind, detail=detail, settlement=Settlement(next_fetch_ms=0), retry_in_ms=-1)


@dataclass(slots=True, kw_only=True)
class Refused:
    """A claimed URL that must not be fetched."""

    claim: Claim
    reason: str


Outcome = Committable | Failed | Refused
