"""One page for a command: fetched as a crawl would, and what there is to say about it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from crawler.content.html import extract_text, redirect_target
from crawler.media_type import declared_type, is_html
from crawler.model import GET, NOT_ALLOWED, REDIRECTS, Failure, FetchResult, ParsedPage, Request, Response
from crawler.rules.challenges import sentence_of
from crawler.rules.requests import redirected, takes_body_away
from crawler.rules.robots import RobotsRules, RobotsVerdict, is_cut_at_limit, policy_of
from crawler.rules.text import one_line
from crawler.rules.urls import origin_of
from crawler.settings import Settings
from crawler.terminal.text import counted, facts, failure_text, size
from crawler.version import program_version
from crawler.views.report import request_text
from crawler.web.fetcher import Fetcher
from crawler.web.resolver import CachingResolver
from crawler.worker.parse import PageParser, ParseKilledError
from crawler.worker.robots_reader import BODY_BYTES_MAX as ROBOTS_BYTES_MAX
from crawler.worker.robots_reader import REDIRECTS_MAX as ROBOTS_REDIRECTS_MAX

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


# Single pages for commands, fetched as the crawler would: robots.txt first. Needs no crawl; stores nothing.
#
# Heavy: commands import it when they run.


REDIRECTS_MAX = 10


class PageRobots(NamedTuple):
    """The rules of an origin's robots.txt, None when they can't be known, and a note on that."""

    rules: RobotsRules | None
    note: str = ""
    failure: Failure | None = None

    def verdict(self, url: str) -> RobotsVerdict | None:
        return None if self.rules is None else self.rules.verdict(url)


class PageClient:
    """Fetches single pages, and each origin's robots.txt once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._robots: dict[str, PageRobots] = {}

    def crawl_delay_s(self, url: str) -> float:
        """What the robots.txt that was read for this URL asks for; 0 where nothing is known."""
        known = self._robots.get(origin_of(url))
        return (known.rules.crawl_delay_s or 0.0) if known and known.rules else 0.0

    async def visit(self, url: str, *, follow: bool, request: Request | None = None) -> PageView:
        """One page, after at most 10 redirects if they are to be followed; without a response where there is none.

        Redirects of a request that is not a plain GET are as in a crawl (rules/requests.py).
        """
        settings, passed = self._settings, list[str]()
        resolver = CachingResolver(settings.dns, allow_private=settings.fetch.allow_private)
        try:
            async with Fetcher(settings, resolver=resolver, version=program_version()) as fetcher:
                while True:
                    robots = await self._known(fetcher, url)
                    visit = PageView(
                        url=url, request=request, passed=passed, robots=robots.verdict(url), robots_note=robots.note
                    )
                    if robots.failure is not None and robots.failure.kind in NOT_ALLOWED:
                        visit = msgspec.structs.replace(visit, address_refused=robots.failure.detail)
                    if visit.refusal:
                        return visit
                    is_once = request is not None and not request.may_repeat
                    result = await fetcher.fetch(
                        url, request=request, note_sent=_on_new_connection if is_once else None
                    )
                    r = result.response
                    target = redirect_target(url, r.header("location")) if r and r.status in REDIRECTS else None
                    is_last = not follow or not target or len(passed) >= REDIRECTS_MAX
                    if r is None or not target or is_last or takes_body_away(request, r.status, url, target):
                        done = msgspec.structs.replace(visit, result=result, redirect_to=target or "")
                        return await _read(done, settings)
                    passed.append(url)
                    url, request = target, redirected(request, r.status, url, target)
        finally:
            await resolver.close()

    async def _known(self, fetcher: Fetcher, url: str) -> PageRobots:
        origin = origin_of(url)
        if origin not in self._robots:
            self._robots[origin] = await _robots(fetcher, origin, self._settings)
        return self._robots[origin]


async def _on_new_connection() -> None:
    """Nobody keeps a note of a request of ours; that there might be one keeps it from a connection that is idle."""


async def _robots(fetcher: Fetcher, origin: str, settings: Settings) -> PageRobots:
    anything = RobotsRules.parse(b"", settings.robots.agent)
    if not settings.robots.obey:
        return PageRobots(anything, "not asked for")
    where, response = f"{origin}/robots.txt", None
    for _ in range(ROBOTS_REDIRECTS_MAX + 1):
        result = await fetcher.fetch(where, body_bytes_max=ROBOTS_BYTES_MAX)
        response = result.response
        if response is None:
            assert result.failure is not None
            return PageRobots(
                None, f"{where}: {failure_text(result.failure.kind, result.failure.detail)}", result.failure
            )
        target = redirect_target(where, response.header("location")) if response.status in REDIRECTS else None
        if not target:
            break
        where = target
    assert response is not None
    policy, reason = policy_of(response, result.challenge)
    if policy == "disallow_all":
        return PageRobots(None, f"{where}: {reason}")
    if policy == "allow_all":
        return PageRobots(anything, f"there is none (status {response.status})")
    rules = RobotsRules.parse(response.body, settings.robots.agent, is_cut=is_cut_at_limit(response))
    return PageRobots(rules, "" if rules.crawl_delay_s is None else f"Crawl-delay {rules.crawl_delay_s:g} s")


async def _read(visit: PageView, settings: Settings) -> PageView:
    """With what the parser finds in the body."""
    response = visit.result.response if visit.result else None
    if response is None:
        return visit
    parser = PageParser(settings)
    try:
        page = await parser.parse(response)
    except ParseKilledError as error:
        return msgspec.structs.replace(visit, note=str(error))
    finally:
        await parser.close()
    html = is_html(declared_type(response), response.body)
    text = extract_text(response.body, page.charset) if html else ""
    return msgspec.structs.replace(visit, page=page, text=text)
