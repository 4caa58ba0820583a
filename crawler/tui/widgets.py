"""What screens of `top` are made of: lists, lines of text, dialogs, charts."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.geometry import Region, Size
from textual.message import Message
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Input, Static

from crawler.redaction import redact
from crawler.rules.text import one_line
from crawler.terminal.text import counted
from crawler.views.columns import delay_text
from crawler.views.figures import DomainState, DomainView
from crawler.views.headline import overview_parts, state_text
from crawler.views.snapshot import CrawlState, Overview, Point
from crawler.views.values import BOOST_MAX, domain_of

# A list of lines with a cursor. It stays on its row while rows change their places, and nothing in them is markup.

STOPPED, DONE = Style(color="yellow"), Style(dim=True)
_CURSOR, _PLAIN = Style(reverse=True), Style()


class Row(NamedTuple):
    """One line. `key` tells rows apart."""

    key: str
    text: str
    style: Style = _PLAIN


class Lines(ScrollView, can_focus=True):
    """Shows rows; one line each."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("home,g", "first", show=False),
        Binding("end,G", "last", show=False),
        Binding("left", "shift(-20)", show=False),
        Binding("right", "shift(20)", show=False),
        Binding("enter", "choose", show=False),
    ]

    class Chosen(Message):
        """Enter was pressed on a row."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    class Moved(Message):
        """The cursor was moved; `beyond`: past the first row (-1) or the last (1)."""

        def __init__(self, beyond: int) -> None:
            super().__init__()
            self.beyond = beyond

    def __init__(self, *, id: str) -> None:  # noqa: A002 - as all widgets have it
        super().__init__(id=id)
        self.rows: Sequence[Row] = ()
        self.cursor = 0
        self.shift = 0  # how much of the beginnings of lines is out of sight

    @property
    def key(self) -> str:
        """Of the row under the cursor; "" where there is none."""
        return self.rows[self.cursor].key if self.rows else ""

    def show(self, rows: Sequence[Row], *, at_top: bool = False) -> None:
        """Replace the rows. The cursor goes with its row, but one at the top stays there."""
        before, self.rows = self.key if self.cursor and not at_top else "", rows
        places = (n for n, row in enumerate(rows) if row.key == before)
        place = next(places, min(self.cursor, len(rows) - 1)) if before else 0
        self.virtual_size = Size(self.size.width, len(rows))
        self._to(max(0, place))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        n, width = y + self.scroll_offset.y, self.size.width
        if n >= len(self.rows):
            return Strip.blank(width, self.rich_style)
        row = self.rows[n]
        style = row.style + (_CURSOR if n == self.cursor and self.has_focus else _PLAIN)
        return Strip([Segment(row.text[self.shift :], self.rich_style + style)]).adjust_cell_length(
            width, self.rich_style + style
        )

    def action_move(self, by: int) -> None:
        place = self.cursor + by
        beyond = (place >= len(self.rows)) - (place < 0)
        self._to(max(0, min(place, len(self.rows) - 1)))
        self.post_message(self.Moved(beyond))

    def action_page(self, by: int) -> None:
        at_end = self.cursor == (len(self.rows) - 1 if by > 0 else 0)
        place = self.cursor + by * max(1, self.size.height - 1)
        self._to(max(0, min(place, len(self.rows) - 1)))
        self.post_message(self.Moved(by if at_end else 0))

    def action_first(self) -> None:
        self._to(0)

    def action_last(self) -> None:
        self._to(max(0, len(self.rows) - 1))
        self.post_message(self.Moved(0))

    def action_shift(self, by: int) -> None:
        """Sideways, as far as there is text."""
        widest = max((len(row.text) for row in self.rows), default=0)
        self.shift = max(0, min(self.shift + by, widest - self.size.width))
        self.refresh()
        self.post_message(self.Moved(0))

    def action_choose(self) -> None:
        if self.rows:
            self.post_message(self.Chosen(self.key))

    def on_click(self, event: events.Click) -> None:
        place = event.y + self.scroll_offset.y
        if place < len(self.rows):
            is_again = place == self.cursor
            self._to(place)
            if is_again:
                self.action_choose()

    def on_resize(self) -> None:
        self.virtual_size = Size(self.size.width, len(self.rows))
        self._to(self.cursor)

    def _to(self, place: int) -> None:
        self.cursor = place
        self.scroll_to_region(Region(0, place, 1, 1), animate=False, force=True)
        self.refresh()


# Texts of the screens of `top`: headline, keys, questions. Pure.

_GAP = "   "
HEAD_LINES = 2


def head_text(o: Overview | None, domains: int | None, width: int) -> str:
    """The headline in at most two lines."""
    if o is None:
        return "reading ..."
    parts = [f"{o.crawl}: {state_text(o)}", *overview_parts(o)]
    if domains is not None:
        parts.append(counted(domains, "domain"))
    return "\n".join(list(wrapped(parts, width))[:HEAD_LINES])


def wrapped(parts: Sequence[str], width: int) -> Iterator[str]:
    """Lines of whole parts, side by side."""
    line = ""
    for part in map(one_line, parts):
        if line and len(line) + len(_GAP) + len(part) > width:
            yield line
            line = ""
        line += (_GAP if line else "") + part
    yield line


def notes_text(o: Overview) -> str:
    """What explains the headline's numbers."""
    return one_line(redact("; ".join(o.notes)))


