"""Pages of documentation as a reader follows them: files are written, commands typed into one shell, output compared.

    ```python shop.py        is written to that file (without a name: to the page's usual one)
    ```sh                    each line is typed, as people paste it; one that ends in a backslash goes on
    ```text                  right behind such a block: the output of its last command
    <!-- not run: why -->    before a block: it is shown only

"..." in an output stands for anything within the line, a line of it for any lines. A command must succeed.
"""

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.engine import free_port
from tests.support.processes import Nursery

TIMEOUT_S = 90.0
ENGINE_PORT = "6390"  # in pages; another one here, where several tests run at a time
_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<why>[^\n]+) -->\n+)?```(?P<language>\w+) ?(?P<name>\S*)\n(?P<text>.*?)^```"
    r"(?:\n\n```text\n(?P<output>.*?)^```)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One block of a page. `why`: why it is not run, if it is not."""

    language: str
    name: str
    text: str
    why: str
    line: int
    output: str | None = None


@dataclass(frozen=True)
class Command:
    """What is typed, and what is to come of it: None if the page says nothing of that."""

    text: str
    output: str | None


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [
        Block(m["language"], m["name"], m["text"], m["why"] or "", text.count("\n", 0, m.start()) + 1, m["output"])
        for m in _BLOCK.finditer(text)
    ]


def commands_of(block: Block) -> Iterator[Command]:
    lines = block.text.rstrip("\n").replace("\\\n", "\\\0").splitlines()
    for n, line in enumerate(lines, 1):
        yield Command(line.replace("\0", "\n"), block.output if n == len(lines) else None)


def fits(output: str, expected: str) -> bool:
    lines = [line.rstrip() for line in output.strip("\n").splitlines()]
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line.rstrip()).replace(r"\.\.\.", ".*") + r"\n"
        for line in expected.strip("\n").splitlines()
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is not None


class Reader:
    """A shell in a folder, with the program on its path. Close it."""

    def __init__(self, folder: Path, programs: Nursery, environment: Mapping[str, str]) -> None:
        self.folder = folder
        path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
        home = {"PATH": path, "HOME": str(folder), "PS1": "", "COLUMNS": "120", "PYTEST_ADDOPTS": PYTEST}
        self._port = str(free_port())
        self._shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, env=programs.environment | home | environment, start_new_session=True,
        )  # fmt: skip

    def follow(self, block: Block, usual_name: str = "") -> None:
        """Do what a block says. Raises AssertionError with what was said instead."""
        if block.why:
            return
        if block.language == "sh":
            for command in commands_of(block):
                self._check(block, command)
        elif block.name or (block.language == "python" and usual_name):
            (self.folder / (block.name or usual_name)).write_text(block.text, encoding="utf-8")

    def _check(self, block: Block, command: Command) -> None:
        code, output = self.type(command.text.replace(ENGINE_PORT, self._port))
        where = f"line {block.line}: {command.text}\n{output}"
        assert code == 0, f"exit code {code}, {where}"
        if command.output is not None:
            assert fits(output.replace(self._port, ENGINE_PORT), command.output), (
                f"{where}\nexpected:\n{command.output}"
            )

    def type(self, command: str) -> tuple[int, str]:
        """Exit code and output, both streams in the order of their coming."""
        assert self._shell.stdin is not None
        mark = os.urandom(8).hex()
        self._shell.stdin.write(f"{command}\nprintf '\\n%s %d\\n' {mark} $?\n".encode())
        self._shell.stdin.flush()
        output = self._read_to(mark, command)
        said, _, rest = output.rpartition(f"\n{mark} ")
        code, _, late = rest.partition("\n")  # what the shell says of a job that was killed may come last
        return int(code), said + late

    def _read_to(self, mark: str, command: str) -> str:
        assert self._shell.stdout is not None
        deadline, found = time.monotonic() + TIMEOUT_S, b""
        selector = selectors.PollSelector()  # descriptors may have high numbers
        selector.register(self._shell.stdout, selectors.EVENT_READ)
        while not re.search(rb"\n%b \d+\n" % mark.encode(), found):
            left = deadline - time.monotonic()
            ready = selector.select(max(left, 0))
            piece = os.read(self._shell.stdout.fileno(), 65_536) if ready else b""
            if not piece:
                raise AssertionError(f"no end of {command!r} after {TIMEOUT_S - left:.0f} s: {found.decode()}")
            found += piece
        return found.decode(errors="replace")

    def close(self) -> None:
        os.killpg(self._shell.pid, signal.SIGKILL)  # with what it has started and not ended: an engine, say
        for stream in (self._shell.stdin, self._shell.stdout):
            assert stream is not None
            stream.close()
        self._shell.wait()


# The plugin as an installed crawler would have it, also where what is installed is another version of it.
PYTEST = "-p no:cacheprovider -p no:asyncio -p no:crawler -p crawler.testing.plugin"
