"""The process in which handlers run that ask for one: loads the app by itself, then takes pages until stdin ends.

Handlers that are given to it can't hold up the instance, nor end it. Whoever started it kills it when it takes too
long.
"""

import asyncio
import os
import signal
import sys
from typing import Any

import msgspec

from crawler.handlers.crawler import Crawler
from crawler.handlers.load_app import load_app
from crawler.handlers.page import Page
from crawler.handlers.run_handler import Handled, HandlerError, Limits, run_handler
from crawler.handlers.tasks import guard_tasks
from crawler.handlers.threads import Threads
from crawler.model import ParsedPage, Response
from crawler.process_tuning import keep_freed_memory
from crawler.runtime.frames import serve


class HandlerRequest(msgspec.Struct, array_like=True):
    """A page, and which handler of the app gets it."""

    handler: int
    response: Response
    parsed: ParsedPage
    domain: str
    depth: int
    label: str
    follow_max: int
    limits: Limits


class HandlerAnswer(msgspec.Struct, array_like=True):
    """What came of it; with a `failure`, that."""

    handled: Handled
    failure: str = ""
    trace: str = ""


_decode = msgspec.msgpack.Decoder(HandlerRequest).decode
_encode = msgspec.msgpack.Encoder().encode


def main() -> None:
    """Serve requests one by one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the instance's to answer; it closes our stdin
    keep_freed_memory()
    stdin, stdout = _own_stdin(), _own_stdout()
    app = load_app(sys.argv[1])
    with asyncio.Runner() as runner:
        guard_tasks(runner.get_loop())
        threads = Threads(1)
        serve(lambda request: _encode(runner.run(_answer(app, threads, _decode(request)))), stdin, stdout)


def _own_stdin() -> Any:
    """Handlers find nothing on stdin: the requests are not theirs to read."""
    mine = os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, sys.stdin.fileno())
    os.close(nothing)
    return mine


def _own_stdout() -> Any:
    """What handlers print goes to stderr: the answers have standard output for themselves."""
    mine = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return mine


async def _answer(app: Crawler, threads: Threads, request: HandlerRequest) -> HandlerAnswer:
    page = Page(
        request.response, request.parsed, domain=request.domain, depth=request.depth, label=request.label,
        labels=app.labels, follow_max=request.follow_max,
    )  # fmt: skip
    try:
        return HandlerAnswer(await run_handler(app.handlers[request.handler], page, request.limits, threads))
    except HandlerError as error:
        return HandlerAnswer(Handled(), str(error), error.trace)


if __name__ == "__main__":
    main()
