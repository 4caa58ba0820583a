"""`crawler history`: what became of each attempt at a URL, or at the URLs of a domain; from the crawl folder alone."""

import argparse
from collections import Counter, deque
from collections.abc import Iterable, Sequence

import msgspec

from crawler.archive.folder import CrawlFolder, open_existing
from crawler.archive.history import Attempt, attempts, kept_since
from crawler.cli.options import settings_of
from crawler.cli.parse_history import HISTORY_SHOWN
from crawler.cli.run_async import raise_file_limit
from crawler.crawl.url_input import url_of, url_of_site
from crawler.errors import UsageError
from crawler.rules.places import registrable_domain
from crawler.rules.urls import host_of
from crawler.terminal.output import out, out_json, warn
from crawler.terminal.words import counted, moment


def run_history(arguments: argparse.Namespace) -> int:
    """Print it. Raises UsageError, InvalidUrl."""
    if len(arguments.urls) + bool(arguments.domain) != 1:
        raise UsageError("name one URL, or a domain: crawler history URL, crawler history --domain D")
    if arguments.limit is not None and arguments.limit < 1:
        raise UsageError(f"--limit {arguments.limit}: expected a number of attempts")
    url = url_of(arguments.urls[0]) if arguments.urls else ""
    domain = "" if url else registrable_domain(host_of(url_of_site(arguments.domain)))
    folders = arguments.dir or []
    arguments.dir = folders[0] if folders else None
    settings = settings_of(arguments, in_folder=True)
    raise_file_limit()  # a file for each session with attempts
    opened = [open_existing(folder) for folder in (settings.archive.dir, *folders[1:])]
    _print(opened, url, domain, limit=arguments.limit, as_json=arguments.json)
    return 0


def _print(folders: Sequence[CrawlFolder], url: str, domain: str, *, limit: int | None, as_json: bool) -> None:
    from crawler.views.explain import ShownAttempt, history_table

    damaged = Counter[str]()
    found = attempts(folders, url=url, domain=domain, damaged=damaged)
    if as_json:
        shown = found if limit is None else _in_order(deque(found, maxlen=limit))
        for one in shown:
            out_json(msgspec.to_builtins(ShownAttempt.of(one)))
        _say_damaged(damaged)
        return
    numbered = deque(enumerate(found, start=1), maxlen=limit or HISTORY_SHOWN)
    since = kept_since(folders)
    if numbered:
        out(history_table(_in_order(one for _, one in numbered), with_urls=bool(domain)))
        shown_count, total = len(numbered), numbered[-1][0]
        if total > shown_count:
            out(f"\nshown: the last {shown_count:,} of {total:,} (--limit N for more; --json has all)")
    else:
        out(f"No attempt at {url or f'a URL of {domain}'} is known.")
    where = counted(len(folders), "folder")
    kept = f"History in {where} begins at {moment(since)}" if since else f"{where} without history"
    out(f"\n{kept}. The present state of a URL: crawler explain URL")
    _say_damaged(damaged)


def _say_damaged(damaged: "Counter[str]") -> None:
    for file, lines in sorted(damaged.items()):
        warn(f"{file}: {counted(lines, 'damaged line')} left out")


def _in_order(found: Iterable[Attempt]) -> "list[Attempt]":
    return sorted(found, key=lambda one: one.last_at)
