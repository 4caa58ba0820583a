"""The door to the engine: what is wrong with an engine is said in one line, soon, and nothing is repeated unasked."""

import asyncio
import contextlib
import gc
import warnings
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
import uvloop

from crawler.engine.client import Engine, translate
from crawler.engine.server import CALLS_MAX
from crawler.errors import EngineDown, EngineError, EngineFull, EngineUnfit
from crawler.frontier.scripts import library
from tests.frontier.resp_server import engine_like, serving


@contextlib.asynccontextmanager
async def opened(url: str, **options: Any):
    engine = Engine(url, library(), **options)
    try:
        yield engine
    finally:
        await engine.close()


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
async def test_an_engine_that_is_not_there_is_said_to_be_down(scheme: str) -> None:
    async with opened(f"{scheme}://127.0.0.1:1") as engine:
        with pytest.raises(EngineDown, match="no answer from the engine"):
            await engine.connect()


async def test_a_socket_file_that_is_not_there_is_said_to_be_down() -> None:
    async with opened("unix:///tmp/no/such/engine.sock") as engine:
        with pytest.raises(EngineDown):
            await engine.connect()


async def test_a_call_to_an_engine_that_never_answers_ends_in_time_and_is_sent_once() -> None:
    commands: list[bytes] = []
    honest = engine_like()

    def falling_silent(command: list[bytes]) -> bytes:
        if command[0].upper() == b"FCALL":
            commands.append(command[0])
            return b""
        return honest(command)

    async with serving(falling_silent) as url, opened(url, call_timeout_s=1.0) as engine:
        await engine.connect()
        with pytest.raises(EngineDown):
            await engine.run("heartbeat", ("k",), "s", "b")
    assert len(commands) == 1


def test_a_connection_that_is_cut_as_a_call_is_written_to_it_is_an_engine_that_is_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """uvloop has an error of its own for it, which the library does not know."""

    async def cut(connection: Any) -> None:
        connection._writer.transport.abort()
        await asyncio.sleep(0.01)

    async def check() -> None:
        async with serving(engine_like()) as url, opened(url) as engine:
            await engine.connect()
            monkeypatch.setattr(redis.asyncio.Connection, "check_health", cut)
            with pytest.raises(EngineDown, match="the connection was closed"):
                await engine.run("heartbeat", ("k",), "s", "b")

    uvloop.run(check())


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        (b"-OOM command not allowed when used memory > 'maxmemory'.\r\n", EngineFull),
        (b"-NOPERM this user has no permissions to run the 'function|load' command\r\n", EngineUnfit),
        (b"-ERR unknown command 'FUNCTION', with args beginning with: 'LOAD' '#!lua'\r\n", EngineUnfit),
        (b"-READONLY You can't write against a read only replica.\r\n", EngineUnfit),
        (b"-ERR Error registering functions: @user_function: 1: nonsense\r\n", EngineError),
    ],
)
async def test_an_engine_that_does_not_take_our_scripts_says_why(refusal: bytes, kind: type[EngineError]) -> None:
    said = {b"FCALL": b"-ERR Function not found\r\n", b"FUNCTION": refusal}
    honest = engine_like()
    async with serving(lambda command: said.get(command[0].upper()) or honest(command)) as url, opened(url) as engine:
        with pytest.raises(kind) as refused:
            await engine.run("heartbeat", ("k",), "s", "b")
        assert "Function not found" not in str(refused.value)


@pytest.mark.parametrize(
    "pieces",
    [
        [b"", b"", b"", b"$5\r\nhello\r\n-ERR no\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n$-1\r\n"],  # all at once
        [b"$5\r\nhello\r\n-E", b"RR no\r\n*2\r\n", b"$1\r\na\r\n$1\r", b"\nb\r\n$-1\r\n"],
        [b"$5\r\nhello\r\n", b"-ERR no\r\n", b"*2\r\n$1\r\na\r\n$1\r\nb\r\n", b"$-1\r\n"],
    ],
)
async def test_replies_are_those_of_their_commands_however_they_arrive(pieces: list[bytes]) -> None:
    honest, left = engine_like(), iter(pieces)
    known = (b"GET", b"HGETALL")
    async with (
        serving(lambda command: next(left) if command[0] in known else honest(command)) as url,
        opened(url) as engine,
    ):
        await engine.connect()
        hello, refused, pairs, nothing = await engine.replies_of([("GET", 1), ("GET", 2), ("HGETALL", 3), ("GET", 4)])
        assert (hello, pairs, nothing) == (b"hello", {b"a": b"b"}, None)
        assert isinstance(refused, EngineError)
        assert "no" in str(refused)


