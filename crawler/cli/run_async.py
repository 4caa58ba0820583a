"""How commands run their coroutine: uvloop where there is one, and as many open files as the system lets us have."""

import argparse
import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from crawler import process_tuning
from crawler.cli.options import settings_of

if TYPE_CHECKING:
    from crawler.crawl.opening import OpenCrawl

T = TypeVar("T")


def run_async(work: Coroutine[Any, Any, T], *, has_users_code: bool = False, with_uvloop: bool = True) -> T:
    """Run to the end; Ctrl-C cancels it and raises KeyboardInterrupt, unless it handles signals itself.

    `has_users_code`: handlers and hooks run in it. They end none of its tasks, and keep it from its own end for some
    seconds at most.
    """
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if with_uvloop:
        with contextlib.suppress(ImportError):
            import uvloop

            factory = uvloop.new_event_loop
    if process_tuning.is_gc_delayed():  # by the start of this program
        process_tuning.collect_rarely()
    with contextlib.closing(work), asyncio.Runner(loop_factory=factory) as runner:
        if not has_users_code:
            return runner.run(work)
        from crawler.handlers.loop_end import UsersLoop

        with UsersLoop(runner.get_loop()) as users_loop:
            return users_loop.run(runner, work)


def run_on(
    arguments: argparse.Namespace,
    act: "Callable[[OpenCrawl, argparse.Namespace], Awaitable[None]]",
    *,
    with_uvloop: bool = True,
) -> int:
    """Open the crawl that the options name, which must be there, and act on it; the exit code."""
    from crawler.crawl.opening import open_crawl

    async def run() -> int:
        async with open_crawl(settings_of(arguments), create=False) as crawl:
            await act(crawl, arguments)
        return 0

    return run_async(run(), with_uvloop=with_uvloop)


def heard(numbers: Iterable[signal.Signals]) -> list[signal.Signals]:
    """Those of these signals that are not ignored. Who starts a program under `nohup`, or in the background of a
    script, wants it to go on: what was ignored at the start stays so.
    """
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


def raise_file_limit() -> tuple[int, int]:
    """Raise the soft limit of open files to the hard one; (limit now, limit before)."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1_048_576 if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft, soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return soft, soft
    return wanted, soft
