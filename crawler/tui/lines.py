"""A list of lines with a cursor. It stays on its row while rows change their places, and nothing in them is markup."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

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
