"""The process that parses expensive bodies: reads requests from stdin, writes pages to stdout, until stdin ends.

The kernel limits its CPU time per page and its memory; the instance kills it when it takes too long. It runs at a low
priority, so that the event loops of this machine come first.
"""

import contextlib
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable
from functools import partial
from typing import BinaryIO

import msgspec

from crawler.content.html import parse_page
from crawler.process_tuning import keep_freed_memory
from crawler.rules.urls import JoinCache

MEMORY_BYTES = 1024**3  # 10 MiB of tags take up to 0.8 GiB
NICENESS = 5  # a third of the share of a process without it

# The protocol between an instance and its worker processes: length-prefixed frames over pipes. A worker writes a ready
# line, then reads requests from stdin and writes one answer for each to stdout, until stdin ends. Nothing here imports
# asyncio: the start of a worker is CPU time of the crawl.

HEAD = struct.Struct(">I")
READY = b"ready\n"
FAILED = 0xFFFF_FFFF  # in place of a length: the error follows as a frame of text, and the worker ends
_ERROR_CHARS_MAX = 500


def framed(data: bytes) -> bytes:
    """`data` with its length before it."""
    return HEAD.pack(len(data)) + data


def serve(answer: Callable[[bytes], bytes], stdin: BinaryIO, stdout: BinaryIO) -> None:
    """Report that the worker is ready, then answer requests until stdin ends, or until one fails.

    After a failure nobody knows how much memory is left to the next request.
    """
    stdout.write(READY)
    stdout.flush()
    while len(head := stdin.read(HEAD.size)) == HEAD.size:
        (length,) = HEAD.unpack(head)
        try:
            found = framed(answer(stdin.read(length)))
        except Exception as error:  # noqa: BLE001 - the instance logs it; here it would be on the user's terminal
            text = f"{type(error).__name__}: {error}"[:_ERROR_CHARS_MAX]
            stdout.write(HEAD.pack(FAILED) + framed(text.encode("utf-8", "replace")))
            stdout.flush()
            return
        stdout.write(found)
        stdout.flush()


def main() -> None:
    """Serve requests one by one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the instance handles Ctrl-C, and closes our stdin
    keep_freed_memory()
    os.nice(NICENESS)
    with contextlib.suppress(ValueError, OSError):  # macOS has no such limit (docs/guide/install.md)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it is killed by design
    serve(partial(answer, JoinCache()), sys.stdin.buffer, sys.stdout.buffer)


def answer(joins: JoinCache, request: bytes) -> bytes:
    """The parsed page for a request, and the CPU time that it took in ms."""
    asked = msgspec.msgpack.decode(request)
    url, content_type, x_robots, refresh, body, links_max, nofollow, bytes_max, agent, link_rules = asked[:10]
    reads_feeds, is_sitemap, requisites_max, requested_as, cpu_s = asked[10:]
    began_s = _cpu_s()
    resource.setrlimit(resource.RLIMIT_CPU, (int(began_s) + cpu_s, resource.RLIM_INFINITY))
    page = parse_page(
        url,
        content_type,
        x_robots,
        body,
        links_max=links_max,
        obey_nofollow=nofollow,
        bytes_max=bytes_max,
        agent=agent,
        refresh=refresh,
        joins=joins,
        link_rules=link_rules,
        reads_feeds=reads_feeds,
        is_sitemap=is_sitemap,
        requisites_max=requisites_max,
        requested_as=requested_as,
    )
    return msgspec.msgpack.encode((page, int((_cpu_s() - began_s) * 1000)))


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
