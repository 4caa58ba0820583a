"""`crawler crawls`: lists the crawls of an engine, and removes one from it."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from crawler.cli.options import add_common, settings_of
from crawler.errors import UsageError

if TYPE_CHECKING:
    from crawler.settings import Settings
    from crawler.views.report import CrawlRow, RemovedCrawl

EPILOG = """\
examples:
  crawler crawls --redis redis://queue.example/              the crawls of an engine
  crawler crawls rm old-shop --redis redis://queue.example/  remove one, after a question
  crawler crawls rm old-shop --yes                           the same of the embedded engine, without one

A crawl that an earlier release created is listed once it was opened by this one. `rm` deletes
what the engine has of a crawl: queue, seen-set, counters, dead letters. The crawl folder stays,
with archive and results. 'crawler rebuild' brings the crawl back from it. While the crawl is
being removed, nobody can open it. A removal that was interrupted is finished by the same command.

exit codes: 0 done, 2 no such crawl, or not confirmed, 3 engine, 4 instances take part
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "crawls",
        help="list the crawls of an engine, or remove one",
        description="The crawls of an engine. Without an action: list.",
        epilog=EPILOG,
    )
    _add_options(p)
    p.set_defaults(run=_list)
    actions = p.add_subparsers(metavar="ACTION", title="actions")
    one = actions.add_parser("list", help="name, time of creation, pages, pending URLs, instances", description="List.")
    _add_options(one, is_action=True)
    one.set_defaults(parser=one)
    one = actions.add_parser(
        "rm", help="remove a crawl from the engine; its folder stays", description="Remove a crawl from the engine."
    )
    one.add_argument("removed", metavar="NAME", help="the crawl's name")
    one.add_argument("--yes", action="store_true", help="do not ask")
    _add_options(one, is_action=True)
    one.set_defaults(run=_remove, parser=one)


def _add_options(p: argparse.ArgumentParser, *, is_action: bool = False) -> None:
    known = len(p._actions)  # noqa: SLF001 - argparse has no list of its options
    p.add_argument("--json", action="store_true", help="for programs")
    add_common(p, has_name=False)
    if is_action:
        for option in p._actions[known:]:  # noqa: SLF001
            option.default = argparse.SUPPRESS  # options before the name of the action count as well


def _list(arguments: argparse.Namespace) -> int:
    from crawler.cli.event_loop import run_async
    from crawler.terminal.text import out, out_json

    rows = run_async(_read(settings_of(arguments)))
    if arguments.json:
        for row in rows:
            out_json(_json(row))
    else:
        out(_table(rows) if rows else "no crawls")
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    """Ask, and remove. Raises UsageError without a confirmation."""
    from crawler.cli.event_loop import run_async
    from crawler.terminal.text import counted, out, out_json

    settings = settings_of(arguments, {"removed": "crawl.name"})
    if not arguments.yes:
        if not sys.stdin.isatty():
            raise UsageError(f"add --yes to remove the crawl {arguments.removed!r}: there is no terminal to ask on")
        _ask(run_async(_read_one(settings)))
    removed = run_async(_remove_one(settings))
    if arguments.json:
        out_json({"removed": removed.name, "keys": removed.keys})
    else:
        out(
            f"Removed crawl {removed.name!r} from the engine: {counted(removed.keys, 'key')}.\n"
            "Its folder stays, with archive and results: 'crawler rebuild' brings the crawl back from it."
        )
    return 0


async def _read(settings: "Settings") -> "list[CrawlRow]":
    from crawler.crawl.opening import open_engine

    async with open_engine(settings) as engine:
        from crawler.views.report import crawl_rows

        return await crawl_rows(engine)


async def _read_one(settings: "Settings") -> "CrawlRow":
    from crawler.crawl.opening import open_engine

    async with open_engine(settings) as engine:
        from crawler.views.report import crawl_row

        return await crawl_row(engine, settings.crawl.name)


async def _remove_one(settings: "Settings") -> "RemovedCrawl":
    from crawler.crawl.opening import open_engine

    async with open_engine(settings) as engine:
        from crawler.views.report import remove_crawl

        return await remove_crawl(engine, settings.crawl.name, settings.membership)


def _ask(row: "CrawlRow") -> None:
    """Raises UsageError when the answer is not yes."""
    from crawler.terminal.text import counted, err

    known = ""
    if row.pages is not None and row.pending is not None:
        known = f" ({counted(row.pages, 'page')}, {row.pending:,} pending)"
    err(f"Remove crawl {row.name!r}{known} from the engine? Its folder stays. [y/N]")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("not confirmed: nothing was removed")


def _json(row: "CrawlRow") -> dict[str, Any]:
    from msgspec.structs import asdict

    return asdict(row)


def _table(rows: "list[CrawlRow]") -> str:
    from crawler.terminal.text import NOTHING, moment, table

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


def _note(row: "CrawlRow") -> str:
    if row.condition == "other_layout":
        return f"layout {row.layout}: needs the release that created it"
    return "being removed: run 'rm' again" if row.condition == "being_removed" else ""
