"""The proxy passes an engine's traffic on, and does to it exactly what it is told."""

import contextlib
import time
from collections.abc import Iterator

import pytest
import redis
import redis.asyncio

from tests.support.engine import Engine, running_engine
from tests.support.patience import PATIENCE_S, wait_until
from tests.support.proxy import Messages, Proxy, tcp_proxy

SHORT_S = 1.0  # where a call must time out, and others on its connection must not


@pytest.fixture
def proxy(engine: Engine) -> Iterator[Proxy]:
    with tcp_proxy(engine.url) as proxy:
        yield proxy


@contextlib.contextmanager
def client_of(proxy: Proxy, timeout_s: float = PATIENCE_S) -> "Iterator[redis.Redis[bytes]]":
    with redis.Redis.from_url(proxy.url, socket_timeout=timeout_s, retry=None) as client:
        yield client


def value(engine: Engine, key: str) -> bytes | None:
    with engine.client() as client:
        return client.get(key)


STREAM = b"+OK\r\n$-1\r\n*2\r\n$4\r\na\r\nb\r\n*1\r\n:7\r\n%1\r\n+k\r\n*-1\r\n$0\r\n\r\n>2\r\n+p\r\n:1\r\n"
WHOLE = [
    b"+OK\r\n",
    b"$-1\r\n",
    b"*2\r\n$4\r\na\r\nb\r\n*1\r\n:7\r\n",
    b"%1\r\n+k\r\n*-1\r\n",
    b"$0\r\n\r\n",
    b">2\r\n+p\r\n:1\r\n",
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, len(STREAM)])
def test_messages_are_whole_however_they_arrive(size: int) -> None:
    messages = Messages()
    found = [m for at in range(0, len(STREAM), size) for m in messages.feed(STREAM[at : at + size])]
    assert found == WHOLE


def test_calls_pipelines_large_values_and_messages_of_channels_pass(proxy: Proxy) -> None:
    with client_of(proxy) as client:
        client.set("large", b"x" * 3_000_000)
        assert client.get("large") == b"x" * 3_000_000
        pipeline = client.pipeline()
        for n in range(500):
            pipeline.set(f"k{n}", n)
            pipeline.get(f"k{n}")
        assert pipeline.execute()[1::2] == [b"%d" % n for n in range(500)]
        with client.pubsub(ignore_subscribe_messages=True) as channel:
            channel.subscribe("c")
            assert channel.get_message(timeout=PATIENCE_S) is None  # the confirmation
            client.publish("c", "hello")
            message = channel.get_message(timeout=PATIENCE_S)
    assert message is not None
    assert message["data"] == b"hello"


async def test_it_serves_the_event_loop_that_started_it(engine: Engine) -> None:
    with tcp_proxy(engine.url) as proxy:
        async with redis.asyncio.Redis.from_url(proxy.url) as client:
            assert await client.ping()


def test_an_engine_on_a_port_is_reached_too_and_one_that_is_gone_refuses(engine: Engine) -> None:
    with tcp_proxy(engine.url) as inner, tcp_proxy(inner.url) as outer, client_of(outer) as client:
        assert client.ping()
        inner.cut()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        inner.heal()
        assert client.ping()


def test_a_cut_ends_connections_and_refuses_new_ones_until_healed(proxy: Proxy) -> None:
    with client_of(proxy) as client:
        connection = client.connection_pool.get_connection()
        connection.send_command("PING")
        assert connection.read_response() == b"PONG"
        proxy.cut()
        with pytest.raises(redis.ConnectionError, match=r"reset|closed"):
            connection.read_response()
        with pytest.raises(redis.ConnectionError, match="refused"):
            client.ping()
        wait_until(lambda: proxy.connections == 0)  # its thread may not have got to it yet
        proxy.heal()
        assert client.ping()


def test_swallowed_requests_never_arrive_and_swallowed_replies_do_their_work(engine: Engine, proxy: Proxy) -> None:
    for direction, arrives in (("requests", None), ("replies", b"1")):
        engine.flush()
        with client_of(proxy, SHORT_S) as client:
            client.ping()
            proxy.blackhole(direction)
            with pytest.raises(redis.TimeoutError):
                client.set("k", "1")
            proxy.heal()
            assert value(engine, "k") == arrives
            assert client.ping()


