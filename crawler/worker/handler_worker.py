"""The process for handlers that run apart from the instance: loads the app, then handles pages until stdin ends.

A handler can't hold up the instance or end it there. The instance kills the process when it takes too long.
"""

import asyncio
import os
import signal
import sys
from typing import Any

import msgspec

from crawler.handlers.crawler import Crawler
from crawler.handlers.guards import guard_tasks
from crawler.handlers.load_app import load_app
from crawler.handlers.page import Page
from crawler.handlers.page_run import Handled, HandlerError, Limits, run_handler
from crawler.handlers.threads import Threads
from crawler.model import ParsedPage, Request, Response, Rights
from crawler.parsing.parse_worker import serve
from crawler.process_tuning import keep_freed_memory
from crawler.redaction import Secrets, learn_all
from crawler.runtime.log_files import start_logging


class HandlerRequest(msgspec.Struct, array_like=True):
    """A page, and the number of the app's handler for it."""

    handler: int
    response: Response
    parsed: ParsedPage
    domain: str
    depth: int
    label: str
    run: str
    request: Request | None
    fingerprint: str
    follow_max: int
    limits: Limits
    secrets: Secrets  # that the instance knows of
    rights: Rights | None


class HandlerAnswer(msgspec.Struct, array_like=True):
    """The handler's result, or its `failure`."""

    handled: Handled
    failure: str = ""
    trace: str = ""


_decode = msgspec.msgpack.Decoder(HandlerRequest).decode
_encode = msgspec.msgpack.Encoder().encode


def main() -> None:
    """Serve requests one by one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the instance handles Ctrl-C, and closes our stdin
    keep_freed_memory()
    stdin, stdout = _own_stdin(), _own_stdout()
    app = load_app(sys.argv[1])
    start_logging("warning", stream=sys.stderr)
    with asyncio.Runner() as runner:
        guard_tasks(runner.get_loop())
        threads = Threads(1)
        serve(lambda request: _encode(runner.run(_answer(app, threads, _decode(request)))), stdin, stdout)


def _own_stdin() -> Any:
    """Our stdin; handlers get an empty one, so that they can't read requests."""
    mine = os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, sys.stdin.fileno())
    os.close(nothing)
    return mine


def _own_stdout() -> Any:
    """Our stdout; what handlers print goes to stderr, so that it can't mix with the answers."""
    mine = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return mine


async def _answer(app: Crawler, threads: Threads, request: HandlerRequest) -> HandlerAnswer:
    page = Page(
        request.response, request.parsed, domain=request.domain, depth=request.depth, label=request.label,
        run=request.run, request=request.request, fingerprint=request.fingerprint, labels=app.labels,
        follow_max=request.follow_max, rights=request.rights,
    )  # fmt: skip
    learn_all(request.secrets)
    try:
        handler = app.handlers[request.handler]
        return HandlerAnswer(await run_handler(handler, page, request.limits, threads, app.pipeline))
    except HandlerError as error:
        return HandlerAnswer(Handled(), str(error), error.trace)


if __name__ == "__main__":
    main()