@pytest.mark.parametrize("first", [b"", b"$5\r\nhello\r\n"])
async def test_a_reply_that_says_that_the_whole_server_does_not_serve_ends_the_call(first: bytes) -> None:
    """Also where it comes behind others that have arrived: what follows it may be anybody's."""
    honest, left = engine_like(), iter((first, b"-LOADING it reads its files\r\n$5\r\nhello\r\n"))
    async with (
        serving(lambda command: next(left, b"$3\r\nnew\r\n") if command[0] == b"GET" else honest(command)) as url,
        opened(url) as engine,
    ):
        await engine.connect()
        with pytest.raises(EngineDown, match="LOADING"):
            await engine.replies_of([("GET", 1), ("GET", 2)])
        assert await engine.command("GET", 1) == b"new"


async def test_connecting_to_a_silent_server_ends_in_time() -> None:
    async with serving(None) as url, opened(url, call_timeout_s=0.2) as engine:
        with pytest.raises(EngineDown):
            await engine.connect()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"redis_version": "6.2.14"}, "redis 6.2.14: redis 7.0 or newer is needed"),
        ({"valkey_version": "7.1.9"}, "valkey 7.1.9: valkey 7.2 or newer is needed"),
        ({"policy": "allkeys-lru"}, "CONFIG SET maxmemory-policy noeviction"),
        ({"role": "slave"}, "connect to its primary"),
    ],
)
async def test_an_engine_that_can_not_serve_is_refused_with_what_to_do(fields: dict[str, str], said: str) -> None:
    async with serving(engine_like(**fields)) as url, opened(url) as engine:
        with pytest.raises(EngineUnfit, match=said):
            await engine.connect()


async def test_an_engine_that_forbids_config_is_trusted() -> None:
    honest = engine_like()

    def forbidding(command: list[bytes]) -> bytes:
        return b"-ERR unknown command 'CONFIG'\r\n" if command[0].upper() == b"CONFIG" else honest(command)

    async with serving(forbidding) as url, opened(url) as engine:
        assert (await engine.connect()).policy == "noeviction"


async def test_a_wrong_password_is_said_as_such(engine: Any) -> None:
    with contextlib.closing(engine.client()) as client:
        client.execute_command("ACL", "SETUSER", "ann", "on", ">right", "~*", "&*", "+@all")
        try:
            path = engine.url.removeprefix("unix://")
            async with opened(f"unix://ann:right@{path}") as good:
                assert (await good.connect()).policy == "noeviction"
            async with opened(f"unix://ann:wrong@{path}") as bad:
                with pytest.raises(EngineUnfit, match="refused the login"):
                    await bad.connect()
        finally:
            client.execute_command("ACL", "DELUSER", "ann")


@pytest.mark.parametrize(
    "url",
    [
        "rediss://ann:pw@127.0.0.1:6390/2",
        "redis+cluster://ann:pw@127.0.0.1:1,127.0.0.1:2",
        "redis+sentinel://h:1,i:2/main",
    ],
)
async def test_every_documented_url_makes_a_client_that_repeats_nothing(url: str) -> None:
    async with opened(url) as engine:
        assert pool_of(engine).connection_kwargs["retry"].get_retries() == 0


def pool_of(engine: Engine) -> Any:
    servers: Any = engine._servers
    client = servers._node("127.0.0.1:2").client if engine.fails_in_parts else only(engine)
    return client.connection_pool


def only(engine: Engine) -> Any:
    """The library's client of an engine that is one server."""
    return engine._servers.primaries[0].client


@pytest.mark.parametrize("scheme", ["rediss", "rediss+cluster"])
def test_login_and_tls_of_a_url_reach_the_connection(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "ca.pem").touch()
    pool = pool_of(Engine(f"{scheme}://ann:pw@127.0.0.1:2/?ssl_ca_certs={tmp_path}/ca.pem", library()))
    kwargs = pool.connection_kwargs
    assert (kwargs["username"], kwargs["password"], kwargs["port"]) == ("ann", "pw", 2)
    assert (pool.connection_class.__name__, kwargs["ssl_ca_certs"]) == ("SSLConnection", f"{tmp_path}/ca.pem")


