"""Progress of commands that are silent for long: a line that is redrawn on a terminal, a line now and then elsewhere.

Only ever on standard error, and only after some time: what ends soon prints nothing more than its result.
"""

import contextlib
import os
import stat
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import IO

from crawler.rules.progress import SILENT, Meter
from crawler.terminal.output import redraw, say
from crawler.terminal.tables import shortened
from crawler.terminal.words import counted, duration, rate

Clock = Callable[[], float]

WINDOW_S = 10.0  # over which rates are measured
SETTLED_S = 2.0  # of a part: before, the time left is a guess
LINES_EVERY_S = 5.0
WHAT_WIDTH = 24
WIDE_COLUMNS = 100
BAR_CELLS, BAR_CELLS_WIDE = 10, 20


class Part:
    """One part of the work: how much of it is done, how fast, and how long the rest takes."""

    def __init__(self, what: str, noun: str, total: int, now_s: float) -> None:
        self.what = what
        self._noun = noun
        self._total = total
        self._began_s = self._now_s = now_s
        self._seen = deque([(now_s, 0, 0)])

    def take(self, now_s: float, count: int, position: int) -> None:
        """Note how far it is."""
        self._now_s = now_s
        self._seen.append((now_s, count, position))
        while len(self._seen) > 2 and self._seen[1][0] <= now_s - WINDOW_S:
            self._seen.popleft()

    @property
    def percent(self) -> int | None:
        """None where the total is not known."""
        return min(100, 100 * self._seen[-1][2] // self._total) if self._total else None

    @property
    def left_s(self) -> float | None:
        """None while nothing is known."""
        done = self._seen[-1][2] - self._seen[0][2]
        if not self._total or done <= 0 or self._now_s - self._began_s < SETTLED_S:
            return None
        passed_s = self._now_s - self._seen[0][0]
        return max(0, self._total - self._seen[-1][2]) * passed_s / done

    def figures(self) -> str:
        """Like "412,000 URLs, 12,800/s, 46 s left"."""
        (before_s, before, _), (_, count, _) = self._seen[0], self._seen[-1]
        if not self._noun or self._now_s <= before_s:
            return ""
        parts = [counted(count, self._noun), f"{rate((count - before) / (self._now_s - before_s))}/s"]
        if self.left_s is not None:
            parts.append(f"{_calm(self.left_s)} left")
        return ", ".join(parts)


def _calm(seconds: float) -> str:
    """Whole seconds: tenths would flicker."""
    return duration(max(1, round(seconds)))


def drawn(part: Part, columns: int) -> str:
    """A part in one line: "Adding seeds  41 % [====>     ] 412,000 URLs, 12,800/s, 46 s left"."""
    what, percent, figures = shortened(part.what[:1].upper() + part.what[1:], WHAT_WIDTH), part.percent, part.figures()
    if percent is None:
        line = f"{what}  {figures}" if figures else f"{what} ..."
        return line[: columns - 1]
    cells = BAR_CELLS_WIDE if columns >= WIDE_COLUMNS else BAR_CELLS
    full = cells * percent // 100
    bar = ("=" * full + ">" * (full < cells)).ljust(cells)
    line = f"{what} {percent:3} % [{bar}] {figures}".rstrip()
    if len(line) >= columns:
        line = f"{what} {percent:3} % {figures}"
    return line[: columns - 1]


def told(part: Part) -> str:
    """The same for a log: "adding seeds: 41 % done, 412,000 URLs, 12,800/s, 46 s left"."""
    share = [f"{part.percent} % done"] if part.percent is not None else []
    figures = ", ".join([*share, *filter(None, [part.figures()])])
    return f"{part.what}: {figures}" if figures else part.what


class _Progress:
    """Measures each part, and shows it when it is time."""

    first_s: float
    every_s: float

    def __init__(self, stream: IO[str], clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._began_s = clock()
        self._next_s = self._began_s + self.first_s
        self._part = Part("", "", 0, self._began_s)

    def begin(self, what: str, noun: str = "", total: int = 0) -> None:
        now_s = self._clock()
        self._part = Part(what, noun, total, now_s)
        if now_s >= self._began_s + self.first_s:
            self._show(now_s)

    def reached(self, count: int, position: int = 0) -> None:
        now_s = self._clock()
        if now_s >= self._next_s:
            self._next_s = now_s + self.every_s
            self._part.take(now_s, count, position)
            self._show(now_s)

    def _show(self, now_s: float) -> None:
        raise NotImplementedError


class Bar(_Progress):
    """One line of a terminal."""

    first_s = 0.3
    every_s = 0.1

    def _show(self, now_s: float) -> None:  # noqa: ARG002
        redraw(drawn(self._part, _columns(self._stream)), stream=self._stream)


class Lines(_Progress):
    """A line every few seconds, for logs and pipes; later one in each twentieth of the time passed."""

    first_s = 5.0
    every_s = 0.5  # between two looks; lines are rarer

    def __init__(self, stream: IO[str], clock: Clock) -> None:
        super().__init__(stream, clock)
        self._line_s = self._next_s
        self._next_s = self._began_s

    def _show(self, now_s: float) -> None:
        if now_s >= self._line_s:
            passed_s = now_s - self._began_s
            self._line_s = now_s + max(LINES_EVERY_S, passed_s / 20)
            say(f"{_calm(passed_s)}: {told(self._part)}", stream=self._stream)


def _columns(stream: IO[str]) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def _is_file(stream: IO[str]) -> bool:
    """Does it go to a file, and not to the terminal or to a program that may write there?"""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def progress(
    *, quiet: bool = False, verbose: bool = False, fills_stdout: bool = False, clock: Clock = time.monotonic
) -> Iterator[Meter]:
    """A meter that shows on standard error what it hears, until the block is left.

    `verbose`: log events are shown there, too. `fills_stdout`: results go to standard output meanwhile.
    """
    stream = sys.stderr
    if quiet:
        yield SILENT
    elif verbose or not stream.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield Lines(stream, clock)
    elif fills_stdout and not _is_file(sys.stdout):
        yield SILENT
    else:
        try:
            yield Bar(stream, clock)
        finally:
            redraw("", stream=stream)
