"""The first screen of `top`: the domains of the crawl in a table, sorted, by name, or filtered."""

from typing import ClassVar

from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, Static

from crawler.frontier.domain_lists import SORTS
from crawler.terminal.words import rate
from crawler.tui.charts import bars, columns_of
from crawler.tui.detail import DetailView
from crawler.tui.domain_actions import DomainActions
from crawler.tui.lines import DONE, STOPPED, Lines, Row
from crawler.tui.screen import View, put
from crawler.tui.source import Source
from crawler.views.columns import domain_grid
from crawler.views.figures import DomainState, DomainView
from crawler.views.snapshot import SeriesView, Snapshot

ORDERS = ("pages", "rate", "queue", "errors", "bytes", "due")


ROWS_MORE = 100  # rows that are read beyond the one that was scrolled to


ROWS_MAX = 5_000


SERIES_EVERY_S = 5.0


CHART_S = 15 * 60


CHART_FROM_HEIGHT, TALL_CHART_FROM_HEIGHT = 24, 40


STYLES = dict.fromkeys((DomainState.PAUSED, DomainState.BLOCKED, DomainState.SPENT), STOPPED) | {DomainState.DONE: DONE}
assert {*ORDERS} == {*SORTS}


class DomainsView(DomainActions, View):
    """Table of domains."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(n), f"sort('{name}')", show=False) for n, name in enumerate(ORDERS, start=1)),
        Binding("s", "next_sort", show=False),
        Binding("n", "by_name", show=False),
        Binding("slash", "filter", show=False),
    ]
    KEYS = (
        ("Enter", "open"), ("s", "sort"), ("/", "find"), ("p", "pause"), ("b", "block"), ("m", "members"),
        ("d", "dead"), ("o", "log"), ("n", "names"), ("+-", "boost"), ("D", "delay"), ("P", "pause all"),
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._sort = "pages"
        self._pages: list[str] | None = None  # by name: where each page begins that was gone through
        self._text = ""  # of the filter
        self._limit = 0  # of the rows that were read last
        self._snapshot: Snapshot | None = None
        self._series: SeriesView | None = None
        self._series_at = 0.0
        self._moved = False  # to another list: the cursor begins at its top
        self._is_read = True  # is the list that is shown the one that is wanted?
        self._opens = False  # Enter was pressed before the list was read
        self._is_submitted = False  # the text of the filter

    def body(self) -> ComposeResult:
        yield Static(id="chart", markup=False)
        yield Static(id="titles", markup=False)
        yield Lines(id="rows")
        filter_line = Input(id="filter", placeholder="part of a domain's name", compact=True)
        filter_line.display = False
        yield filter_line

    @property
    def lines(self) -> Lines:
        return self.query_one(Lines)

    # --- read and show ---

    async def look(self, source: Source) -> None:
        limit = self._wanted
        pages, text, sort = self._pages, self._text, self._sort
        if text:
            found = Snapshot(overview=await source.overview(), domains=await source.matching(text, limit))
        elif pages is not None:
            found = Snapshot(overview=await source.overview(), domains=await source.by_name(pages[-1], self._page))
        else:
            found = await source.snapshot(sort, limit)
        if self.size.height >= CHART_FROM_HEIGHT and found.overview.at - self._series_at >= SERIES_EVERY_S:
            self._series, self._series_at = await source.series(), found.overview.at
        if (pages, text, sort) == (self._pages, self._text, self._sort):  # no key has changed what is wanted
            self._snapshot, self.shown_overview, self._limit = found, found.overview, limit
            self.domain_count = found.domains.total
            self._is_read = True

    @property
    def _wanted(self) -> int:
        """How many rows to read: more than can be seen only for one who scrolls."""
        cursor = self.lines.cursor
        return max(self.size.height, min(ROWS_MAX, cursor + ROWS_MORE) if cursor else 0)

    @property
    def _page(self) -> int:
        return max(1, self.lines.size.height)

    def draw(self) -> None:
        self._draw_chart()
        snapshot, width = self._snapshot, self.size.width
        if snapshot is None:
            return
        domains = snapshot.domains.rows
        grid = domain_grid(domains, width - 1, sort=snapshot.domains.sort)
        titles, *texts = grid.lines()
        put(self, "#titles", titles)
        rows = [Row(d.domain, text, STYLES.get(d.state, Style())) for d, text in zip(domains, texts, strict=True)]
        self.lines.show(rows, at_top=self._moved)
        self._moved = self._moved and not self._is_read
        if self._opens and self._is_read:
            self._opens = False
            self.lines.action_choose()

    def _draw_chart(self) -> None:
        size, chart = self.size, self.query_one("#chart", Static)
        height = 4 if size.height >= TALL_CHART_FROM_HEIGHT else 1
        chart.display = size.height >= CHART_FROM_HEIGHT
        if not chart.display or self._series is None:
            return
        rates = [point.rates.pages for point in self._series.fine]
        label = f"pages/s, 15 min, at most {rate(max(rates, default=0.0))}  "
        count = max(1, min(180, size.width - len(label) - 1))
        values = columns_of(self._series.fine, rates, until=self._series_at, seconds=CHART_S, count=count)
        first, *others = reversed(bars(values, height))
        above = [f"{' ' * len(label)}{line}" for line in reversed(others)]
        put(self, "#chart", "\n".join([*above, f"{label}{first}"]))

    @property
    def chosen(self) -> DomainView | None:
        rows = self._snapshot.domains.rows if self._snapshot and self._is_read else ()
        return next((d for d in rows if d.domain == self.lines.key), None)

    # --- keys ---

    def _list(self, *, sort: str = "", pages: list[str] | None = None, text: str = "") -> None:
        self._sort, self._pages, self._text = sort or self._sort, pages, text
        self._moved, self._is_read, self._opens = True, False, False
        self.top.poke()

    def action_sort(self, sort: str) -> None:
        self._list(sort=sort)

    def action_next_sort(self) -> None:
        at = ORDERS.index(self._sort)
        self._list(sort=self._sort if self._pages or self._text else ORDERS[(at + 1) % len(ORDERS)])

    def action_by_name(self) -> None:
        self._list(pages=[""])

    def action_filter(self) -> None:
        line = self.query_one("#filter", Input)
        line.display = True
        self._is_submitted = False
        line.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._is_submitted = False
        self._list(text=event.value.encode("utf-8", "ignore").decode().strip().lower())

    def on_input_submitted(self) -> None:
        if self._is_submitted:  # Enter twice, before the list had the focus
            self._choose()
        self._is_submitted = True
        self.lines.focus()

    def _choose(self) -> None:
        """Open the domain under the cursor, once the list is the one that is wanted."""
        self._opens = not self._is_read
        if self._is_read:
            self.lines.action_choose()

    def action_back(self) -> None:
        line = self.query_one("#filter", Input)
        line.display, line.value = False, ""
        self.lines.focus()
        self._list()

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        if self._is_read:
            self.app.push_screen(DetailView(event.key))
        else:
            self._opens = True  # what is searched for, not what was there before

    def on_lines_moved(self, event: Lines.Moved) -> None:
        if self._pages is None:
            rows = len(self.lines.rows)
            if rows >= self._limit and self.lines.cursor + self._page > rows:
                self.top.poke()
        elif event.beyond > 0 and self._snapshot and self._snapshot.domains.next:
            self._list(pages=[*self._pages, self._snapshot.domains.next])
        elif event.beyond < 0 and len(self._pages) > 1:
            self._list(pages=self._pages[:-1])
