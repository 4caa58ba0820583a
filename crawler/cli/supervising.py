"""How `-n` runs instances: as child processes of a supervisor that `crawler scale` can reach."""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from crawler.cli.crawl_options import ALL_KEYS, KEYS, run_alongside
from crawler.cli.options import OPTIONS_VARIABLE, handed_to_children
from crawler.cli.signals import STOPPING
from crawler.frontier.members import SupervisorRecord
from crawler.membership.peers import host_id
from crawler.supervisor.supervisor import Supervisor, SupervisorControl
from crawler.terminal import text
from crawler.views.overview import Quiet

if TYPE_CHECKING:
    from crawler.cli.signals import StopSignals
    from crawler.crawl.opening import OpenCrawl
    from crawler.views.overview import View


async def supervise(
    crawl: "OpenCrawl",
    arguments: argparse.Namespace,
    signals: "StopSignals",
    view: "View",
    *,
    until_finished: bool,
    watch: Callable[[], Awaitable[None]],
) -> str:
    """Children of this process, to their end; why they ended. Raises GaveUpError."""
    supervisor = _supervisor(crawl, arguments, view, until_finished=until_finished)
    control = SupervisorControl(
        supervisor, crawl.supervisors, crawl.members, _described(crawl), crawl.settings.membership
    )

    def stop() -> None:
        view.say(STOPPING)
        supervisor.stop()

    forced = signals.on_force

    def force() -> None:
        view.close()
        supervisor.kill_and_wait()  # else the last one out would find them alive, and leave the engine running
        forced()

    signals.on_stop, signals.on_force = stop, force
    time_max_s = crawl.settings.crawl.time_max_s
    # Each child counts its own time, and may have been started late.
    timer = asyncio.get_running_loop().call_later(time_max_s, supervisor.stop, "time") if time_max_s else None
    try:
        await run_alongside(supervisor.run(arguments.instances), watch, control.run)
    finally:
        if timer is not None:
            timer.cancel()
        await control.close()
    return supervisor.stopped_because or await _why_ended(crawl)


def _supervisor(crawl: "OpenCrawl", arguments: argparse.Namespace, view: "View", *, until_finished: bool) -> Supervisor:
    command = [sys.executable, "-P", "-m", "crawler", "run", "--child"]
    command += ["--until-finished"] * until_finished + ["--verbose"] * arguments.verbose
    keys = ALL_KEYS if hasattr(arguments, "scope") else KEYS

    def warn(line: str) -> None:
        if isinstance(view, Quiet):  # warnings are printed even then
            text.warn(line)
        else:
            view.say(line)

    return Supervisor(
        crawl.slots,
        lambda node: [*command, "--node", node],
        environment=os.environ | {OPTIONS_VARIABLE: handed_to_children(arguments, keys)},
        say=view.say,
        warn=warn,
    )


def _described(crawl: "OpenCrawl") -> SupervisorRecord:
    """What stays the same of this process's record."""
    return SupervisorRecord(
        session=crawl.session,
        host=host_id(),
        pid=os.getpid(),
        folder=str(crawl.folder.root.resolve()),
        lock=str(crawl.lock.path.resolve()),
        wanted=0,
    )


async def _why_ended(crawl: "OpenCrawl") -> str:
    """Children end by themselves when nothing is left, or at a limit."""
    progress, limits = await crawl.inspect.progress(), crawl.settings.crawl
    if progress.pending and await crawl.crawls.quota_reached():
        return "budget"
    if limits.pages_max and progress.fetched >= limits.pages_max:
        return "pages"
    return "time" if progress.pending and limits.time_max_s else "finished"
