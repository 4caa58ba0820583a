"""The process that parses expensive bodies: reads requests from stdin, writes pages to stdout, until stdin ends.

The kernel limits its CPU time per page and its memory; the instance kills it when it takes too long.
"""

import resource
import signal
import sys
from functools import partial

import msgspec

from crawler.content.html import parse_page
from crawler.process_tuning import keep_freed_memory
from crawler.rules.urls import JoinCache
from crawler.runtime.frames import serve

MEMORY_BYTES = 2 * 1024**3
CPU_S = 5


def main() -> None:
    """Serve requests one by one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the instance handles Ctrl-C, and closes our stdin
    keep_freed_memory()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    serve(partial(answer, JoinCache()), sys.stdin.buffer, sys.stdout.buffer)


def answer(joins: JoinCache, request: bytes) -> bytes:
    """The parsed page for a request."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + CPU_S, resource.RLIM_INFINITY))
    url, content_type, x_robots, refresh, body, links_max, nofollow, bytes_max, agent = msgspec.msgpack.decode(request)
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
    )
    return msgspec.msgpack.encode(page)


if __name__ == "__main__":
    main()
