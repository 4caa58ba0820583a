"""What a crawl looks like while it runs: a calm live view on a terminal, plain lines elsewhere.

Takes snapshots and shows them; must not know where they come from.
"""

import os
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Protocol

import msgspec

from crawler.redaction import redact
from crawler.reports.domain_columns import domain_grid
from crawler.reports.domain_view import DomainView
from crawler.reports.overview import CrawlState, Snapshot
from crawler.reports.overview_text import overview_parts, waits
from crawler.reports.progress_notes import STALL_S, Trend, left_text, stall_text
from crawler.rules.printable import one_line
from crawler.terminal.printing import say
from crawler.terminal.wording import duration

if TYPE_CHECKING:
    from rich.text import Text

LINE_EVERY_S = 5.0
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


class Headline:
    """The first lines of a view: the numbers, and what explains them."""

    def __init__(self) -> None:
        self._trend = Trend()

    def take(self, shown: Shown) -> tuple[str, str]:
        """Note a snapshot; its summary line, and the notes on it ("" when there are none)."""
        o = shown.snapshot.overview
        self._trend.take(shown.at_s, pending=o.pending, attempts=o.pages + o.retries + o.dead)
        return summary_line(shown), "; ".join(self._notes(shown))

    def _notes(self, shown: Shown) -> Iterator[str]:
        trend, o = self._trend, shown.snapshot.overview
        if trend.left_s is not None and o.pending and not shown.is_limited:
            yield left_text(trend.left_s)
        if trend.still_s >= STALL_S and o.state is CrawlState.RUNNING and not o.waits_for:
            yield stall_text(trend.still_s, o.awaited, busy=o.busy_partitions)
        if o.last_error:
            yield f"last error: {o.last_error}"


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
    """One line every few seconds, for logs and pipes."""

    rows = 0

    def __init__(self, stream: IO[str], *, every_s: float = LINE_EVERY_S) -> None:
        self._stream = stream
        self._every_s = every_s
        self._headline = Headline()
        self._next_s = every_s

    def show(self, shown: Shown) -> None:
        summary, notes = self._headline.take(shown)
        if shown.at_s >= self._next_s:
            self._next_s = shown.at_s + self._every_s
            self.say(f"{summary}; {notes}" if notes else summary)

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
        self._headline = Headline()
        self._live.start()

    @property
    def rows(self) -> int:
        return max(0, self._console.height - LINES_BESIDE)

    def show(self, shown: Shown) -> None:
        self._live.update(self._drawn(shown.snapshot.domains.rows, *self._headline.take(shown)), refresh=True)

    def _drawn(self, domains: Sequence[DomainView], summary: str, notes: str) -> "Text":
        from rich.text import Text

        lines = [(one_line(summary), "bold"), *([(one_line(redact(notes)), "")] if notes else [])]
        if rows := domains[: self.rows]:
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
