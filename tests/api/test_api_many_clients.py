"""A thousand clients that listen, and as many that send nothing: what the engine and others notice of them."""

import asyncio
import time
from pathlib import Path

import pytest

from crawler.api.problem import Limits
from crawler.cli.run_async import raise_file_limit
from tests.api.api_lab import CountedReads, served
from tests.support.engine import Engine
from tests.support.patience import PATIENCE_S
from tests.views.views_lab import ANN, seeded

CLIENTS = 1_000
WATCHED_S = 5.0


async def connected(port: int, text: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text)
    return reader, writer


async def all_connected(port: int, text: bytes, count: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    found = []
    for _ in range(count // 100):
        found += await asyncio.gather(*(connected(port, text) for _ in range(100)))
    return found


@pytest.mark.slow
async def test_a_thousand_listeners_cost_the_engine_as_much_as_one(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    raise_file_limit()
    reads = CountedReads(monkeypatch)
    limits = Limits(requests_per_s=10_000, requests_burst=10_000, shutdown_s=2)
    async with asyncio.timeout(100), seeded(tmp_path / "c", engine) as crawl, served(crawl, limits=limits) as api:
        head = f"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1:{api.port}\r\n\r\n".encode()
        clients = await all_connected(api.port, head, CLIENTS)
        for reader, _ in clients:
            await reader.readuntil(b"event: overview\n")
        before, begun = reads.count, time.monotonic()
        while time.monotonic() - begun < WATCHED_S:
            assert (await api.get("/v1/overview"))[0] == 200, "others are answered meanwhile"
            await asyncio.sleep(0.1)
        assert reads.count - before <= time.monotonic() - begun + 2, "one reader, each second"
        await crawl.operator_log.add(ANN, "pause", "last.example")
        for reader, _ in clients:
            await reader.readuntil(b"last.example")
        for _, writer in clients:
            writer.close()


async def test_connections_beyond_the_bound_are_ended_and_silent_ones_too(tmp_path: Path, engine: Engine) -> None:
    limits = Limits(connections=5, header_s=0.3, shutdown_s=0.2)
    async with (
        asyncio.timeout(PATIENCE_S),
        seeded(tmp_path / "c", engine) as crawl,
        served(crawl, limits=limits) as api,
    ):
        slow = [await connected(api.port, b"GET / HTTP/1.1\r\nHost: ") for _ in range(5)]
        reader, writer = await connected(api.port, b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
        writer.close()
        for reader, writer in slow:
            assert await reader.read() == b"", "its headers did not come in time"
            writer.close()
        assert (await api.get("/healthz"))[0] == 200


async def test_a_body_that_comes_too_slowly_is_408(tmp_path: Path, engine: Engine) -> None:
    limits = Limits(body_s=0.2, linger_s=0.05, shutdown_s=0.2)
    async with (
        asyncio.timeout(PATIENCE_S),
        seeded(tmp_path / "c", engine) as crawl,
        served(crawl, limits=limits) as api,
    ):
        token = (await api.token())["Authorization"]
        for path, kind in (("/v1/pause", "application/json"), ("/v1/seeds", "application/x-ndjson")):
            head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{api.port}\r\nAuthorization: {token}\r\n"
            reply = await api.raw(f"{head}Content-Type: {kind}\r\nContent-Length: 100\r\n\r\n{{".encode())
            assert reply.startswith(b"HTTP/1.1 408 "), reply


async def test_an_answer_that_is_not_read_ends_the_connection(tmp_path: Path, engine: Engine) -> None:
    limits = Limits(write_s=0.2, header_s=30, shutdown_s=0.2)
    urls = [f"https://{'x' * 50}{n}.example/" for n in range(1_000)]
    async with (
        asyncio.timeout(PATIENCE_S),
        seeded(tmp_path / "c", engine, *urls) as crawl,
        served(crawl, limits=limits) as api,
    ):
        request = f"GET /v1/domains?by_name=true&limit=1000 HTTP/1.1\r\nHost: 127.0.0.1:{api.port}\r\n\r\n".encode()
        _, writer = await asyncio.open_connection("127.0.0.1", api.port, limit=1024)
        writer.write(request * 30)  # some 500 kB each: more than the kernel keeps
        with pytest.raises(ConnectionError):
            await until_ended(writer, request)
        writer.close()


async def until_ended(writer: asyncio.StreamWriter, request: bytes) -> None:
    """Send on until the other side has closed, without reading."""
    while not writer.is_closing():
        writer.write(request)
        await writer.drain()
        await asyncio.sleep(0.01)
