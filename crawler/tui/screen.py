"""What all screens of `top` have: a headline, a line of notes, and their keys in the last line."""

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Protocol

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Static

from crawler.tui.source import Source
from crawler.tui.texts import head_text, keys_text
from crawler.views.snapshot import Overview

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
