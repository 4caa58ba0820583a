"""A constructed page, and a handler called with it: unit tests of handlers without crawl, engine or web."""

import asyncio
import inspect
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from crawler.content.html import parse_with_tree
from crawler.handlers.crawler import Crawler, ItemFunction
from crawler.handlers.functions import is_plain, items_of, stream_of
from crawler.handlers.item_encoding import InvalidItemError, Packer, pack
from crawler.handlers.page import FOLLOW_MAX, Page
from crawler.media_type import declared_type
from crawler.model import Followed, Request, Response
from crawler.rules.places import registrable_domain
from crawler.rules.requests import request_of
from crawler.rules.urls import canonicalize, host_of
from crawler.settings import Settings
from crawler.worker.page_rights import RightsRules

AGENT = "shardcrawl"
URL_BYTES_MAX = 8192

Result = TypeVar("Result")


class Called(NamedTuple):
    """What came of a page: items as they would be exported, and what is to be followed."""

    items: list[dict[str, Any]]
    followed: list[Followed]


def fake_page(
    url: str, html: str = "", *, status: int = 200, headers: Mapping[str, str] | None = None,
    body: bytes | None = None, depth: int = 0, label: str = "", run: str = "", meta: Mapping[str, Any] | None = None,
    request: Request | None = None,
) -> Page:  # fmt: skip
    """The page that a handler would be given, with links, title, tree and text found in `html`, and what that and the
    headers say about its use.

    `meta` or `request`: what the request for it carried. `body`: bytes that are no UTF-8 text. The
    Content-Type is HTML unless `headers` say another. Raises InvalidUrl.
    """
    url = canonicalize(url)
    given = {"Content-Type": "text/html" if body is not None else "text/html; charset=utf-8"}
    given = {name: value for name, value in given.items() if "content-type" not in {h.lower() for h in headers or ()}}
    lines = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in {**given, **(headers or {})}.items()]
    content = html.encode() if body is None else body
    response = Response(
        url=url, status=status, reason="", http_version="1.1", headers=tuple(lines), raw_body=content, body=content,
        request_head=b"", remote_ip="127.0.0.1", started_at=time.time(), fetch_ms=0,
    )  # fmt: skip
    parsed, tree = parse_with_tree(
        url, declared_type(response), response.header("x-robots-tag"), content,
        links_max=FOLLOW_MAX, obey_nofollow=True, bytes_max=URL_BYTES_MAX, agent=AGENT,
        refresh=response.header("refresh"),
    )  # fmt: skip
    domain = registrable_domain(host_of(url))
    request = request or request_of(meta=meta)
    rights, _ = RightsRules(Settings()).of(url, None, response, parsed)
    return Page(
        response, parsed, domain=domain, depth=depth, label=label, run=run, request=request, tree=tree, rights=rights
    )


def call_handler(handler: Callable[..., Any] | Crawler, page: Page) -> Called:
    """Call a handler with a page: the function itself, or the one that an app has for it, with its schema and with the
    functions that its items go through.

    What the function raises passes through. Raises LookupError when the app has none for this page, and ValueError
    for an item that would be left out. May be called where an event loop runs, and holds it up meanwhile.
    """
    if isinstance(handler, Crawler):
        found = handler.handler_for(page.url, page.label, page.status)
        if found is None:
            raise LookupError(f"no handler is for {page.url} (status {page.status}, label {page.label!r})")
        yielded, packer = _yielded(found.function, page, handler.pipeline), found.pack
    else:
        yielded, packer = _yielded(handler, page, ()), pack
    return Called([_exported(item, packer) for item in yielded], list(page.followed))


def run_apart(work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run a coroutine to its end in a loop of its own, whether the caller has one or not."""
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(asyncio.run(work()))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="crawler.testing")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _yielded(function: Callable[..., Any], page: Page, pipeline: Sequence[ItemFunction]) -> list[Any]:
    if is_plain(function):
        result = function(page)
        if not inspect.isawaitable(result):
            items = items_of(result)
            return [one for item in items for one in _passed(item, page, pipeline)] if pipeline else list(items)
        function = _awaiting(result)
    stream = stream_of(function)

    async def collect() -> list[Any]:
        return [one async for item in stream(page) async for one in _passing(item, page, pipeline)]

    return run_apart(collect)


def _passed(item: Any, page: Page, pipeline: Sequence[ItemFunction]) -> list[Any]:
    async def collect() -> list[Any]:
        return [one async for one in _passing(item, page, pipeline)]

    return run_apart(collect)


async def _passing(item: Any, page: Page, pipeline: Sequence[ItemFunction]) -> AsyncIterator[Any]:
    """What comes of an item behind all these functions."""
    if not pipeline:
        yield item
        return
    function, *rest = pipeline
    arguments = (item, page) if function.takes_page else (item,)
    if function.is_plain:
        result = function.function(*arguments)
        made = list(items_of(await result if inspect.isawaitable(result) else result))
    else:
        made = [one async for one in function.stream(*arguments)]
    for one in made:
        async for passed in _passing(one, page, rest):
            yield passed


def _awaiting(result: Awaitable[Any]) -> Callable[[Page], Any]:
    """Of a plain function that returned what is to be awaited, as decorated ones do."""

    async def awaited(_: Page) -> Any:
        return await result

    return awaited


def _exported(item: Any, packer: Packer) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(packer(item))
    except InvalidItemError as error:
        field = f"field {error.report.field}: " if error.report.field else ""
        raise ValueError(f"invalid item {item!r}: {field}{error.report.reason}") from None
    return found
