"""`crawler top` as a program on a terminal, and what it says where there is none."""

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.cli_lab import crawler, in_process
from tests.support.patience import PATIENCE_S
from tests.support.processes import Nursery, nursery

pytestmark = pytest.mark.processes

HOST = "docs.example"
COLOUR = re.compile(rb"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9;]*)?m")


@pytest.fixture(scope="module")
def programs() -> Iterator[Nursery]:
    with nursery() as programs:
        yield programs
        assert programs.left() == []


@pytest.fixture(scope="module")
def folder(programs: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crawl that was seeded and has not begun."""
    folder = tmp_path_factory.mktemp("top") / "crawl"
    assert in_process(programs, "seed", f"http://{HOST}/", "--dir", str(folder)).code == 0
    return folder


class Terminal:
    """A program on a terminal of 80x24; `seen`: all that it wrote."""

    def __init__(self, programs: Nursery, *arguments: str, **env: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "crawler", *arguments], stdin=theirs, stdout=theirs, stderr=theirs,
            env=programs.environment | {"TERM": "xterm-256color"} | env, cwd=programs.folder, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.seen = b""

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text.encode() not in self.seen:
            assert self._read(), f"it ended: {self.seen!r}"
            assert time.monotonic() < deadline, f"{text!r} is not in {self.seen!r}"

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def end(self) -> int:
        """Read to the end; its exit code."""
        while self._read():
            pass
        os.close(self._ours)
        return self.process.wait(PATIENCE_S)

    def _read(self) -> bool:
        poll = select.poll()  # takes numbers beyond 1,024, which select does not
        poll.register(self._ours, select.POLLIN)
        if not poll.poll(PATIENCE_S * 1000):
            return True
        with contextlib.suppress(OSError):  # the other side is closed
            if data := os.read(self._ours, 65_536):
                self.seen += data
                return True
        return False


@pytest.mark.slow(ci=True)
def test_it_shows_a_domain_and_q_quits_with_0(programs: Nursery, folder: Path) -> None:
    terminal = Terminal(programs, "top", "--dir", str(folder))
    terminal.wait_for(HOST)
    terminal.press("q")
    assert terminal.end() == 0
    assert b"Traceback" not in terminal.seen
    assert terminal.seen.rindex(b"\x1b[?1049l") > terminal.seen.rindex(HOST.encode())  # the screen from before is back
    assert COLOUR.search(terminal.seen)


@pytest.mark.slow(ci=True)
def test_no_color_is_respected(programs: Nursery, folder: Path) -> None:
    terminal = Terminal(programs, "top", "--dir", str(folder), NO_COLOR="1")
    terminal.wait_for(HOST)
    terminal.press("\x03")
    assert terminal.end() == 0
    assert not COLOUR.search(terminal.seen)


@pytest.mark.slow(ci=True)
def test_a_signal_leaves_the_terminal_as_it_was(programs: Nursery, folder: Path) -> None:
    terminal = Terminal(programs, "top", "--dir", str(folder))
    terminal.wait_for(HOST)
    terminal.process.terminate()
    assert terminal.end() == 0
    assert b"\x1b[?1049l" in terminal.seen


def test_a_folder_without_a_crawl_is_one_line(programs: Nursery, tmp_path: Path) -> None:
    terminal = Terminal(programs, "top", "--dir", str(tmp_path / "none"))
    assert terminal.end() == 2
    assert terminal.seen.count(b"\n") == 1
    assert b"crawler: " in terminal.seen


def test_without_a_terminal_it_names_stats(programs: Nursery, folder: Path) -> None:
    ran = crawler(programs, "top", "--dir", str(folder))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "crawler: top needs a terminal; use 'crawler stats --watch'\n"


def test_a_dumb_terminal_is_none(programs: Nursery, folder: Path) -> None:
    terminal = Terminal(programs, "top", "--dir", str(folder), TERM="dumb")
    assert terminal.end() == 2
    assert b"stats --watch" in terminal.seen
