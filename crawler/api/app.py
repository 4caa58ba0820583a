"""From request to answer: the call, its route and types, and the frame around every handler."""

import asyncio
import contextlib
import inspect
import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Generic, TypeVar, get_args, get_type_hints

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler as Next

from crawler.api.access import READS, SOURCE, Access, BrowserSessions, Identity
from crawler.api.events import EventHub, Idempotency, LiveCrawl, SharedAnswers
from crawler.api.problem import (
    BodyStream,
    Limits,
    Places,
    ProblemError,
    Turns,
    bad_body,
    not_valid,
    of_aiohttp,
    problem_of,
    response_of,
    too_large,
    too_slow,
)
from crawler.crawl.opening import OpenCrawl
from crawler.errors import CrawlerError
from crawler.frontier.api_tokens import Role
from crawler.frontier.operator_log import Actor, Via
from crawler.rules.text import one_line
from crawler.views.dead_letter_changes import LetterList
from crawler.views.ring import RingMembers

Query = TypeVar("Query")
Body = TypeVar("Body")


class NoQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No parameters."""


class NoBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing, or an empty object."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """What all requests share. `root`: what each path begins with, "" or a path without its last slash."""

    root: str
    live: LiveCrawl
    limits: Limits
    sessions: BrowserSessions
    hub: EventHub
    idempotency: Idempotency
    seed_places: Places
    event_places: Places
    letter_sums: SharedAnswers[LetterList]
    rings: SharedAnswers[RingMembers]
    metrics_domains: int  # how many of the busiest have metrics


@dataclass(frozen=True, kw_only=True)
class Call(Generic[Query, Body]):
    """One request. `body` is None where the handler reads it itself."""

    http: web.Request
    context: Context
    identity: Identity
    query: Query
    body: Body
    stream: BodyStream  # for handlers that read the body themselves
    while_admitted: Callable[[], AbstractAsyncContextManager[None]]  # raises ProblemError when the sender no longer is

    @property
    def name(self) -> str:
        """The part of the path that names something, like a domain."""
        return self.part("name")

    def part(self, name: str) -> str:
        """A part of the path, by its name in the route."""
        return self.http.match_info[name]

    @property
    def actor(self) -> Actor:
        """The sender, for the operator log."""
        return Actor(who=self.identity.who, via=Via.API)

    async def crawl(self) -> OpenCrawl:
        """The crawl as it is now. Raises EngineError."""
        return await self.context.live.current()


# One entry of the routing table, and how its requests are decoded and its answers encoded.
#
# A handler's annotations are the types of its query, body and answer: openapi.py documents what is enforced here.


JSON = "application/json"
EVENTS = "text/event-stream"
Handler = Callable[..., Awaitable[Any]]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """`media`: of the answer.

    `body_media`: what the body may be. With more than JSON, the handler reads it itself.
    """

    method: str
    path: str
    handler: Handler
    media: str = JSON
    body_media: tuple[str, ...] = (JSON,)
    is_slow: bool = False  # has an order of its own, so that it holds up no other request
    has_effect: bool = False  # although it is a GET
    is_public: bool = False  # needs no token, whatever is listened on
    status: HTTPStatus = HTTPStatus.OK  # of an answer without an error

    @property
    def role(self) -> Role:
        """What a sender needs."""
        return Role.READ if self.method in READS else Role.WRITE

    @property
    def has_head(self) -> bool:
        """Is HEAD answered as GET is, without the body?"""
        return self.method == "GET" and not self.has_effect and not self.is_event_stream

    @property
    def is_event_stream(self) -> bool:
        """Does the answer go on until the client leaves?"""
        return self.media == EVENTS

    @property
    def streams_body(self) -> bool:
        """Does the handler read the body?"""
        return len(self.body_media) > 1

    @property
    def summary(self) -> str:
        """What it does, in a line."""
        return (inspect.getdoc(self.handler) or "").partition("\n")[0]

    @property
    def is_encoded(self) -> bool:
        """Is the handler's answer a value, and not a response?"""
        answer = self.types()[2]
        return not (isinstance(answer, type) and issubclass(answer, web.StreamResponse))

    def types(self) -> tuple[Any, Any, Any]:
        """Of query, body and answer."""
        hints = get_type_hints(self.handler)
        answer = hints.pop("return")
        (call,) = hints.values()
        query, body = get_args(call)
        return query, body, answer


