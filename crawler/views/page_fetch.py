"""Single pages for commands, fetched as the crawler would: robots.txt first. Needs no crawl; stores nothing.

Heavy: commands import it when they run.
"""

from typing import NamedTuple

import msgspec

from crawler.content.html import extract_text, redirect_target
from crawler.hosts.robots_reader import BODY_BYTES_MAX as ROBOTS_BYTES_MAX
from crawler.hosts.robots_reader import REDIRECTS_MAX as ROBOTS_REDIRECTS_MAX
from crawler.media_type import declared_type, is_html
from crawler.model import NOT_ALLOWED, REDIRECTS, Failure, Request
from crawler.parsing.parse import PageParser, ParseKilledError
from crawler.rules.requests import redirected, takes_body_away
from crawler.rules.robots import RobotsRules, RobotsVerdict, is_cut_at_limit, policy_of
from crawler.rules.urls import origin_of
from crawler.settings import Settings
from crawler.terminal.words import failure_text
from crawler.version import program_version
from crawler.views.page import PageView
from crawler.web.fetcher import Fetcher
from crawler.web.resolver import CachingResolver
from crawler.worker.page_rights import RightsRules

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
                    if result.wants_signature:
                        continue
                    r = result.response
                    target = redirect_target(url, r.header("location")) if r and r.status in REDIRECTS else None
                    is_last = not follow or not target or len(passed) >= REDIRECTS_MAX
                    if r is None or not target or is_last or takes_body_away(request, r.status, url, target):
                        done = msgspec.structs.replace(visit, result=result, redirect_to=target or "")
                        return await _read(done, settings, robots.rules)
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
        if result.wants_signature:
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


async def _read(visit: PageView, settings: Settings, rules: RobotsRules | None) -> PageView:
    """With what the parser finds in the body, and what was said about its use."""
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
    rights, _ = RightsRules(settings).of(visit.url, rules.said if rules else None, response, page)
    return msgspec.structs.replace(visit, page=page, text=text, rights=rights)
