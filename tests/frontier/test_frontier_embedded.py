"""The embedded engine: one per folder, whatever happened before."""

import contextlib
import fcntl
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from crawler.engine import embedded as module
from crawler.engine.embedded import EmbeddedEngine
from crawler.errors import EngineDown, UsageError
from tests.support.engine import short_folder
from tests.support.patience import wait_until


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as made:
        yield made
        EmbeddedEngine(made).stop()


def say(embedded: EmbeddedEngine, *command: str) -> object:
    with contextlib.closing(redis.Redis.from_url(embedded.url, retry=None)) as client:
        return client.execute_command(*command)


def is_gone(pid: int) -> bool:
    """No process and no zombie under that id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_fresh_folder_gets_a_server_that_keeps_what_it_is_told(folder: Path) -> None:
    embedded = EmbeddedEngine(folder / "new" / "crawl")
    assert embedded.ensure()
    try:
        assert say(embedded, "CONFIG", "GET", "appendonly")[b"appendonly"] == b"yes"
        assert say(embedded, "CONFIG", "GET", "maxmemory-policy")[b"maxmemory-policy"] == b"noeviction"
        assert embedded.socket.stat().st_mode & 0o077 == 0
    finally:
        embedded.stop()


def test_it_runs_with_the_faster_allocator_unless_something_else_is_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_loaded() -> bool:
        embedded = EmbeddedEngine(folder)
        embedded.ensure()
        maps = Path(f"/proc/{embedded.pid()}/maps").read_text()
        embedded.stop()
        return "libtbbmalloc_proxy" in maps

    assert is_loaded() == (platform.machine() == "x86_64")
    monkeypatch.setenv("LD_PRELOAD", "")
    assert not is_loaded()


def test_a_running_one_is_adopted_and_not_doubled(folder: Path) -> None:
    first = EmbeddedEngine(folder)
    assert first.ensure()
    say(first, "SET", "k", "v")
    second = EmbeddedEngine(folder)
    assert not second.ensure()
    assert second.pid() == first.pid() > 0
    assert say(second, "GET", "k") == b"v"


def test_stopping_leaves_no_process_no_zombie_and_all_data(folder: Path) -> None:
    embedded = EmbeddedEngine(folder)
    embedded.ensure()
    say(embedded, "SET", "k", "v")
    pid = embedded.pid()
    embedded.stop()
    wait_until(lambda: is_gone(pid))  # reaped by whoever adopted it: it left its starter at once
    assert embedded.pid() == 0
    embedded.stop()  # nothing to do
    assert embedded.ensure()
    assert say(embedded, "GET", "k") == b"v"


def test_after_kill_9_it_starts_again_with_what_was_written(folder: Path) -> None:
    embedded = EmbeddedEngine(folder)
    embedded.ensure()
    with contextlib.closing(redis.Redis.from_url(embedded.url, retry=None)) as client:
        for i in range(100):
            client.set(f"k{i}", "v")
        # Acknowledged is not written: while an fsync runs, the server keeps what comes meanwhile in memory.
        assert client.execute_command("WAITAOF", 1, 0, 10_000)[0] == 1
    pid = embedded.pid()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: is_gone(pid))
    assert embedded.pid() == 0
    assert embedded.ensure()
    assert embedded.pid() != pid
    assert say(embedded, "DBSIZE") == 100


def test_a_stale_pid_file_of_some_other_process_is_not_believed(folder: Path) -> None:
    (folder / "engine.pid").write_text(str(os.getpid()))
    embedded = EmbeddedEngine(folder)
    assert embedded.pid() == 0
    assert embedded.ensure()


def test_a_stale_pid_file_of_another_folders_server_is_not_believed(folder: Path) -> None:
    (folder / "a").mkdir()
    other = EmbeddedEngine(folder / "a")
    other.ensure()
    try:
        (folder / "b").mkdir()
        (folder / "b" / "engine.pid").write_text(str(other.pid()))
        mine = EmbeddedEngine(folder / "b")
        assert mine.pid() == 0
        mine.stop()
        assert say(other, "PING")
    finally:
        other.stop()


@pytest.mark.parametrize("content", [b"", b"\0\0\0\0", None])
def test_a_running_server_is_found_and_stopped_without_its_pid_file(folder: Path, content: bytes | None) -> None:
    """The server writes the file as it starts, and goes on where the disk is full."""
    embedded = EmbeddedEngine(folder)
    embedded.ensure()
    pid = embedded.pid()
    (folder / "engine.pid").unlink() if content is None else (folder / "engine.pid").write_bytes(content)
    assert embedded.pid() == pid
    embedded.stop()
    wait_until(lambda: is_gone(pid))
    assert embedded.pid() == 0


STARTER = """
import fcntl, sys
from pathlib import Path
from crawler.engine import embedded as module
from crawler.engine.embedded import EmbeddedEngine
folder = Path(sys.argv[1])
with open(folder / "lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    print(EmbeddedEngine(folder).ensure())
"""


def test_processes_that_start_at_once_share_one_server(folder: Path) -> None:
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # so that both are there before either may go on
        command = [sys.executable, "-c", STARTER, str(folder)]
        root = Path(__file__).resolve().parents[2]
        starters = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) for _ in range(2)]
    said = sorted(starter.communicate(timeout=30)[0].strip() for starter in starters)
    assert said == ["False", "True"]
    servers = [p for p in Path("/proc").glob("[0-9]*/cmdline") if os.fsencode(folder) in read(p)]
    assert len(servers) == 1


def read(path: Path) -> bytes:
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return b""


def test_a_folder_too_deep_for_a_socket_gets_one_elsewhere(folder: Path) -> None:
    deep = folder / ("d" * 60) / ("e" * 60)
    embedded = EmbeddedEngine(deep)
    assert embedded.ensure()
    try:
        assert len(os.fsencode(embedded.socket)) <= 100
        assert not EmbeddedEngine(deep).ensure()
        assert say(embedded, "PING")
    finally:
        there = embedded.socket.parent
        embedded.stop()
    assert not there.exists(), "/tmp has none of it when the crawl is stopped"


def test_a_binary_that_is_not_there_is_the_persons_mistake(folder: Path) -> None:
    with pytest.raises(UsageError, match="can't start the engine /no/such/engine"):
        EmbeddedEngine(folder, binary="/no/such/engine").ensure()


def test_a_server_that_can_not_start_reports_why(folder: Path) -> None:
    (folder / "appendonlydir").write_text("in the way")
    with pytest.raises(EngineDown, match="engine"):
        EmbeddedEngine(folder).ensure()


def test_a_server_that_reads_its_files_is_waited_for_however_long(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 100 million URLs it takes minutes; each command ended after one, and none ever got further."""
    embedded, asked, heard = EmbeddedEngine(folder), list[float](), list[int]()

    def comes_up(*replies: bytes) -> bool:
        """Each answer takes a second; the server may take two and a half."""
        left, asked[:] = list(replies), []
        monkeypatch.setattr(embedded, "_ask", lambda _: (asked.append(1.0), left.pop(0))[1])
        return embedded._comes_up(lambda: False, lambda: heard.append(len(asked)), lambda: None)

    monkeypatch.setattr(module, "START_TIMEOUT_S", 2.5)
    monkeypatch.setattr(module.time, "monotonic", lambda: sum(asked))
    assert comes_up(*[b"-LOADING Valkey is loading the dataset in memory"] * 9, b"", b"+PONG")
    assert len(asked) == 11
    assert heard == [*range(1, 10)], "people are told"
    with pytest.raises(EngineDown, match="does not answer"):
        comes_up(*[b""] * 9)
    assert len(asked) == 3


def test_a_server_that_lives_is_waited_for_and_one_that_is_gone_is_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine its pid file came too late, and three of four starts failed."""
    embedded, asked, told = EmbeddedEngine(folder), list[float](), list[float]()

    def comes_up(lives_s: float, replies: list[bytes]) -> bool:
        """Each answer takes a second."""
        asked.clear()
        monkeypatch.setattr(embedded, "_ask", lambda _: (asked.append(1.0), replies.pop(0))[1])
        return embedded._comes_up(lambda: sum(asked) > lives_s, lambda: None, lambda: told.append(sum(asked)))

    with monkeypatch.context() as patch:
        patch.setattr(module.time, "monotonic", lambda: sum(asked))
        patch.setattr(module.time, "sleep", lambda _: None)
        assert comes_up(1e9, [b""] * 40 + [b"+PONG"])
        assert told == [*range(1, 41)]
        assert not comes_up(7, [b""] * 40)
        assert len(asked) == 8
        with pytest.raises(EngineDown, match="does not answer after 60 s"):
            comes_up(1e9, [b""] * 100)


def test_a_program_that_ends_at_once_is_told_at_once(folder: Path) -> None:
    with pytest.raises(EngineDown, match="the embedded engine stopped at once"):
        EmbeddedEngine(folder, binary="true").ensure()


def test_a_program_that_is_slow_to_start_is_waited_for_and_one_that_never_does_is_ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[str]()
    script = folder / "slow"
    script.write_text(f'#!/bin/sh\nsleep $DELAY\nexec {module.packaged_binary()} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setattr(module, "START_LOOK_S", 0.01)
    monkeypatch.setenv("DELAY", "0.2")
    embedded = EmbeddedEngine(folder, binary=str(script))
    assert embedded.ensure(while_starting=lambda: told.append("starting"))
    assert told
    embedded.stop()
    monkeypatch.setattr(module, "START_TIMEOUT_S", 0.05)
    monkeypatch.setenv("DELAY", "600")
    with pytest.raises(EngineDown, match="does not start within"):
        embedded.ensure()
