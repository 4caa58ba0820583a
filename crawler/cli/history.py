"""`crawler history`: what became of each attempt at a URL, or at the URLs of a domain; from the crawl folder alone."""

import argparse
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from crawler.cli.options import add_common, settings_of, whole_type
from crawler.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from crawler.archive.folder import CrawlFolder
    from crawler.archive.history import Attempt

SHOWN = 100

EPILOG = """\
examples:
  crawler history https://docs.example/slow
  crawler history --domain docs.example --limit 20
  crawler history --domain docs.example --json | jq 'select(.status == "failed") | .kind'

Each instance notes its attempts in its own folder: name the folders of all machines with
--dir. The oldest notes go first when history.bytes_max is reached, and a process that is
killed loses those of its last second. For the present state of a URL: crawler explain URL.

With --json, one object a line, and all of them unless --limit is given; times in seconds.

exit codes: 0 done, also when nothing was found, 2 no crawl folder, or not a URL
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "history",
        usage="crawler history URL | --domain D [options]",
        help="what became of each attempt at a URL",
        description="What became of each attempt at a URL or at a domain's URLs: when it was claimed, began and "
        "ended, on which instance, and how. Needs the crawl folder, but no engine; also works while the crawl runs.",
        epilog=EPILOG,
    )
    p.add_argument("urls", nargs="*", metavar="URL", help="one URL")
    p.add_argument("--domain", metavar="D", help="all URLs of this domain")
    p.add_argument("--limit", metavar="N", type=whole_type, help=f"the last N only (default: all; {SHOWN} in a table)")
    p.add_argument("--json", action="store_true", help="for programs: an object a line")
    add_common(p, many_folders=True)
    p.set_defaults(run=run, takes_urls=True)


def run(arguments: argparse.Namespace) -> int:
    """Print it. Raises UsageError, InvalidUrl."""
    from crawler.archive.folder import open_existing
    from crawler.cli.event_loop import raise_file_limit
    from crawler.crawl.url_input import url_of, url_of_site
    from crawler.rules.urls import host_of, registrable_domain

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


def _print(folders: "Sequence[CrawlFolder]", url: str, domain: str, *, limit: int | None, as_json: bool) -> None:
    import msgspec

    from crawler.archive.history import attempts, kept_since
    from crawler.terminal.text import counted, moment, out, out_json
    from crawler.views.explain import ShownAttempt, history_table

    damaged = Counter[str]()
    found = attempts(folders, url=url, domain=domain, damaged=damaged)
    if as_json:
        shown = found if limit is None else _in_order(deque(found, maxlen=limit))
        for one in shown:
            out_json(msgspec.to_builtins(ShownAttempt.of(one)))
        _say_damaged(damaged)
        return
    numbered = deque(enumerate(found, start=1), maxlen=limit or SHOWN)
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
    from crawler.terminal.text import counted, warn

    for file, lines in sorted(damaged.items()):
        warn(f"{file}: {counted(lines, 'damaged line')} left out")


def _in_order(found: "Iterable[Attempt]") -> "list[Attempt]":
    return sorted(found, key=lambda one: one.last_at)
