"""`crawler settings`: shows the settings that are stored with the crawl, and changes them for all of it."""

import argparse

import msgspec

from crawler.cli.check import check_app
from crawler.cli.options import settings_of
from crawler.cli.run_async import run_async
from crawler.crawl.opening import open_crawl
from crawler.crawl.terms import change, permitted
from crawler.errors import UsageError
from crawler.frontier.record import CrawlRecord
from crawler.settings import Settings
from crawler.settings.kept import kept_of, shown
from crawler.settings.relations import complaints
from crawler.terminal.output import out, out_json, warn
from crawler.terminal.tables import facts
from crawler.terminal.words import counted


def run_settings(arguments: argparse.Namespace) -> int:
    """Change or show; see EPILOG for the exit codes."""
    kept = kept_of(Settings())
    if any(text.partition("=")[0].strip() in kept for text in arguments.set or ()):
        raise UsageError("write changes as KEY=VALUE, without --set")
    asked = [text for text in arguments.changes if "=" not in text]
    if unknown := next((key for key in asked if key not in kept), None):
        raise UsageError(f"{unknown}: not a setting that is stored with a crawl ('crawler settings --all' has them)")
    if asked and len(asked) < len(arguments.changes):
        raise UsageError(f"{asked[0]}: write a change as KEY=VALUE, or give keys alone to see their values")
    wanted = [] if asked else [text.partition("=")[0].strip() for text in arguments.changes]
    arguments.set = [*(arguments.set or ()), *([] if asked else arguments.changes)]
    arguments.asked = asked
    settings = permitted(settings_of(arguments))
    if "handlers.app" in wanted:
        check_app(settings)
    return run_async(_run(arguments, settings, wanted))


async def _run(arguments: argparse.Namespace, settings: Settings, wanted: list[str]) -> int:
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


def _show(arguments: argparse.Namespace, record: CrawlRecord) -> None:
    stored, defaults = record.stored_settings, kept_of(Settings())
    needs = msgspec.to_builtins(record.needs)
    if arguments.asked:
        stored = {key: stored.get(key, defaults[key]) for key in arguments.asked}
    if arguments.json:
        out_json({"settings": stored, "needs": needs})
        return
    if arguments.asked:
        out(facts([(key, shown(value)) for key, value in stored.items()]))
        return
    same = {
        key for key, value in defaults.items() if msgspec.json.encode(value) == msgspec.json.encode(stored.get(key))
    }
    rows = [(key, shown(value)) for key, value in sorted(stored.items()) if arguments.all or key not in same]
    rows += [("needs", f"fetch.{name}") for name in ("allow_private", "insecure_tls") if needs.get(name)]
    if "key" in needs:
        rows.append(("needs", f"the key {needs['key']}"))
    if "app" in needs:
        rows.append(("needs", f"the app {needs['app']}, SHA-256 {needs['app_digest'][:16]}..."))
    if rows:
        out(facts(rows))
    if not arguments.all:
        are = counted(len(same), "setting has its default", "settings have their defaults")
        out(f"{are} (--all shows them)")
