"""`crawler oplog`: who changed what in a crawl, and when."""

import argparse
from typing import TYPE_CHECKING, Any

from crawler.cli.options import add_common, count_type, settings_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crawler.frontier.operator import LogEntry
    from crawler.settings import Settings

SHOWN = 50

EPILOG = """\
examples:
  crawler oplog
  crawler oplog --limit 1000 --json | jq 'select(.who == "ann")'

Commands that change a crawl are noted before they act, also those that then fail: pause, block,
delay, boost and their opposites, purge, release, dead retry and dead purge, ring pin, unpin and
evict, scale, users, seed, and prune. The engine keeps 1,000: the oldest
go of whoever has most. A command that the same person repeats is one entry.

With --json, one object a line, the newest last; all of them unless --limit is given.

exit codes: 0 done, 2 no such crawl, 3 engine
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "oplog",
        help="who changed what in a crawl, and when",
        description="The operator log: commands that changed a crawl, with who gave them and when.",
        epilog=EPILOG,
    )
    p.add_argument(
        "--limit", metavar="N", type=count_type(1), help=f"the last N only (default: all; {SHOWN} in a table)"
    )
    p.add_argument("--json", action="store_true", help="for programs: an object a line; times in seconds")
    add_common(p)
    p.set_defaults(run=run, takes_urls=False)


def run(arguments: argparse.Namespace) -> int:
    """Print the log."""
    from crawler.cli.event_loop import run_async

    return run_async(_run(settings_of(arguments), limit=arguments.limit, as_json=arguments.json))


async def _run(settings: "Settings", *, limit: int | None, as_json: bool) -> int:
    import msgspec

    from crawler.crawl.opening import open_crawl
    from crawler.terminal.text import out, out_json

    async with open_crawl(settings, create=False) as crawl:
        found = await crawl.operator_log.newest()
    if as_json:
        for one in found[-limit:] if limit else found:
            out_json(msgspec.to_builtins(one))
    else:
        out(_text(found, limit or SHOWN))
    return 0


def _text(found: "Sequence[LogEntry]", limit: int) -> str:
    from crawler.terminal.text import NOTHING, moment, table

    if not found:
        return "No command has changed this crawl."
    rows = [
        (moment(one.at), one.who, one.via, one.action, one.target or NOTHING, one.told or NOTHING)
        for one in found[-limit:]
    ]
    headers = ("at", "who", "via", "command", "target", "detail")
    more = f"\n\nshown: the last {limit:,} of {len(found):,} (--limit N for more)" if len(found) > limit else ""
    return table(headers, rows, left=len(headers)) + more
