"""Pages that cost much are parsed in a thread, or where they can be killed; nothing else waits for them."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import msgspec
import pytest

from crawler.model import ParsedPage, Response
from crawler.pipeline.parse import PageParser, ParseKilledError
from crawler.settings import Settings


def response(body: bytes) -> Response:
    return Response(
        url="http://a.test/",
        status=200,
        reason="OK",
        http_version="1.1",
        headers=((b"Content-Type", b"text/html"),),
        raw_body=body,
        body=body,
        request_head=b"",
        remote_ip="127.0.0.1",
        started_at=0.0,
        fetch_ms=1,
    )


@contextlib.asynccontextmanager
async def longest_wait() -> AsyncIterator[list[float]]:
    """Of a task that wants to run every 10 ms; [-1] counts at the end."""
    longest = [0.0]

    async def beat() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            longest.append(max(longest[-1], time.monotonic() - before))

    beating = asyncio.create_task(beat())
    try:
        yield longest
    finally:
        beating.cancel()


async def test_parsing_a_deeply_nested_page_is_killed_while_the_loop_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = PageParser(Settings())
    async with longest_wait() as longest:
        with monkeypatch.context() as patch:
            patch.setattr("crawler.pipeline.parse.WORKER_TIMEOUT_S", 1.0)
            with pytest.raises(ParseKilledError):
                await parser.parse(response(b"<div>" * 200_000))
    assert longest[-1] < 0.5
    page = await parser.parse(response(b"<title>fine</title>" + b"<i></i>" * 700_000 + b"<a href='/x'>x</a>"))
    assert (page.title, page.links) == ("fine", ("http://a.test/x",))
    await parser.close()


async def test_a_long_page_is_parsed_in_a_thread_while_the_loop_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crawler.pipeline.parse.SLOW_MS", 50)
    parser = PageParser(Settings())
    body = b"<title>deep</title><a href='/x'>x</a>" + b"<div>" * 45_000  # 1.6 s on the reference machine
    async with longest_wait() as longest:
        began = time.monotonic()
        page, tree = await parser.parse_with_tree(response(body))
        took_s = time.monotonic() - began
    assert (page.title, page.links, tree) == ("deep", ("http://a.test/x",), None)
    assert longest[-1] < took_s / 2
    assert parser._slow_origins == {"http://a.test"}  # the next one of this site is parsed where it can be killed

    async def in_worker(*_: object) -> ParsedPage:
        return ParsedPage(title="apart")

    monkeypatch.setattr(parser, "_in_worker", in_worker)
    assert (await parser.parse(response(body))).title == "apart"


async def test_a_site_with_an_underestimated_page_is_parsed_in_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("crawler.pipeline.parse.SLOW_MS", -1)
    parser = PageParser(Settings())
    asked: list[str] = []

    async def in_worker(given: Response, *_: object) -> ParsedPage:
        asked.append(given.url)
        return ParsedPage()

    monkeypatch.setattr(parser, "_in_worker", in_worker)
    await parser.parse(response(b"<p>first</p>"))
    assert asked == []
    await parser.parse(response(b"<p>second</p>"))
    assert asked == ["http://a.test/"]


@pytest.mark.parametrize("guarded", [False, True])
async def test_a_refresh_header_reaches_both_parsers(guarded: bool) -> None:
    parser = PageParser(Settings())
    refreshing = msgspec.structs.replace(
        response(b"<a href=/x>"), headers=((b"Content-Type", b"text/html"), (b"Refresh", b"0; url=/next"))
    )
    try:
        page, _ = await parser.parse_with_tree(refreshing, guarded=guarded)
    finally:
        await parser.close()
    assert page.links == ("http://a.test/x", "http://a.test/next")
