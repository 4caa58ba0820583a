"""Connections that a server gave up although it said that it keeps them: whose fault a failure on one is."""

import asyncio
from collections.abc import Sequence

import pytest

from crawler.model import FailureKind, FetchResult
from tests.support.hostile_server import Close, Hold, HostileServer, Reset, Step
from tests.web.fetching import HELLO, fetching, kind_of, response_of

BUSY = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
KEPT_BUSY = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"


async def second_of(steps: Sequence[Step]) -> FetchResult:
    """The result of a request on a connection that carried one before."""
    async with HostileServer(per_request=[[HELLO], steps]) as server, fetching(idle_timeout_s=0.2) as fetcher:
        response_of(await fetcher.fetch(server.url))
        result = await fetcher.fetch(server.url)
        assert (server.connections, len(server.requests)) == (1, 2), "nothing is sent again by itself"
        return result


@pytest.mark.parametrize("steps", [[Close()], [Reset()], [BUSY, Close()]], ids=["closed", "reset", "status 408"])
async def test_a_kept_connection_that_brings_nothing_was_stale(steps: Sequence[Step]) -> None:
    result = await second_of(steps)
    assert kind_of(result) is FailureKind.DISCONNECTED
    assert result.stale_connection


@pytest.mark.parametrize("steps", [[b"H", Close()], [b"HTTP/1.1 200 OK\r\n", 0.02, Reset()], [Hold()], [b"x\r\n\r\n"]])
async def test_one_that_brings_a_byte_or_nothing_in_time_was_not(steps: Sequence[Step]) -> None:
    result = await second_of(steps)
    assert result.failure is not None
    assert not result.stale_connection


async def test_a_408_on_a_connection_that_stays_open_is_an_answer() -> None:
    result = await second_of([KEPT_BUSY])
    assert response_of(result).status == 408
    assert not result.stale_connection


@pytest.mark.parametrize("steps", [[Close()], [Reset()]])
async def test_a_new_connection_is_never_stale(steps: Sequence[Step]) -> None:
    async with HostileServer(*steps) as server, fetching() as fetcher:
        result = await fetcher.fetch(server.url)
    assert kind_of(result) is FailureKind.DISCONNECTED
    assert not result.stale_connection


async def test_a_408_on_a_new_connection_is_an_answer() -> None:
    async with HostileServer(BUSY, Close()) as server, fetching() as fetcher:
        assert response_of(await fetcher.fetch(server.url)).status == 408


async def test_after_a_stale_connection_the_next_request_takes_a_new_one() -> None:
    """The others that were kept are as old, and each would cost its URL another turn."""
    steps = [[0.05, HELLO]] * 3 + [[Close()]]
    async with HostileServer(HELLO, per_request=steps) as server, fetching() as fetcher:
        await asyncio.gather(*(fetcher.fetch(server.url) for _ in range(3)))
        assert server.connections == 3
        assert (await fetcher.fetch(server.url)).stale_connection
        response_of(await fetcher.fetch(server.url))
        assert server.connections == 4


async def test_connections_to_a_server_that_always_closes_are_not_kept() -> None:
    async with HostileServer(per_request=[[HELLO], [Close()]] * 20) as server, fetching() as fetcher:
        results = []
        while len(server.requests) < 4:
            results.append(await fetcher.fetch(server.url))
        assert [r.stale_connection for r in results] == [False, True, False, True]
    async with HostileServer(HELLO) as server, fetching() as fetcher:
        origin, _ = fetcher._origin_and_target(server.url)
        origin.stale_in_a_row = 2
        for _ in range(3):
            assert not (await fetcher.fetch(server.url)).stale_connection
        assert server.connections == 3


async def test_a_connection_that_is_used_again_with_success_makes_the_server_credible() -> None:
    async with HostileServer(HELLO) as server, fetching() as fetcher:
        origin, _ = fetcher._origin_and_target(server.url)
        origin.stale_in_a_row = 1
        for _ in range(2):
            response_of(await fetcher.fetch(server.url))
        assert origin.stale_in_a_row == 0
        assert server.connections == 1
