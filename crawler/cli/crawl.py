"""`crawler crawl`, `run` and `serve`: what runs until it is done or stopped."""

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from crawler import process_tuning
from crawler.cli.check import check_app
from crawler.cli.crawl_options import (
    ALL_KEYS,
    KEYS,
    check_engine,
    check_instances,
    is_supervised,
    log_of_crawl,
    log_to_folder,
    low_disk,
    run_instance,
)
from crawler.cli.event_loop import raise_file_limit, run_async
from crawler.cli.options import settings_of
from crawler.crawl.opening import OpenCrawl, abandon, choose_node, open_crawl
from crawler.crawl.set_back import check_set_back
from crawler.crawl.terms import permitted, settle
from crawler.crawl.url_input import form_of, sources_of
from crawler.errors import OutageError, Stopped
from crawler.rules.scope import ScopeRules
from crawler.runtime.process import OUTAGE
from crawler.settings import Settings
from crawler.terminal import text
from crawler.terminal.patient_stream import patient_stderr
from crawler.terminal.text import counted, say, warn
from crawler.views.live import view_for

if TYPE_CHECKING:
    from crawler.api.front import Front
    from crawler.cli.session import Watcher
    from crawler.cli.supervising import StopSignals
    from crawler.outputs.target import Target


def run_crawl(arguments: argparse.Namespace) -> int:
    """Crawl; see EPILOG for the exit codes."""
    from crawler.cli.session import results_alone

    with results_alone(arguments.output) as stdout:
        return _crawl(arguments, stdout)


def _crawl(arguments: argparse.Namespace, stdout: IO[bytes] | None) -> int:
    from crawler.cli.session import CrawlSession

    check_instances(arguments)
    settings = permitted(settings_of(arguments, ALL_KEYS, in_folder=True))
    _check_scope(settings)
    check_app(settings)
    targets = _targets(arguments, settings)
    plain, files = sources_of(arguments)
    form = form_of(arguments)
    _prepare_process()
    session = CrawlSession(arguments, settings, plain=plain, files=files, form=form, targets=targets, stdout=stdout)

    def work() -> int:
        with contextlib.suppress(BrokenPipeError):
            return run_async(session.run(), has_users_code=bool(settings.handlers.app))
        sys.stderr.close()
        return 0

    if not arguments.is_program or is_supervised(arguments):
        return work()
    from crawler.cli.supervising import run_restarting

    return run_restarting(work)


def _targets(arguments: argparse.Namespace, settings: Settings) -> "list[Target]":
    """As `checked_targets`."""
    if not arguments.output:
        return []
    from crawler.cli.export import checked_targets

    return checked_targets(arguments, settings.archive.dir, items=bool(settings.handlers.app))


def _prepare_process() -> None:
    raise_file_limit()
    process_tuning.keep_freed_memory()  # before there are threads: one that exists keeps its own arena


def _check_scope(settings: Settings) -> None:
    """Reports a bad regular expression before anything is created."""
    ScopeRules.of(settings.scope)


# `crawler run`: instances that share the domains of a crawl and wait for work; also the children of `-n`.


def run_run(arguments: argparse.Namespace) -> int:
    """Run until a signal."""
    from crawler.cli.session import results_alone

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
    from crawler.cli.session import Watcher, kept_up_to_date, raise_first
    from crawler.cli.supervising import StopSignals

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
    return await _run_here(crawl, arguments, signals, node, watcher, text.say if arguments.child else say)


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


# `crawler serve`: a crawl in the browser, as an HTTP API, and as metrics.


def run_serve(arguments: argparse.Namespace) -> int:
    """Serve until a signal; EPILOG has the exit codes."""
    from crawler.api.front import Front, host_name, listen_place, path_prefix, trusted_proxies

    settings, place = settings_of(arguments), listen_place(arguments.listen)
    front = Front(
        names=tuple(map(host_name, arguments.host)),
        prefix=None if arguments.prefix is None else path_prefix(arguments.prefix),
        proxies=trusted_proxies(arguments.trust_proxy, may_be_unix=isinstance(place, Path)),
    )
    raise_file_limit()
    return run_async(_serve(arguments, settings, place, front))


async def _serve(
    arguments: argparse.Namespace, settings: Settings, place: tuple[str, int] | Path, front: "Front"
) -> int:
    from crawler.api.front import listen, listening_at
    from crawler.api.server import check_tokens, serving
    from crawler.cli.supervising import StopSignals

    process_tuning.collect_often()
    async with open_crawl(settings, create=False) as crawl:
        is_lasting = bool(settings.archive.dir)  # the folder: without one, the log is seen here or nowhere
        log_to_folder(settings, crawl.folder.log, "serve", verbose=bool(arguments.verbose) or not is_lasting)
        with StopSignals() as signals, listening_at(place) if isinstance(place, Path) else listen(*place) as sock:
            if not isinstance(place, Path):
                await check_tokens(crawl, place[0])
            stopped = asyncio.Event()
            signals.on_stop = stopped.set

            def announce(link: str) -> None:
                say(f"To log in from a browser, open this link (it works once): {link}")

            async with serving(
                crawl, sock, front=front, metrics_domains=arguments.metrics_domains, announce=announce
            ) as server:
                where = f"{server.url}, by the socket {place}" if isinstance(place, Path) else server.url
                say(f"Serving crawl {settings.crawl.name} at {where} (Ctrl-C ends it)")
                announce(server.login_url())
                await stopped.wait()
    return 0
