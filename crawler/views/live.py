"""What a crawl looks like while it runs: a calm live view on a terminal, plain lines elsewhere.

Takes snapshots and shows them; must not know where they come from.
"""

import os
from typing import IO, TYPE_CHECKING, Protocol

import msgspec

from crawler.redaction import redact
from crawler.rules.text import one_line
from crawler.terminal.output import say
from crawler.terminal.words import duration
from crawler.views.columns import domain_grid
from crawler.views.snapshot import (
    Snapshot,
)

if TYPE_CHECKING:
    from rich.text import Text
from crawler.views.headline import notes, overview_parts, waits

LINE_EVERY_S = 5.0
LINES_AT_FIRST, LINE_SLOWEST = 12, 12  # so many at this pace; then slower and slower, to one a minute
LINES_BESIDE = 5  # that a live view has beside its rows: headline, notes, an empty one, titles, the cursor's


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """The crawl at one moment; `at_s` since the start of this command."""

    at_s: float
    snapshot: Snapshot
    is_limited: bool = False  # does the crawl end before its queue does?


class View(Protocol):
    """Shows snapshots with at most `rows` domains; `say` prints a line without disturbing them."""

    @property
    def rows(self) -> int: ...
    def show(self, shown: Shown) -> None: ...
    def say(self, line: str) -> None: ...
    def close(self) -> None: ...


def summary_line(shown: Shown) -> str:
    """Like "12 s: 1,204 pages, 98/s, 3,411 queued, 64 in flight, 2 errors, 31.2 MiB"."""
    o = shown.snapshot.overview
    waiting = "".join(f"; {why}" for why in waits(o))
    return f"{duration(shown.at_s)}: {', '.join(overview_parts(o))}{waiting}"


def notes_line(shown: Shown) -> str:
    """What explains the numbers; "" when nothing does."""
    return "; ".join(notes(shown.snapshot.overview, is_limited=shown.is_limited))


class Quiet:
    """Shows nothing."""

    rows = 0

    def show(self, shown: Shown) -> None:
        pass

    def say(self, line: str) -> None:
        pass

    def close(self) -> None:
        pass


class PlainLines:
    """One line every few seconds, for logs and pipes; later one a minute, or a week would be 120,000 lines."""

    rows = 0

    def __init__(self, stream: IO[str], *, every_s: float = LINE_EVERY_S) -> None:
        self._stream = stream
        self._every_s = every_s
        self._next_s = every_s

    def show(self, shown: Shown) -> None:
        if shown.at_s >= self._next_s:
            slower_s = min(shown.at_s / LINES_AT_FIRST, self._every_s * LINE_SLOWEST)
            self._next_s = shown.at_s + max(self._every_s, slower_s)
            self.say("; ".join([summary_line(shown), *notes(shown.snapshot.overview, is_limited=shown.is_limited)]))

    def say(self, line: str) -> None:
        say(line, stream=self._stream)

    def close(self) -> None:
        pass


class LiveView:
    """Redraws one block at the bottom of the terminal: the totals, and the busiest domains."""

    def __init__(self, stream: IO[str]) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=stream, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    @property
    def rows(self) -> int:
        return max(0, self._console.height - LINES_BESIDE)

    def show(self, shown: Shown) -> None:
        self._live.update(self._drawn(shown), refresh=True)

    def _drawn(self, shown: Shown) -> "Text":
        from rich.text import Text

        explained = notes_line(shown)
        lines = [(one_line(summary_line(shown)), "bold"), *([(one_line(redact(explained)), "")] if explained else [])]
        if rows := shown.snapshot.domains.rows[: self.rows]:
            titles, *texts = domain_grid(rows, self._console.width).lines()
            lines += [("", ""), (titles, "dim"), *((text, "") for text in texts)]
        return Text("\n", no_wrap=True, overflow="ellipsis").join(Text(*line) for line in lines)

    def say(self, line: str) -> None:
        self._console.print(one_line(line), markup=False, emoji=False, soft_wrap=True)

    def close(self) -> None:
        self._live.stop()


def view_for(stream: IO[str], *, quiet: bool, verbose: bool) -> View:
    """The view that fits: nothing, lines (no terminal, or log events are shown there), or live."""
    if quiet:
        return Quiet()
    if verbose or not stream.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return PlainLines(stream)
    return LiveView(stream)
