"""Waiting for replicas: who has none is named, who had one is waited for, and nobody waits for ever."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from crawler.engine.client import Engine, does_answer
from crawler.frontier.scripts import library
from tests.frontier.door import CALL_S
from tests.support import engine as engines
from tests.support.engine import running_engine, short_folder, started
from tests.support.patience import wait_until

PATIENCE_S = 0.4


@pytest.fixture
def pair() -> Iterator[tuple[engines.Engine, engines.Engine]]:
    """A server on a port, and its replica, which has all."""
    port = engines.free_port()
    with short_folder() as folder:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0"]
        with started(folder, f"redis://127.0.0.1:{port}/", options) as primary, running_engine(
            "--replicaof", "127.0.0.1", str(port)
        ) as replica:  # fmt: skip
            with primary.client() as client:
                wait_until(lambda: client.info("replication").get("slave0", {}).get("state") == "online")
            yield primary, replica


@pytest.fixture
async def server(pair: Any) -> AsyncIterator[Engine]:
    engine = Engine(pair[0].url, library(), call_timeout_s=CALL_S)
    await engine.connect()
    yield engine
    await engine.close()


async def test_a_replica_has_what_was_written_when_a_server_is_confirmed(server: Engine, pair: Any) -> None:
    await server.command("SET", "a", 1)
    assert await server.confirm(["a"]) == []
    with pair[1].client() as client:
        assert client.get("a") == b"1"


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL], ids=["sleeps", "dies"])
async def test_a_server_whose_replica_is_silent_is_named_after_a_while(server: Engine, pair: Any, how: int) -> None:
    assert await server.confirm(["a"]) == []
    os.kill(pair[1].pid, how)
    try:
        began = time.monotonic()
        assert await server._servers.confirm(["a"], PATIENCE_S) == ["only"]
        assert time.monotonic() - began >= PATIENCE_S
    finally:
        os.kill(pair[1].pid, signal.SIGCONT)


async def test_a_replica_that_comes_back_in_time_is_waited_for(server: Engine, pair: Any) -> None:
    assert await server.confirm(["a"]) == []
    os.kill(pair[1].pid, signal.SIGSTOP)
    waiting = asyncio.create_task(server.confirm(["a"]))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    os.kill(pair[1].pid, signal.SIGCONT)
    assert await waiting == []


@pytest.mark.parametrize("answers", [True, False])
async def test_people_are_told_whether_the_replica_of_a_server_has_what_they_wrote(
    server: Engine, pair: Any, answers: bool
) -> None:
    assert await server.confirm(["a"]) == []  # its replica follows
    assert await server.is_confirmed()  # nothing was written
    os.kill(pair[1].pid, signal.SIGCONT if answers else signal.SIGSTOP)
    try:
        await server.command("SET", "a", 1)
        await server.command("GET", "a")
        assert await server.is_confirmed() is answers
        assert await server.is_confirmed()  # it is said once
    finally:
        os.kill(pair[1].pid, signal.SIGCONT)


async def test_a_server_without_a_replica_is_neither_named_nor_waited_for(engine: Any) -> None:
    alone = Engine(engine.url, library(), call_timeout_s=CALL_S)
    try:
        assert await alone.confirm(["a"]) == []
        await alone.command("SET", "a", 1)
        assert await alone.is_confirmed()
    finally:
        await alone.close()


@pytest.mark.cluster
async def test_each_shard_of_a_cluster_without_replicas_is_named_at_once(cluster: Any) -> None:
    engine = Engine(cluster.url, library(), call_timeout_s=CALL_S)
    try:
        await engine.connect()
        keys = [f"{{m:{n}}}:m" for n in range(32)]
        assert await engine.confirm(keys) == sorted({engine.shard_of(key) for key in keys})
        assert await engine.confirm([]) == []
    finally:
        await engine.close()


async def test_an_engine_answers_in_whatever_state_it_is(engine: Any) -> None:
    assert await does_answer(engine.url, CALL_S)
    assert not await does_answer(f"redis://127.0.0.1:{engines.free_port()}/", CALL_S)
    assert not await does_answer(f"redis+cluster://127.0.0.1:{engines.free_port()}/", CALL_S)
    with running_engine() as other:
        with other.client() as client:
            client.config_set("requirepass", "secret")
        assert await does_answer(other.url, CALL_S)
        os.kill(other.pid, signal.SIGSTOP)
        assert not await does_answer(other.url, 0.2)
        os.kill(other.pid, signal.SIGCONT)


@pytest.mark.cluster
async def test_a_server_that_is_no_cluster_answers_as_one_and_a_node_of_one_as_a_server(cluster: Any) -> None:
    port = engines.free_port()
    with short_folder() as folder, started(folder, f"redis://127.0.0.1:{port}/", ["--port", str(port)]):
        assert await does_answer(f"redis+cluster://127.0.0.1:{port}", CALL_S)
    assert await does_answer(cluster.url, CALL_S)
    assert await does_answer(cluster.nodes[0].url, CALL_S)