async def test_a_restart_is_announced_before_the_call_that_finds_it_fails() -> None:
    run_ids = ["first"]

    def restarted(command: list[bytes]) -> bytes:
        return engine_like(run_id=run_ids[-1])(command)

    told: list[str] = []

    def heard(change: Any) -> None:
        assert change.affects("any key")
        assert change.may_have_lost
        told.append(engine.run_id)

    async with serving(restarted) as url, opened(url) as engine:
        await engine.connect()
        engine.restarts._listeners.append(heard)
        run_ids.append("second")
        engine._servers.primaries[0].forget_idle()
        with pytest.raises(EngineDown, match="restarted"):
            await engine.command("PING")
        assert told == ["second"]
        assert await engine.command("ECHO", "x") == b"OK"


@pytest.mark.cluster
async def test_a_cluster_is_asked_on_all_its_primaries(cluster: Any) -> None:
    async with opened(cluster.url) as engine:
        info = await engine.connect()
        assert len(info.run_id.split("+")) == len(cluster.nodes) == 3
        assert info.policy == "noeviction"
        assert info.intset_max == 512
        assert engine.run_id == info.run_id
        assert (await engine.memory()).share == 0.0
        await engine.run("acquire", ("{t:1}:m",), "s", "n", "", 0, 0, "", 0)
        for node in cluster.nodes:
            with contextlib.closing(node.client()) as client:
                assert len(client.function_list()) == 1


async def test_many_calls_at_once_keep_their_order(engine: Any) -> None:
    async with opened(engine.url) as door:
        await door.connect()
        replies = await door.commands([("ECHO", str(i)) for i in range(1500)])
        assert replies == [str(i).encode() for i in range(1500)]
        assert await asyncio.gather(*(door.command("ECHO", str(i)) for i in range(50))) == [
            str(i).encode() for i in range(50)
        ]


async def test_a_refused_command_gives_an_error_and_the_connection_stays(engine: Any) -> None:
    async with opened(engine.url) as door:
        await door.connect()
        await door.command("HSET", "{place}", "a", 1, "b", b"\xff")
        asked = [("ECHO", "1"), ("SADD", "{place}", "x"), ("HGETALL", "{place}"), ("NOSUCH",), ("ECHO", "2")]
        first, wrong_type, fields, unknown, last = await door._pipeline(asked)
        assert (first, fields, last) == (b"1", {b"a": b"1", b"b": b"\xff"}, b"2")
        assert [str(error).split()[0] for error in (wrong_type, unknown)] == ["WRONGTYPE", "unknown"]
        assert len(door._servers.primaries[0]._idle) == 1
        assert await door.command("DEL", "{place}") == 1


async def test_replies_to_a_call_that_was_cancelled_are_not_taken_for_the_next_ones(engine: Any) -> None:
    async with opened(engine.url) as door:
        await door.connect()
        cut_off = asyncio.create_task(door.commands([("BLPOP", "{none}", 0.3), ("ECHO", "old")]))
        await asyncio.sleep(0.1)
        cut_off.cancel()
        await asyncio.gather(cut_off, return_exceptions=True)
        assert await door.command("ECHO", "new") == b"new"


async def test_more_calls_at_once_than_there_are_connections_wait_for_their_turn(engine: Any) -> None:
    """256 workers that each meet a new site: heartbeats, acks and claims failed among them."""
    with warnings.catch_warnings():  # what other tests left is collected while this one allocates much
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    async with opened(engine.url) as door:
        await door.connect()
        replies = await asyncio.gather(*(door.command("ECHO", str(n)) for n in range(5 * CALLS_MAX)))
    assert [int(reply) for reply in replies] == list(range(5 * CALLS_MAX))


def test_what_engines_say_is_told_by_whose_fault_it_is() -> None:
    from redis import exceptions as rex

    said = {
        "OOM command not allowed": EngineFull, "MISCONF Errors writing to the AOF file": EngineFull,
        "READONLY You can't write against a replica.": EngineUnfit, "NOAUTH Authentication required.": EngineUnfit,
        "LOADING the dataset in memory": EngineDown, "CLUSTERDOWN The cluster is down": EngineDown,
        "BUSY a script": EngineDown, "WRONGTYPE Operation": EngineError,
    }  # fmt: skip
    assert {text: type(translate(rex.ResponseError(text))) for text in said} == said
