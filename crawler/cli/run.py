"""`crawler run`: instances that share the domains of a crawl and wait for work; also the children of `-n`."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, Any

from crawler.cli.crawl_options import (
    KEYS,
    VERBOSE_HELP,
    add_app,
    add_fetching,
    add_instances,
    add_order,
    check_engine,
    check_instances,
    is_supervised,
    log_of_crawl,
    low_disk,
    run_instance,
)
from crawler.cli.export import add_output, checked_targets
from crawler.cli.options import add_common, settings_of
from crawler.errors import Stopped
from crawler.terminal import text

if TYPE_CHECKING:
    from crawler.cli.session import Watcher
    from crawler.cli.supervising import StopSignals
    from crawler.crawl.opening import OpenCrawl
    from crawler.outputs.target import Target
    from crawler.settings import Settings

EPILOG = """\
examples:
  crawler run --redis redis://queue.example/ --name news          on each machine
  crawler run -n 4 --contact https://example.com/bot              four on this one
  crawler run --app shop:app -n 4                                 pages go to your functions

Instances find each other on the engine and share the domains by a consistent-hash ring;
start and stop them at any time. They wait for work until a signal stops them. Add work
with 'crawler seed', look at it with 'crawler stats' and 'crawler ring'.

exit codes: 0 or 10 stopped by a signal, 1 an instance kept crashing, 3 engine, 4 node taken, 5 disk,
12 a database of -o is not available
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "run",
        help="run instances that wait for work, on one or many machines",
        description="Run instances that share the domains of a crawl and wait for work until a signal stops them.",
        epilog=EPILOG,
    )
    add_instances(p)
    add_output(p.add_argument_group("results"))
    p.add_argument("-q", "--quiet", action="store_true", help="print no progress, only warnings and errors")
    add_app(p)
    add_order(p)
    add_fetching(p)
    add_common(p, verbose_help=VERBOSE_HELP)
    p.add_argument("--until-finished", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("--child", action="store_true", help=argparse.SUPPRESS)  # end with standard input
    p.set_defaults(run=run, takes_urls=False)


def run(arguments: argparse.Namespace) -> int:
    """Run until a signal."""
    from crawler.cli.session import results_alone

    with results_alone(arguments.output) as stdout:
        return _until_stopped(arguments, stdout)


def _until_stopped(arguments: argparse.Namespace, stdout: IO[bytes] | None) -> int:
    from crawler.cli.checking import check_app
    from crawler.cli.event_loop import raise_file_limit, run_async
    from crawler.crawl.terms import permitted

    check_instances(arguments)
    settings = permitted(settings_of(arguments, KEYS, in_folder=True))
    check_app(settings)
    targets = checked_targets(arguments, settings.archive.dir, items=bool(settings.handlers.app))
    raise_file_limit()
    return run_async(_run(arguments, settings, targets, stdout), has_users_code=bool(settings.handlers.app))


async def _run(
    arguments: argparse.Namespace, settings: "Settings", targets: "Sequence[Target]", stdout: IO[bytes] | None
) -> int:
    import asyncio

    from crawler.cli.session import Watcher, kept_up_to_date, raise_first
    from crawler.cli.supervising import StopSignals
    from crawler.crawl.opening import abandon, open_crawl
    from crawler.crawl.terms import settle
    from crawler.terminal.patient_stream import patient_stderr
    from crawler.terminal.text import warn
    from crawler.views.overview import view_for

    signals = StopSignals()
    with signals, patient_stderr():
        try:
            if not arguments.child:
                await check_engine(settings)
            async with open_crawl(settings, create=True) as opened:
                crawl, lines = await settle(opened)
                for line in lines:
                    warn(line)
                signals.on_force = lambda: abandon(crawl)
                view = view_for(sys.stderr, quiet=arguments.quiet or arguments.child, verbose=bool(arguments.verbose))
                watcher = Watcher(crawl, view)
                if not arguments.child and (line := low_disk(crawl)):
                    warn(line)
                async with kept_up_to_date(
                    crawl.folder, targets, view.say, items=bool(settings.handlers.app), stdout=stdout
                ) as ended:
                    try:
                        why = await _run_in(crawl, arguments, signals, watcher, view.say)
                    finally:
                        view.close()
                raise_first(ended.problems, view.say)
                if why in ("finished", "pages", "time", "budget"):
                    return 0
                if why == "evicted":
                    raise Stopped("this instance was evicted by an operator ('crawler ring evict'); nothing is lost")
        except asyncio.CancelledError:
            if not signals.stopped:
                raise
    raise Stopped("stopped; nothing is lost")


async def _run_in(
    crawl: "OpenCrawl",
    arguments: argparse.Namespace,
    signals: "StopSignals",
    watcher: "Watcher",
    say: Callable[[str], None],
) -> str:
    """Here or in processes of their own; why it ended."""
    from crawler.crawl.opening import choose_node

    name, settings = crawl.settings.crawl.name, crawl.settings
    if is_supervised(arguments):
        from crawler.cli.supervising import supervise
        from crawler.terminal.text import counted

        log_of_crawl(settings, crawl.folder.log, "run", verbosity=arguments.verbose)
        instances = counted(arguments.instances, "instance")
        say(f"Starting {instances} of crawl {name!r}; 'crawler scale N' changes the number, Ctrl-C stops.")
        return await supervise(crawl, arguments, signals, watcher.view, until_finished=False, watch=watcher.run)
    node = await choose_node(crawl, may_move=True)
    log_of_crawl(settings, crawl.folder.log, node, node=node, verbosity=arguments.verbose)
    say(f"Instance {node} of crawl {name!r} waits for work; Ctrl-C stops it.")
    return await _run_here(crawl, arguments, signals, node, watcher, text.say if arguments.child else say)


async def _run_here(
    crawl: "OpenCrawl",
    arguments: argparse.Namespace,
    signals: "StopSignals",
    node: str,
    watcher: "Watcher",
    say: Callable[[str], None],
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
        say=say,
        alongside=() if arguments.child else (watcher.run,),
    )


def _parent_is_gone(stop: Callable[[], None]) -> None:
    """Nobody ever writes to our standard input: that it can be read means that it ended."""
    import asyncio

    asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
    stop()
