"""What is not JSON of a crawl: files of the dashboard, log-in, events, probes, metrics, the description of the API."""

import asyncio
import contextlib
import hashlib
import socket
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path

import msgspec
from aiohttp import web

from crawler.api.access import SOURCE
from crawler.api.call import Call, NoBody, NoQuery
from crawler.api.metrics import metrics_text
from crawler.api.problem import ProblemError
from crawler.errors import EngineError

FOLDER = Path(__file__).with_name("dashboard")
SCRIPTS = (
    "api.js", "app.js", "charts.js", "dead.js", "dialog.js", "dom.js", "domain.js", "domains.js", "explain.js",
    "format.js", "instances.js", "job.js", "job_form.js", "job_parts.js", "jobs.js", "operate.js", "pages.js",
    "ring.js", "run.js",
)  # fmt: skip
FILES = {
    "/": ("index.html", "text/html"),
    **{f"/assets/{name}": (name, "text/css") for name in ("style.css", "jobs.css")},
    **{f"/assets/{name}": (name, "text/javascript") for name in SCRIPTS},
}  # what is served, and nothing else

# nginx keeps no answer back that has the second one; no proxy compresses one that has the third, which would keep it
# back, too.
UNBUFFERED = {
    "Content-Type": "text/event-stream",
    "X-Accel-Buffering": "no",
    "Cache-Control": "no-store, no-transform",
}


class LoginQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`code`: from the link that `crawler serve` printed."""

    code: str


async def dashboard(call: Call[NoQuery, NoBody]) -> web.Response:
    """A file of the dashboard."""
    name, media = FILES[call.http.path.removeprefix(call.context.root)]
    try:
        content, etag = _file(name)
    except OSError:
        raise ProblemError(HTTPStatus.NOT_FOUND, "this installation has no dashboard; the API is under /v1") from None
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if call.http.headers.get("If-None-Match") == etag:
        return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
    return web.Response(body=content, content_type=media, charset="utf-8", headers=headers)


@lru_cache
def _file(name: str) -> tuple[bytes, str]:
    content = (FOLDER / name).read_bytes()
    return content, f'"{hashlib.sha256(content).hexdigest()[:16]}"'


async def login(call: Call[LoginQuery, NoBody]) -> web.Response:
    """Begin a browser's session by the link that `crawler serve` printed, which works once."""
    sessions = call.context.sessions
    value = sessions.begin(call.query.code)
    if not value:
        raise ProblemError(
            HTTPStatus.FORBIDDEN,
            "this link was used before, or is an old one: open the last that 'crawler serve' printed",
        )
    home, is_https = f"{call.context.root}/", call.http[SOURCE].scheme == "https"
    response = web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": home})
    response.set_cookie(sessions.cookie, value, path=home, httponly=True, samesite="Lax", secure=is_https)
    return response


async def events(call: Call[NoQuery, NoBody]) -> web.StreamResponse:
    """Events of the crawl as they come: overview, members, log, takeover, outage."""
    with call.context.event_places.taken(call.identity.owner):
        return await _stream(call)


async def _stream(call: Call[NoQuery, NoBody]) -> web.StreamResponse:
    hub, http = call.context.hub, call.http
    response = web.StreamResponse(headers=UNBUFFERED)
    try:
        async with asyncio.timeout(call.context.limits.write_s) as limit:
            _bound_buffer(http, call.context.limits.event_buffer_bytes)
            await response.prepare(http)
            listening = hub.listen(http.headers.get("Last-Event-ID", ""), call.identity.shown)
            with contextlib.suppress(ProblemError):  # not admitted any more: the answer is over
                async with call.while_admitted(), contextlib.aclosing(listening) as chunks:
                    async for chunk in chunks:
                        limit.reschedule(_soon(call))
                        await response.write(chunk)
                        limit.reschedule(None)
            limit.reschedule(_soon(call))
            await response.write_eof()
    except TimeoutError:
        if http.transport is not None:
            http.transport.abort()  # it does not read
        raise ConnectionResetError("the client does not read") from None
    return response


def _soon(call: Call[NoQuery, NoBody]) -> float:
    """Until when a client has to have read what it is sent."""
    return asyncio.get_running_loop().time() + call.context.limits.write_s


def _bound_buffer(http: web.Request, size: int) -> None:
    """The kernel would keep megabytes for a client that does not read."""
    transport = http.transport
    if transport is not None:
        transport.set_write_buffer_limits(size)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)


async def healthz(_: Call[NoQuery, NoBody]) -> web.Response:
    """Whether this process answers."""
    return web.Response(text="ok\n")


async def readyz(call: Call[NoQuery, NoBody]) -> web.Response:
    """Whether the engine answers."""
    try:
        async with asyncio.timeout(call.context.limits.ready_s):
            crawl = await call.crawl()
            await crawl.crawls.still(crawl.record)
    except TimeoutError:
        raise ProblemError(
            HTTPStatus.SERVICE_UNAVAILABLE, "the engine does not answer in time", {"Retry-After": "5"}
        ) from None
    return web.Response(text="ok\n")


async def metrics(call: Call[NoQuery, NoBody]) -> web.Response:
    """The crawl as Prometheus metrics; with an engine that does not answer, those that tell so."""
    with contextlib.suppress(EngineError):
        await call.crawl()
    body, media = await metrics_text(call.context.live.last, top_domains=call.context.metrics_domains)
    return web.Response(body=body, headers={"Content-Type": media})
