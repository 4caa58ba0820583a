"""What becomes of a claim, and errors of ours that end one."""

import contextlib
import logging
import traceback
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from crawler.archive.folder import open_private
from crawler.archive.inflight_log import InflightMark
from crawler.archive.warc import Original
from crawler.errors import may_be_of_content
from crawler.frontier.owner import Settlement
from crawler.handlers.run import NOTHING_HANDLED, Handled
from crawler.handlers.tasks import storable
from crawler.model import Candidate, Claim, FailureKind, ParsedPage, Response
from crawler.redaction import redact
from crawler.runtime.process import wall_s
from crawler.version import program_version


class NotEntitledError(Exception):
    """The request may not be sent now: deadline passed, lease lost, or domain stopped by an operator."""


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
    finished_at: float = 0.0
    digest: str = ""  # of the payload, once it is archived
    leads_away: bool = False  # a seed that redirects to another site, of which only the page is fetched
    scope_version: int = 0  # that its links were judged by
    refused: Counter[str] = msgspec.field(default_factory=Counter)
    own: list[Candidate] = msgspec.field(default_factory=list)
    left: list[Candidate] | None = None
    fresh: int = 0  # candidates among its links: those that were not added lately. Counted for -vv only
    deferred: int = 0  # how many of these are kept, and not fetched; likewise
    accepted: Callable[[], None] | None = None  # called once it is committed
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


# Unexpected errors while the content of one URL is processed: that URL fails, the instance goes on.
#
# Errors at many sites in a row are not caused by content: then the instance ends with the error.


log = logging.getLogger(__name__)

SITES_IN_A_ROW_MAX = 20
FILES_MAX = 100  # kinds of errors that get a file
TRACE_CHARS_MAX = 4000

Result = TypeVar("Result")


class InternalErrors:
    """The internal errors of one instance. The first of each kind gets a file in `folder`, for a bug report."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kinds: set[str] = set()
        self._sites: set[str] = set()  # with an error since the last page that succeeded
        self.count = 0

    def failed(self, claim: Claim, error: Exception, settlement: Settlement, *, started_at: float = 0.0) -> Failed:
        """How the claim ends. Raises the error instead when the URL's content can't be the cause."""
        if not may_be_of_content(error):
            raise error
        self.count += 1
        self._sites.add(claim.domain)
        trace = redact("".join(traceback.format_exception(error)))
        detail = _detail(error)
        self._write_file(claim.url, detail, trace)
        log.error("url.internal_error", extra={"url": claim.url, "error": detail})
        if len(self._sites) >= SITES_IN_A_ROW_MAX:
            raise error
        return Failed(
            claim=claim,
            kind=FailureKind.INTERNAL,
            detail=detail,
            settlement=settlement,
            retry_in_ms=-1,
            trace=trace[-TRACE_CHARS_MAX:],
            started_at=started_at,
        )

    def passed(self) -> None:
        """A page went through without one."""
        if self._sites:
            self._sites.clear()

    def _write_file(self, url: str, detail: str, trace: str) -> None:
        """A disk that does not take it stops nothing."""
        if detail in self._kinds or len(self._kinds) >= FILES_MAX:
            return
        self._kinds.add(detail)
        at = datetime.now(UTC)
        text = f"shardcrawl {program_version()}, {at:%Y-%m-%d %H:%M:%S} UTC\n{detail}\n{url}\n\n{trace}"
        with contextlib.suppress(OSError):
            path = self._folder / f"bug-{at:%Y%m%d%H%M%S}-{len(self._kinds):03d}.txt"
            with open(path, "w", encoding="utf-8", errors="replace", opener=open_private) as file:
                file.write(redact(text))


class ContentSteps:
    """Runs commit steps on the content of one page: marked in the in-flight log, without failing the whole group."""

    def __init__(self, mark: InflightMark) -> None:
        self._mark = mark

    def attempt(self, outcome: Committable, step: Callable[..., Result], *arguments: object) -> Result | None:
        """The step's result; None when the content made it fail, with the error in `outcome.error`."""
        claim = outcome.claim
        self._mark.set(claim.partition, claim.fingerprint, claim.url)
        try:
            with self._mark:
                return step(*arguments)
        except Exception as error:
            if not may_be_of_content(error):
                raise
            outcome.error = error
            return None


def _detail(error: Exception) -> str:
    """One line for the kind of error: its type and place, without content of the site."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"
