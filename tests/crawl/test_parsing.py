"""Pages that cost too much are parsed where they can be killed; nothing else waits for them."""

import asyncio
import time

import pytest

from crawler.instance.parsing import PageParser, ParseKilledError
from crawler.model import Page, Response
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


async def test_a_page_nested_too_deeply_is_killed_while_the_loop_runs_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crawler.instance.parsing.WORKER_TIMEOUT_S", 1.0)
    parser = PageParser(Settings())
    longest, stop = 0.0, asyncio.Event()

    async def beat() -> None:
        nonlocal longest
        while not stop.is_set():
            before = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - before)

    beating = asyncio.create_task(beat())
    with pytest.raises(ParseKilledError):
        await parser.parse(response(b"<div>" * 200_000))
    stop.set()
    await beating
    assert longest < 0.5
    page = await parser.parse(response(b"<title>fine</title>" + b"<i></i>" * 700_000 + b"<a href='/x'>x</a>"))
    assert (page.title, page.links) == ("fine", ("http://a.test/x",))
    await parser.close()
    assert parser.killed == 1


async def test_a_site_that_got_a_dear_page_past_the_estimate_is_parsed_apart_from_then_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("crawler.instance.parsing.SLOW_MS", -1)
    parser = PageParser(Settings())
    asked: list[str] = []

    async def in_worker(url: str, *_: object) -> Page:
        asked.append(url)
        return Page()

    monkeypatch.setattr(parser, "_in_worker", in_worker)
    await parser.parse(response(b"<p>first</p>"))
    assert asked == []
    await parser.parse(response(b"<p>second</p>"))
    assert asked == ["http://a.test/"]
