"""Chromium without a window and without a network, driven by its DevTools protocol over two pipes.

All that it sends goes to a proxy of ours that refuses and counts it, also what goes to this machine, and it can look up
no name: what pages get comes through the protocol alone, where their requests are answered before they are sent.
"""

import asyncio
import base64
import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import msgspec

from crawler.archive.folder import PRIVATE_FILE
from crawler.errors import CrawlerError, UsageError

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
START_S = 60.0
CALL_S = 30.0
MESSAGE_BYTES_MAX = 256 << 20  # a picture is in one message
HEAD_BYTES_MAX = 16_384
HOST_MAX = 255  # characters
HOSTS_MAX = 100  # names that are kept of what was refused
LOOPBACK = "127.0.0.1"
_FLAGS = (
    "--headless",
    "--remote-debugging-pipe",
    "--proxy-bypass-list=<-loopback>",
    f"--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE {LOOPBACK}",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-breakpad",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-features=HttpsUpgrades,HttpsFirstBalancedMode,MediaRouter,OptimizationHints,Translate,DnsOverHttps",
    "--disable-gpu",
    "--disable-sync",
    "--hide-scrollbars",
    "--mute-audio",
    "--no-default-browser-check",
    "--no-first-run",
    "--password-store=basic",
)
_decode = msgspec.json.Decoder().decode
Heard = Callable[[str, dict[str, Any]], None]


class BrowserGone(CrawlerError):
    """The browser has ended, or answers no more."""


class ProtocolError(CrawlerError):
    """It refused a call."""


def find_chromium() -> str:
    """The path of the program. Raises UsageError."""
    for name in PROGRAMS:
        if path := shutil.which(name):
            return path
    raise UsageError("--replay needs Chromium, which is not installed: apt-get install chromium, or put it into PATH")


class Refusals:
    """A proxy that refuses all. `hosts`: what was refused, by the name that was asked for."""

    def __init__(self) -> None:
        self.count = 0
        self.hosts: Counter[str] = Counter()
        self.port = 0

    @contextlib.asynccontextmanager
    async def listening(self) -> "AsyncIterator[Refusals]":
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Refusal(self), LOOPBACK, 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    def note(self, line: str) -> None:
        """A request, by its first line."""
        target = line.partition(" ")[2].partition(" ")[0]
        host = target.partition("://")[2].partition("/")[0] or target
        self.count += 1
        if host in self.hosts or len(self.hosts) < HOSTS_MAX:
            self.hosts[host[:HOST_MAX]] += 1


