"""Options that `crawl` and `run` share, and how they run instances under a view."""

import argparse
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from crawler.cli.options import duration_type, named_type, whole_type
from crawler.errors import CrawlerError, NoCrawlError

if TYPE_CHECKING:
    from crawler.crawl.opening import OpenCrawl
    from crawler.settings import Settings

INSTANCES_MAX = 256  # of one command
KEYS = {
    "delay": "politeness.delay_s",
    "concurrency": "fetch.concurrency",
    "concurrency_per_queue": "politeness.concurrency_per_queue",
    "contact": "fetch.contact",
    "user_agent": "fetch.user_agent",
    "allow_private": "fetch.allow_private",
    "obey_robots": "robots.obey",
    "nameservers": "dns.nameservers",
    "proxy": "fetch.proxy",
    "pages": "crawl.pages_max",
    "time": "crawl.time_max_s",
    "node": "membership.node",
    "partitions": "crawl.partitions",
    "order": "frontier.order",
    "requisites": "requisites.fetch",
    "app": "handlers.app",
}
SCOPE_KEYS = {"scope": "mode", "include": "include", "exclude": "exclude", "depth": "depth_max"}
ALL_KEYS = KEYS | {name: f"scope.{key}" for name, key in SCOPE_KEYS.items()}


def add_sitemap(group: argparse._ArgumentGroup) -> None:
    """Seeds of a sitemap."""
    group.add_argument(
        "--sitemap", action="append", default=[], metavar="URL",
        help="add the URLs of this sitemap (or sitemap index) on the sitemap's own domain; may be repeated",
    )  # fmt: skip


def add_fetching(parser: argparse.ArgumentParser, *, many: bool = True) -> None:
    """Options of requests to sites; `many`: for several pages at a time."""
    group = parser.add_argument_group("politeness and identity")
    group.add_argument(
        "--delay", "--wait", type=duration_type, metavar="S",
        help="pause between two requests to one domain (default: 1 s); a longer Crawl-delay in robots.txt wins",
    )  # fmt: skip
    if many:
        group.add_argument(
            "-c",
            "--concurrency",
            type=whole_type,
            metavar="N",
            help="requests open at once, in each instance (default: 64)",
        )
        group.add_argument(
            "--concurrency-per-queue",
            type=whole_type,
            metavar="N",
            help="requests open at once to one domain (default: 1)",
        )
        group.add_argument(
            "--partitions",
            type=whole_type,
            metavar="N",
            help="parts of the frontier, fixed when the crawl is created (default: 1024, on a cluster 4096)",
        )
    group.add_argument(
        "--contact",
        metavar="URL",
        help="web page or mail address for the User-Agent, so that site owners can reach you",
    )
    group.add_argument(
        "-U", "--user-agent", metavar="UA", help="User-Agent; {version} and {contact} are replaced by their values"
    )
    group.add_argument(
        "--ignore-robots", dest="obey_robots", action="store_false", default=None,
        help="do not fetch or obey robots.txt: only for your own sites",
    )  # fmt: skip
    group = parser.add_argument_group("network")
    group.add_argument(
        "--allow-private", action="store_true", default=None, help="connect to private and loopback addresses too"
    )
    group.add_argument(
        "--nameserver", dest="nameservers", action="append", metavar="IP[:PORT]",
        help="use this DNS server instead of the system's; may be repeated",
    )  # fmt: skip
    add_proxy(group)


def add_proxy(group: "argparse.ArgumentParser | argparse._ArgumentGroup") -> None:
    """The way to sites."""
    group.add_argument(
        "--proxy", metavar="URL", type=named_type,
        help="send requests through this proxy: http://HOST:PORT, socks5://HOST:PORT (names are resolved there), or "
        "env for the variables http_proxy, https_proxy, all_proxy and no_proxy, which count only then",
    )  # fmt: skip


