"""The columns of all tables of domains: what they show, and which of them fit into a width. Pure.

Widths are reserved, so that columns stay where they are while numbers change.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from crawler.rules.text import one_line
from crawler.terminal.tables import GAP, NOTHING, fitted, or_nothing, text_width
from crawler.terminal.words import duration, number, rate, size
from crawler.views.figures import DomainView

_ALWAYS = ("domain", "pages")

NAME_WIDTH_MIN, NAME_WIDTH_MAX = 16, 40
NAME_WIDTH_EASY = 28  # left for names before a column beyond the first ones is shown
FIRST_RANKS = 6
SORTED_MARK = "↓"
UNKNOWN = "?"  # the domain is not among the busiest, of which it is kept


class Column(NamedTuple):
    """One column. `rank`: those with lower ones are kept for longer where there is little room."""

    title: str
    rank: int
    width: int  # reserved
    text: Callable[[DomainView], str]
    sort: str = ""  # the order by it, one of SORTS
    is_left: bool = False  # aligned
    is_of_running: bool = False  # tells nothing of a crawl that is finished


class Grid(NamedTuple):
    """A table with all texts cleaned and cut to the widths of their columns."""

    columns: Sequence[Column]
    widths: Sequence[int]
    titles: Sequence[str]
    rows: Sequence[Sequence[str]]

    def lines(self) -> list[str]:
        """The titles and each row as one line."""
        return [self._line(cells) for cells in (self.titles, *self.rows)]

    def _line(self, cells: Sequence[str]) -> str:
        return GAP.join(
            fitted(cell, width, left=column.is_left)
            for cell, width, column in zip(cells, self.widths, self.columns, strict=True)
        ).rstrip()


def domain_grid(domains: Sequence[DomainView], width: int, *, sort: str = "") -> Grid:
    """The columns that fit into a width, with a mark at the one that it is sorted by."""
    cells = {c.title: [one_line(c.text(d)) for d in domains] for c in COLUMNS}
    widths = {c.title: max(c.width, *map(text_width, cells[c.title]), 0) for c in COLUMNS[1:]}
    kept, left = {COLUMNS[0].title}, width - NAME_WIDTH_MIN
    for column in sorted(COLUMNS[1:], key=lambda c: c.rank):
        left -= len(GAP) + widths[column.title]
        if left < (0 if column.rank <= FIRST_RANKS else NAME_WIDTH_EASY - NAME_WIDTH_MIN):
            break
        kept.add(column.title)
    columns = [c for c in COLUMNS if c.title in kept]
    rest = width - sum(len(GAP) + widths[c.title] for c in columns[1:])
    widths[COLUMNS[0].title] = max(1, min(rest, NAME_WIDTH_MAX))
    return Grid(
        columns=columns,
        widths=[widths[c.title] for c in columns],
        titles=[c.title + SORTED_MARK * (bool(sort) and c.sort == sort) for c in columns],
        rows=list(zip(*(cells[c.title] for c in columns), strict=True)),
    )


def told_columns(domains: Sequence[DomainView], *, is_running: bool) -> tuple[list[str], list[list[str]]]:
    """Titles and rows of all columns that tell something, for a table of any width."""
    columns = [c for c in COLUMNS if is_running or not c.is_of_running]
    rows = [[c.text(d) for c in columns] for d in domains]
    told = [n for n, c in enumerate(columns) if c.title in _ALWAYS or any(row[n] != NOTHING for row in rows)]
    return [columns[n].title for n in told], [[row[n] for n in told] for row in rows]


def delay_text(delay_ms: int) -> str:
    """The delay in force; "?" until a robots.txt was read."""
    return duration(delay_ms / 1000) if delay_ms >= 0 else UNKNOWN


def errors_of(d: DomainView) -> int:
    """Responses with 4xx and 5xx, and attempts without a response: what the order by errors compares."""
    return d.status.get("4", 0) + d.status.get("5", 0) + sum(d.errors.values())


def _count(n: int) -> str:
    return or_nothing(number(n), n)


def _in_flight(d: DomainView) -> str:
    return UNKNOWN if d.in_flight is None else _count(d.in_flight)


def _rate(d: DomainView) -> str:
    return or_nothing(rate(d.rates.pages), d.rates.pages) if d.rates else NOTHING


def _latency(d: DomainView) -> str:
    return duration(d.latency_ms / 1000) if d.latency_ms else NOTHING


def _status(title: str, rank: int) -> Column:
    return Column(title, rank, 5, lambda d: _count(d.status.get(title[0], 0)))


COLUMNS = (
    Column("domain", 0, NAME_WIDTH_MIN, lambda d: d.domain, is_left=True),
    Column("pages", 1, 7, lambda d: number(d.fetched), sort="pages"),
    Column("/s", 3, 5, _rate, sort="rate"),
    _status("2xx", 14),
    _status("3xx", 15),
    _status("4xx", 12),
    _status("5xx", 13),
    Column("errors", 5, 7, lambda d: _count(errors_of(d)), sort="errors"),
    Column("size", 7, 8, lambda d: or_nothing(size(d.bytes), d.bytes), sort="bytes"),
    Column("retries", 18, 7, lambda d: _count(d.retries)),
    Column("dead", 16, 5, lambda d: _count(d.dead)),
    Column("refused by robots.txt", 22, 21, lambda d: _count(d.robots_denied)),
    Column("queued", 2, 7, lambda d: _count(d.queued), sort="queue"),
    Column("in flight", 6, 9, _in_flight, is_of_running=True),
    Column("retrying", 19, 8, lambda d: _count(d.retrying), is_of_running=True),
    Column("scheduled", 20, 9, lambda d: _count(d.scheduled)),
    Column("set aside", 21, 9, lambda d: _count(d.set_aside), is_of_running=True),
    Column("delay", 9, 6, lambda d: delay_text(d.delay_ms), is_of_running=True),
    Column("next", 4, 8, lambda d: d.next, sort="due", is_of_running=True),
    Column("latency", 11, 7, _latency),
    Column("owner", 10, 8, lambda d: d.owner or NOTHING, is_of_running=True),
    Column("last error", 8, 14, lambda d: d.last_error or NOTHING, is_left=True),
)
