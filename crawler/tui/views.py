"""The screens of `top`, but for its front: domains, one domain, and texts, each with its keys."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, Protocol

from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Input, Static

from crawler.errors import UsageError
from crawler.frontier.domain_lists import SORTS
from crawler.frontier.operator_log import LogEntry
from crawler.rules.text import printable
from crawler.terminal.text import counted, moment, number, rate, table
from crawler.tui.source import Source
from crawler.tui.widgets import (
    DONE,
    STOPPED,
    Lines,
    Row,
    bars,
    block_question,
    boost_question,
    columns_of,
    delay_question,
    head_text,
    keys_text,
    pause_question,
)
from crawler.views.columns import domain_grid
from crawler.views.dead_letter_changes import LetterList
from crawler.views.domains import DomainDetail, detail_text
from crawler.views.explain import ShownAttempt, history_table
from crawler.views.figures import DomainState, DomainView
from crawler.views.snapshot import Overview, Point, SeriesView, Snapshot

# What all screens of `top` have: a headline, a line of notes, and their keys in the last line.

ENDS = (("?", "help"), ("q", "quit"))


class Top(Protocol):
    """What screens need of the application that they are in."""

    source: Source
    notes: str

    @property
    def message(self) -> str: ...

    @property
    def is_in_trouble(self) -> bool: ...

    def turned(self) -> None: ...

    def poke(self) -> None: ...

    def ask(self, question: str, act: Callable[[], Awaitable[str]]) -> None: ...

    def ask_text(self, question: str, act: Callable[[str], Awaitable[str]]) -> None: ...


class View(Screen[None]):
    """A screen that is read again and again while it is in front."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", show=False)]
    KEYS: ClassVar[tuple[tuple[str, str], ...]] = ()
    rest = 10.0  # after a read, at least so many times what it took

    def __init__(self) -> None:
        super().__init__()
        self.shown_overview: Overview | None = None
        self.domain_count: int | None = None

    @property
    def top(self) -> Top:
        app: Any = self.app
        return app  # type: ignore[no-any-return]

    def compose(self) -> ComposeResult:
        yield Static(id="head", markup=False)
        yield Static(id="notes", markup=False)
        yield from self.body()
        yield Static(id="keys", markup=False)

    def body(self) -> ComposeResult:
        """The widgets between notes and keys."""
        raise NotImplementedError

    async def look(self, source: Source) -> None:
        """Read, then show. Raises EngineError."""
        raise NotImplementedError

    def draw(self) -> None:
        """Show again what was read last."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Show all of it, if this screen is mounted."""
        if self.is_mounted and self.size.width:
            width, app = self.size.width, self.top
            put(self, "#head", head_text(self.shown_overview, self.domain_count, width))
            put(self, "#notes", app.message or app.notes)
            self.query_one("#notes").set_class(app.is_in_trouble, "trouble")
            put(self, "#keys", keys_text([*self.KEYS, *ENDS], width))
            self.draw()

    def on_mount(self) -> None:
        self.redraw()

    def on_resize(self) -> None:
        self.redraw()

    def on_screen_resume(self) -> None:
        self.redraw()
        self.top.turned()

    def action_back(self) -> None:
        self.app.pop_screen()


def put(screen: Screen[None], selector: str, text: str) -> None:
    """Change a text where it differs."""
    widget = screen.query_one(selector, Static)
    if widget.content != text:
        widget.update(text)


# Screens of one list: members and ring, dead letters by reason, the operator log, the attempts at a domain.


ALL = "all"  # reasons


class MembersView(View):
    """Instances, what they hold, and what the ring suggests."""

    KEYS = (("Esc", "back"),)
    rest = 0.0  # a read only takes long because it waits for heartbeats
    _text = "reading heartbeats, which takes a second or two ..."

    def body(self) -> ComposeResult:
        with VerticalScroll(id="scroll"):
            yield Static(id="text", markup=False)

    async def look(self, source: Source) -> None:
        self.shown_overview = await source.overview()
        self._text = await source.members()

    def draw(self) -> None:
        put(self, "#text", printable(self._text))


