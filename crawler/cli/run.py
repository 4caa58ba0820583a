"""`crawler run`: instances that share the domains of a crawl and wait for work; also the children of `-n`."""

import argparse
import os
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from crawler.cli.crawling import (
    ALL_KEYS,
    KEYS,
    add_fetching,
    add_instances,
    check_instances,
    log_to_folder,
    run_instance,
)
from crawler.cli.options import OPTIONS_VARIABLE, add_common, handed_to_children, settings_of
from crawler.errors import Stopped

if TYPE_CHECKING:
    from crawler.app import OpenCrawl
    from crawler.cli.signals import StopSignals
    from crawler.settings import Settings
    from crawler.watch.progress import View

EPILOG = """\
examples:
  crawler run --redis redis://queue.example/ --name news          on each machine
  crawler run -n 4 --contact https://example.com/bot              four on this one

Instances find each other on the engine and share the domains by a consistent-hash ring;
start and stop them at any time. They wait for work until a signal stops them. Add work
with 'crawler seed', look at it with 'crawler stats' and 'crawler ring'.

exit codes: 0 or 10 stopped by a signal, 1 an instance kept crashing, 3 engine, 4 node taken, 5 disk
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "run",
        help="run instances that wait for work, on one or many machines",
        description="Run instances that share the domains of a crawl and wait for work until a signal stops them.",
        epilog=EPILOG,
    )
    add_instances(p)
    p.add_argument("-q", "--quiet", action="store_true", help="no progress; errors are still said")
    add_fetching(p)
    add_common(p)
    p.add_argument("--until-finished", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("--child", action="store_true", help=argparse.SUPPRESS)  # end with standard input
    p.set_defaults(run=run, takes_urls=False)


def run(arguments: argparse.Namespace) -> int:
    """Run until a signal."""
    from crawler.cli.loop import raise_file_limit, run_async

    check_instances(arguments)
    raise_file_limit()
    return run_async(_run(arguments, settings_of(arguments, KEYS)))


async def _run(arguments: argparse.Namespace, settings: "Settings") -> int:
    import asyncio

    from crawler.app import abandon, choose_node, open_crawl
    from crawler.cli.signals import StopSignals
    from crawler.cli.watching import Watcher
    from crawler.watch.progress import view_for

    signals = StopSignals()
    with signals:
        try:
            async with open_crawl(settings, create=True) as crawl:
                signals.on_force = lambda: abandon(crawl)
                view = view_for(sys.stderr, quiet=arguments.quiet or arguments.child, verbose=arguments.verbose)
                watcher = Watcher(crawl, view, domains=sys.stderr.isatty())
                try:
                    if arguments.instances > 1:
                        log_to_folder(settings, crawl.folder.log, "run", verbose=arguments.verbose)
                        await supervise(crawl, arguments, signals, view, until_finished=False, watch=watcher.run)
                    else:
                        node = await choose_node(crawl, may_move=True)
                        log_to_folder(settings, crawl.folder.log, node, verbose=arguments.verbose)
                        view.say(f"Instance {node} of crawl {settings.crawl.name!r} waits for work; Ctrl-C stops it.")
                        why = await _run_here(crawl, arguments, signals, node, watcher)
                        if why in ("finished", "pages", "time"):
                            return 0
                finally:
                    view.close()
        except asyncio.CancelledError:
            if not signals.stopped:
                raise
    raise Stopped("stopped; nothing is lost")


async def _run_here(
    crawl: "OpenCrawl", arguments: argparse.Namespace, signals: "StopSignals", node: str, watcher: Any
) -> str:
    import asyncio

    def on_start(stop: Callable[[], None]) -> None:
        signals.on_stop = stop
        if arguments.child:
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _parent_is_gone, stop)

    return await run_instance(
        crawl,
        node,
        until_finished=arguments.until_finished,
        on_start=on_start,
        beside_it=() if arguments.child else (watcher.run,),
    )


def _parent_is_gone(stop: Callable[[], None]) -> None:
    """Nobody ever writes to our standard input: that it can be read means that it ended."""
    import asyncio

    asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
    stop()


async def supervise(
    crawl: "OpenCrawl",
    arguments: argparse.Namespace,
    signals: "StopSignals",
    view: "View",
    *,
    until_finished: bool,
    watch: Callable[[], Awaitable[None]],
) -> str:
    """N children of this process, to their end; why they ended. Raises GaveUpError."""
    from crawler.app import abandon
    from crawler.cli.crawling import beside
    from crawler.supervisor import Supervisor

    command = [sys.executable, "-m", "crawler", "run", "--child"] + ["--until-finished"] * until_finished
    places = await crawl.slots.free(arguments.instances)
    keys = ALL_KEYS if hasattr(arguments, "scope") else KEYS
    environment = os.environ | {OPTIONS_VARIABLE: handed_to_children(arguments, keys)}
    supervisor = Supervisor(
        {place: [*command, "--node", place] for place in places}, environment=environment, say=view.say
    )

    def stop() -> None:
        view.say("Stopping: finishing what is in flight; once more forces.")
        supervisor.stop()

    def force() -> None:
        view.close()
        supervisor.kill()
        abandon(crawl)

    signals.on_stop, signals.on_force = stop, force
    await beside(supervisor.run(), watch)
    if supervisor.was_stopped:
        return "signal"
    return await _why_ended(crawl)


async def _why_ended(crawl: "OpenCrawl") -> str:
    """Children end by themselves when nothing is left, or at a limit."""
    progress, limits = await crawl.inspect.progress(), crawl.settings.crawl
    if limits.pages_max and progress.fetched >= limits.pages_max:
        return "pages"
    return "time" if progress.pending and limits.time_max_s else "finished"
