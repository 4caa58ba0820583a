"""Keys for one domain: those that change something ask first."""

from typing import ClassVar

from textual.binding import Binding, BindingType

from crawler.tui.lists import AttemptsView
from crawler.tui.screen import View
from crawler.tui.texts import block_question, boost_question, delay_question, pause_question
from crawler.views.figures import DomainState, DomainView


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