def decoded_query(http: web.Request, kind: Any) -> Any:
    """The parameters behind the path. Raises ProblemError."""
    given = http.query
    if len(set(given)) < len(given):
        raise ProblemError(HTTPStatus.BAD_REQUEST, "a parameter is given twice")
    try:
        return msgspec.convert(dict(given), kind, strict=False)
    except msgspec.ValidationError as error:
        raise ProblemError(HTTPStatus.BAD_REQUEST, f"parameters: {not_valid(error, kind)}") from None


async def decoded_body(http: web.Request, kind: Any, limits: Limits) -> tuple[bytes, Any]:
    """The body as it came and as a value. Raises ProblemError."""
    raw = await read_body(http, limits.body_bytes, limits.body_s)
    if not raw and kind is NoBody:
        return raw, NoBody()
    check_media(http, (JSON,))
    return raw, decoded_json(raw, kind)


def check_media(http: web.Request, allowed: tuple[str, ...]) -> str:
    """The type of the body. Raises ProblemError for another one, and for compressed bodies."""
    media = http.content_type if "Content-Type" in http.headers else ""
    if media not in allowed:
        raise ProblemError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"expected a body of Content-Type {' or '.join(allowed)}")
    if http.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise ProblemError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send the body without Content-Encoding")
    return media