class _Refusal(asyncio.Protocol):
    """A connection to the proxy. What connects in advance, and sends nothing, is not counted."""

    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals
        self._begun = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        self._begun += data
        if b"\n" in self._begun or len(self._begun) > HEAD_BYTES_MAX:
            self._refusals.note(self._begun.partition(b"\n")[0].decode("latin-1"))
            self._transport.write(b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            self._transport.close()


class Chromium(asyncio.Protocol):
    """A running browser. `heard` is called with the events of a session."""

    def __init__(self) -> None:
        self._writer: asyncio.WriteTransport | None = None
        self._calls: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._heard: dict[str, Heard] = {}
        self._number = 0
        self._begun = bytearray()  # of a message
        self.is_gone = False

    def writes_to(self, writer: asyncio.WriteTransport) -> None:
        self._writer = writer

    def listen(self, session: str, heard: Heard) -> None:
        self._heard[session] = heard

    def ignore(self, session: str) -> None:
        self._heard.pop(session, None)

    async def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Its answer. Raises BrowserGone, ProtocolError."""
        if self.is_gone or self._writer is None:
            raise BrowserGone("Chromium has ended")
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        self._calls[number] = answer
        try:
            self._writer.write(msgspec.json.encode(message) + b"\0")
            async with asyncio.timeout(CALL_S):
                found: dict[str, Any] = await answer
                return found
        except TimeoutError:
            raise ProtocolError(f"{method}: no answer within {CALL_S:g} s") from None
        finally:
            self._calls.pop(number, None)

    def data_received(self, data: bytes) -> None:
        *whole, rest = data.split(b"\0")
        for end in whole:
            message = _decode(self._begun + end)
            self._begun.clear()
            if "id" in message:
                self._answered(message)
            elif heard := self._heard.get(message.get("sessionId", "")):
                heard(message["method"], message["params"])
        self._begun += rest
        if len(self._begun) > MESSAGE_BYTES_MAX:
            self.connection_lost(None)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self.is_gone = True
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(BrowserGone("Chromium has ended"))

    def _answered(self, message: dict[str, Any]) -> None:
        answer = self._calls.get(message["id"])
        if answer is None or answer.done():
            return
        if "error" in message:
            answer.set_exception(ProtocolError(str(message["error"].get("message", "refused"))))
        else:
            answer.set_result(message["result"])


@contextlib.asynccontextmanager
async def chromium(program: str, proxy_port: int) -> AsyncIterator[Chromium]:
    """A browser that is gone at the end with all its processes and its files. Raises UsageError when it can't start."""
    with tempfile.TemporaryDirectory(prefix="crawler-replay-", ignore_cleanup_errors=True) as home:
        said = Path(home, "stderr")
        browser = Chromium()
        pid, ends = await _started(browser, program, home, said, proxy_port)
        try:
            try:
                async with asyncio.timeout(START_S):
                    await browser.call("Browser.getVersion")
            except (BrowserGone, ProtocolError, TimeoutError):
                raise UsageError(f"{program} does not start: {_last_line(said)}") from None
            yield browser
        finally:
            for one in ends:
                one.close()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            await asyncio.to_thread(os.waitpid, pid, 0)


def _last_line(said: Path) -> str:
    lines = said.read_text("utf-8", "replace").strip().splitlines() or ["it says nothing"]
    return lines[-1][:200]


async def _started(
    browser: Chromium, program: str, home: str, said: Path, proxy_port: int
) -> tuple[int, list[asyncio.BaseTransport]]:
    """Its process, which leads a group, and our ends of the pipes."""
    pid, told_from, asked_to = _spawned(program, home, said, proxy_port)
    loop = asyncio.get_running_loop()
    reader, _ = await loop.connect_read_pipe(lambda: browser, os.fdopen(told_from, "rb", 0))
    writer, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(asked_to, "wb", 0))
    browser.writes_to(writer)
    return pid, [reader, writer]


def _spawned(program: str, home: str, said: Path, proxy_port: int) -> tuple[int, int, int]:
    """Its process, what it tells, and what it is asked by: it reads from its descriptor 3 and writes to 4."""
    asked_from, asked_to = os.pipe()
    told_from, told_to = os.pipe()
    theirs = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 10) for one in (asked_from, told_to)]
    words = [program, *_FLAGS, f"--proxy-server={LOOPBACK}:{proxy_port}", f"--user-data-dir={home}/profile"]
    if os.geteuid() == 0:
        words.append("--no-sandbox")  # it does not start as root otherwise
    try:
        pid = os.posix_spawn(
            program, [*words, "about:blank"],
            {"HOME": home, "TMPDIR": home, "PATH": os.environ.get("PATH", os.defpath)},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, str(said), os.O_WRONLY | os.O_CREAT, PRIVATE_FILE),
                (os.POSIX_SPAWN_DUP2, theirs[0], 3),
                (os.POSIX_SPAWN_DUP2, theirs[1], 4),
            ],
            setsid=True,
        )  # fmt: skip
    except OSError as error:
        os.close(asked_to)
        os.close(told_from)
        raise UsageError(f"can't start {program}: {error.strerror}") from None
    finally:
        for one in (asked_from, told_to, *theirs):
            os.close(one)
    return pid, told_from, asked_to


def encoded(body: bytes) -> str:
    """As the protocol has bytes."""
    return base64.b64encode(body).decode()


def decoded(text: str) -> bytes:
    return base64.b64decode(text)
