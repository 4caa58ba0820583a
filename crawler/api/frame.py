"""What happens around every handler: access, decoding, errors as problems, headers, a bound on slow readers."""

import asyncio
import contextlib
import logging
import secrets
from hashlib import sha256
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler as Next

from crawler.api.access import READS, SOURCE, Access, Identity
from crawler.api.body_stream import BodyStream
from crawler.api.call import Call, Context
from crawler.api.places import Turns
from crawler.api.problem import (
    ProblemError,
    of_aiohttp,
    problem_of,
    response_of,
)
from crawler.api.route import JSON, Route, decoded_body, decoded_query
from crawler.errors import CrawlerError
from crawler.frontier.api_tokens import Role
from crawler.rules.text import one_line

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
