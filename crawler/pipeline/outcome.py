"""What the fetch stage hands to the committer: the end of one claim."""

from collections import Counter

import msgspec

from crawler.frontier.frontier import Settlement
from crawler.handlers.failing import storable
from crawler.handlers.run_handler import NOTHING_HANDLED, Handled
from crawler.model import Claim, FailureKind, ParsedPage, Response
from crawler.runtime.clock import wall_s


class NotEntitledError(Exception):
    """The deadline passed while the connection was made: nothing was sent."""


class Committable(msgspec.Struct, kw_only=True):
    """A response to archive, route and ack. `redirect_to` is canonical; `finished_at` is wall clock, s.

    The links of `page` are those that are to be followed; what its handler wants of some of them is in `handled`.
    """

    claim: Claim
    response: Response
    page: ParsedPage
    settlement: Settlement
    handled: Handled = msgspec.field(default_factory=lambda: NOTHING_HANDLED)
    redirect_to: str = ""
    finished_at: float = 0.0
    digest: str = ""  # of the payload, once it is archived
    scope_version: int = 0  # by which its links were judged
    refused: Counter[str] = msgspec.field(default_factory=Counter)
    error: Exception | None = None  # that its content led to on the way: it becomes a failure then


class Failed(msgspec.Struct, kw_only=True):
    """A failed attempt; `retry_in_ms` -1 means that it was the last one. Times are wall clock, s.

    `started_at` is 0 where no request for the URL itself was begun; without `is_attempt`, nothing was tried at all.
    """

    claim: Claim
    kind: FailureKind
    detail: str
    settlement: Settlement
    retry_in_ms: int
    trace: str = ""  # of the failure of a user's function
    started_at: float = 0.0
    failed_at: float = msgspec.field(default_factory=wall_s)
    is_attempt: bool = True

    def __post_init__(self) -> None:
        """What a site or a user's function said may not be text that can be stored."""
        self.detail, self.trace = storable(self.detail), storable(self.trace)

    @classmethod
    def finally_(cls, claim: Claim, kind: FailureKind, detail: str) -> "Failed":
        """Given up without an attempt."""
        settled = Settlement(next_fetch_ms=0)
        return cls(claim=claim, kind=kind, detail=detail, settlement=settled, retry_in_ms=-1, is_attempt=False)


class Refused(msgspec.Struct, kw_only=True):
    """A claimed URL that must not be fetched. `refused_at` is wall clock, s."""

    claim: Claim
    reason: str
    refused_at: float = msgspec.field(default_factory=wall_s)


class Deferred(msgspec.Struct, kw_only=True):
    """A claimed URL that is kept and not fetched, for a reason found since it was queued."""

    claim: Claim
    reason: str


Outcome = Committable | Failed | Refused | Deferred
