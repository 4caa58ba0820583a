"""A server that speaks just enough RESP to lie about itself, and one that never answers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from tests.support.patience import others_run
from tests.support.proxy import close_server

Reply = Callable[[list[bytes]], bytes]


def bulk(text: str) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text), text.encode())


def array(*texts: str) -> bytes:
    return b"*%d\r\n" % len(texts) + b"".join(bulk(t) for t in texts)


async def command_from(reader: asyncio.StreamReader) -> list[bytes]:
    """The next command of a client; none when it has hung up. Raises IncompleteReadError within one."""
    parts = []
    if header := await reader.readline():
        for _ in range(int(header[1:])):
            size = int((await reader.readline())[1:])
            parts.append((await reader.readexactly(size + 2))[:-2])
    return parts


@contextlib.asynccontextmanager
async def serving(reply: Reply | None) -> AsyncIterator[str]:
    """The URL of a server that answers each command with `reply(command)`, or with silence when that is None."""
    connections: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        connections.add(task)
        try:
            while parts := await command_from(reader):
                if reply is not None:
                    writer.write(reply(parts))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            connections.discard(task)
            writer.transport.abort()  # without waiting for what the other side does not read

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        await close_server(server)
        for task in list(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await others_run()  # their sockets are closed
        await server.wait_closed()


def engine_like(**fields: str) -> Reply:
    """Answers as an engine whose INFO has these fields."""
    known = {"redis_version": "7.4.0", "run_id": "abc", "role": "master", "maxmemory": "0", **fields}
    policy = known.pop("policy", "noeviction")

    def reply(command: list[bytes]) -> bytes:
        name = command[0].upper()
        if name == b"INFO":
            return bulk("\r\n".join(f"{k}:{v}" for k, v in known.items()))
        if name == b"CONFIG":
            return array("maxmemory-policy", policy, "set-max-intset-entries", "512")
        return bulk("0" * 40) if name == b"SCRIPT" else b"+OK\r\n"

    return reply
