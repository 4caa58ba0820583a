"""What is missing in a crawl's results, by reason: the one list that all viewers show, and its text. Pure.

A loss is what somebody who gave these seeds and this scope expects in the results, and does not find there, or not
whole. What the user asked to leave out (scope, depth, a purge, an ended run) is not one; items that a function drops
are listed, because one that forgets its `return` drops all. For users:
docs/operate/watching.md#losses.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import get_args

import msgspec

from crawler.frontier.deferred import RIGHTS
from crawler.frontier.stats import (
    CUT_BODY,
    CUT_REQUISITES,
    DEAD,
    DEFERRED,
    ITEMS_INVALID,
    LINKS,
    LOST,
    NOT_DECODED,
    OF_RIGHTS,
    OF_SITEMAP,
    REFUSED,
    SCRIPTED,
    SEED_LED_AWAY,
    UNSIGNED,
    Totals,
)
from crawler.model import ITEMS_DROPPED, FailureKind, RefusalReason
from crawler.rules.challenges import SENTENCE
from crawler.rules.text import one_line
from crawler.settings.schema import TrapRule
from crawler.terminal.tables import shortened, table
from crawler.terminal.words import counted, number

LINES_MAX = 5  # at the end of a crawl
EXAMPLE_COLUMNS = 60
RUN_ENDED = "run_"  # reasons for which URLs of a run are not fetched any more


class Kind(StrEnum):
    """What became of it."""

    GIVEN_UP = "given up"  # a URL, after its last attempt or without one: a dead letter
    SKIPPED = "skipped"  # a URL, or what a seed leads to, that is not to be fetched
    DEFERRED = "deferred"  # a URL that is kept, and not fetched for now
    CUT = "cut"  # a part of a page, a link or an item


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """How much is missing for a reason. `example`: a URL, or where none is kept a domain; may be empty."""

    kind: Kind
    reason: str
    count: int
    example: str
    advice: str  # what the reason means, and what to do


ASKED = frozenset({
    RefusalReason.SCOPE, RefusalReason.DEPTH, RefusalReason.FORGOTTEN, RefusalReason.EXCLUDED, RefusalReason.PURGED,
    RefusalReason.ARCHIVED,  # nothing is missing
})  # fmt: skip
_TRIES = "'crawler dead retry --reason {}' tries again"
_GIVEN_UP: Mapping[str, str] = {
    FailureKind.DNS_NOT_FOUND: "the name of the host does not exist; check the links that lead there",
    FailureKind.DNS_ERROR: f"the name server did not answer; 'crawler doctor' checks yours, {_TRIES}",
    FailureKind.ADDRESS_REFUSED: "a private address; crawls of this release defer such URLs (allow_private)",
    FailureKind.PORT_REFUSED: "a port that is not for the web",
    FailureKind.CONNECT: f"the host takes no connections; {_TRIES}",
    FailureKind.TLS: "no secure connection; once the certificate is valid, or insecure_tls of [[sites]] is set, "
    + _TRIES,
    FailureKind.TIMEOUT: f"no answer in time; {_TRIES}",
    FailureKind.DISCONNECTED: f"the host closed the connection; {_TRIES}",
    FailureKind.PROTOCOL: "the answer is not HTTP, or a 304 or 412 that nobody asked for; see 'crawler dead show URL'",
    FailureKind.HEADERS_TOO_LARGE: "64 KiB of headers, or 256, are too many; 'crawler dead show URL' has the detail",
    FailureKind.SERVER_BUSY: f"the host asked for fewer requests; with a longer delay ('crawler delay'), {_TRIES}",
    FailureKind.CHALLENGED: f"{SENTENCE}, which is not solved: ask its owner for access, then {_TRIES}",
    FailureKind.SERVER_ERROR: f"the host failed (5xx); {_TRIES}",
    FailureKind.ROBOTS_UNREACHABLE: f"without a readable robots.txt nothing of the host is fetched; {_TRIES}",
    FailureKind.BODY: f"nothing of the body could be decoded; 'crawler dead show URL' has the detail, {_TRIES}",
    FailureKind.HOST_DEAD: f"given up unrequested: the host had not answered for hosts.give_up_s; {_TRIES}",
    FailureKind.PARSE: "the page took too much time or memory to parse; 'crawler dead show URL' has the detail",
    FailureKind.NO_SITEMAP: "a job, or its sitemap, names it as one, which it is not; 'crawler dead show URL' has why",
    FailureKind.HANDLER: f"your handler failed; 'crawler dead show URL' has the traceback, {_TRIES}",
    FailureKind.HANDLER_RETRY: f"your handler asked for another attempt each time (page.retry); {_TRIES}",
    FailureKind.OUTCOME_UNKNOWN: "a POST or the like, of which nobody knows whether the server took it: it is not sent "
    f"again by itself; {_TRIES}, and so does idempotent=True",
    FailureKind.LOGIN_REQUIRED: f"it leads to the login, though that holds: this user may not see it; {_TRIES}",
    FailureKind.ENDS_SESSION: "sessions of its site end with it, or with its path (a logout, say): exclude it",
    FailureKind.REDIRECT_WITH_BODY: "it redirects to another origin, which does not get the body; with "
    "cross_origin=True it does",
    FailureKind.INTERNAL: "an error of this program; report the file log/bug-*.txt",
    FailureKind.POISON_URL: "the page crashed or stalled the program; report the URL",
}
_SKIPPED: Mapping[str, str] = {
    RefusalReason.ROBOTS: "robots.txt forbids it; 'crawler explain URL' shows the line",
    RIGHTS: "robots.txt says no to rights.purpose, in runs of jobs; 'crawler explain URL' shows the line, 'crawler "
    "release DOMAIN --reason rights' lets later runs fetch them all the same",
    RefusalReason.REDIRECTS: "a chain of redirects was too long; with a larger scope.redirects_max, start a new crawl",
    SEED_LED_AWAY: "the seed redirects out of the scope: of where it leads, only the page is kept; 'crawler seed' of "
    "that URL crawls its site",
}
_DEFERRED: Mapping[str, str] = {
    "blocked": "an operator blocked the domain; 'crawler unblock DOMAIN' continues",
    "urls": "beyond budget.urls of its domain; 'crawler release DOMAIN' or a larger budget continues",
    "pages": "beyond budget.pages of its domain; a larger budget continues",
    "bytes": "beyond budget.bytes of its domain; a larger budget continues",
    "requisites": "beyond requisites.urls or requisites.bytes of their domain; 'crawler release DOMAIN' or a larger "
    "budget continues",
    "depth": "beyond budget.depth; a larger budget continues",
    "hosts": "on hosts beyond budget.hosts of the domain; a larger budget continues",
    RIGHTS: "robots.txt says no to rights.purpose; 'crawler explain URL' shows the line, 'crawler release DOMAIN "
    "--reason rights' fetches them all the same",
    "allow_private": "at a private address: the same command with --allow-private fetches it",
    "crawl:urls": "beyond budget.crawl_urls; a larger budget continues",
    "trap:*": "a rule takes it for a trap; 'crawler release DOMAIN' continues, traps.off switches a rule off",
}
_CUT: Mapping[str, str] = {
    f"{CUT_BODY}length": "only the beginning of the body is kept; for new crawls, raise fetch.body_bytes_max",
    f"{CUT_BODY}time": "the body came too slowly; for new crawls, raise fetch.total_timeout_s",
    f"{CUT_BODY}disconnect": "the host closed the connection within the body, at each attempt",
    NOT_DECODED: "its Content-Encoding is wrong: it was read as far as it goes; the column decode_error has why",
    SCRIPTED: "pages that seem to be built by JavaScript, which is not run: they have no links and little text; "
    "'crawler seed --sitemap' may lead further",
    UNSIGNED: "refused without a signature, or in spite of one: with identity.sign = asked and identity.agent, new "
    "requests have one; the log has for whom that is not enough (identity.declined, identity.refused)",
    OF_RIGHTS: "pages that say no to rights.purpose: without body, title and items; 'crawler explain URL' has why",
    LINKS: "links beyond fetch.links_max or 1 MiB of a page, or with a login's password; 'crawler explain URL' of a "
    "page has its number",
    CUT_REQUISITES: "pictures, style sheets and the like beyond 2,000 of a page, or with a login's password",
    OF_SITEMAP: "sitemaps that were cut off, or are none: what could be read of them is crawled",
    ITEMS_DROPPED: "items that your functions of @app.item dropped",
    ITEMS_INVALID: "items that your handler yielded and that are not valid; the log has the reasons (item.invalid)",
}
# What `crawler release --reason` may be given: of each, URLs may be deferred.
RELEASED = (
    *(one for one in _DEFERRED if one not in ("blocked", "trap:*")),
    *(f"trap:{rule}" for rule in get_args(TrapRule)),
)
# Kind -> advice by reason, and advice for reasons that have none.
ADVICE: Mapping[Kind, tuple[Mapping[str, str], str]] = {
    Kind.GIVEN_UP: (_GIVEN_UP, f"'crawler dead show URL' has the detail; {_TRIES}"),
    Kind.SKIPPED: (_SKIPPED, "'crawler explain URL' tells why it was not fetched"),
    Kind.DEFERRED: (_DEFERRED, "kept; 'crawler stats DOMAIN' tells why, 'crawler release DOMAIN' continues"),
    Kind.CUT: (_CUT, "a part of these pages is missing; the log has more"),
}


def losses_of(totals: Totals, examples: Mapping[str, str]) -> list[Loss]:
    """The losses, largest first. `examples`: by the name of the total, as `Stats.totals_and_examples` has them."""
    found = [
        Loss(kind=kind, reason=reason, count=n, example=examples.get(name, ""), advice=_advice(kind, reason))
        for kind, reason, name, n in _counted(totals)
        if n > 0
    ]
    return sorted(found, key=lambda one: (-one.count, one.kind, one.reason))


def _counted(totals: Totals) -> Iterator[tuple[Kind, str, str, int]]:
    """Kind, reason, name of the total, and count."""
    for reason, n in totals.dead_by.items():
        yield Kind.GIVEN_UP, reason, f"{DEAD}{reason}", n
    for reason, n in totals.refused.items():
        if not is_asked(reason):
            yield Kind.SKIPPED, reason, f"{REFUSED}{reason}", n
    for reason, n in totals.deferred_by.items():
        yield Kind.DEFERRED, reason, f"{DEFERRED}{reason}", n
    for reason, n in totals.lost.items():
        yield Kind.SKIPPED if reason == SEED_LED_AWAY else Kind.CUT, reason, f"{LOST}{reason}", n
    yield Kind.CUT, ITEMS_INVALID, ITEMS_INVALID, totals.items_invalid


def is_asked(refusal: str) -> bool:
    """Did the user ask to leave out what is refused for this reason?"""
    return refusal in ASKED or refusal.startswith(RUN_ENDED)


def _advice(kind: Kind, reason: str) -> str:
    of_reason, of_all = ADVICE[kind]
    family = f"{reason.partition(':')[0]}:*"
    return of_reason.get(reason, of_reason.get(family, of_all)).format(reason)


def losses_lines(losses: Sequence[Loss]) -> list[str]:
    """For the end of a crawl: at most five lines, the last one with how many more there are."""
    shown = losses if len(losses) <= LINES_MAX else losses[: LINES_MAX - 1]
    lines = [one_line(_line(one)) for one in shown]
    if left := losses[len(shown) :]:
        n = sum(one.count for one in left)
        lines.append(f"{counted(len(left), 'more reason')}, {number(n)} in all: crawler stats --losses")
    return lines


def _line(loss: Loss) -> str:
    example = f" ({shortened(loss.example, EXAMPLE_COLUMNS)})" if loss.example else ""
    return f"{loss.kind.capitalize()}: {loss.reason} {number(loss.count)}{example}: {loss.advice}"


def losses_table(losses: Sequence[Loss]) -> str:
    """All of them, with what to do."""
    if not losses:
        return "No losses."
    width = max(len(number(one.count)) for one in losses)
    rows = [(number(one.count).rjust(width), one.kind, one.reason, one.example or "-", one.advice) for one in losses]
    return table(("number", "what", "reason", "example", "what to do"), rows, left=5)


def losses_text(losses: Sequence[Loss]) -> str:
    """In a few words: "given up 12, skipped 3"; "0" for none."""
    sums = {kind: sum(one.count for one in losses if one.kind is kind) for kind in Kind}
    return ", ".join(f"{kind} {number(n)}" for kind, n in sums.items() if n) or "0"