def add_headers(parser: argparse.ArgumentParser) -> None:
    """What is added to each request."""
    group = parser.add_argument_group("requests")
    group.add_argument(
        "--header", action="append", default=[], metavar="'NAME: VALUE'",
        help="send this header with each request; Authorization only to the sites of the URLs given here; may be "
        "repeated",
    )  # fmt: skip
    group.add_argument(
        "--cookie", action="append", default=[], metavar="'NAME=VALUE'",
        help="send this cookie, or several like 'a=b; c=d', to the sites of the URLs given here; may be repeated",
    )  # fmt: skip


def add_body(parser: argparse.ArgumentParser) -> None:
    """What one request is."""
    group = parser.add_argument_group("the request for this page")
    group.add_argument("--method", metavar="NAME", help="method of the request (default: GET; POST with --data)")
    group.add_argument(
        "--data", action="append", metavar="TEXT|@FILE",
        help="body of the request: a text, what is in a file (@FILE), or standard input (@-); several are joined with "
        "&. It is sent as a form, or as JSON if it is an object or a list, unless --header has a Content-Type",
    )  # fmt: skip


def add_app(parser: "argparse.ArgumentParser | argparse._ArgumentGroup") -> None:
    """The option for the user's handlers."""
    parser.add_argument(
        "--app", metavar="APP", type=named_type,
        help="pass pages to your own functions: shop.py, shop.py:app or package.module:app (docs/guide/handlers.md)",
    )  # fmt: skip


def add_order(parser: "argparse.ArgumentParser | argparse._ArgumentGroup") -> None:
    """The order of fetching."""
    parser.add_argument(
        "--order", choices=("breadth", "priority", "freshness"),
        help="fetch order (fixed when the crawl is created): near the seeds first (default), by priority, or the "
        "newest first",
    )  # fmt: skip


def add_requisites(parser: "argparse.ArgumentParser | argparse._ArgumentGroup") -> None:
    """What pages need to be shown."""
    parser.add_argument(
        "--requisites", action="store_true", default=None,
        help="also fetch what pages need to be shown: pictures, style sheets, scripts, fonts and media, of any host, "
        "each once",
    )  # fmt: skip


async def check_engine(settings: "Settings", *, needs_crawl: bool = False) -> None:
    """Check the engine of --redis before a folder is created: it must be usable, and its crawl agree.

    Raises EngineError kinds, and UsageError.
    """
    from msgspec.structs import replace

    from crawler.archive.folder import is_crawl_folder
    from crawler.cli.options import NO_FOLDER
    from crawler.crawl.opening import open_crawl
    from crawler.crawl.terms import check_terms

    has_folder = is_crawl_folder(settings.archive.dir)
    if not settings.frontier.redis or (has_folder and not needs_crawl):
        return
    if not has_folder:  # with one, it is known when the engine lost the crawl
        settings = replace(settings, archive=replace(settings.archive, dir=NO_FOLDER))
    try:
        async with open_crawl(settings, create=False) as crawl:
            await check_terms(crawl)
    except NoCrawlError:
        if needs_crawl:
            raise


def low_disk(crawl: "OpenCrawl") -> str:
    """What to say when instances would claim nothing, because the disk has no room; "" otherwise."""
    from crawler.archive.folder import free_bytes
    from crawler.terminal.words import size

    free, least = free_bytes(crawl.folder.root), crawl.settings.archive.disk_free_bytes_min
    if not 0 <= free < least:
        return ""
    return (
        f"the disk of {crawl.folder.root} has {size(free)} free: nothing is fetched until it has {size(least)} "
        "(archive.disk_free_bytes_min)"
    )


def few_files(crawl: "OpenCrawl") -> str:
    """What to say when the limit of open files allows fewer connections than were asked for; "" otherwise."""
    from crawler.web.connection_pool import sockets_max

    if (most := sockets_max()) >= (wanted := crawl.settings.fetch.concurrency):
        return ""
    return (
        f"at most {most} connections at a time instead of {wanted} (fetch.concurrency), because this shell allows few "
        "open files: 'ulimit -n 65536' raises that"
    )


