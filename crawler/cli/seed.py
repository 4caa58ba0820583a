"""`crawler seed`: add URLs to a crawl that runs, or to one that begins later."""

import argparse
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from crawler.cli.crawl_options import KEYS, add_fetching, add_order, check_order
from crawler.cli.options import add_common, settings_of, whole_type
from crawler.errors import UsageError
from crawler.seeding.url_input import NO_SEED, add_urls, bytes_of, check_any, complaints, read_given, sources_of
from crawler.terminal.printing import out, out_json, warn
from crawler.terminal.progress import progress

if TYPE_CHECKING:
    from crawler.app.crawl import OpenCrawl
    from crawler.rules.meter import Meter
    from crawler.seeding.seeder import GivenUrl, Seeder, SeedReport
    from crawler.settings import Settings

EPILOG = """\
examples:
  crawler seed https://docs.example/ https://blog.example/
  crawler seed -i hosts.txt --priority 5
  tail -f found.log | crawler seed -
  crawler seed --sitemap https://docs.example/sitemap.xml

Each seed's domain (host, folder; see --scope of 'crawler crawl') joins the scope of the
crawl. A crawl does not end while a stream of seeds is being read.

exit codes: 0 done, 2 no valid seed URL, 3 engine, 6 the sitemap could not be fetched
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "seed",
        help="add URLs to a running or future crawl",
        description="Add URLs to a crawl, running or not yet started, and print how many were new.",
        epilog=EPILOG,
    )
    add_urls(p)
    group = p.add_argument_group("seeds")
    group.add_argument(
        "--sitemap", action="append", default=[], metavar="URL",
        help="add the URLs of this sitemap (or sitemap index) on the sitemap's own host; may be repeated",
    )  # fmt: skip
    group.add_argument(
        "--priority", type=float, metavar="P", help="higher is fetched first (default: derived from --order)"
    )
    group.add_argument(
        "--depth", type=whole_type, default=0, metavar="N", help="the depth these URLs count as (default: 0)"
    )
    group.add_argument("--json", action="store_true", help="the counts as one JSON object")
    add_order(group)
    add_fetching(p)
    add_common(p)
    p.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Add; raises UsageError when not one URL could be used."""
    from crawler.cli.event_loop import run_async
    from crawler.settings.schema import PRIORITY_MAX

    settings = settings_of(arguments, KEYS)
    if not 0 <= arguments.depth <= 255:
        raise UsageError(f"--depth {arguments.depth}: expected 0 to 255")
    if arguments.priority is not None and not -PRIORITY_MAX <= arguments.priority <= PRIORITY_MAX:
        raise UsageError(f"--priority {arguments.priority}: expected -{PRIORITY_MAX:,} to {PRIORITY_MAX:,}")
    plain, files = sources_of(arguments)
    if not plain and not files and not arguments.sitemap:
        raise UsageError("give URLs, -i FILE, - for standard input, or --sitemap URL (see 'crawler seed --help')")
    return run_async(_run(arguments, settings, plain, files))


async def _run(arguments: argparse.Namespace, settings: "Settings", plain: list["GivenUrl"], files: list[str]) -> int:
    from crawler.app.open_crawl import open_crawl

    if not arguments.sitemap:
        await check_any(plain, files, bytes_max=settings.scope.url_bytes_max)
    async with open_crawl(settings, create=True) as crawl:
        check_order(arguments, crawl)
        from crawler.app.crawl import make_seeder

        seeder = make_seeder(crawl, depth=arguments.depth, priority=arguments.priority)
        report = seeder.report
        async with on_the_list(crawl):
            with progress(verbose=arguments.verbose) as meter:
                said = await add_given(seeder, plain, files, meter)
                foreign = 0
                for url in arguments.sitemap:
                    foreign += await _add_sitemap(crawl, seeder, url, meter)
        _say_new(report, said)
        _print(report, foreign, as_json=arguments.json)
        if report.total and not report.usable:
            raise UsageError(NO_SEED)
    return 0


async def add_given(seeder: "Seeder", plain: list["GivenUrl"], files: list[str], meter: "Meter") -> int:
    """Add URLs and files of them, and print what is wrong with them, as it comes; how many complaints there were."""
    position = said = 0

    def taken(count: int) -> None:
        nonlocal position
        position += count
        meter.reached(seeder.report.total, position)

    meter.begin("adding seeds", "URL", bytes_of(files))
    await seeder.add_all(plain)
    for file in files:
        async for batch in read_given(file, taken=taken):
            said = _say_new(await seeder.add_all(batch), said)
    return said


async def _add_sitemap(crawl: "OpenCrawl", seeder: "Seeder", url: str, meter: "Meter") -> int:
    """Add a sitemap's URLs; how many of other hosts were left out."""
    from crawler.app.polite_client import polite_fetcher
    from crawler.rules.priority import Signals
    from crawler.seeding.seeder import GivenUrl
    from crawler.seeding.sitemap_seeds import SitemapReader

    async with polite_fetcher(crawl) as (fetcher, slot_borrower):
        reader = SitemapReader(fetcher, slot_borrower)
        meter.begin("reading sitemaps", "URL")
        async for found in reader.read(url):
            await seeder.add_all(
                GivenUrl(found.where, e.loc, Signals(sitemap_priority=e.priority, changed_at=e.changed_at))
                for e in found.urls
            )
            meter.reached(seeder.report.total)
    if complaint := reader.complaint(url):
        warn(complaint)
    return reader.foreign


def _say_new(report: "SeedReport", said: int) -> int:
    """Print the complaints that were not printed yet, as they come; how many there are now."""
    lines = complaints(report)[: len(report.invalid)]
    for line in lines[said:]:
        warn(line)
    return len(lines)


def _print(report: "SeedReport", foreign: int, *, as_json: bool) -> None:
    if as_json:
        counts = {
            "new": report.new, "retried": report.retried, "seen": report.seen, "out_of_scope": report.out_of_scope,
            "invalid": report.invalid_count, "other_hosts": foreign,
        }  # fmt: skip
        out_json(counts)
        return
    for url, rule in report.out_of_scope_rules:
        warn(f"{url}: out of scope: {rule}")
    more = f", {foreign:,} of other hosts left out" if foreign else ""
    retried = f"{report.retried:,} retried, " if report.retried else ""
    out(
        f"{report.new:,} new, {retried}{report.seen:,} already seen, {report.out_of_scope:,} out of scope, "
        f"{report.invalid_count:,} invalid{more}"
    )


@contextlib.asynccontextmanager
async def on_the_list(crawl: "OpenCrawl") -> AsyncIterator[None]:
    """Be on the member list as a seeder, with heartbeats: no crawl ends meanwhile."""
    import asyncio

    from crawler.app.crawl import member_of
    from crawler.errors import EngineError
    from crawler.membership.heartbeat import Heartbeat, SessionLiveness
    from crawler.runtime.tasks import first_error

    member = member_of(crawl, f"seed-{crawl.session}", state="seeding")
    await crawl.members.join(member)

    async def still() -> None:
        await crawl.crawls.still(crawl.record)

    settings = crawl.settings.membership
    liveness = SessionLiveness(settings)
    heartbeat = Heartbeat(
        crawl.members, member, settings, liveness=liveness, on_lease_loss=lambda: None, check_crawl=still
    )
    try:
        async with asyncio.TaskGroup() as group:
            beating = group.create_task(heartbeat.run(), name="heartbeat")
            yield
            beating.cancel()
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None
    finally:
        with contextlib.suppress(EngineError):
            await crawl.members.leave(member)