class _ListView(View):
    """A table of lines."""

    def body(self) -> ComposeResult:
        yield Static(id="titles", markup=False)
        yield Lines(id="rows")

    nothing = ""  # said when there are no rows
    _titles = ""

    def show_table(self, headers: Sequence[str], rows: Sequence[Sequence[str]], keys: Sequence[str]) -> None:
        if not rows:
            headers = (self.nothing,)
        self.show_lines(table(headers, rows, left=len(headers)).splitlines(), keys)

    def show_lines(self, lines: Sequence[str], keys: Sequence[str]) -> None:
        """The first line are titles; the others have keys."""
        self._titles = lines[0]
        self.query_one(Lines).show([Row(key, text) for key, text in zip(keys, lines[1:], strict=True)])
        self.on_lines_moved()

    def on_lines_moved(self) -> None:
        put(self, "#titles", self._titles[self.query_one(Lines).shift :])


class LettersView(_ListView):
    """How many dead letters there are for each reason, and the newest of them."""

    KEYS = (("Esc", "back"), ("r", "retry this reason"))
    nothing = "No dead letters."
    BINDINGS: ClassVar[list[BindingType]] = [Binding("r", "retry", show=False)]

    def __init__(self, domain: str = "") -> None:
        super().__init__()
        self._domain = domain
        self._letters: LetterList | None = None

    async def look(self, source: Source) -> None:
        self.shown_overview = await source.overview()
        self._letters = await source.letters(self._domain)

    def draw(self) -> None:
        found = self._letters
        if found is None:
            return
        reasons = sorted(found.reasons.items(), key=lambda one: (-one[1], one[0]))
        where = f" of {self._domain}" if self._domain else ""
        rows = [(number(n), reason, "", f"all dead letters{where} with this reason") for reason, n in reasons]
        keys = [reason for reason, _ in reasons]
        if len(reasons) > 1:
            rows.append((number(found.total), ALL, "", f"all dead letters{where}"))
            keys.append(ALL)
        for n, one in enumerate(found.newest):
            rows.append(("", one.reason, moment(one.failed_at), one.url))
            keys.append(f"{one.reason} {n}")
        self.show_table(("count", "reason", "failed at", "URL"), rows, keys)

    def action_retry(self) -> None:
        key, found = self.query_one(Lines).key.partition(" ")[0], self._letters
        if not key or found is None:
            return
        domain, source, reason = self._domain, self.top.source, "" if key == ALL else key
        urls = counted(found.reasons.get(reason, 0) if reason else found.total, "dead letter")
        of = f" of {domain}" * bool(domain) + f" with the reason {reason}" * bool(reason)
        question = f"Retry {urls}{of}? The URLs return to their queues with all attempts."
        self.top.ask(question, lambda: source.retry(domain, reason))


class LogView(_ListView):
    """The operator log, the newest entry first."""

    KEYS = (("Esc", "back"),)
    nothing = "No command has changed this crawl."

    def __init__(self) -> None:
        super().__init__()
        self._log: Sequence[LogEntry] = ()

    async def look(self, source: Source) -> None:
        self.shown_overview = await source.overview()
        self._log = await source.log()

    def draw(self) -> None:
        entries = list(reversed(self._log))
        rows = [(moment(e.at), e.who, e.via, e.action, e.target or "the crawl", e.told) for e in entries]
        self.show_table(("at", "who", "by", "command", "target", "detail"), rows, [str(e.id) for e in entries])


class AttemptsView(_ListView):
    """The newest attempts at the URLs of a domain, as instances with this crawl folder have noted them."""

    KEYS = (("Esc", "back"),)

    def __init__(self, domain: str) -> None:
        super().__init__()
        self._domain = domain
        self._attempts: Sequence[ShownAttempt] | None = None

    async def look(self, source: Source) -> None:
        self.shown_overview = await source.overview()
        self._attempts = await source.attempts(self._domain)

    def draw(self) -> None:
        if self._attempts is None:
            self.show_lines([f"reading the history of {self._domain} ..."], [])
        elif not self._attempts:
            self.show_lines([f"No attempt at {self._domain} is in the crawl folder on this machine."], [])
        else:
            keys = [f"{one.claimed} {one.url}" for one in self._attempts]
            self.show_lines(history_table(self._attempts, with_urls=True).splitlines(), keys)


# Keys for one domain: those that change something ask first.


