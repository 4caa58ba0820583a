"""What a crawl looks like while it runs: a calm live view on a terminal, plain lines elsewhere.

Takes snapshots and shows them; must not know where they come from.
"""

import os
from collections.abc import Collection, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Protocol

import msgspec

from crawler.frontier.lookup import Progress
from crawler.frontier.members import Awaited
from crawler.frontier.stats import DomainStats
from crawler.redaction import redact
from crawler.reports.crawl_report import next_text, waits_text
from crawler.reports.progress_notes import STALL_S, Trend, left_text, stall_text
from crawler.rules.printable import one_line
from crawler.terminal.printing import say
from crawler.terminal.wording import counted, duration, number, rate, size

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

DOMAINS_SHOWN = 10
LINE_EVERY_S = 5.0
NAME_WIDTH_MAX = 40


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The crawl at one moment; `at_s` since the start of this command."""

    at_s: float
    progress: Progress
    pages_per_s: float = 0.0
    in_flight: int = 0
    instances: int = 1
    waits_for: Collection[str] = ()  # why instances claim no more URLs, as in `Member`
    awaited: Sequence[Awaited] = ()  # of the instances where nothing moves
    last_error: str = ""  # of the last minute
    is_limited: bool = False  # does the crawl end before its queue does?
    domains: Sequence[DomainStats] = ()


class View(Protocol):
    """Shows snapshots; `say` prints a line without disturbing them."""

    def show(self, snapshot: Snapshot) -> None: ...
    def say(self, line: str) -> None: ...
    def close(self) -> None: ...


def summary_line(snapshot: Snapshot) -> str:
    """Like "12 s: 1,204 pages, 98/s, 3,411 queued, 64 in flight, 2 errors, 31.2 MiB"."""
    p = snapshot.progress
    parts = [
        counted(p.fetched, "page"),
        f"{rate(snapshot.pages_per_s)}/s",
        f"{number(max(0, p.pending - snapshot.in_flight))} queued",
        f"{number(snapshot.in_flight)} in flight",
        counted(p.dead, "error"),
        size(p.bytes),
    ]
    if p.retries:
        parts.insert(5, counted(p.retries, "retry", "retries"))
    if snapshot.instances > 1:
        parts.append(counted(snapshot.instances, "instance"))
    waiting = "".join(f"; waits {waits_text(why)}" for why in sorted(snapshot.waits_for))
    return f"{duration(snapshot.at_s)}: {', '.join(parts)}{waiting}"


class Headline:
    """The first lines of a view: the numbers, and what explains them."""

    def __init__(self) -> None:
        self._trend = Trend()

    def take(self, snapshot: Snapshot) -> tuple[str, str]:
        """Note a snapshot; its summary line, and the notes on it ("" when there are none)."""
        p = snapshot.progress
        self._trend.take(snapshot.at_s, pending=p.pending, attempts=p.fetched + p.retries + p.dead)
        return summary_line(snapshot), "; ".join(self._notes(snapshot))

    def _notes(self, snapshot: Snapshot) -> Iterator[str]:
        trend = self._trend
        if trend.left_s is not None and snapshot.progress.pending and not snapshot.is_limited:
            yield left_text(trend.left_s)
        if trend.still_s >= STALL_S and snapshot.progress.pending and not snapshot.waits_for:
            yield stall_text(trend.still_s, snapshot.awaited, busy=snapshot.progress.busy)
        if snapshot.last_error:
            yield f"last error: {snapshot.last_error}"


class Quiet:
    """Shows nothing."""

    def show(self, snapshot: Snapshot) -> None:
        pass

    def say(self, line: str) -> None:
        pass

    def close(self) -> None:
        pass


class PlainLines:
    """One line every few seconds, for logs and pipes."""

    def __init__(self, stream: IO[str], *, every_s: float = LINE_EVERY_S) -> None:
        self._stream = stream
        self._every_s = every_s
        self._headline = Headline()
        self._next_s = every_s

    def show(self, snapshot: Snapshot) -> None:
        summary, notes = self._headline.take(snapshot)
        if snapshot.at_s >= self._next_s:
            self._next_s = snapshot.at_s + self._every_s
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

    def show(self, snapshot: Snapshot) -> None:
        self._live.update(self._drawn(snapshot, *self._headline.take(snapshot)), refresh=True)

    def _drawn(self, snapshot: Snapshot, summary: str, notes: str) -> "Group":
        from rich.console import Group
        from rich.text import Text

        head = [Text(one_line(summary), style="bold", no_wrap=True, overflow="ellipsis")]
        if notes:
            head.append(Text(one_line(redact(notes)), no_wrap=True, overflow="ellipsis"))
        room = max(0, min(DOMAINS_SHOWN, self._console.height - 7))
        rows = snapshot.domains[:room]
        return Group(*head, "", _domain_table(rows)) if rows else Group(*head)

    def say(self, line: str) -> None:
        self._console.print(one_line(line), markup=False, emoji=False, soft_wrap=True)

    def close(self) -> None:
        self._live.stop()


def _domain_table(domains: Sequence[DomainStats]) -> "Table":
    from rich.table import Table

    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("domain", no_wrap=True, overflow="ellipsis", max_width=NAME_WIDTH_MAX)
    for name in ("pages", "pending", "failed", "next"):
        table.add_column(name, justify="right", no_wrap=True)
    for d in domains:
        errors = sum(d.errors.values())
        table.add_row(
            one_line(d.domain),
            number(d.fetched),
            number(d.pending) if d.pending else "-",
            number(errors) if errors else "-",
            next_text(d),
        )
    return table


def view_for(stream: IO[str], *, quiet: bool, verbose: bool) -> View:
    """The view that fits: nothing, lines (no terminal, or log events are shown there), or live."""
    if quiet:
        return Quiet()
    if verbose or not stream.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return PlainLines(stream)
    return LiveView(stream)
