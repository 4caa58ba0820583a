"""The support itself: guards that bite, engines that are empty and real, a cluster that serves every slot."""

import asyncio
import socket

import pytest
import redis

from tests.support.engine import Cluster, Engine
from tests.support.guards import NetworkUsedError, leaked_tasks


@pytest.mark.parametrize("call", ["connect", "connect_ex"])
def test_a_connection_beyond_loopback_fails_the_test(call: str) -> None:
    with socket.socket() as sock, pytest.raises(NetworkUsedError, match=r"192\.0\.2\.1"):
        getattr(sock, call)(("192.0.2.1", 80))


def test_a_datagram_beyond_loopback_fails_the_test() -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock, pytest.raises(NetworkUsedError):
        sock.sendto(b"x", ("2001:db8::1", 53))


async def test_a_connection_of_the_event_loop_beyond_loopback_fails_the_test() -> None:
    with pytest.raises(NetworkUsedError):
        await asyncio.open_connection("192.0.2.1", 80)


async def test_a_task_that_goes_on_is_seen_and_one_that_ends_is_not() -> None:
    before = asyncio.all_tasks()
    endless = asyncio.create_task(asyncio.sleep(60))
    ending = asyncio.create_task(asyncio.sleep(0.01))
    assert await leaked_tasks(before) == {endless}
    assert ending.done()
    endless.cancel()


@pytest.mark.parametrize("attempt", [1, 2])
def test_the_engine_is_empty_at_the_start_of_each_test(engine: Engine, attempt: int) -> None:
    with engine.client() as client:
        assert client.dbsize() == 0
        client.set("left", attempt)
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert client.config_get("appendonly") == {"appendonly": "no"}


@pytest.mark.cluster
def test_the_cluster_serves_every_slot_from_three_primaries(cluster: Cluster) -> None:
    served = 0
    for node in cluster.nodes:
        with node.client() as client:
            served += int(client.execute_command("CLUSTER INFO")["cluster_slots_ok"] == "16384")
    assert served == 3
    first = cluster.nodes[0]
    with redis.RedisCluster.from_url(first.url) as client:
        for number in range(50):
            client.set(f"key-{number}", number)
        assert len(client.get_primaries()) == 3
        assert {client.get(f"key-{number}") for number in range(50)} == {b"%d" % n for n in range(50)}
