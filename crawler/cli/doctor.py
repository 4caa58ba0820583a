"""`crawler doctor`: checks what a crawl needs, and prints how to fix what is missing."""

import argparse
import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import asdict

from crawler.cli.crawl_options import KEYS
from crawler.cli.options import settings_of
from crawler.cli.run_async import run_async
from crawler.crawl.terms import permitted, stored_here
from crawler.crawl.url_input import url_of
from crawler.engine.client import Engine
from crawler.engine.embedded import EmbeddedEngine
from crawler.errors import CrawlerError, DoctorError
from crawler.frontier.scripts import library
from crawler.settings import Settings
from crawler.terminal.output import out, out_json
from crawler.views.doctor import (
    Check,
    Level,
    check_disk,
    check_dns,
    check_engine,
    check_files,
    check_password_files,
    check_proxies,
    check_python,
    report,
)
from crawler.views.identity_checks import EXAMPLE_URL, check_identity


def run_doctor(arguments: argparse.Namespace) -> int:
    """Print all checks; raises DoctorError when one failed."""
    url = url_of(arguments.url) if arguments.url else EXAMPLE_URL
    settings = stored_here(permitted(settings_of(arguments, KEYS, in_folder=True)))
    checks = run_async(_checks(settings, url))
    if arguments.json:
        out_json([asdict(check) for check in checks])
    else:
        out(report(checks))
    failed = [check.name for check in checks if check.level is Level.FAIL]
    if failed:
        raise DoctorError(f"to be fixed: {', '.join(failed)}")
    return 0


async def _checks(settings: Settings, url: str) -> "list[Check]":
    machine = [check_python(), check_files(settings), check_disk(settings), await check_dns(settings)]
    machine += await check_proxies(settings)
    machine += await check_identity(settings, url)
    if settings.frontier.redis:
        machine += check_password_files(settings.frontier.redis)
    serving = _engine_url(settings)
    try:
        url = await asyncio.to_thread(serving.__enter__)
    except CrawlerError as error:
        return [*machine, Check("engine", Level.FAIL, str(error), "see the engine's log, or use --redis")]
    try:
        timeout_s, name = settings.frontier.call_timeout_s, settings.crawl.name
        return [*machine, *await check_engine(lambda: Engine(url, library(), call_timeout_s=timeout_s), name)]
    finally:
        await asyncio.to_thread(serving.__exit__, None, None, None)


@contextmanager
def _engine_url(settings: Settings) -> Iterator[str]:
    """The engine to look at: the one named, the folder's own, or one that lives as long as the look."""
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
