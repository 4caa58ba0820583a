"""The process that finds columns in bodies: reads requests from stdin, writes columns to stdout, until stdin ends.

What a library does with a hostile page ends here: the kernel limits CPU time per page and memory.
"""

import contextlib
import os
import resource
import signal
import sys
from functools import partial

import msgspec

from crawler.content.main_text import load_library
from crawler.content.page_columns import PageBody, columns_of
from crawler.parsing.parse_worker import MEMORY_BYTES, NICENESS, serve
from crawler.process_tuning import keep_freed_memory
from crawler.redaction import Secrets, learn_all
from crawler.rules.page_columns import LIBRARY, NEEDING_TEXT
from crawler.rules.urls import JoinCache

CPU_S = 10  # of the columns of one page


class LibraryError(Exception):
    """The library that columns need can't be used here: no page is to blame."""


class Asked(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A request."""

    page: PageBody
    names: tuple[str, ...]
    secrets: Secrets  # passwords that no link may have


_decode = msgspec.msgpack.Decoder(Asked).decode


def main() -> None:
    """Serve requests one by one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started it handles Ctrl-C, and closes our stdin
    keep_freed_memory()
    os.nice(NICENESS)
    with contextlib.suppress(ValueError, OSError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it is killed by design
    stdout = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
    serve(partial(answer, JoinCache()), sys.stdin.buffer, stdout)


def answer(joins: JoinCache, request: bytes) -> bytes:
    """The columns of a page. Raises LibraryError."""
    asked = _decode(request)
    learn_all(asked.secrets)
    _load_library(asked.names)  # before the page can have used up the memory
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + 1 + CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
    return msgspec.msgpack.encode(columns_of(asked.page, asked.names, joins))


def _load_library(names: tuple[str, ...]) -> None:
    if NEEDING_TEXT.isdisjoint(names) and "fingerprint" not in names:
        return
    try:
        load_library(has_language="language" in names)
    except ImportError as error:
        raise LibraryError(f"{LIBRARY} can't be imported: {error}") from None


if __name__ == "__main__":
    main()
