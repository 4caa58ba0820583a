"""`crawler doctor`: checks what a crawl needs, and prints how to fix what is missing."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from crawler.cli.crawl_options import KEYS, add_fetching
from crawler.cli.options import add_common, settings_of
from crawler.errors import CrawlerError, DoctorError

if TYPE_CHECKING:
    from crawler.settings import Settings
    from crawler.views.doctor import Check

EPILOG = """\
examples:
  crawler doctor
  crawler doctor --redis redis://queue.example/ --json

exit codes: 0 nothing to fix (there may be warnings), 7 something must be fixed
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "doctor",
        help="check engine, DNS, disk and limits; print how to fix them",
        description="Check the engine, DNS, disk and limits that a crawl needs, and print how to fix them.",
        epilog=EPILOG,
    )
    p.add_argument("--json", action="store_true", help="as a JSON list")
    add_fetching(p)
    add_common(p)
    p.set_defaults(run=run, takes_urls=False)


def run(arguments: argparse.Namespace) -> int:
    """Print all checks; raises DoctorError when one failed."""
    from msgspec.structs import asdict

    from crawler.cli.event_loop import run_async
    from crawler.terminal.text import out, out_json
    from crawler.views.doctor import Level, report

    checks = run_async(_checks(settings_of(arguments, KEYS, in_folder=True)))
    if arguments.json:
        out_json([asdict(check) for check in checks])
    else:
        out(report(checks))
    failed = [check.name for check in checks if check.level is Level.FAIL]
    if failed:
        raise DoctorError(f"to be fixed: {', '.join(failed)}")
    return 0


async def _checks(settings: "Settings") -> "list[Check]":
    import asyncio

    from crawler.engine.client import Engine
    from crawler.frontier.scripts import library
    from crawler.views.doctor import Check, Level, check_disk, check_dns, check_engine, check_files, check_python

    machine = [check_python(), check_files(settings), check_disk(settings), await check_dns(settings)]
    serving = _engine_url(settings)
    try:
        url = await asyncio.to_thread(serving.__enter__)
    except CrawlerError as error:
        return [*machine, Check("engine", Level.FAIL, str(error), "see the engine's log, or use --redis")]
    try:
        timeout_s = settings.frontier.call_timeout_s
        return [*machine, *await check_engine(lambda: Engine(url, library(), call_timeout_s=timeout_s))]
    finally:
        await asyncio.to_thread(serving.__exit__, None, None, None)


@contextmanager
def _engine_url(settings: "Settings") -> Iterator[str]:
    """The engine to look at: the one named, the folder's own, or one that lives as long as the look."""
    import tempfile
    from pathlib import Path

    from crawler.engine.embedded import EmbeddedEngine

    if settings.frontier.redis:
        yield settings.frontier.redis
        return
    binary = settings.frontier.engine
    running = EmbeddedEngine(Path(settings.archive.dir) / "engine", binary=binary)
    if running.pid():
        yield running.url
        return
    with tempfile.TemporaryDirectory(prefix="crawler-doctor-") as home:
        own = EmbeddedEngine(Path(home), binary=binary)
        own.ensure()
        try:
            yield own.url
        finally:
            own.stop()
