"""`crawler run`: instances that share the domains of a crawl and wait for work; also the children of `-n`."""

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING

from crawler.cli.check import check_app
from crawler.cli.crawl_options import (
    KEYS,
    check_engine,
    check_instances,
    is_supervised,
    log_of_crawl,
    low_disk,
    run_instance,
)
from crawler.cli.options import settings_of
from crawler.cli.run_async import run_async
from crawler.crawl.opening import OpenCrawl, abandon, choose_node, open_crawl
from crawler.crawl.set_back import check_set_back
from crawler.crawl.terms import permitted, settle
from crawler.errors import OutageError, Stopped
from crawler.runtime.tasks import OUTAGE
from crawler.settings import Settings
from crawler.terminal import output
from crawler.terminal.output import warn
from crawler.terminal.patient_stream import patient_stderr
from crawler.terminal.words import counted
from crawler.views.live import view_for

if TYPE_CHECKING:
    from crawler.cli.supervising import StopSignals
    from crawler.cli.watcher import Watcher
    from crawler.outputs.target import Target
from crawler.cli.crawl import _prepare_process, _targets


def run_run(arguments: argparse.Namespace) -> int:
    """Run until a signal."""
    from crawler.cli.kept_outputs import results_alone

    with results_alone(arguments.output) as stdout:
        return _until_stopped(arguments, stdout)


def _until_stopped(arguments: argparse.Namespace, stdout: IO[bytes] | None) -> int:
    check_instances(arguments)
    settings = permitted(settings_of(arguments, KEYS, in_folder=True))
    check_app(settings)
    targets = _targets(arguments, settings)
    _prepare_process()
    return run_async(_run(arguments, settings, targets, stdout), has_users_code=bool(settings.handlers.app))


async def _run(
    arguments: argparse.Namespace, settings: Settings, targets: "Sequence[Target]", stdout: IO[bytes] | None
) -> int:
    from crawler.cli.kept_outputs import kept_up_to_date, raise_first
    from crawler.cli.supervising import StopSignals
    from crawler.cli.watcher import Watcher

    signals = StopSignals()
    with signals, patient_stderr():
        try:
            if not arguments.child:
                await check_engine(settings)
            async with open_crawl(settings, create=True) as opened:
                crawl, lines = await settle(opened)
                lines += await check_set_back(crawl)
                for line in lines:
                    warn(line)
                signals.on_force = lambda: abandon(crawl)
                view = view_for(sys.stderr, quiet=arguments.quiet or arguments.child, verbose=bool(arguments.verbose))
                watcher = Watcher(crawl, view)
                if not arguments.child and (line := low_disk(crawl)):
                    warn(line)
                async with kept_up_to_date(
                    crawl.folder,
                    targets,
                    view.say,
                    items=bool(settings.handlers.app),
                    columns=arguments.columns,
                    stdout=stdout,
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
                if why == OUTAGE:
                    from crawler.views.report import outage_text

                    raise OutageError(f"{outage_text(settings.hosts.give_up_s)}; nothing is lost")
        except asyncio.CancelledError:
            if not signals.stopped:
                raise
    raise Stopped("stopped; nothing is lost")


async def _run_in(
    crawl: OpenCrawl,
    arguments: argparse.Namespace,
    signals: "StopSignals",
    watcher: "Watcher",
    say: Callable[[str], None],
) -> str:
    """Here or in processes of their own; why it ended."""
    name, settings = crawl.settings.crawl.name, crawl.settings
    if is_supervised(arguments):
        from crawler.cli.supervising import supervise

        log_of_crawl(settings, crawl.folder.log, "run", verbosity=arguments.verbose)
        instances = counted(arguments.instances, "instance")
        say(f"Starting {instances} of crawl {name!r}; 'crawler scale N' changes the number, Ctrl-C stops.")
        return await supervise(crawl, arguments, signals, watcher.view, until_finished=False, watch=watcher.run)
    node = await choose_node(crawl, may_move=True)
    log_of_crawl(settings, crawl.folder.log, node, node=node, verbosity=arguments.verbose)
    say(f"Instance {node} of crawl {name!r} waits for work; Ctrl-C stops it.")
    return await _run_here(crawl, arguments, signals, node, watcher, output.say if arguments.child else say)


async def _run_here(
    crawl: OpenCrawl,
    arguments: argparse.Namespace,
    signals: "StopSignals",
    node: str,
    watcher: "Watcher",
    say: Callable[[str], None],
) -> str:
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
    asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
    stop()