def decoded_json(raw: bytes, kind: Any) -> Any:
    """A JSON document as a value of this type. Raises ProblemError."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, not_valid(error, kind)) from None
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise ProblemError(HTTPStatus.BAD_REQUEST, f"the body is not valid JSON: {error}") from None


async def read_body(http: web.Request, size_max: int, time_s: float) -> bytes:
    """The whole body. Raises ProblemError when it is too large or comes too slowly."""
    if (http.content_length or 0) > size_max:
        raise too_large(size_max)
    pieces, size = [], 0
    try:
        async with asyncio.timeout(time_s):
            async for piece in http.content.iter_any():
                size += len(piece)
                if size > size_max:
                    raise too_large(size_max)
                pieces.append(piece)
    except TimeoutError:
        raise too_slow(time_s) from None
    except web.RequestPayloadError:
        raise bad_body() from None
    return b"".join(pieces)


# What happens around every handler: access, decoding, errors as problems, headers, a bound on slow readers.


log = logging.getLogger(__name__)

ROUTE = "route"  # under which a matched handler has its Route
IDENTITY = web.RequestKey("identity", Identity)
ANYBODY = Identity(who="", role=Role.READ, client="")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
NO_STORE = "no-store"  # unless a handler decides otherwise


class Frame:
    """The middleware of the application, and the function that a route becomes."""

    def __init__(self, access: Access, context: Context) -> None:
        self._access = access
        self._context = context
        self._turns = Turns(context.limits.at_once)

    def application(self, routes: tuple[Route, ...]) -> web.Application:
        """The application that has these routes."""

        @web.middleware
        async def around(request: web.Request, handler: Next) -> web.StreamResponse:
            return await self._around(request, handler)

        app, root = web.Application(middlewares=[around]), self._context.root
        app.on_response_prepare.append(_add_headers)
        for route in routes:
            app.router.add_route(route.method, f"{root}{route.path}", self._function_of(route))
            if route.has_head:
                app.router.add_route("HEAD", f"{root}{route.path}", self._function_of(route))
        app.router.add_route("*", f"{root}/users{{rest:(?:/.*)?}}", self._moved)
        return app

    def _function_of(self, route: Route) -> Next:
        query_type, body_type, _ = route.types()
        is_encoded = route.is_encoded

        async def answer(http: web.Request) -> web.StreamResponse:
            identity, query = http[IDENTITY], decoded_query(http, query_type)
            raw, body = b"", None
            if not route.streams_body and route.role is Role.WRITE:
                raw, body = await decoded_body(http, body_type, self._context.limits)
                await self._access.check_still(identity, route.role)  # it may have come slowly
            stream = BodyStream(http, self._context.limits)
            call = Call[Any, Any](
                http=http, context=self._context, identity=identity, query=query, body=body, stream=stream,
                while_admitted=lambda: self._access.while_admitted(identity, route.role),
            )  # fmt: skip
            if not is_encoded:
                response: web.StreamResponse = await route.handler(call)
                return response

            async def act() -> web.Response:
                if route.streams_body:
                    return json_response(await route.handler(call), route.status)
                async with self._turns.taken(identity.owner, is_slow=route.is_slow):
                    return json_response(await route.handler(call), route.status)

            async def digest() -> str:
                return await stream.digest() if route.streams_body else sha256(raw).hexdigest()

            if route.role is Role.READ:
                return await act()
            async with call.while_admitted() if route.streams_body else contextlib.nullcontext():
                return await self._context.idempotency.run(http, identity, digest, act)

        setattr(answer, ROUTE, route)
        return answer

    async def _around(self, http: web.Request, handler: Next) -> web.StreamResponse:
        try:
            response = await self._admitted(http, handler)
        except ProblemError as problem:
            response = response_of(problem)
        except web.HTTPException as error:
            response = response_of(of_aiohttp(error))
        except CrawlerError as error:
            response = response_of(problem_of(error))
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - our bug: it is logged, and its traceback stays here
            response = response_of(bug(error, http))
        if not response.prepared:
            await self._send(http, response)
        return response

    async def _admitted(self, http: web.Request, handler: Next) -> web.StreamResponse:
        self._access.check_source(http)
        self._check_path(http)
        route: Route | None = getattr(http.match_info.handler, ROUTE, None)
        if route is not None and route.is_public:
            self._access.count(http[SOURCE].client)
            http[IDENTITY] = ANYBODY
        else:
            http[IDENTITY] = await self._access.identify(http, _role_of(http, route))
        return await handler(http)

    def _check_path(self, http: web.Request) -> None:
        """Is it below --prefix? Before anything else: whoever has a wrong proxy can't log in, either."""
        root = self._context.root
        if not root or http.path.startswith(f"{root}/"):
            return
        self._access.count(http[SOURCE].client)
        if http.path == root and http.method in READS:
            raise _redirect(f"{root}/", http)
        raise ProblemError(HTTPStatus.NOT_FOUND, f"paths begin with {root}/ here; let the proxy pass them unchanged")

    async def _moved(self, http: web.Request) -> web.Response:
        """The same path below /v1, for clients that leave that out."""
        root = self._context.root
        raise _redirect(f"{root}/v1{http.rel_url.raw_path.removeprefix(root)}", http)

    async def _send(self, http: web.Request, response: web.StreamResponse) -> None:
        """Send it here, so that a client that does not read it is cut off."""
        try:
            async with asyncio.timeout(self._context.limits.write_s):
                await response.prepare(http)
                await response.write_eof()
        except TimeoutError:
            if http.transport is not None:
                http.transport.abort()
            raise ConnectionResetError("the client does not read") from None


def json_response(value: Any, status: HTTPStatus) -> web.Response:
    """A value as JSON."""
    return web.Response(status=status, body=msgspec.json.encode(value), content_type=JSON)


def bug(error: BaseException | None, http: web.BaseRequest) -> ProblemError:
    """Log an error of ours, and tell the client where to find it."""
    number = secrets.token_hex(4)
    source, path = http.get(SOURCE), one_line(http.path[:200])
    client = source.client if source else http.remote
    log.error("api.bug", exc_info=error, extra={"id": number, "client": client, "method": http.method, "path": path})
    return ProblemError(HTTPStatus.INTERNAL_SERVER_ERROR, f"this is a bug of the server; its log has it as {number}")


def _role_of(http: web.Request, route: Route | None) -> Role:
    if route is not None:
        return route.role
    return Role.READ if http.method in ("GET", "HEAD") else Role.WRITE


def _redirect(path: str, http: web.Request) -> ProblemError:
    """To this path, with the same query."""
    query = http.rel_url.raw_query_string
    to = f"{path}?{query}" if query else path
    return ProblemError(HTTPStatus.PERMANENT_REDIRECT, f"it is under {path}", {"Location": to})


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    add_headers(response)


def add_headers(response: web.StreamResponse) -> None:
    """What every answer has."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", NO_STORE)
    response.headers["Server"] = "crawler"
