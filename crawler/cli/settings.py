"""`crawler settings`: shows the settings that are stored with the crawl, and changes them for all of it."""

import argparse
from typing import TYPE_CHECKING, Any

from crawler.cli.options import add_common, settings_of
from crawler.errors import UsageError
from crawler.terminal.text import counted, out, out_json, warn

if TYPE_CHECKING:
    from crawler.frontier.record import CrawlRecord
    from crawler.settings import Settings

EPILOG = """\
examples:
  crawler settings                          what is stored with the crawl, and what it needs
  crawler settings --all                    also what is as by default
  crawler settings scope.depth_max=3 robots.obey=no
  crawler settings handlers.app=shop2.py

What results depend on is stored with the crawl when it begins: scope, robots.txt or not, user
agent, limits, and how sites are treated. No other command needs to name it again, and one that
names other values is refused, but for [politeness], [retry], [hosts], fetch.contact and the
timeouts of [fetch]: those it changes, and says so.

A crawl that needs --allow-private, insecure TLS or an app stores that it does. The permission
comes from a command on each machine, which notes it in its crawl folder.

A change of the scope holds for links that are found from now on, the rest for instances that
start from now on. What was fetched stays as it is.

exit codes: 0 done, 2 bad key or value, or one that can't change, 3 engine
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "settings",
        help="show or change the settings that are stored with a crawl",
        description="Show the settings that are stored with the crawl, or change them for the whole crawl.",
        epilog=EPILOG,
    )
    p.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="a new value, as --set takes it")
    p.add_argument("--all", action="store_true", help="show what is as by default, too")
    p.add_argument("--json", action="store_true", help="as one JSON object, with all settings")
    add_common(p)
    p.set_defaults(run=run, takes_urls=False)


def run(arguments: argparse.Namespace) -> int:
    """Change or show; see EPILOG for the exit codes."""
    from crawler.cli.checking import check_app
    from crawler.cli.event_loop import run_async
    from crawler.crawl.terms import permitted

    if arguments.changes and arguments.set:
        raise UsageError("write changes as KEY=VALUE, without --set")
    wanted = [text.partition("=")[0].strip() for text in arguments.changes]
    arguments.set = arguments.changes
    settings = permitted(settings_of(arguments))
    if "handlers.app" in wanted:
        check_app(settings)
    return run_async(_run(arguments, settings, wanted))


async def _run(arguments: argparse.Namespace, settings: "Settings", wanted: list[str]) -> int:
    from crawler.crawl.opening import open_crawl
    from crawler.crawl.terms import change
    from crawler.settings.load import complaints

    async with open_crawl(settings, create=False) as crawl:
        if not wanted:
            _show(arguments, crawl.record)
            return 0
        for complaint in complaints(crawl.settings):
            raise UsageError(complaint)
        values = {key: getattr(getattr(crawl.settings, key.split(".")[0]), key.split(".")[1]) for key in wanted}
        for line in await change(crawl, values) or ["nothing changed: the crawl has these values"]:
            out(line)
        if crawl.record.settings is None:
            warn(
                "this crawl was begun by an earlier release: its other settings are stored by its next 'crawler crawl'"
            )
    return 0


def _show(arguments: argparse.Namespace, record: "CrawlRecord") -> None:
    import msgspec

    from crawler.settings import Settings
    from crawler.settings.kept import kept_of, shown
    from crawler.terminal.text import facts

    stored, defaults = record.stored_settings, kept_of(Settings())
    needs = msgspec.to_builtins(record.needs)
    if arguments.json:
        out_json({"settings": stored, "needs": needs})
        return
    same = {
        key for key, value in defaults.items() if msgspec.json.encode(value) == msgspec.json.encode(stored.get(key))
    }
    rows = [(key, shown(value)) for key, value in sorted(stored.items()) if arguments.all or key not in same]
    rows += [("needs", f"fetch.{name}") for name in ("allow_private", "insecure_tls") if needs.get(name)]
    if "app" in needs:
        rows.append(("needs", f"the app {needs['app']}, SHA-256 {needs['app_digest'][:16]}..."))
    if rows:
        out(facts(rows))
    if not arguments.all:
        are = counted(len(same), "setting has its default", "settings have their defaults")
        out(f"{are} (--all shows them)")
