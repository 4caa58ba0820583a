"""What becomes of a claim, and errors of ours that end one."""

from collections import Counter
from collections.abc import Callable

import msgspec

from crawler.archive.warc import Original
from crawler.frontier.owner import Settlement
from crawler.handlers.page_run import NOTHING_HANDLED, Handled
from crawler.handlers.tasks import storable
from crawler.model import Candidate, Claim, FailureKind, ParsedPage, Response, Rights
from crawler.redaction import redact
from crawler.runtime.clocks import wall_s


class Withheld(msgspec.Struct, frozen=True, kw_only=True):
    """Of a page whose body is not kept, because of its rights: its size and media type, and where the page leads."""

    body_bytes: int
    mime: str
    links: tuple[str, ...]


class Committable(msgspec.Struct, kw_only=True):
    """A response to archive, route and ack. `redirect_to` is canonical; `finished_at` is wall clock, s.

    The links of `page` are those to follow; labels and priorities that its handler gave to some are in `handled`. Once
    they are judged, `own` are the candidates that its ack adds, and `left` those to be added before; None until then.
    """

    claim: Claim
    response: Response
    page: ParsedPage
    settlement: Settlement
    handled: Handled = msgspec.field(default_factory=lambda: NOTHING_HANDLED)
    redirect_to: str = ""
    original: Original | None = None  # the archived page that `response` says is unchanged
    duplicate_of: Original | None = None  # once it is archived: the page that has the same body
    finished_at: float = 0.0
    digest: str = ""  # of the payload, once it is archived
    named: int = 0  # URLs of pages that it has as a sitemap of a run
    robots: int = 0  # robots.txt files that were read for it as a requisite
    leads_away: bool = False  # a seed that redirects to another site, of which only the page is fetched
    scope_version: int = 0  # that its links were judged by
    refused: Counter[str] = msgspec.field(default_factory=Counter)
    own: list[Candidate] = msgspec.field(default_factory=list)
    left: list[Candidate] | None = None
    fresh: int = 0  # candidates among its links: those that were not added lately. Counted for -vv only
    deferred: int = 0  # how many of these are kept, and not fetched; likewise
    accepted: Callable[[], None] | None = None  # called once it is committed
    rights: Rights | None = None  # what was said about its use
    withheld: Withheld | None = None  # its body is not kept; `response` has none
    is_private: bool = False  # it has cookies of a session, which the archive does not get
    error: Exception | None = None  # raised because of its content while it was committed: it becomes a failure then


class Failed(msgspec.Struct, kw_only=True):
    """A failed attempt; `retry_in_ms` -1: it was the last one. Times are wall clock, s.

    `started_at` is 0 where no request for the URL itself was started. Without `is_attempt`, nothing was tried at all.
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
        """Make text from a site or a user's function storable, without secrets."""
        self.detail, self.trace = storable(redact(self.detail)), storable(redact(self.trace))

    @classmethod
    def finally_(cls, claim: Claim, kind: FailureKind, detail: str) -> "Failed":
        """A claim that is given up without an attempt."""
        settled = Settlement(next_fetch_ms=0)
        return cls(claim=claim, kind=kind, detail=detail, settlement=settled, retry_in_ms=-1, is_attempt=False)


class Refused(msgspec.Struct, kw_only=True):
    """A claimed URL that must not be fetched. `refused_at` is wall clock, s."""

    claim: Claim
    reason: str
    refused_at: float = msgspec.field(default_factory=wall_s)


class Deferred(msgspec.Struct, kw_only=True):
    """A claimed URL that is kept and not fetched, for a reason learned since it was queued."""

    claim: Claim
    reason: str


Outcome = Committable | Failed | Refused | Deferred