class DomainActions(View):
    """For screens that have a domain at hand."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "pause", show=False),
        Binding("b", "block", show=False),
        Binding("plus", "boost(1)", show=False),
        Binding("minus", "boost(-1)", show=False),
        Binding("D", "delay", show=False),
        Binding("h", "attempts", show=False),
    ]

    @property
    def chosen(self) -> DomainView | None:
        """The domain at hand."""
        raise NotImplementedError

    def action_pause(self) -> None:
        if d := self.chosen:
            name, undo, source = d.domain, d.stop == "paused", self.top.source
            self.top.ask(pause_question(d), lambda: source.pause(name, undo=undo))

    def action_block(self) -> None:
        if d := self.chosen:
            name, undo, source = d.domain, d.state is DomainState.BLOCKED, self.top.source
            self.top.ask(block_question(d), lambda: source.block(name, undo=undo))

    def action_boost(self, by: int) -> None:
        if d := self.chosen:
            question, boost = boost_question(d, by)
            name, source = d.domain, self.top.source
            self.top.ask(question, lambda: source.boost(name, boost))

    def action_delay(self) -> None:
        if d := self.chosen:
            name, source = d.domain, self.top.source
            self.top.ask_text(delay_question(d), lambda text: source.delay(name, text))

    def action_attempts(self) -> None:
        if d := self.chosen:
            self.app.push_screen(AttemptsView(d.domain))


# One domain in full: why it is or is not fetched, its numbers, and charts of its last 15 minutes.


CHARTS = (("15 minutes", 900.0, 90), ("24 hours", 86_400.0, 96))  # of which time, and the columns for it
CHART_HEIGHT = 3


class DetailView(DomainActions):
    """One domain."""

    KEYS = (
        ("Esc", "back"),
        ("p", "pause"),
        ("b", "block"),
        ("+-", "boost"),
        ("D", "delay"),
        ("h", "attempts"),
        ("d", "dead"),
    )

    def __init__(self, name: str) -> None:
        super().__init__()
        self.domain_name = name
        self._detail: DomainDetail | None = None
        self._complaint = ""

    def body(self) -> ComposeResult:
        with VerticalScroll(id="scroll"):
            yield Static(id="text", markup=False)

    async def look(self, source: Source) -> None:
        self.shown_overview = await source.overview()
        try:
            self._detail, self._complaint = await source.detail(self.domain_name), ""
        except UsageError as error:
            self._complaint = str(error)

    def draw(self) -> None:
        detail, o = self._detail, self.shown_overview
        if self._complaint or detail is None or o is None:
            put(self, "#text", self._complaint or "reading ...")
            return
        parts = [detail_text(detail)]
        for points, (name, seconds, count) in zip((detail.series.fine, detail.series.coarse), CHARTS, strict=True):
            if points:
                width = max(1, min(count, self.size.width - 3))
                parts += [_chart(points, f"last {name}", until=o.at, seconds=seconds, count=width)]
        put(self, "#text", "\n\n".join(parts))

    @property
    def chosen(self) -> DomainView | None:
        return self._detail.domain if self._detail else None


def _chart(points: Sequence[Point], name: str, *, until: float, seconds: float, count: int) -> str:
    pages = [p.rates.pages for p in points]
    errors = [p.rates.client_errors + p.rates.server_errors + p.rates.failures for p in points]
    texts = []
    for what, values in (("pages/s", pages), ("errors/s", errors)):
        if any(values):
            drawn = bars(columns_of(points, values, until=until, seconds=seconds, count=count), CHART_HEIGHT)
            texts.append("\n".join([f"{what}, {name}, at most {rate(max(values))}", *drawn]))
    return "\n".join(texts)


# The first screen of `top`: the domains of the crawl in a table, sorted, by name, or filtered.


ORDERS = ("pages", "rate", "queue", "errors", "bytes", "due")
ROWS_MORE = 100  # rows that are read beyond the one that was scrolled to
ROWS_MAX = 5_000
SERIES_EVERY_S = 5.0
CHART_S = 15 * 60
CHART_FROM_HEIGHT, TALL_CHART_FROM_HEIGHT = 24, 40
STYLES = dict.fromkeys((DomainState.PAUSED, DomainState.BLOCKED, DomainState.SPENT), STOPPED) | {DomainState.DONE: DONE}


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


assert {*ORDERS} == {*SORTS}
