"""Every error the program raises on purpose, by whose fault it is.

CrawlerError                     has a one-line message and an exit code
|- UsageError          (2)       the person's input: a URL, a file, an option, a setting
|- EngineError         (3)       Redis/Valkey: not reachable, too old, read-only, out of memory
|  |- EngineDown                 no answer (connection refused, lost, timed out)
|  |- EngineUnfit                it answers, but can't serve (version, eviction policy, read-only)
|  `- EngineFull                 out of memory: adds are refused, the rest goes on
|- ConflictError       (4)       somebody else is there: folder in use, node alive, other layout
|- ArchiveError        (5)       the disk: full, I/O error, not writable
|  `- NoRoomError                full, or a quota is used up: an instance waits for room
|- NothingFetchedError (6)       not one seed could be fetched
|- DoctorError         (7)       the doctor found something to fix
|- AuditFailed         (8)       the audit found something lost, doubled or impolite
|- NotReachedError     (9)       the requested state was not reached in time
|- Stopped             (10)      a signal stopped the crawl; it can be resumed
|- Killed              (11)      a second signal forced it
|- OutputError         (12)      a results database is not available, or rejects them
|- HandlersFailed      (13)      the user's own function failed: on pages handled again, or on each page
`- OutageError         (14)      our own network, or a proxy, failed for a long time

InvariantError                   a rule of ours about ownership or commits is broken: no URL is blamed for it

Anything else that reaches the command line is our bug (exit code 1). While the content of one URL is handled, it fails
that URL alone (worker/outcomes.py).
A fault of a *host* is not an exception: the fetcher returns it as a value (model.Failure).
"""

from pathlib import Path


class CrawlerError(Exception):
    """Base of all errors raised on purpose; str() is one line with what to do."""

    exit_code = 1


class InvariantError(Exception):
    """A rule about ownership or commits is broken: our bug, and never the fault of a URL."""


class UsageError(CrawlerError):
    """The person's input can't be used."""

    exit_code = 2


class NoCrawlError(UsageError):
    """The engine has no crawl of that name."""


class NotMetError(UsageError):
    """The crawl has nothing under that name."""


class InvalidUrl(UsageError):
    """Not an absolute http(s) URL that can be crawled; `reason` is a short constant phrase."""

    def __init__(self, url: str, reason: str) -> None:
        shown = url if len(url) <= 200 else url[:200] + "..."
        super().__init__(f"invalid URL {shown!r}: {reason}")
        self.url = url
        self.reason = reason


def may_be_of_content(error: Exception) -> bool:
    """May what was raised while a URL's content was handled be that URL's failure?

    Not where the engine, the disk or a person is to blame, and not where a rule about ownership or commits is broken.
    """
    return isinstance(error, InvalidUrl) or not isinstance(error, CrawlerError | InvariantError)


class EngineError(CrawlerError):
    """The engine (Redis or Valkey) can't serve us."""

    exit_code = 3


class EngineDown(EngineError):
    """No answer from the engine: the outcome of the call is unknown."""


class EngineUnfit(EngineError):
    """The engine answers but can't be used as it is."""


class EngineFull(EngineError):
    """The engine is out of memory; adds wait, acks go on."""


class ConflictError(CrawlerError):
    """Another crawl, session or release of the program is in the way."""

    exit_code = 4


class ArchiveError(CrawlerError):
    """The disk did not take what was written."""

    exit_code = 5


class NoRoomError(ArchiveError):
    """The disk is full, or a quota is used up; `folder`: where."""

    def __init__(self, message: str, folder: Path) -> None:
        super().__init__(message)
        self.folder = folder


class NothingFetchedError(CrawlerError):
    """Not one seed could be fetched."""

    exit_code = 6


class DoctorError(CrawlerError):
    """The doctor found something that must be fixed."""

    exit_code = 7


class AuditFailed(CrawlerError):
    """The audit found that something was lost, duplicated, damaged, or requested against the rules."""

    exit_code = 8


class NotReachedError(CrawlerError):
    """The requested state was not reached in time; it may still be."""

    exit_code = 9


class Stopped(CrawlerError):
    """A signal stopped the crawl; the message has how to resume."""

    exit_code = 10


class Killed(CrawlerError):
    """A second signal forced the stop."""

    exit_code = 11


class OutputError(CrawlerError):
    """A target of results does not take them; they are in the crawl folder, and an export catches up."""

    exit_code = 12


class HandlersFailed(CrawlerError):
    """Handlers failed on pages that were handled again, which keep their items; or one on each page of a crawl."""

    exit_code = 13


class OutageError(CrawlerError):
    """Our own network, or a proxy, failed for a long time; the message has how to resume."""

    exit_code = 14
