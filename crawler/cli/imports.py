"""`crawler import`: what another crawler knows, as URLs that count as seen, or as requests that wait."""

import argparse
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

from crawler.cli.options import actor, check_engine_url, settings_of
from crawler.cli.run_async import run_async
from crawler.cli.seed import Intake
from crawler.crawl.imports import SeenImport
from crawler.crawl.opening import open_crawl
from crawler.crawl.scrapy_redis import QueueReport, scrapy_requests
from crawler.crawl.terms import check_terms
from crawler.crawl.url_files import STDIN, ListForm, check_readable, read_rows
from crawler.crawl.url_input import NO_SEED, GivenUrl, form_of
from crawler.engine.client import Engine
from crawler.errors import UsageError
from crawler.frontier.restore import Restoring
from crawler.frontier.scripts import library
from crawler.redaction import learn, secrets_of_url
from crawler.settings import Settings
from crawler.terminal.output import show, warn
from crawler.terminal.progress import progress
from crawler.terminal.words import counted
from crawler.views.seeds import add_seeds, seeding_member


def run_import_seen(arguments: argparse.Namespace) -> int:
    """Mark URLs as seen. Raises UsageError when not one could be used."""
    for name in arguments.files:
        if name != STDIN:
            check_readable(name)
    return run_async(_import_seen(arguments, settings_of(arguments), form_of(arguments)))


async def _import_seen(arguments: argparse.Namespace, settings: Settings, form: ListForm) -> int:
    async with open_crawl(settings, create=True) as crawl:
        given = ", ".join(Path(name).name for name in arguments.files)
        await crawl.operator_log.add(actor(), "import seen", "", given)
        restoring = Restoring(crawl.engine, crawl.keys, hash_key=crawl.record.hash_key)
        importing = SeenImport(restoring, crawl.placement, crawl.record.fingerprints, crawl.record.forgotten)
        async with seeding_member(crawl):
            with progress(verbose=bool(arguments.verbose)) as meter:
                for name in arguments.files:
                    shown = "standard input" if name == STDIN else Path(name).name
                    meter.begin(f"reading {shown}", "line")
                    async with contextlib.aclosing(read_rows(name, form)) as rows:
                        await importing.take(shown, rows, meter.reached)
    report = importing.report
    for example in report.examples:
        warn(example)
    if more := report.invalid - len(report.examples):
        warn(f"... and {counted(more, 'more invalid URL')}")
    parts = [f"{counted(report.new, 'URL')} marked as seen", f"{report.known:,} known before"]
    parts += [f"{report.failed:,} left out, which had failed there"] if report.failed else []
    parts += [f"{report.forgotten:,} of forgotten domains left out"] if report.forgotten else []
    parts += [f"{report.invalid:,} invalid"] if report.invalid else []
    show({name: getattr(report, name) for name in ("new", "known", "failed", "forgotten", "invalid")}, ", ".join(parts),
         as_json=arguments.json)  # fmt: skip
    if report.invalid and not report.new + report.known + report.failed + report.forgotten:
        raise UsageError(NO_SEED)
    return 0


def run_import_scrapy(arguments: argparse.Namespace) -> int:
    """Add the requests of a queue. Raises UsageError."""
    learn(secrets_of_url(arguments.source))
    check_engine_url(arguments.source)
    return run_async(_import_scrapy(arguments, settings_of(arguments)))


async def _import_scrapy(arguments: argparse.Namespace, settings: Settings) -> int:
    queue = QueueReport()
    source = Engine(arguments.source, library(), call_timeout_s=settings.frontier.call_timeout_s)
    try:
        async with contextlib.aclosing(scrapy_requests(source, arguments.key, queue)) as requests:
            first = await anext(requests, None)  # before anything is made
            if first is None:
                raise UsageError(f"{arguments.key} is empty")
            async with open_crawl(settings, create=True) as crawl:
                await check_terms(crawl)
                with progress(verbose=bool(arguments.verbose)) as meter:
                    intake = Intake(meter)
                    meter.begin("adding requests", "request")
                    await add_seeds(
                        crawl, _with_first(first, requests), given=f"queue {arguments.key}", actor=actor(),
                        on_batch=intake.added,
                    )  # fmt: skip
    finally:
        await source.close()
    report = intake.report
    if n := queue.with_secrets:
        had = counted(n, "request had cookies or Authorization", "requests had cookies or Authorization")
        warn(f"{had}, which were left out: set them with a session, or in [[sites]]")
    counts = {
        "new": report.new, "seen": report.seen, "invalid": report.invalid_count, "without_secrets": n,
        "urls": queue.urls,
    }  # fmt: skip
    text = f"{counted(report.new, 'request')} added, {report.seen:,} known before, {report.invalid_count:,} unusable"
    text += f"; {counted(queue.urls, 'plain URL')} among them" if queue.urls else ""
    show(counts, text, as_json=arguments.json)
    if report.total and not report.usable:
        raise UsageError(NO_SEED)
    return 0


async def _with_first(
    first: list[GivenUrl], others: AsyncGenerator[list[GivenUrl], None]
) -> AsyncGenerator[list[GivenUrl], None]:
    yield first
    async for some in others:
        yield some
