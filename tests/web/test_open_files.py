"""Connections when the system allows few open files: never more than that, and idle ones go first."""

import asyncio
import contextlib
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from crawler.web import connection_pool
from crawler.web.connection_pool import OTHER_FILES, SOCKETS_MIN, Sockets, sockets_max
from tests.crawl.lab import QUICK, name_server
from tests.support.patience import PATIENCE_S
from tests.support.processes import nursery
from tests.support.serving import serve_resources
from tests.support.web import Resource
from tests.web.fetching import fetching

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Counting:
    """A server that keeps connections alive, and counts those that are open. It answers while `hold` is set."""

    def __init__(self) -> None:
        self.open = self.most = 0
        self.hold = asyncio.Event()
        self.hold.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await self.hold.wait()
                writer.write(ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()


@contextlib.asynccontextmanager
async def counting() -> AsyncIterator[tuple[Counting, list[str]]]:
    """With URLs of twelve origins of it."""
    counted = Counting()
    server = await asyncio.start_server(counted.serve, [f"127.0.0.{n}" for n in range(1, 13)], 0)
    async with server:
        named = (sock.getsockname() for sock in server.sockets)
        yield counted, [f"http://{address}:{port}/" for address, port in named]


@pytest.mark.parametrize("limit", [1, 3])
async def test_no_more_connections_than_files_and_idle_ones_go_first(limit: int) -> None:
    with patch.object(connection_pool, "sockets_max", lambda: limit):
        async with counting() as (_, urls), fetching(total_timeout_s=60, idle_timeout_s=60) as fetcher:
            assert fetcher._pool is not None
            sockets = fetcher._pool._sockets
            for _ in range(2):  # one after the other: each leaves an idle one
                for url in urls[: 2 * limit]:
                    assert (await fetcher.fetch(url)).failure is None
                    assert sockets._open <= limit
            results = await asyncio.gather(*map(fetcher.fetch, urls))
            assert all(result.failure is None for result in results)
            assert await fetcher.reach(urls[0]) is None
            assert sockets._open <= limit
            assert not sockets.is_short


async def test_waiting_for_room_is_not_the_time_of_a_host() -> None:
    with patch.object(connection_pool, "sockets_max", lambda: 1):
        async with counting() as (server, urls), fetching(total_timeout_s=1.0, idle_timeout_s=60) as fetcher:
            server.hold.clear()
            first, second = (asyncio.create_task(fetcher.fetch(url)) for url in urls[:2])
            assert (await first).response is None
            server.hold.set()
            assert (await second).response is not None


async def test_places_of_refused_and_cancelled_requests_come_back() -> None:
    with patch.object(connection_pool, "sockets_max", lambda: 1):
        async with counting() as (server, urls), fetching(total_timeout_s=60, idle_timeout_s=60) as fetcher:
            assert (await fetcher.fetch("http://127.0.0.1:9999/")).failure is not None
            assert (await fetcher.fetch("http://nobody.test/")).failure is not None
            assert (await fetcher.fetch(urls[0].replace("http:", "https:"))).failure is not None
            server.hold.clear()
            running = [asyncio.create_task(fetcher.fetch(url)) for url in urls[:4]]
            await asyncio.sleep(0.05)
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            server.hold.set()
            async with asyncio.timeout(PATIENCE_S):
                assert (await fetcher.fetch(urls[9])).failure is None


async def test_who_is_cancelled_when_a_place_comes_passes_it_on() -> None:
    sockets = Sockets(1, give_up_idle=lambda: None)
    give_back = await sockets.take()
    waiting = [asyncio.create_task(sockets.take()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    give_back()
    give_back()  # a second time changes nothing
    waiting[0].cancel()
    got: Callable[[], None] = await waiting[2]
    assert not sockets.is_short
    got()
    (await sockets.take())()


@pytest.mark.parametrize(
    ("soft", "most"),
    [
        (128, 128 - OTHER_FILES),
        (64, SOCKETS_MIN),
        (20_000, 20_000 - OTHER_FILES),
        (resource.RLIM_INFINITY, (1 << 20) - OTHER_FILES),
    ],
)
def test_other_files_have_room(soft: int, most: int) -> None:
    with patch.object(resource, "getrlimit", lambda _: (soft, soft)):
        assert sockets_max() == most


@pytest.mark.slow(ci=True)
@pytest.mark.processes
def test_a_hundred_hosts_with_few_files_lose_nothing(tmp_path: Path) -> None:
    hosts = [f"h{n}.test" for n in range(100)]
    web = {(host, path): Resource(body="<a href='/a'>a</a>") for host in hosts for path in ("/", "/a")}
    with serve_resources(web) as site, name_server() as dns, nursery(QUICK) as programs:
        seeds = tmp_path / "seeds.txt"
        seeds.write_text("\n".join(site.url(host) for host in hosts), "utf-8")
        words = ["crawl", "-i", str(seeds), "--dir", str(tmp_path / "c"), "--delay", "0", "--nameserver", dns]
        ran = subprocess.run(
            [sys.executable, "-m", "crawler", *words, "-o", str(tmp_path / "pages.jsonl")], capture_output=True,
            text=True, env=programs.environment, cwd=tmp_path, timeout=100, check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (120, 120)),
        )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "at most 56 connections at a time instead of 64" in ran.stderr
    assert len((tmp_path / "pages.jsonl").read_text("utf-8").splitlines()) == 2 * len(hosts)