def add_instances(parser: argparse.ArgumentParser) -> None:
    """How many, and under which name."""
    group = parser.add_argument_group("instances")
    group.add_argument(
        "-n", "--instances", type=whole_type, metavar="N",
        help="run N processes that share the domains; those that crash are restarted, and 'crawler scale' changes N "
        "(default: one instance, in this process)",
    )  # fmt: skip
    group.add_argument(
        "--node", metavar="NAME", type=named_type, help="stable name of this instance (default: host name and slot)"
    )


def check_instances(arguments: argparse.Namespace) -> None:
    """Raises UsageError for a number of instances that makes no sense."""
    from crawler.errors import UsageError

    if arguments.instances is None:
        return
    if not 1 <= arguments.instances <= INSTANCES_MAX:
        raise UsageError(f"-n {arguments.instances}: expected 1 to {INSTANCES_MAX} instances")
    if arguments.instances > 1 and arguments.node:
        raise UsageError("--node names one instance: it can't be used with -n")


def is_supervised(arguments: argparse.Namespace) -> bool:
    """Do instances run in processes of their own? With -n 1 too: a number that was given can be changed."""
    return arguments.instances is not None and not arguments.node


VERBOSE_HELP = (
    "print a line for each URL on stderr: status or failure, size, time, and what comes of it; -vv: also its links, "
    "robots.txt files read, and log events"
)


def log_of_crawl(settings: "Settings", folder: Path, name: str, *, verbosity: int, node: str = "") -> None:
    """As `log_to_folder`, for commands that crawl: -v prints a line for each URL, -vv also log events."""
    from crawler.runtime.log_files import show_urls

    log_to_folder(settings, folder, name, verbose=verbosity > 1, node=node)
    show_urls(sys.stderr if verbosity else None, decisions=verbosity > 1)


def log_to_folder(settings: "Settings", folder: Path, name: str, *, verbose: bool, node: str = "") -> None:
    """Log events of this process: into its own file, and to stderr with `verbose`. Lines name the node, if any."""
    from crawler.runtime.log_files import start_logging

    level = settings.log.level
    if verbose and level in ("warning", "error"):
        level = "info"
    file = Path(settings.log.file) if settings.log.file else folder / f"{name}.log"
    start_logging(level, file=file, stream=sys.stderr if verbose else None, node=node)


async def run_alongside(work: Awaitable[None], *others: Callable[[], Awaitable[None]]) -> None:
    """Await `work` while the others run; they end with it."""
    import asyncio

    tasks = [asyncio.ensure_future(other()) for other in others]
    try:
        await work
    finally:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception) and not isinstance(result, CrawlerError):
                raise result


async def run_instance(
    crawl: "OpenCrawl",
    node: str,
    *,
    until_finished: bool,
    on_start: Callable[[Callable[[], None]], None],
    say: Callable[[str], None],
    alongside: tuple[Callable[[], Awaitable[None]], ...] = (),
) -> str:
    """One instance in this process, to its end; why it ended. `on_start` gets what stops it, `say` what its end is to
    tell.
    """
    from crawler.archive.inflight_log import stacks_path
    from crawler.crawl.build import open_instance
    from crawler.runtime.watchdog import StallWatchdog
    from crawler.terminal.words import counted
    from crawler.views.report import OURS

    async with open_instance(crawl, node=node, until_finished=until_finished) as instance:
        on_start(instance.stop)
        with StallWatchdog(stacks_path(crawl.folder, crawl.session), crawl.settings.crawl.stall_cpu_s):
            await run_alongside(instance.run(), *alongside)
        for kind, trouble in instance.counters.trouble.items():
            if trouble and instance.stopped_because != "finished":
                say(f"URLs wait for {OURS[kind]}, which does not work: {trouble}")
        for (event, hook), times in instance.stages.handlers.hooks.failures.items():
            say(f"the hook {hook} (on_{event}) failed {counted(times, 'time')}; the log says why")
        return instance.stopped_because
