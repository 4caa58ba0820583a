"""Serves a generated web, a table of resources or a folder on loopback, in a process of its own, and logs each request.

    with serve_web(seed=1, domains=6) as site:
        ... crawl site.web.seeds ...
        site.requests()   # in order of their start

The names resolve with crawler/testing/dns_server.py, the port is in the URLs.
"""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.support.web import GeneratedWeb, Resource

SERVER = Path(__file__).with_name("web_server.py")
TRAPS = Path(__file__).with_name("trap_sites.py")


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request as the server saw it. Times are time.monotonic() seconds, the same in all processes here."""

    start: float
    end: float
    host: str
    target: str
    agent: str
    status: int
    port: int  # of the client: tells connections apart
    headers: dict[str, str] = field(default_factory=dict)  # next to those of each request, names in lower case

    @property
    def is_robots(self) -> bool:
        return self.target == "/robots.txt"


class Site:
    """A running server. `port` is on 127.0.0.1 unless it was told another address, whatever the host's name."""

    def __init__(self, port: int, log: Path, process: subprocess.Popen[bytes]) -> None:
        self.port = port
        self.process = process
        self._log = log

    def url(self, host: str, target: str = "/") -> str:
        return f"http://{host}:{self.port}{target}"

    def requests(self) -> list[Request]:
        """Everything answered so far, by start time."""
        answered = [Request(**entry) for entry in self._entries() if "end" in entry]
        return sorted(answered, key=lambda request: request.start)

    def delayed(self) -> list[str]:
        """The target of each request that was or is answered with a delay, from its start on."""
        return [entry["waits"] for entry in self._entries() if "waits" in entry]

    def end_delays(self) -> None:
        """Answer what waits, and all that comes, at once."""
        self.process.send_signal(signal.SIGUSR1)

    def _entries(self) -> Iterator[dict[str, Any]]:
        lines = self._log.read_text(encoding="utf-8").splitlines(keepends=True)
        return (json.loads(line) for line in lines if line.endswith("\n"))  # the last one may be being written


class GeneratedSite(Site):
    """A running server of a generated web."""

    def __init__(self, port: int, log: Path, process: subprocess.Popen[bytes], web: GeneratedWeb) -> None:
        super().__init__(port, log, process)
        self.web = web


@contextlib.contextmanager
def serve_web(seed: int = 1, **shape: Any) -> Iterator[GeneratedSite]:
    """`shape` is what GeneratedWeb takes: domains, pages, slow_s."""
    with _listening() as listener:
        web = GeneratedWeb(seed, port=listener.getsockname()[1], **shape)
        with _serving(listener, resources=web.resources) as (log, process):
            yield GeneratedSite(web.port, log, process, web)


@contextlib.contextmanager
def serve_resources(resources: Mapping[tuple[str, str], Resource], *, address: str = "127.0.0.1") -> Iterator[Site]:
    """A web written by hand: (host, target) -> what is answered; anything else is 404."""
    with _listening(address) as listener, _serving(listener, resources=resources) as (log, process):
        yield Site(listener.getsockname()[1], log, process)


@contextlib.contextmanager
def serve_linked(make: Callable[[int], Mapping[tuple[str, str], Resource]]) -> Iterator[Site]:
    """The same, made by a function that is given the port: its hosts may link to each other."""
    with _listening() as listener:
        port = listener.getsockname()[1]
        with _serving(listener, resources=make(port)) as (log, process):
            yield Site(port, log, process)


@contextlib.contextmanager
def serve_directory(folder: Path) -> Iterator[Site]:
    """A folder's files under every host name; '/' is index.html, a folder without its slash a redirect."""
    with _listening() as listener, _serving(listener, source=folder) as (log, process):
        yield Site(listener.getsockname()[1], log, process)


@contextlib.contextmanager
def serve_traps() -> Iterator[Site]:
    """All the sites of trap_sites.py, each under its own host name (trap_site(name, site.port) knows them)."""
    with serve_made(TRAPS) as site:
        yield site


@contextlib.contextmanager
def serve_made(module: Path) -> Iterator[Site]:
    """What the function answer_anywhere(host, target, port) of a module gives."""
    with _listening() as listener, _serving(listener, source=module) as (log, process):
        yield Site(listener.getsockname()[1], log, process)


@contextlib.contextmanager
def _listening(address: str = "127.0.0.1") -> Iterator[socket.socket]:
    """Listening before the server runs: who connects early waits in the backlog, nobody polls."""
    with socket.create_server((address, 0), backlog=4096) as listener:
        yield listener


@contextlib.contextmanager
def _serving(
    listener: socket.socket,
    *,
    resources: Mapping[tuple[str, str], Resource] | None = None,
    source: Path | None = None,
) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    with tempfile.TemporaryDirectory(prefix="web-") as home:
        log = Path(home, "requests.jsonl")
        log.touch()
        if resources is not None:
            rows = [[host, target, asdict(resource)] for (host, target), resource in resources.items()]
            source = Path(home, "resources.json")
            source.write_text(json.dumps(rows), encoding="utf-8")
        assert source is not None
        command = [sys.executable, "-I", str(SERVER), str(listener.fileno()), str(source), str(log)]
        process = subprocess.Popen(command, pass_fds=[listener.fileno()], stdin=subprocess.PIPE)
        try:
            yield log, process
        finally:
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()
