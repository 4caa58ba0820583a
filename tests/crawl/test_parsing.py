"""Pages that cost much are parsed in a thread, or where they can be killed; nothing else waits for them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest

from crawler.model import ParsedPage, Response
from crawler.parsing import parse
from crawler.parsing.parse import PageParser, ParseKilledError
from crawler.parsing.processes import WorkerDiedError
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


BEATS_MIN = 10  # while a page is parsed: next to none when the loop waits for it


@contextlib.asynccontextmanager
async def beats() -> AsyncIterator[list[None]]:
    """One for each time that the loop comes to another task."""
    counted: list[None] = []

    async def beat() -> None:
        while True:
            await asyncio.sleep(0.001)
            counted.append(None)

    beating = asyncio.create_task(beat())
    try:
        yield counted
    finally:
        beating.cancel()


@pytest.mark.slow(ci=True)
async def test_parsing_a_deeply_nested_page_is_killed_while_the_loop_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = PageParser(Settings())
    async with beats() as counted:
        with monkeypatch.context() as patch:
            patch.setattr("crawler.parsing.parse.WORKER_TIMEOUT_S", 1.0)
            with pytest.raises(ParseKilledError):
                await parser.parse(response(b"<div>" * 200_000))
    assert len(counted) > BEATS_MIN
    page = await parser.parse(response(b"<title>fine</title>" + b"<i></i>" * 700_000 + b"<a href='/x'>x</a>"))
    assert (page.title, page.links) == ("fine", ("http://a.test/x",))
    await parser.close()


@pytest.mark.slow(ci=True)
async def test_a_long_page_is_parsed_in_a_thread_while_the_loop_runs() -> None:
    parser = PageParser(Settings())
    body = b"<title>deep</title><a href='/x'>x</a>" + b"<div>" * 25_000
    async with beats() as counted:
        page, tree = await parser.parse_with_tree(response(body))
    assert (page.title, page.links, tree) == ("deep", ("http://a.test/x",), None)
    assert len(counted) > BEATS_MIN


class Apart:
    """In place of the processes: takes what a test says, and notes which pages came."""

    def __init__(self, parser: PageParser, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spent_ms = 0
        self.urls: list[str] = []
        self.is_slow: list[bool] = []
        self.is_killed = False
        monkeypatch.setattr(parser._pool, "ask", self._ask)

    async def _ask(self, domain: str, request: Callable[[], bytes], timeout_s: float, *, is_slow: bool) -> bytes:
        self.urls.append(msgspec.msgpack.decode(request())[0])
        self.is_slow.append(is_slow)
        if self.is_killed:
            raise WorkerDiedError("SIGXCPU")
        return msgspec.msgpack.encode((ParsedPage(title="apart"), self.spent_ms))


class Queues:
    """Notes who waits."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, int]] = []

    def hold(self, queue: str) -> None:
        self.notes.append((queue, -1))

    def release(self, queue: str, *, wait_ms: int) -> None:
        self.notes.append((queue, wait_ms))


async def test_a_domain_leaves_the_processes_after_one_quick_page(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = PageParser(Settings())
    apart = Apart(parser, monkeypatch)
    page = response(b"<p>first</p>")
    with monkeypatch.context() as patch:
        patch.setattr("crawler.parsing.parse.cpu_ms", iter((0, parse.SLOW_MS)).__next__)
        await parser.parse(page)
    assert apart.urls == [], "nothing was known of it"
    for apart.spent_ms in (parse.SLOW_MS, 1):
        await parser.parse(page)
    await parser.parse(msgspec.structs.replace(page, url="http://other.test/"))
    await parser.parse(page)
    assert apart.urls == ["http://a.test/"] * 2, "the second was quick"


async def test_an_expensive_page_sends_no_other_page_to_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = PageParser(Settings())
    apart = Apart(parser, monkeypatch)
    apart.is_killed = True
    expensive = response(b"<p>" + b"".join(b"<b x%d>" % n for n in range(4000)) + b"<p>/" * 10_000)
    with pytest.raises(ParseKilledError):
        await parser.parse(expensive)
    assert (await parser.parse(response(b"<title>here</title>"))).title == "here"
    with pytest.raises(ParseKilledError):
        await parser.parse(expensive)
    assert apart.is_slow == [False, True], "it still takes long where it does"


async def test_the_domains_that_were_slow_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crawler.parsing.parse.SLOW_DOMAINS_MAX", 2)
    parser = PageParser(Settings())
    Apart(parser, monkeypatch).spent_ms = parse.SLOW_MS
    for name in ("a", "b", "c", "sub.b", "d"):
        await parser.parse_with_tree(
            msgspec.structs.replace(response(b"<p>x"), url=f"http://{name}.test/"), guarded=True
        )
    assert list(parser._slow) == ["b.test", "d.test"]


@pytest.mark.parametrize(
    ("spent_ms", "is_killed", "wait_ms", "is_slow"),
    [(1, False, 0, False), (100, False, 2_000, False), (2_000, False, 40_000, True), (0, True, 60_000, True)],
)
async def test_a_domain_waits_for_what_its_pages_took(
    spent_ms: int, is_killed: bool, wait_ms: int, is_slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = Queues()
    parser = PageParser(Settings(), queues)
    apart = Apart(parser, monkeypatch)
    apart.spent_ms, apart.is_killed = spent_ms, is_killed
    for _ in range(2):
        with contextlib.suppress(ParseKilledError):
            await parser.parse_with_tree(response(b"<p>x"), guarded=True, queue="a.test")
    charged = [("a.test", -1), ("a.test", wait_ms)] if wait_ms else []
    assert queues.notes == [("a.test", -1), *charged, ("a.test", 0)] * 2, "held meanwhile"
    assert apart.is_slow == [False, is_slow]


async def test_a_page_with_links_that_are_slow_to_join_goes_to_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = PageParser(Settings())
    apart = Apart(parser, monkeypatch)
    body = "".join(f"<a href='http://{n}{'ä.' * 120}test/'></a>" for n in range(1000)).encode()
    assert (await parser.parse(response(body))).title == "apart"
    assert apart.urls == ["http://a.test/"]


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(
    ("body", "cpu_s", "why"),
    [
        (b"<div>" * 200_000, 1, "SIGXCPU"),
        (b"<p>" + b"".join(b"<b x%d><p>" % n for n in range(6000)), 10, "SelectolaxError"),
        (b"<p>x", 5, "SIGKILL"),
    ],
    ids=["CPU time", "memory", "killed by others"],
)
async def test_the_end_of_a_parser_is_one_log_event_and_nothing_else(
    body: bytes,
    cpu_s: int,
    why: str,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("crawler.parsing.parse.CPU_S", cpu_s)
    parser = PageParser(Settings())
    await parser.parse_with_tree(response(b"<p>x"), guarded=True)
    if why == "SIGKILL":
        worker = next(worker._process for worker in parser._pool._workers if worker._process is not None)
        worker.kill()
    caplog.clear()
    with pytest.raises(ParseKilledError):
        await parser.parse_with_tree(response(body), guarded=True)
    await parser.close()
    killed = [vars(record) for record in caplog.records if record.message != "parse.slow"]
    assert [(record["message"], record["why"].partition(":")[0]) for record in killed] == [("parse.killed", why)]
    assert capfd.readouterr() == ("", "")


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
