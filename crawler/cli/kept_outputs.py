"""`-o` of commands that crawl: targets are kept up to date during the crawl, and completed after it."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING

from crawler.errors import (
    CrawlerError,
)

if TYPE_CHECKING:
    from crawler.archive.folder import CrawlFolder
    from crawler.outputs.target import Target


class Ended:
    """What became of the targets; filled when all of them are closed."""

    def __init__(self) -> None:
        self.problems: list[Exception] = []  # what kept targets from being complete
        self.notes: list[str] = []  # what people should know of those that are


@contextlib.contextmanager
def results_alone(outputs: Sequence[str]) -> Iterator[IO[bytes] | None]:
    """Standard output for results, if one of the targets is `-`. All else that is printed there meanwhile, by handlers
    and by what they start, goes to standard error.
    """
    if "-" not in outputs:
        yield None
        return
    sys.stdout.flush()
    number = sys.stdout.fileno()
    kept = os.dup(number)
    os.dup2(sys.stderr.fileno(), number)
    results = os.fdopen(os.dup(kept), "wb")
    try:
        yield results
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os.dup2(kept, number)
        os.close(kept)
        with contextlib.suppress(OSError):  # of what was left, whoever wrote it knows
            results.close()


@contextlib.asynccontextmanager
async def kept_up_to_date(
    folder: "CrawlFolder",
    targets: Sequence["Target"],
    warn: Callable[[str], None],
    *,
    items: bool,
    columns: Sequence[str] = (),
    stdout: IO[bytes] | None = None,
) -> AsyncIterator[Ended]:
    """Write what is committed while the block runs, and after it what is left: pages, or what handlers yielded.

    Raises CrawlerError kinds where a target can't be opened.
    """
    ended = Ended()
    if not targets:
        yield ended
        return
    from crawler.outputs.follow import Outputs
    from crawler.outputs.records import FINGERPRINT, Items, Pages, RecordSource

    loop = asyncio.get_running_loop()
    from crawler.cli.export import decode

    def source_of() -> RecordSource:
        return (
            Items(folder)
            if items
            else Pages(folder, columns=columns, decode=decode, has_fingerprints=FINGERPRINT in columns)
        )

    outputs = Outputs(folder, targets, source_of, warn=lambda line: _call(loop, warn, line), stdout=stdout)
    await asyncio.to_thread(outputs.start)
    try:
        yield ended
    finally:
        ended.problems += await asyncio.to_thread(outputs.finish)
        ended.notes += outputs.notes


def _call(loop: asyncio.AbstractEventLoop, warn: Callable[[str], None], line: str) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is there to be told
        loop.call_soon_threadsafe(warn, line)


def raise_first(problems: Sequence[Exception], warn: Callable[[str], None]) -> None:
    """Raise the first problem of incomplete targets, as one line with what to do; print the others."""
    for problem in problems[1:]:
        warn(str(problem))
    for problem in problems:
        if not isinstance(problem, CrawlerError):
            raise problem
        problem.args = (f"{problem}; nothing is lost: 'crawler export' with the same -o catches up",)
        raise problem
