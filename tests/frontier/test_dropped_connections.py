"""Each connection to an engine that is given up is closed at once, whatever it waited for and whoever gave it up."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import uvloop

from crawler.engine.client import Engine
from crawler.errors import EngineError
from crawler.frontier.scripts import library
from tests.frontier.door import CALL_S
from tests.frontier.resp_server import bulk, command_from, engine_like
from tests.support.patience import others_run, until
from tests.support.proxy import close_server

KEY = "{c:1}:m"
LARGE = "x" * (1 << 20)  # many of them are more than the buffers of a socket hold
TIMEOUT_S = 0.05  # of calls that are never answered
SILENCE = None
CUT = b""


class Peer:
    """A server, a cluster of one, and its Sentinel, that behaves in one way. Knows what is open."""

    def __init__(self, behaviour: str) -> None:
        self.behaviour, self.reached, self.greetings, self.port, self.others = behaviour, 0, 0, 0, 0
        self.writers = set[asyncio.StreamWriter]()
        self.end = asyncio.Event()

    @property
    def ours(self) -> int:
        """The client's ends of connections that are open, whether or not the peer's are."""
        return sockets() - self.others - sum(not writer.is_closing() for writer in self.writers)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        try:
            while parts := await command_from(reader):
                if (said := self.reply(parts)) is SILENCE:
                    self.reached += 1
                    await self.end.wait()
                elif said is CUT:
                    self.reached += 1
                    writer.transport.abort()
                else:
                    writer.write(said)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.writers.discard(writer)
            writer.close()

    def reply(self, command: list[bytes]) -> bytes | None:
        name, port = command[0].upper(), str(self.port)
        if name == b"SENTINEL":
            if self.behaviour == "its Sentinel is silent":
                return SILENCE
            fields = {"name": "m", "ip": "127.0.0.1", "port": port, "flags": "master", "num-other-sentinels": "0"}
            return b"*1\r\n*%d\r\n" % (2 * len(fields)) + b"".join(bulk(k) + bulk(v) for k, v in fields.items())
        if name == b"CLUSTER":
            if command[1].upper() == b"INFO":
                return bulk("cluster_state:ok\r\ncluster_current_epoch:1\r\n")
            return b"*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n%s:%s\r\n%s" % (
                bulk("127.0.0.1"),
                port.encode(),
                bulk("id" * 20),
            )
        if name == b"INFO":
            return self.greeting(command)
        if name in (b"FCALL", b"PING", b"ECHO"):
            self.reached += 1
            return self.answer()
        return engine_like()(command)

    def greeting(self, command: list[bytes]) -> bytes | None:
        self.greetings += 1
        match self.behaviour:
            case "greets nobody":
                return SILENCE
            case "hangs up as it greets":
                return CUT
            case "is a replica":
                return engine_like(role="slave")(command)
            case "is another one each time":
                return engine_like(run_id=f"run{self.greetings}")(command)
            case "wants a password":
                return b"-NOAUTH Authentication required.\r\n"
            case "reads its files":
                return b"-LOADING the dataset in memory\r\n"
        return engine_like()(command)

    def answer(self) -> bytes | None:
        match self.behaviour:
            case "answers":
                return b"+OK\r\n"
            case "hangs up as it answers":
                return CUT
            case "speaks another language":
                return b"HTTP/1.1 400 Bad Request\r\n"
            case "refuses":
                return b"-READONLY You can't write against a read only replica.\r\n"
        return SILENCE


BEHAVIOURS = (
    "its Sentinel is silent", "greets nobody", "hangs up as it greets", "is a replica", "is another one each time",
    "wants a password", "reads its files", "answers", "hangs up as it answers", "speaks another language", "refuses",
    "stands still",
)  # fmt: skip
URLS = {
    "server": "redis://127.0.0.1:{port}", "cluster": "redis+cluster://127.0.0.1:{port}",
    "sentinel": "redis+sentinel://127.0.0.1:{port}/m",
}  # fmt: skip


def sockets() -> int:
    """That this process has open."""
    found = 0
    for name in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of this look
            found += str(name.readlink()).startswith("socket:")
    return found


@contextlib.asynccontextmanager
async def serving(peer: Peer) -> AsyncIterator[Peer]:
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    peer.port, peer.others = server.sockets[0].getsockname()[1], sockets()
    try:
        yield peer
    finally:
        await close_server(server)
        peer.end.set()
        for writer in list(peer.writers):
            writer.transport.abort()
        await until(lambda: not peer.writers)
        await server.wait_closed()


@contextlib.asynccontextmanager
async def nothing_left(behaviour: str) -> AsyncIterator[Peer]:
    """A peer, which keeps its ends of connections; ours are all closed at the end, and none by chance."""
    async with serving(Peer(behaviour)) as peer:
        yield peer
        await until(lambda: peer.ours == 0)


async def call(engine: Engine, commands: int = 1, text: str = "") -> None:
    with contextlib.suppress(EngineError):
        await engine.commands([("ECHO", text)] * commands)
    with contextlib.suppress(EngineError):
        await engine.run("heartbeat", (KEY, KEY), "s", "b")


async def end_by(how: str, engine: Engine, peer: Peer) -> None:
    calls = [asyncio.create_task(call(engine)) for _ in range(6)]
    if how == "connecting":  # nobody has answered yet
        await others_run()
    elif how != "time-out":
        await until(lambda: peer.reached or all(one.done() for one in calls))
    if how == "cancelled":
        for one in calls:
            one.cancel()
    if how in ("closed", "connecting"):
        await engine.close()
    await asyncio.gather(*calls, return_exceptions=True)


@pytest.mark.parametrize("how", ["time-out", "cancelled", "closed", "connecting"])
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_no_connection_outlives_its_engine(behaviour: str, how: str) -> None:
    async def check(url: str) -> None:
        async with nothing_left(behaviour) as peer:
            engine = Engine(
                url.format(port=peer.port), library(), patience_s=0.0,
                call_timeout_s=TIMEOUT_S if how == "time-out" else CALL_S,
            )  # fmt: skip
            try:
                await end_by(how, engine, peer)
            finally:
                await engine.close()
            with pytest.raises(EngineError):
                await engine.command("PING")

    asyncio.run(check(URLS["server"]))
    for url in URLS.values():
        uvloop.run(check(url))  # as our commands do
    gc.collect()  # a connection that was dropped without being closed warns, which fails the test


@pytest.mark.parametrize("url", URLS.values(), ids=URLS)
def test_calls_that_a_server_does_not_even_read_leave_nothing_open(url: str) -> None:
    """It may stand still for hours, with what was sent in the buffers of both; each attempt would cost a descriptor."""

    async def check() -> None:
        async with nothing_left("stands still") as peer:
            engine = Engine(url.format(port=peer.port), library(), call_timeout_s=TIMEOUT_S, patience_s=0.0)
            for _ in range(2):
                await call(engine, 12, LARGE)
            await until(lambda: peer.ours <= 1)  # one may look whether it answers
            await engine.close()

    asyncio.run(check())
    uvloop.run(check())


@pytest.mark.parametrize("first", ["gone", "silent"])
async def test_a_sentinel_that_does_not_answer_leaves_time_for_the_next(first: str) -> None:
    """Often the first of them is on the machine of the primary, and gone with it."""
    async with serving(Peer("its Sentinel is silent")) as silent, serving(Peer("answers")) as known:
        places = f"127.0.0.1:{silent.port if first == 'silent' else 1},127.0.0.1:{known.port}"
        engine = Engine(f"redis+sentinel://{places}/m", library(), call_timeout_s=1.0)
        replies = []
        while not replies:  # a busy machine may take longer than a call; with the library's way none ever succeeds
            with contextlib.suppress(EngineError):
                replies.append(await engine.command("ECHO", "x"))
        await engine.close()
