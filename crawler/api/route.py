"""One entry of the routing table, and how its requests are decoded and its answers encoded.

A handler's annotations are the types of its query, body and answer: openapi.py documents what is enforced here.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, get_args, get_type_hints

import msgspec
from aiohttp import web

from crawler.api.access import READS
from crawler.api.call import NoBody
from crawler.api.problem import (
    Limits,
    ProblemError,
    bad_body,
    not_valid,
    too_large,
    too_slow,
)
from crawler.frontier.api_tokens import Role

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
