"""Questions over the screen: yes or no, and a text."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from crawler.rules.text import one_line
from crawler.tui.texts import HELP


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
