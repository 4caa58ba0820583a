"""One page for a command: fetched as a crawl would, and what there is to say about it."""

from collections.abc import Sequence
from typing import Any

import msgspec

from crawler.model import GET, FetchResult, ParsedPage, Request, Response, Rights
from crawler.rules.challenges import sentence_of
from crawler.rules.requests import takes_body_away
from crawler.rules.robots import RobotsVerdict
from crawler.rules.text import one_line
from crawler.terminal.tables import facts
from crawler.terminal.words import counted, failure_text, size
from crawler.views.report import request_text, rights_pairs

LINKS_SHOWN = 10
TEXT_LINES_SHOWN = 12
LINE_CHARS = 110
NOTHING_PARSED = ParsedPage()


class PageView(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. `passed`: URLs that redirected here; `robots` is None when robots.txt could not be read;
    `request` is the one for `url`, None for a plain GET.
    """

    url: str
    request: Request | None = None
    passed: list[str]
    robots: RobotsVerdict | None
    robots_note: str = ""
    address_refused: str = ""
    result: FetchResult | None = None
    redirect_to: str = ""
    page: ParsedPage = NOTHING_PARSED
    text: str = ""
    rights: Rights | None = None  # what was said about its use; None: nothing
    note: str = ""

    @property
    def refusal(self) -> str:
        """Why there is no response, in one line; "" when there is one."""
        if self.address_refused:
            return f"not fetched: {self.address_refused}"
        if self.robots is None:
            return f"not fetched: robots.txt can't be read, so nothing is allowed ({self.robots_note})"
        if not self.robots.allowed:
            rule = f"line {self.robots.line_number}: {self.robots.line}"
            return f"not fetched: robots.txt forbids it ({rule}); --ignore-robots fetches it anyway"
        if self.result is not None and self.result.failure is not None:
            failure = self.result.failure
            return f"no response from {self.url}: {failure_text(failure.kind.value, failure.detail)}"
        return ""


def as_text(visit: PageView) -> str:
    """For a terminal: facts, then headers, the first links and lines of text."""
    assert visit.result is not None
    assert visit.result.response is not None
    response, page = visit.result.response, visit.page
    where = response.remote_ip or "through a proxy"
    pairs = [("url", visit.url), *[("redirected", f"from {url}") for url in visit.passed]]
    pairs += [
        *([("request", request_text(visit.request))] if visit.request is not None else []),
        ("robots", robots_text(visit)),
        ("status", f"{response.status} {response.reason} (HTTP/{response.http_version}, {where})"),
        ("time", f"{response.fetch_ms} ms"),
        ("body", _body(response)),
    ]
    pairs += [(name, value) for name, value in _found(visit).items() if value]
    pairs += rights_pairs(visit.rights)
    parts = [facts(pairs), _headers(response)]
    if page.links:
        parts.append(_some(counted(len(page.links), "link"), page.links, LINKS_SHOWN, "--links"))
    if visit.text:
        lines = [line[:LINE_CHARS] for line in visit.text.splitlines()]
        parts.append(_some("text", lines, TEXT_LINES_SHOWN, "--text"))
    return "\n\n".join(parts)


def robots_text(visit: PageView) -> str:
    """Like "allowed by line 3: Allow: /public"."""
    note = f" ({visit.robots_note})" if visit.robots_note else ""
    if visit.robots is None:
        return f"unreadable{note}"
    word = "allowed" if visit.robots.allowed else "forbidden"
    return word + (f" by line {visit.robots.line_number}: {visit.robots.line}" if visit.robots.line else "") + note


def as_json(visit: PageView) -> dict[str, Any]:
    """Everything; times in ms, headers as a list of pairs in their order."""
    response = visit.result.response if visit.result else None
    found: dict[str, Any] = {
        "url": visit.url,
        "method": visit.request.method if visit.request else GET,
        "redirected_from": visit.passed,
        "robots": {
            "allowed": bool(visit.robots and visit.robots.allowed),
            "line": visit.robots.line if visit.robots else "",
            "line_number": visit.robots.line_number if visit.robots else 0,
            "note": visit.robots_note,
        },
        "refusal": visit.refusal,
    }
    if response is None:
        return found
    return found | {
        "status": response.status,
        "reason": response.reason,
        "http_version": response.http_version,
        "remote_ip": response.remote_ip,
        "fetch_ms": response.fetch_ms,
        "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in response.headers],
        "bytes": len(response.body),
        "bytes_on_the_wire": len(response.raw_body),
        "truncated": response.truncated,
        "decode_error": response.decode_error,
        "challenge": visit.result.challenge if visit.result else "",
        "title": visit.page.title,
        "canonical": visit.page.canonical,
        "charset": visit.page.charset,
        "noindex": visit.page.noindex,
        "nofollow": visit.page.nofollow,
        "redirect_to": visit.redirect_to,
        "rights": visit.rights and msgspec.to_builtins(visit.rights),
        "links": list(visit.page.links),
        "text": visit.text,
    }


def _found(visit: PageView) -> dict[str, str]:
    page = visit.page
    flags = [word for word, is_set in (("noindex", page.noindex), ("nofollow", page.nofollow)) if is_set]
    return {
        "redirect": visit.redirect_to and f"to {visit.redirect_to} ({_why_not_followed(visit)})",
        "title": page.title,
        "canonical": page.canonical,
        "directives": ", ".join(flags),
        "charset": page.charset,
        "challenge": sentence_of(visit.result.challenge) if visit.result and visit.result.challenge else "",
        "note": visit.note,
    }


def _why_not_followed(visit: PageView) -> str:
    assert visit.result is not None
    assert visit.result.response is not None
    if takes_body_away(visit.request, visit.result.response.status, visit.url, visit.redirect_to):
        return "not followed: another origin does not get the body"
    return "--follow goes there"


def _body(response: Response) -> str:
    sent = f", {size(len(response.raw_body))} on the wire" if len(response.raw_body) != len(response.body) else ""
    cut = f", cut: {response.truncated}" if response.truncated else ""
    lied = f", Content-Encoding: {response.decode_error}" if response.decode_error else ""
    return f"{size(len(response.body))}{sent}{cut}{lied}"


def _headers(response: Response) -> str:
    pairs = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers)
    return "\n".join(one_line(f"{name}: {value}") for name, value in pairs)


def _some(title: str, lines: Sequence[str], most: int, option: str) -> str:
    """The first ones, indented, and how to see the others."""
    more = [f"... and {len(lines) - most:,} more: {option}"] if len(lines) > most else []
    return "\n  ".join([f"{title}:", *map(one_line, lines[:most]), *more])