def keys_text(keys: Sequence[tuple[str, str]], width: int) -> str:
    """As many keys as one line has room for, the first first; always the last two, help and quit."""
    texts = [f"{key} {what}" for key, what in keys]
    ends, kept = texts[-2:], list[str]()
    for text in texts[:-2]:
        if len("  ".join([*kept, text, *ends])) > width:
            break
        kept.append(text)
    return "  ".join([*kept, *ends])


def pause_question(d: DomainView) -> str:
    """What `p` would do."""
    name = domain_of(d.domain)
    if d.stop == "paused":
        return f"Resume {name}? Its requests start again; {_waiting(d)}."
    return f"Pause {name}? No request to it starts until it is resumed; {_waiting(d)}."


def block_question(d: DomainView) -> str:
    """What `b` would do."""
    name = domain_of(d.domain)
    if d.state is DomainState.BLOCKED:
        return f"Unblock {name}? Its deferred URLs return to its queue, and are fetched."
    urls = counted(d.pending, "URL is", "URLs are")
    return f"Block {name}? {urls} deferred, new ones too, and the crawl ends without them."


def boost_question(d: DomainView, by: int) -> tuple[str, int]:
    """What `+` and `-` would do, and the new boost."""
    boost = max(-BOOST_MAX, min(BOOST_MAX, d.boost + by))
    name = domain_of(d.domain)
    if not boost:
        return f"Remove the boost of {name}? It is fetched like all without a boost.", boost
    when = "before" if boost > 0 else "after"
    return f"Boost {name} to {boost}? It is fetched {when} domains without a boost.", boost


def delay_question(d: DomainView) -> str:
    """What `D` asks for."""
    now = f"now {delay_text(d.delay_ms)}" if d.delay_ms >= 0 else "not known yet"
    name = domain_of(d.domain)
    return f"Delay between requests to {name} ({now}): seconds, or auto to follow robots.txt and the settings"


def crawl_question(o: Overview) -> str:
    """What `P` would do."""
    if o.state is CrawlState.PAUSED:
        return f"Resume the whole crawl? Requests start again; {counted(o.pending, 'URL is', 'URLs are')} pending."
    return "Pause the whole crawl? No request starts, to any domain, until it is resumed."


def _waiting(d: DomainView) -> str:
    return f"{counted(d.pending, 'URL waits', 'URLs wait')}"


HELP = """\
Domains
  1 to 6   sort: pages, rate, queue, errors, bytes, due; s: next
  n        all domains by name; Page Down goes on at the end
  /        find by a part of the name; Escape ends it
  Enter    one domain: why it is fetched or not, its numbers

One domain; in the table, the one under the cursor
  p        pause or resume
  b        block (its URLs are deferred) or unblock
  + -      boost: fetch it before others that are due, or after
  D        delay between its requests
  h        its newest attempts (crawl folder on this machine)
  d        its dead letters (on its own screen)

The crawl
  P        pause or resume all of it
  m        members: instances, their partitions, the ring
  d        dead letters by reason; there, r retries them
  o        operator log: who changed what

Escape goes back, q quits. Left and right move long lines.
Whatever changes something asks first.

/s         pages per second, over the last 10 s
errors     4xx, 5xx, and attempts without a response
in flight  open requests ("?": not kept of this domain)
next       when the next request may start, or why none does:
           paused, blocked, budget (used up)
"""


# Questions over the screen: yes or no, and a text.


class Confirm(ModalScreen[bool]):
    """Asks whether to do what it says."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "end(True)", show=False),
        Binding("n,escape,q", "end(False)", show=False),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self.question = one_line(question)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self.question, markup=False)
            yield Static("\nEnter or y: yes    Escape or n: no", markup=False)

    def action_end(self, answer: bool) -> None:
        self.dismiss(answer)


class Ask(ModalScreen[str]):
    """Asks for a text; "" when the question was left."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", show=False)]

    def __init__(self, question: str) -> None:
        super().__init__()
        self.question = one_line(question)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self.question, markup=False)
            yield Input(compact=True)
            yield Static("\nEnter: apply    Escape: cancel", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())

    def action_leave(self) -> None:
        self.dismiss("")


class Help(ModalScreen[None]):
    """All keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "leave", show=False)]

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog help"):
            yield Static(HELP, markup=False)

    def action_leave(self) -> None:
        self.dismiss()


# Small charts of rates over time, made of text: one column for an equal part of the time. Pure.

_EIGHTHS = " ▁▂▃▄▅▆▇█"


def columns_of(
    points: Sequence[Point], values: Sequence[float], *, until: float, seconds: float, count: int
) -> list[float]:
    """The mean of a rate in each of `count` equal parts of the last `seconds`; 0 where nothing is known."""
    part_s = seconds / count
    sums = [0.0] * count
    for point, value in zip(points, values, strict=True):
        begin = point.at - (until - seconds)
        end = min(begin + point.rates.seconds, seconds)
        for n in range(max(0, int(begin // part_s)), min(count, int(end // part_s) + 1)):
            sums[n] += value * max(0.0, min(end, (n + 1) * part_s) - max(begin, n * part_s))
    return [total / part_s for total in sums]


def bars(values: Sequence[float], height: int) -> list[str]:
    """Lines from the top, each value as a bar; the highest one fills them. What is more than 0 can be seen."""
    most = max(values, default=0.0)
    eighths = [max(1, round(8 * height * value / most)) if value > 0 else 0 for value in values]
    return ["".join(_EIGHTHS[max(0, min(8, n - 8 * row))] for n in eighths).rstrip() for row in reversed(range(height))]
