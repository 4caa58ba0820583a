"""Unexpected errors while the content of one URL is processed: that URL fails, the instance goes on.

Errors at many sites in a row are not caused by content: then the instance ends with the error.
"""

import contextlib
import logging
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from crawler.archive.folder import open_private
from crawler.archive.inflight_log import InflightMark
from crawler.errors import may_be_of_content
from crawler.frontier.owner import Settlement
from crawler.model import Claim, FailureKind
from crawler.redaction import redact
from crawler.version import program_version
from crawler.worker.outcomes import Committable, Failed

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
