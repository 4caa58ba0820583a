"""The lines that -v prints, one for each URL whose outcome the engine accepted; -vv adds what was decided about it.

They go to a logger of their own, which start_logging switches on: while it is off, a page costs one check. A
canonical URL has no space, so what follows it behind " - " can't be taken for a part of it.
"""

import logging
from collections.abc import Iterator, Sequence

from crawler.hosts.robots_reader import RobotsResult
from crawler.model import Candidate, Claim, FailureKind, RefusalReason
from crawler.routing.runs_known import ENDED
from crawler.runtime.log_files import url_log
from crawler.terminal.words import counted, duration, failure_reason, number, size
from crawler.worker.open_claims import ClaimPlace
from crawler.worker.outcomes import Committable, Failed, Outcome, Refused

WHAT_WIDTH = 13  # "200  10.9 KiB": a longer reason moves the rest of its line
TOOK_WIDTH = 9
NO_REQUEST = -1  # ms
REFUSED: dict[str, str] = {
    RefusalReason.SCOPE: "out of scope",
    RefusalReason.DEPTH: "too deep",
    RefusalReason.FORGOTTEN: "of a forgotten domain",
    RefusalReason.RUN_URLS: "beyond the limit of its run",
    RefusalReason.ROBOTS: "forbidden by robots.txt",
    RefusalReason.REDIRECTS: "too many redirects",
    RefusalReason.EXCLUDED: "excluded since it was found",
    ENDED: "its run has ended",
}


def accepted(outcome: Outcome) -> None:
    """Print the line of an outcome, if anybody wants it."""
    if url_log.isEnabledFor(logging.INFO):
        url_log.info(line_of(outcome, detailed=url_log.isEnabledFor(logging.DEBUG)))


def links_judged(outcome: Committable, candidates: Sequence[Candidate]) -> None:
    """Count the candidates among the links of a page, with -vv."""
    if url_log.isEnabledFor(logging.DEBUG):
        outcome.fresh = len(candidates)
        outcome.deferred = sum(1 for candidate in candidates if candidate.deferred)


def lost(outcome: Outcome) -> None:
    """The same for one that does not count, with -vv."""
    if url_log.isEnabledFor(logging.DEBUG):
        url_log.debug(f"{line_of(outcome)} - does not count: the URL belongs to another instance by now")


def returned(claim: Claim, place: ClaimPlace | None) -> None:
    """A claim goes back to the engine from this place, with -vv."""
    if url_log.isEnabledFor(logging.DEBUG):
        url_log.debug(_line("returned", NO_REQUEST, claim.url, [f"it was {place}"] if place else []))


def robots_read(origin: str, result: RobotsResult, *, delay_ms: int) -> None:
    """robots.txt of an origin was read, or could not be, with -vv. `delay_ms`: that of its queue from here on."""
    entry = result.entry
    if entry is not None and url_log.isEnabledFor(logging.DEBUG):
        kind = entry.failure or FailureKind.ROBOTS_UNREACHABLE
        is_read = entry.rules is not None
        found = f"read; delay {duration(delay_ms / 1000)}" if is_read else failure_reason(kind, entry.detail)
        url_log.debug(_line("robots.txt", result.fetch_ms, origin, [found]))


def line_of(outcome: Outcome, *, detailed: bool = False) -> str:
    """What was got, in how many milliseconds, for which URL, and what comes of it; `detailed`: with its links."""
    url = outcome.claim.url
    if isinstance(outcome, Committable):
        response = outcome.response
        came = outcome.withheld.body_bytes if outcome.withheld is not None else len(response.body)
        what = f"{response.status} {size(came):>9}"
        return _line(what, response.fetch_ms, url, [*_oddities(outcome), *(_links(outcome) if detailed else ())])
    if isinstance(outcome, Failed):
        took_ms = round(1000 * (outcome.failed_at - outcome.started_at)) if outcome.started_at else NO_REQUEST
        return _line(failure_reason(outcome.kind, outcome.detail), took_ms, url, [_after(outcome)])
    if isinstance(outcome, Refused):
        return _line("refused", NO_REQUEST, url, [_words(outcome.reason)])
    return _line("deferred", NO_REQUEST, url, [f"kept, not fetched: {outcome.reason}"])


def _line(what: str, took_ms: int, url: str, then: list[str]) -> str:
    took = f"{number(took_ms)} ms" if took_ms >= 0 else "-"
    return f"{what:<{WHAT_WIDTH}} {took:>{TOOK_WIDTH}} {url}{' - ' if then else ''}{'; '.join(then)}"


def _after(failed: Failed) -> str:
    attempts = failed.claim.attempts + failed.is_attempt
    if failed.retry_in_ms >= 0:
        return f"retry in {duration(failed.retry_in_ms / 1000)}" + (f" (attempt {attempts})" if attempts > 1 else "")
    return f"given up after {counted(attempts, 'attempt')}" if attempts else "given up"


def _words(reason: str) -> str:
    """Why a URL or a link is refused; other reasons are words already."""
    return REFUSED.get(reason, reason)


def _oddities(outcome: Committable) -> Iterator[str]:
    """What is special about a page that was committed."""
    if outcome.redirect_to:
        yield f"redirects to {outcome.redirect_to}"
    if outcome.withheld is not None:
        yield "says no to rights.purpose, so only its links are kept"
    if outcome.response.truncated:
        yield f"cut off by {outcome.response.truncated}"
    if outcome.page.links_dropped:
        yield f"{counted(outcome.page.links_dropped, 'link')} beyond fetch.links_max left out"
    if outcome.response.decode_error:
        yield f"Content-Encoding: {outcome.response.decode_error}"


def _links(outcome: Committable) -> Iterator[str]:
    """How many links a page has, and what became of them. Some of the new ones may be known to the engine."""
    links = outcome.page.links
    parts = [counted(len(links), "link"), f"{number(outcome.fresh)} new"] if links else []
    parts += [f"{number(n)} {_words(reason)}" for reason, n in sorted(outcome.refused.items()) if n]
    parts += [f"{number(outcome.deferred)} deferred"] if outcome.deferred else []
    if parts:
        yield ", ".join(parts)
