"""`crawler seed`: add URLs to a crawl that runs, or to one that begins later."""

import argparse
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from crawler.cli.crawl_options import KEYS
from crawler.cli.options import actor, settings_of
from crawler.cli.run_async import run_async
from crawler.crawl.opening import OpenCrawl, open_crawl
from crawler.crawl.sitemap_reader import SitemapReader
from crawler.crawl.terms import check_terms
from crawler.crawl.url_files import ListForm, bytes_of
from crawler.crawl.url_input import (
    COMPLAINTS_MAX,
    NO_SEED,
    GivenUrl,
    SeedReport,
    check_any,
    complaints,
    form_of,
    out_of_scope_lines,
    read_given,
    sources_of,
)
from crawler.errors import UsageError
from crawler.rules.order import Signals
from crawler.rules.progress import Meter
from crawler.runtime.clocks import wall_s
from crawler.settings import Settings
from crawler.terminal.output import out, out_json, say, warn
from crawler.terminal.progress import progress
from crawler.terminal.words import counted, moment
from crawler.views.seeds import add_seeds
from crawler.views.values import check_seed_options

if TYPE_CHECKING:
    Batches = AsyncGenerator[list[GivenUrl], None]


def run_seed(arguments: argparse.Namespace) -> int:
    """Add; raises UsageError when not one URL could be used."""
    settings = settings_of(arguments, KEYS)
    try:
        check_seed_options(arguments.depth, arguments.priority)
    except UsageError as error:
        raise UsageError(f"--{error}") from None
    plain, files = sources_of(arguments)
    if not plain and not files and not arguments.sitemap:
        raise UsageError("give URLs, -i FILE, - for standard input, or --sitemap URL (see 'crawler seed --help')")
    _check_time(arguments)
    return run_async(_run(arguments, settings, plain, files, form_of(arguments)))


def _check_time(arguments: argparse.Namespace) -> None:
    """A time in the past is now."""
    if 0 != arguments.at <= wall_s():
        warn(f"--at {moment(arguments.at)} is in the past: the URLs may be fetched now")
        arguments.at = 0.0


async def _run(
    arguments: argparse.Namespace, settings: Settings, plain: list["GivenUrl"], files: list[str], form: ListForm
) -> int:
    if not arguments.sitemap:
        await check_any(plain, files, form)
    async with open_crawl(settings, create=True) as crawl:
        await check_terms(crawl)

        with progress(verbose=arguments.verbose) as meter:
            intake = Intake(meter)
            sources = _batches(crawl, plain, files, form, arguments.sitemap, intake)
            async with contextlib.aclosing(_scheduled(sources, arguments.at)) as batches:
                await add_seeds(
                    crawl, batches, depth=arguments.depth, priority=arguments.priority, actor=actor(),
                    given=_given(plain, files, arguments.sitemap, arguments.at), on_batch=intake.added,
                    on_pause=lambda: say("a backup is being made: the URLs are added after it"),
                )  # fmt: skip
        intake.end()
        report = intake.report
        _print(report, intake.foreign, at=arguments.at, as_json=arguments.json)
        if report.total and not report.usable:
            raise UsageError(NO_SEED)
    return 0


class Intake:
    """How far the seeds are, in the progress line, and the complaints about them, printed as they come."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.report = SeedReport()
        self.foreign = 0  # URLs of sitemaps that are of other domains
        self._position = 0
        self._said = 0

    def taken(self, count: int) -> None:
        """So many more bytes of the files were read, and what was in them was added."""
        self._position += count
        self.reached()

    def reached(self) -> None:
        self.meter.reached(self.report.total, self._position)

    def added(self, report: SeedReport) -> None:
        """What the given URLs have come to."""
        self.report = report
        lines = complaints(report)[:COMPLAINTS_MAX]
        for line in lines[self._said :]:
            warn(line)
        self._said = len(lines)

    def end(self) -> None:
        """Print how many more there were."""
        for line in complaints(self.report)[COMPLAINTS_MAX:]:
            warn(line)


async def given_batches(plain: Sequence["GivenUrl"], files: Sequence[str], form: ListForm, intake: Intake) -> "Batches":
    """URLs of arguments and files, some at a time."""
    intake.meter.begin("adding seeds", "URL", bytes_of(files))
    yield list(plain)
    for file in files:
        async for batch in read_given(file, form, taken=intake.taken):
            yield batch


async def _batches(
    crawl: OpenCrawl, plain: list["GivenUrl"], files: list[str], form: ListForm, sitemaps: list[str], intake: Intake
) -> "Batches":
    async for batch in given_batches(plain, files, form, intake):
        yield batch
    for url in sitemaps:
        async with contextlib.aclosing(sitemap_batches(crawl, url, intake)) as found:
            async for batch in found:
                yield batch


async def sitemap_batches(crawl: OpenCrawl, url: str, intake: Intake) -> "Batches":
    """A sitemap's URLs, without those of other domains."""
    from crawler.views.command_fetch import polite_fetcher

    async with polite_fetcher(crawl) as (fetcher, slot_borrower):
        reader = SitemapReader(fetcher, slot_borrower)
        intake.meter.begin("reading sitemaps", "URL")
        async for found in reader.read(url):
            yield [
                GivenUrl(found.where, e.loc, Signals(sitemap_priority=e.priority, changed_at=e.changed_at))
                for e in found.urls
            ]
            intake.reached()
    for complaint in (*reader.missing(url), *reader.oddities()):
        warn(complaint)
    intake.foreign += reader.foreign


async def _scheduled(batches: "Batches", at: float) -> "Batches":
    """The same URLs, to be fetched at a time."""
    async with contextlib.aclosing(batches):
        async for batch in batches:
            yield [replace(one, visible_at=at) for one in batch] if at else batch


def _given(plain: list["GivenUrl"], files: list[str], sitemaps: list[str], at: float) -> str:
    counts = ((len(plain), "URL"), (len(files), "file"), (len(sitemaps), "sitemap"))
    return ", ".join(counted(n, noun) for n, noun in counts if n) + (f", for {moment(at)}" if at else "")


def _print(report: SeedReport, foreign: int, *, at: float, as_json: bool) -> None:
    if as_json:
        counts = {
            "new": report.new, "retried": report.retried, "seen": report.seen, "out_of_scope": report.out_of_scope,
            "invalid": report.invalid_count, "other_hosts": foreign,
        }  # fmt: skip
        out_json(counts)
        return
    for line in (*out_of_scope_lines(report), *report.unread_notes):
        warn(line)
    more = f", {foreign:,} of other domains left out" if foreign else ""
    retried = f"{report.retried:,} retried, " if report.retried else ""
    out(
        f"{report.new:,} new, {retried}{report.seen:,} already seen, {report.out_of_scope:,} out of scope, "
        f"{report.invalid_count:,} invalid{more}"
    )
    if at and report.new + report.retried:
        out(f"to be fetched at {moment(at)} or later")
