"""Errors as clients get them: problem+json of RFC 9457, whatever went wrong; and what a request may cost."""

import difflib
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, get_args

import msgspec
from aiohttp import web

from crawler.errors import (
    ArchiveError,
    ConflictError,
    CrawlerError,
    EngineError,
    InvalidUrl,
    NotMetError,
    UsageError,
)
from crawler.redaction import redact
from crawler.rules.text import one_line

KIB, MIB, GIB = 2**10, 2**20, 2**30


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Times in s, sizes in bytes."""

    body_bytes: int = MIB
    seed_list_bytes: int = 16 * MIB  # of seeds in one JSON document, which is read as a whole
    seed_stream_bytes: int = GIB  # of seeds in NDJSON, which are added as they come
    seed_streams: int = 4  # at the same time
    header_s: float = 20.0  # from the connection, or the last answer, until a request's headers are there
    body_s: float = 30.0  # for a whole body; for each piece of a stream
    linger_s: float = 2.0  # for the rest of a body that is not wanted, so that its sender reads the answer
    write_s: float = 15.0  # for a whole answer; for each piece of a stream
    requests_per_s: float = 100.0  # of one token, or of one address without a token
    requests_burst: int = 300
    connections: int = 4_000
    event_clients: int = 2_000
    event_buffer_bytes: int = 64 * KIB  # of the kernel, for a client that reads slowly
    events_every_s: float = 1.0
    heartbeat_s: float = 15.0
    at_once: int = 16  # requests that ask the engine; others wait
    ready_s: float = 1.0  # for the engine to answer /readyz
    shutdown_s: float = 5.0  # for open requests at the end


# Errors as clients get them: problem+json of RFC 9457, whatever went wrong.

NAME_CHARS = 64  # of an unknown name: more than any known one has
MEDIA_TYPE = "application/problem+json"
RETRY_S = 5  # after an outage of the engine

_STATUS_OF: Mapping[type[CrawlerError], HTTPStatus] = {
    EngineError: HTTPStatus.SERVICE_UNAVAILABLE,
    ArchiveError: HTTPStatus.INSUFFICIENT_STORAGE,
    ConflictError: HTTPStatus.CONFLICT,
    NotMetError: HTTPStatus.NOT_FOUND,
    InvalidUrl: HTTPStatus.UNPROCESSABLE_ENTITY,
    UsageError: HTTPStatus.UNPROCESSABLE_ENTITY,
}  # the first that fits


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong with a request. `type` is about:blank: the status tells the kind."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str


class ProblemError(Exception):
    """Ends a request with this answer."""

    def __init__(self, status: HTTPStatus, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers or {}


def not_valid(error: msgspec.ValidationError, kind: Any) -> str:
    """What is wrong with a value of this type; an unknown name with the known one that is nearest."""
    text = str(error)
    _, is_unknown, rest = text.partition("unknown field `")
    if not is_unknown:
        return text
    name = rest.rpartition("` - at `$")[0] or rest.removesuffix("`")
    kinds = get_args(kind) or (kind,)
    fields = [one.encode_name for of in kinds if of is not str for one in msgspec.structs.fields(of)]
    by_form = {_form(field): field for field in fields}
    near = difflib.get_close_matches(_form(name[:NAME_CHARS]), by_form, n=1)
    shown = f"`{name[:NAME_CHARS]}`"
    return (
        f"{shown}: did you mean `{by_form[near[0]]}`?" if near else f"unknown field {shown}; known: {', '.join(fields)}"
    )


def _form(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def problem_of(error: CrawlerError) -> ProblemError:
    """One of our errors as a problem."""
    for kind, status in _STATUS_OF.items():
        if isinstance(error, kind):
            again = {"Retry-After": str(RETRY_S)} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}
            return ProblemError(status, str(error), again)
    return ProblemError(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))


def of_aiohttp(error: web.HTTPException) -> ProblemError:
    """An error of the library: unknown paths, methods, and what can't be read."""
    status = HTTPStatus(error.status)
    kept = {name: value for name, value in error.headers.items() if name in ("Allow", "Location", "Retry-After")}
    detail = {
        HTTPStatus.NOT_FOUND: "there is nothing under this path; /openapi.json lists what there is",
        HTTPStatus.METHOD_NOT_ALLOWED: f"use {kept.get('Allow', 'another method')}",
    }.get(status, status.description or status.phrase)
    return ProblemError(status, detail, kept)


def response_of(error: ProblemError) -> web.Response:
    """The answer to send."""
    detail = one_line(redact(error.detail))
    body = msgspec.json.encode(Problem(title=error.status.phrase, status=error.status.value, detail=detail))
    return web.Response(status=error.status.value, body=body, content_type=MEDIA_TYPE, headers=error.headers)


def bad_body() -> ProblemError:
    """The body is not what its headers say."""
    return ProblemError(HTTPStatus.BAD_REQUEST, "the body can't be read")


def too_large(size_max: int) -> ProblemError:
    """The body has more bytes than this."""
    return ProblemError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has more than {size_max:,} bytes")


def too_slow(time_s: float) -> ProblemError:
    """The body did not come in this time."""
    return ProblemError(
        HTTPStatus.REQUEST_TIMEOUT, f"the body did not come within {time_s:g} s", {"Connection": "close"}
    )
