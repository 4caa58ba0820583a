"""`crawler oplog`: who changed what in a crawl, and when."""

import argparse
from collections.abc import Sequence

import msgspec

from crawler.cli.options import SHOWN, settings_of
from crawler.cli.run_async import run_async
from crawler.crawl.opening import open_crawl
from crawler.frontier.operator_log import LogEntry
from crawler.settings import Settings
from crawler.terminal.output import out, out_json
from crawler.terminal.tables import NOTHING, table
from crawler.terminal.words import moment


def run_oplog(arguments: argparse.Namespace) -> int:
    """Print the log."""
    return run_async(_oplog(settings_of(arguments), limit=arguments.limit, as_json=arguments.json))


async def _oplog(settings: Settings, *, limit: int | None, as_json: bool) -> int:
    async with open_crawl(settings, create=False) as crawl:
        found = await crawl.operator_log.newest()
    if as_json:
        for one in found[-limit:] if limit else found:
            out_json(msgspec.to_builtins(one))
    else:
        out(_text(found, limit or SHOWN))
    return 0


def _text(found: Sequence[LogEntry], limit: int) -> str:
    if not found:
        return "No command has changed this crawl."
    rows = [
        (moment(one.at), one.who, one.via, one.action, one.target or NOTHING, one.told or NOTHING)
        for one in found[-limit:]
    ]
    headers = ("at", "who", "via", "command", "target", "detail")
    more = f"\n\nshown: the last {limit:,} of {len(found):,} (--limit N for more)" if len(found) > limit else ""
    return table(headers, rows, left=len(headers)) + more
