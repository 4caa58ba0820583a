"""scrapy-redis."""

import io
import pickle
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from crawler.crawl.imports import _FINGERPRINT, JSON_META, LEFT_OUT, META_MAX, REQUESTS_AT_ONCE, SCRAPY_DEFAULTS
from crawler.crawl.url_input import GivenUrl
from crawler.engine.client import Engine
from crawler.errors import UsageError
from crawler.frontier.codec import pairs_of
from crawler.rules.requests import request_of
from crawler.rules.sites import SECRET_HEADERS
from crawler.rules.url_list import listed
from crawler.rules.url_table import is_url


def _no_bytes() -> bytes:
    return b""


def _encoded(text: str, encoding: str) -> bytes:
    return text.encode({"latin1": "latin1"}[encoding])


# What earlier protocols need for bytes and sets.
_NAMED: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("_codecs", "encode"): _encoded,
    ("__builtin__", "bytes"): _no_bytes,
    ("__builtin__", "set"): set,
    ("builtins", "set"): set,
}


class _Plain(pickle.Unpickler):
    """Reads plain values only."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _NAMED:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return _NAMED[module, name]


def scrapy_request(
    where: str, data: bytes, score: float = 0.0, *, on_secrets: Callable[[str], None] = lambda _: None
) -> GivenUrl:
    """A request as scrapy-redis stores it, with its priority from the score; flawed if it can't be read.

    `on_secrets`: called with `where` if it had cookies, or headers that must not be stored.
    """
    try:
        found = msgspec.json.decode(data) if data.startswith(b"{") else _Plain(io.BytesIO(data)).load()
        if not isinstance(found, Mapping):
            return GivenUrl(where, "...", flaw="not a request")
        fields = {_text(name): value for name, value in found.items()}
        url, method = _text(fields["url"]), _text(fields.get("method") or "GET").upper()
        body, meta = fields.get("body") or b"", fields.get("meta") or {}
        headers = [(_text(name), value) for name, value in (fields.get("headers") or {}).items()]
        request = request_of(
            method="" if method == "GET" else method,
            headers=_headers(headers),
            body=_text(body) if body else None,
            meta={str(name): value for name, value in meta.items() if _is_json(value)},
        )
        if fields.get("cookies") or not SECRET_HEADERS.isdisjoint(name.lower() for name, _ in headers):
            on_secrets(where)
        return GivenUrl(where, url, priority=float(-score or fields.get("priority") or 0.0) or None, request=request)
    except (pickle.UnpicklingError, msgspec.MsgspecError, KeyError, ValueError, TypeError, AttributeError, EOFError,
            IndexError, RecursionError, MemoryError, UnicodeDecodeError) as error:  # fmt: skip
        return GivenUrl(where, "...", flaw=f"not a request that can be read: {error}"[:200])


def _plain_url(where: str, data: bytes, score: float) -> GivenUrl | None:
    """What is a URL as people push them (`start_urls`), bare or as a string of JSON; None if it is something else."""
    try:
        one = listed(data.decode())
    except UnicodeDecodeError:
        return None
    if one is None or not is_url(one.url):
        return None
    return replace(GivenUrl.of_list(where, one), priority=-score or None)


def _text(value: Any) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def _headers(headers: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """Those that are the request's own; each has a value, or a list of them."""
    found = dict[str, str]()
    for name, value in headers:
        values = value if isinstance(value, list | tuple) else [value]
        text = ", ".join(one.decode("latin-1") if isinstance(one, bytes) else str(one) for one in values)
        if name.lower() not in LEFT_OUT and SCRAPY_DEFAULTS.get(name.lower()) != text:
            found[name] = text
    return found


def _is_json(value: Any) -> bool:
    """Can it be meta of a request? Measured first: a small pickle may name one value a billion times."""
    try:
        return _size(value, META_MAX) >= 0 and bool(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError):
        return False


def _size(value: Any, left: int) -> int:
    """What is left of so many characters of JSON; -1 for nothing. Raises TypeError for what JSON does not have."""
    if not isinstance(value, JSON_META):
        raise TypeError
    if isinstance(value, dict):
        parts: Iterable[Any] = (part for pair in value.items() for part in pair)
    else:
        parts = value if isinstance(value, list) else ()
    left -= len(value) + 2 if isinstance(value, str) else 2
    for part in parts:
        if left < 0:
            break
        left = _size(part, left)
    return left


class QueueReport(msgspec.Struct):
    """What a queue had: how many are plain URLs, and how many requests had cookies, or headers that are not stored."""

    urls: int = 0
    with_secrets: int = 0


async def scrapy_requests(engine: Engine, key: str, report: QueueReport) -> AsyncGenerator[list[GivenUrl], None]:
    """All requests of a queue, which stays as it is, those with the highest priority first. Raises EngineError, and
    UsageError for a key that is no queue.
    """

    def on_secrets(_: str) -> None:
        report.with_secrets += 1

    start = 0
    async for pairs in _members(engine, key):
        found = list[GivenUrl]()
        for n, (data, score) in enumerate(pairs, start + 1):
            plain = _plain_url(f"request {n}", data, float(score))
            report.urls += plain is not None
            found.append(plain or scrapy_request(f"request {n}", data, float(score), on_secrets=on_secrets))
        yield found
        start += len(pairs)


async def _members(engine: Engine, key: str) -> AsyncGenerator[list[tuple[bytes, bytes]], None]:
    """What a queue has, with scores, some at a time; of a set in no order, and some maybe twice."""
    kind = (await engine.command("TYPE", key)).decode()
    if kind == "set":
        cursor = 0
        while True:
            at, found = await engine.command("SSCAN", key, cursor, "COUNT", REQUESTS_AT_ONCE)
            if not cursor and found and all(map(_FINGERPRINT.fullmatch, found)):
                raise UsageError(f"{key} is a set of fingerprints (a dupefilter), which tell no URLs")
            if found:
                yield [(one, b"0") for one in found]
            cursor = int(at)
            if not cursor:
                return
    if kind not in ("zset", "list"):
        said = "there is no such key" if kind == "none" else f"it is a {kind}"
        raise UsageError(f"{key} is not a queue of scrapy-redis: {said}, not a list, set or sorted set")
    start = 0
    while True:
        end = start + REQUESTS_AT_ONCE - 1
        ranged = ("ZRANGE", key, start, end, "WITHSCORES") if kind == "zset" else ("LRANGE", key, start, end)
        found = await engine.command(*ranged)
        pairs = pairs_of(found) if kind == "zset" else [(one, b"0") for one in found]
        if not pairs:
            return
        yield pairs
        start += len(pairs)