def test_a_connection_that_bytes_were_swallowed_of_stays_until_healed(proxy: Proxy) -> None:
    with client_of(proxy) as client:
        client.ping()
        proxy.blackhole("replies")
        connection = client.connection_pool.get_connection()
        connection.send_command("PING")
        time.sleep(0.1)
        assert proxy.connections == 1
        proxy.heal()
        with pytest.raises(redis.ConnectionError, match=r"reset|closed"):
            connection.read_response()


def test_a_stalled_request_arrives_late_though_its_client_has_given_up(engine: Engine, proxy: Proxy) -> None:
    with client_of(proxy, SHORT_S) as client:
        client.ping()
        proxy.stall("requests")
        with pytest.raises(redis.TimeoutError):
            client.set("k", "late")
    assert value(engine, "k") is None
    proxy.heal()
    wait_until(lambda: value(engine, "k") == b"late")


@pytest.mark.parametrize("direction", ["requests", "replies"])
def test_a_delay_holds_for_open_connections_and_ends_when_healed(proxy: Proxy, direction: str) -> None:
    with client_of(proxy) as client:
        client.ping()
        proxy.delay(200, direction)
        assert took(client) >= 0.2
        proxy.delay(3_600_000, direction)
        proxy.heal()
        assert client.ping()


def took(client: "redis.Redis[bytes]") -> float:
    started = time.monotonic()
    client.ping()
    return time.monotonic() - started


def test_a_trickle_passes_so_many_bytes_a_second(proxy: Proxy) -> None:
    with client_of(proxy) as client:
        client.ping()
        proxy.trickle(20, "replies")  # +PONG and its line's end: 7 bytes
        assert took(client) >= 0.25
        proxy.trickle(0.001, "replies")
        with client_of(proxy, 0.3) as hasty, pytest.raises(redis.TimeoutError):
            hasty.ping()
        proxy.heal()
        assert client.ping()


def test_the_nth_reply_is_lost_after_the_engine_did_the_work(engine: Engine, proxy: Proxy) -> None:
    with client_of(proxy) as client:
        client.ping()
        proxy.drop_reply(2)
        assert client.incr("k") == 1
        with pytest.raises(redis.ConnectionError):
            client.incr("k")
        assert value(engine, "k") == b"2"
        assert client.incr("k") == 3
    assert proxy.lost == 1


def test_the_reply_to_a_named_request_is_lost_and_no_other(engine: Engine, proxy: Proxy) -> None:
    with client_of(proxy) as client:
        proxy.drop_reply(1, of=b"special")
        for n in range(20):
            client.set("plain", n)
        with pytest.raises(redis.ConnectionError):
            client.set("special", "1")
        assert value(engine, "special") == b"1"
        assert client.set("special", "2")


def test_replies_are_lost_by_chance_the_same_for_the_same_seed(engine: Engine) -> None:
    def outcome() -> list[bool]:
        with tcp_proxy(engine.url) as proxy, client_of(proxy) as client:
            client.ping()
            proxy.drop_replies(0.3, seed=5)
            return [answered(client) for _ in range(40)]

    first = outcome()
    assert 5 < first.count(False) < 35
    assert first == outcome()


def answered(client: "redis.Redis[bytes]") -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def test_replies_to_chosen_requests_are_held_and_others_are_not(proxy: Proxy) -> None:
    with client_of(proxy) as client:
        proxy.hold_replies_of(b"beat", 3600)
        client.get("other")
        proxy.hold_replies_of(b"beat", 0.3)
        started = time.monotonic()
        client.get("beat")
        assert time.monotonic() - started >= 0.3


def test_an_engine_that_dies_ends_the_connections_at_once() -> None:
    with running_engine() as engine, tcp_proxy(engine.url) as proxy, client_of(proxy) as client:
        client.ping()
        engine.process.kill()
        with pytest.raises(redis.ConnectionError):
            client.ping()
