"""`crawler fetch`: one page as the crawler sees it. Needs no crawl and no engine; keeps nothing."""

import argparse
import json
from typing import TYPE_CHECKING

from crawler.cli.crawling import KEYS, add_fetching
from crawler.cli.options import add_settings, settings_of
from crawler.errors import NothingFetchedError

if TYPE_CHECKING:
    from crawler.rules.robots import RobotsVerdict
    from crawler.settings import Settings
    from crawler.watch.one_page import Visit
    from crawler.web.fetcher import Fetcher

REDIRECTS_MAX = 10
ROBOTS_REDIRECTS_MAX = 5

EPILOG = """\
examples:
  crawler fetch https://docs.example/             status, headers, robots.txt, links, text
  crawler fetch https://docs.example/ --links     all links, one a line
  crawler fetch https://docs.example/ --text      what a reader sees
  crawler fetch http://docs.example/ --follow     where redirects lead

exit codes: 0 there is an answer, of whatever status; 2 no URL; 6 there is none, or robots.txt forbids to ask
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    p = commands.add_parser(
        "fetch",
        help="fetch one page and show what the crawler sees",
        description="Fetch one page and show it as the crawler sees it: robots.txt and the rule that decided, status, "
        "headers, times, links and text. Its robots.txt is asked for first. Nothing is kept.",
        epilog=EPILOG,
    )
    p.add_argument("url", metavar="URL")
    p.add_argument("-L", "--follow", action="store_true", help=f"follow up to {REDIRECTS_MAX} redirects")
    shown = p.add_mutually_exclusive_group()
    shown.add_argument("--links", action="store_true", help="all links, canonical, one a line, and nothing else")
    shown.add_argument("--text", action="store_true", help="the visible text and nothing else")
    shown.add_argument("--json", action="store_true", help="all of it as one JSON object; times in ms")
    add_fetching(p)
    add_settings(p)
    p.set_defaults(run=run, takes_urls=False)


def run(arguments: argparse.Namespace) -> int:
    """Print what was found; raises InvalidUrl, and NothingFetchedError where there is no answer."""
    from crawler.cli.loop import run_async
    from crawler.rules.urls import canonicalize
    from crawler.watch.one_page import as_json, as_text

    url = canonicalize(arguments.url.strip())
    visit = run_async(_visit(url, settings_of(arguments, KEYS), follow=arguments.follow))
    if arguments.json:
        print(json.dumps(as_json(visit)))
    if visit.refusal:
        raise NothingFetchedError(visit.refusal)
    if arguments.links:
        print("\n".join(visit.page.links))
    elif arguments.text:
        print(visit.text)
    elif not arguments.json:
        print(as_text(visit))
    return 0


async def _visit(url: str, settings: "Settings", *, follow: bool) -> "Visit":
    from crawler.content.page import redirect_target
    from crawler.model import REDIRECTS
    from crawler.version import program_version
    from crawler.watch.one_page import Visit
    from crawler.web.fetcher import Fetcher
    from crawler.web.resolver import CachingResolver

    resolver, passed = CachingResolver(settings.dns, allow_private=settings.fetch.allow_private), list[str]()
    try:
        async with Fetcher(settings, resolver=resolver, version=program_version()) as fetcher:
            while True:
                verdict, note = await _robots(fetcher, url, settings)
                if verdict is None or not verdict.allowed:
                    return Visit(url=url, passed=passed, robots=verdict, robots_note=note)
                result = await fetcher.fetch(url)
                r = result.response
                target = redirect_target(url, r.header("location")) if r and r.status in REDIRECTS else None
                if not follow or not target or len(passed) >= REDIRECTS_MAX:
                    return await _read(
                        Visit(
                            url=url, passed=passed, robots=verdict, robots_note=note, result=result,
                            redirect_to=target or "",
                        ),
                        settings,
                    )  # fmt: skip
                passed.append(url)
                url = target
    finally:
        await resolver.close()


async def _robots(fetcher: "Fetcher", url: str, settings: "Settings") -> "tuple[RobotsVerdict | None, str]":
    """What robots.txt says of a URL, None where it can't be known; and what there is to say of that."""
    from crawler.content.page import redirect_target
    from crawler.model import REDIRECTS
    from crawler.rules.robots import RobotsRules, RobotsVerdict, robots_policy
    from crawler.rules.urls import origin_of

    if not settings.robots.obey:
        return RobotsVerdict(allowed=True), "not asked for"
    where, response = f"{origin_of(url)}/robots.txt", None
    for _ in range(ROBOTS_REDIRECTS_MAX + 1):
        result = await fetcher.fetch(where, body_bytes_max=settings.robots.body_bytes_max)
        response = result.response
        if response is None:
            assert result.failure is not None
            return None, f"{where}: {result.failure.kind.value} {result.failure.detail}".strip()
        target = redirect_target(where, response.header("location")) if response.status in REDIRECTS else None
        if not target:
            break
        where = target
    policy = robots_policy(response.status) if response else "disallow_all"
    if response is None or policy == "disallow_all":
        return None, f"{where}: status {response.status if response else 0}"
    if policy == "allow_all":
        return RobotsVerdict(allowed=True), f"there is none (status {response.status})"
    rules = RobotsRules.parse(response.body, settings.robots.agent)
    return rules.verdict(url), "" if rules.crawl_delay_s is None else f"Crawl-delay {rules.crawl_delay_s:g} s"


async def _read(visit: "Visit", settings: "Settings") -> "Visit":
    """With what the parser finds in the body."""
    import msgspec

    from crawler.content.media import is_html
    from crawler.content.text import extract_text
    from crawler.instance.parsing import PageParser, ParseKilledError

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
    html = is_html(response.header("content-type"), response.body)
    text = extract_text(response.body, page.charset) if html else ""
    return msgspec.structs.replace(visit, page=page, text=text)
