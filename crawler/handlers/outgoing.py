"""A request as users' functions see it before it is sent."""

from collections.abc import Callable, Sequence
from typing import Any

from crawler.handlers.functions import is_plain, stream_of
from crawler.handlers.run import call_asynchronous, call_plain
from crawler.handlers.tasks import CodeFailure, one_line_of, storable
from crawler.handlers.threads import Threads
from crawler.model import Request
from crawler.rules.requests import check_header


class OutgoingRequest:
    """A request for a page. `headers` may be changed: what is added there is sent, and is in no archive if it is
    Authorization or Cookie. `refuse` ends it.
    """

    def __init__(self, url: str, request: Request, *, label: str = "", depth: int = 0, run: str = "") -> None:
        self.url = url
        self.method = request.method
        self.body = request.body
        self.meta = request.meta
        self.session = request.session
        self.headers = dict(request.headers)
        self.label = label
        self.depth = depth
        self.run = run  # of a job; "": of none
        self.refusal = ""

    def refuse(self, why: str = "before_request") -> None:
        """Don't send it: its URL counts as refused, for this reason (a word or two)."""
        self.refusal = storable(one_line_of(why))[:REFUSAL_CHARS_MAX] or "before_request"


REFUSAL_CHARS_MAX = 40
BEFORE_REQUEST_S = 30.0


async def prepare(
    functions: Sequence[Callable[..., Any]], request: OutgoingRequest, threads: Threads
) -> CodeFailure | None:
    """Call the functions with a request, one after another, until one refuses it. Returns a failure of one, or of what
    it put into the headers.
    """
    for function in functions:
        if is_plain(function):
            failure = await call_plain(function, (request,), _ignored, threads, BEFORE_REQUEST_S)
        else:
            failure = await call_asynchronous(stream_of(function), (request,), _ignored, BEFORE_REQUEST_S)
        if failure is not None or request.refusal:
            return failure
    try:
        for name, value in request.headers.items():
            check_header(name, value)
    except (TypeError, ValueError) as error:
        return CodeFailure(f"@app.before_request: {error}")
    return None


def _ignored(_: Any) -> None:
    """What they return has no meaning."""
