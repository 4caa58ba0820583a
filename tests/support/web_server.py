"""The server behind serving.py: HTTP/1.1 with keep-alive on an inherited socket, routed by the Host header.

Run as `python -I web_server.py FD SOURCE LOG` with SOURCE a folder, a JSON table of resources, or a module whose
answer_anywhere(host, target, port) makes them; ends with its stdin, so that it outlives no test. SIGUSR1 ends all
delays for good. Standard library only: it starts in 0.1 s and knows nothing of the crawler.
"""

import asyncio
import contextlib
import importlib.util
import json
import mimetypes
import signal
import socket
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import unquote

USUAL = {"host", "user-agent", "accept", "accept-encoding", "accept-language"}
NOT_FOUND = {"status": 404, "content_type": "text/html; charset=utf-8", "body": "<p>no such page</p>"}


class Table:
    """Resources by (host, target); counts requests, because some fail a number of times first."""

    def __init__(self, file: Path) -> None:
        rows = json.loads(file.read_text(encoding="utf-8"))
        self._resources = {(host, target): resource for host, target, resource in rows}
        self._asked: dict[tuple[str, str], int] = {}

    def answer(self, host: str, target: str) -> dict[str, Any]:
        key = (host, target)
        found = self._resources.get(key, NOT_FOUND)
        self._asked[key] = self._asked.get(key, 0) + 1
        if self._asked[key] <= found.get("fails", 0):
            return {"status": found["fail_status"], "content_type": "text/html", "body": "<p>failed</p>"}
        return found


class Folder:
    """The files of a folder, under any host name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    def answer(self, host: str, target: str) -> dict[str, Any]:
        path = unquote(target.partition("?")[0])
        file = (self._folder / path.lstrip("/")).resolve()
        if not file.is_relative_to(self._folder):
            return NOT_FOUND
        if file.is_dir():
            if not path.endswith("/"):
                return {"status": 301, "headers": {"Location": f"{path}/"}, "body": ""}
            file /= "index.html"
        elif path.endswith("/"):
            return NOT_FOUND
        if not file.is_file():
            return NOT_FOUND
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        return {"status": 200, "content_type": kind, "body": file.read_bytes()}


class Made:
    """Sites whose pages a module makes when they are asked for."""

    def __init__(self, file: Path, port: int) -> None:
        sys.path.insert(0, str(Path(__file__).parents[2]))
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[file.stem] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
        self._answer, self._port = module.answer_anywhere, port

    def answer(self, host: str, target: str) -> dict[str, Any]:
        return asdict(self._answer(host, target, self._port))


Source = Table | Folder | Made


class Connection(asyncio.Protocol):
    """One client's connection: requests one after another, pipelined ones too."""

    def __init__(self, source: Source, log: TextIO, undelayed: asyncio.Event) -> None:
        self._source, self._log, self._undelayed = source, log, undelayed
        self._pending = b""
        self._busy = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._client = transport.get_extra_info("peername")[1]

    def data_received(self, data: bytes) -> None:
        self._pending += data
        self._next()

    def _next(self) -> None:
        while not self._busy and b"\r\n\r\n" in self._pending:
            head, _, self._pending = self._pending.partition(b"\r\n\r\n")
            self._request(head.decode("latin-1"))

    def _request(self, head: str) -> None:
        started = time.monotonic()
        line, *fields = head.split("\r\n")
        method, target, _ = line.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (f.partition(":") for f in fields)}
        host = headers.get("host", "").rpartition(":")[0] or headers.get("host", "")
        found = self._source.answer(host.lower(), target)
        entry = {"start": started, "host": host, "target": target, "agent": headers.get("user-agent", "")}
        entry["headers"] = {name: value for name, value in headers.items() if name not in USUAL}
        self._busy = True
        if found.get("delay_s") and not self._undelayed.is_set():
            self._log.write(json.dumps({"waits": target}) + "\n")
            self._late = asyncio.create_task(self._respond_late(method, found, entry))
        else:
            self._respond(method, found, entry)

    async def _respond_late(self, method: str, found: dict[str, Any], entry: dict[str, Any]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(found["delay_s"]):
                await self._undelayed.wait()
        self._respond(method, found, entry)
        self._next()

    def _respond(self, method: str, found: dict[str, Any], entry: dict[str, Any]) -> None:
        body = found["body"] if isinstance(found["body"], bytes) else found["body"].encode()
        lines = [f"HTTP/1.1 {found['status']} X", f"Content-Length: {len(body)}"]
        lines.append(f"Content-Type: {found.get('content_type', 'text/html')}")
        lines += [f"{name}: {value}" for name, value in found.get("headers", {}).items()]
        head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
        entry |= {"end": time.monotonic(), "status": found["status"], "port": self._client}
        self._log.write(json.dumps(entry) + "\n")
        assert self._transport is not None
        self._transport.write(head if method == "HEAD" else head + body)
        self._busy = False


async def serve(listener: socket.socket, source: Source, log: TextIO) -> None:
    loop = asyncio.get_running_loop()
    over, undelayed = asyncio.Event(), asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, undelayed.set)
    server = await loop.create_server(lambda: Connection(source, log, undelayed), sock=listener)
    loop.add_reader(sys.stdin.fileno(), over.set)
    await over.wait()
    server.close()


def main() -> None:
    descriptor, source, log = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    # Line buffered: a request is in the log before its answer is on the wire.
    with socket.socket(fileno=descriptor) as listener, log.open("a", buffering=1, encoding="utf-8") as lines:
        answers: Source
        if source.suffix == ".py":
            answers = Made(source, listener.getsockname()[1])
        else:
            answers = Folder(source) if source.is_dir() else Table(source)
        asyncio.run(serve(listener, answers, lines))


if __name__ == "__main__":
    main()
