"""`crawler crawls`: lists the crawls of an engine, and removes one from it."""

import argparse
import sys

from msgspec.structs import asdict

from crawler.cli.options import settings_of
from crawler.cli.run_async import run_async
from crawler.crawl.opening import open_engine
from crawler.errors import UsageError
from crawler.settings import Settings
from crawler.terminal.output import err, out, out_json, show
from crawler.terminal.tables import NOTHING, table
from crawler.terminal.words import counted, moment
from crawler.views import crawl_list
from crawler.views.crawl_list import CrawlRow, RemovedCrawl, crawl_row, crawl_rows


def list_crawls(arguments: argparse.Namespace) -> int:
    rows = run_async(_read(settings_of(arguments)))
    if arguments.json:
        for row in rows:
            out_json(asdict(row))
    else:
        out(_table(rows) if rows else "no crawls")
    return 0


def remove_crawl(arguments: argparse.Namespace) -> int:
    """Ask, and remove. Raises UsageError without a confirmation."""
    settings = settings_of(arguments, {"removed": "crawl.name"})
    if not arguments.yes:
        if not sys.stdin.isatty():
            raise UsageError(f"add --yes to remove the crawl {arguments.removed!r}: there is no terminal to ask on")
        _ask(run_async(_read_one(settings)))
    removed = run_async(_remove_one(settings))
    text = (
        f"Removed crawl {removed.name!r} from the engine: {counted(removed.keys, 'key')}.\n"
        "Its folder stays, with archive and results: 'crawler rebuild' brings the crawl back from it."
    )
    show({"removed": removed.name, "keys": removed.keys}, text, as_json=arguments.json)
    return 0


async def _read(settings: Settings) -> list[CrawlRow]:
    async with open_engine(settings) as engine:
        return await crawl_rows(engine)


async def _read_one(settings: Settings) -> CrawlRow:
    async with open_engine(settings) as engine:
        return await crawl_row(engine, settings.crawl.name)


async def _remove_one(settings: Settings) -> RemovedCrawl:
    async with open_engine(settings) as engine:
        return await crawl_list.remove_crawl(engine, settings.crawl.name, settings.membership)


def _ask(row: CrawlRow) -> None:
    """Raises UsageError when the answer is not yes."""
    known = ""
    if row.pages is not None and row.pending is not None:
        known = f" ({counted(row.pages, 'page')}, {row.pending:,} pending)"
    err(f"Remove crawl {row.name!r}{known} from the engine? Its folder stays. [y/N]")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("not confirmed: nothing was removed")


def _table(rows: list[CrawlRow]) -> str:
    def shown(count: int | None) -> str:
        return NOTHING if count is None else f"{count:,}"

    lines = [
        [
            row.name,
            moment(row.created_at) if row.created_at else NOTHING,
            shown(row.pages),
            shown(row.pending),
            shown(row.instances),
            _note(row),
        ]
        for row in rows
    ]
    columns = 6 if any(line[-1] for line in lines) else 5
    headers = ["crawl", "created", "pages", "pending", "instances", "note"]
    return table(headers[:columns], [line[:columns] for line in lines], left=2)


def _note(row: CrawlRow) -> str:
    match row.condition:
        case "other_layout":
            return f"layout {row.layout}: needs the release that created it"
        case "being_removed":
            return "being removed: run 'rm' again"
        case "moved":
            return f"moved to {row.place}"
        case "leaving":
            return f"on its way to {row.place}"
        case "arriving":
            return f"on its way here from {row.place}"
        case _:
            return ""
