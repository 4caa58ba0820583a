"""URLs as people give them: arguments, files, standard input; each with where it stood.

Lines are read as they come, so a stream that never ends is taken in while it flows. Knows nothing of URLs but that
empty lines and lines beginning with # are none.
"""

import argparse
import os
import stat
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from crawler.errors import UsageError

if TYPE_CHECKING:
    from crawler.instance.seeding import GivenUrl, SeedReport

STDIN = "-"
BLOCK_BYTES = 1 << 18
LINE_BYTES_MAX = 1 << 20  # a longer line is no URL: it is cut, so that memory is bounded


def add_urls(parser: argparse.ArgumentParser) -> None:
    """Positional URLs, and files of them."""
    parser.add_argument("urls", nargs="*", metavar="URL", help="where to begin; - reads URLs from standard input")
    parser.add_argument(
        "-i",
        "--input-file",
        dest="inputs",
        metavar="FILE",
        action="append",
        default=[],
        help="read URLs from FILE, one a line (- for standard input); # begins a comment; may be repeated",
    )
    parser.set_defaults(takes_urls=True)


def url_of_site(name: str) -> str:
    """The URL of a site as people name it: a domain, a host, or any URL of it. Raises InvalidUrl."""
    from crawler.rules.urls import canonicalize

    return canonicalize(name if "://" in name else f"http://{name}/")


def sources_of(arguments: argparse.Namespace) -> tuple[list["GivenUrl"], list[str]]:
    """The URLs given as arguments, and the files to read. Raises UsageError for a file that can't be read."""
    from crawler.instance.seeding import GivenUrl

    plain = [GivenUrl(f"argument {n}", url) for n, url in enumerate(arguments.urls, 1) if url != STDIN]
    files = list(arguments.inputs) + ([STDIN] if STDIN in arguments.urls else [])
    for file in files:
        if file != STDIN:
            _check_readable(file)
    return plain, list(dict.fromkeys(files))


def _check_readable(file: str) -> None:
    try:
        with Path(file).open("rb"):
            pass
    except OSError as error:
        raise UsageError(f"can't read seed file {file}: {error.strerror}") from None


async def read_given(file: str) -> AsyncIterator[list["GivenUrl"]]:
    """Batches of URLs as they arrive."""
    from crawler.instance.seeding import GivenUrl

    name, number, rest = "standard input" if file == STDIN else file, 0, b""
    async for block in _blocks(file):
        *lines, rest = (rest + block).split(b"\n")
        rest = rest[:LINE_BYTES_MAX]
        yield [GivenUrl(f"{name} line {number + n}", text) for n, line in enumerate(lines, 1) if (text := _text(line))]
        number += len(lines)
    if text := _text(rest):
        yield [GivenUrl(f"{name} line {number + 1}", text)]


def _text(line: bytes) -> str:
    text = line.decode("utf-8", "replace").lstrip("\ufeff").strip()
    return "" if text.startswith("#") else text


async def _blocks(file: str) -> AsyncIterator[bytes]:
    import asyncio

    descriptor = sys.stdin.fileno() if file == STDIN else os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            while block := os.read(descriptor, BLOCK_BYTES):
                yield block
                await asyncio.sleep(0)
        else:
            async for block in _flowing(descriptor):
                yield block
    except OSError as error:
        raise UsageError(f"can't read {file}: {error.strerror}") from None
    finally:
        if file != STDIN:
            os.close(descriptor)


async def _flowing(descriptor: int) -> AsyncIterator[bytes]:
    """Blocks of a pipe or terminal, read by a thread that may be left behind in its read when we stop."""
    import asyncio
    import threading

    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue(maxsize=4)

    def read() -> None:
        try:
            while True:
                block = os.read(descriptor, BLOCK_BYTES)
                asyncio.run_coroutine_threadsafe(queue.put(block), loop).result()
                if not block:
                    return
        except (OSError, RuntimeError):
            return  # closed, or the loop is gone

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while block := await queue.get():
        yield block


def complaints(report: "SeedReport") -> Sequence[str]:
    """One line for each invalid URL (the first thousand): where it stood, what it is, why it can't be crawled."""
    lines = [f"{where}: {_shown(text)}: {reason}" for where, text, reason in report.invalid]
    more = report.invalid_count - len(report.invalid)
    return [*lines, f"... and {more:,} more invalid URLs"] if more > 0 else lines


def _shown(text: str) -> str:
    return repr(text if len(text) <= 200 else text[:200] + "...")
