"""The application of `crawler top`: reads what its front screen shows, once a second and never twice at a time."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.worker import WorkerFailed

from crawler.errors import CrawlerError, EngineError
from crawler.redaction import redact
from crawler.rules.text import one_line
from crawler.tui.detail import DetailView
from crawler.tui.domains import DomainsView
from crawler.tui.lists import LettersView, LogView, MembersView
from crawler.tui.questions import Ask, Confirm, Help
from crawler.tui.screen import View
from crawler.tui.source import Source
from crawler.tui.texts import crawl_question, notes_text
from crawler.views.snapshot import CrawlState, Overview

EVERY_S = 1.0
MESSAGE_S = 8.0

STYLES = """
Screen { background: ansi_default; color: ansi_default; overflow: hidden; }
#head { height: auto; max-height: 2; text-style: bold; }
#notes { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
#chart { height: auto; max-height: 4; color: ansi_cyan; }
.trouble { color: ansi_red; }
#titles { height: 1; text-style: bold underline; }
Lines { height: 1fr; scrollbar-size-vertical: 1; overflow-x: hidden; overflow-y: auto; }
#scroll { height: 1fr; overflow-x: hidden; }
#text { height: auto; }
#filter { height: 1; }
#keys { height: 1; dock: bottom; text-style: reverse; }
Confirm, Ask, Help { align: center middle; background: transparent; }
.dialog { width: 72; max-width: 100%; height: auto; max-height: 100%; border: solid ansi_default; padding: 0 1;
          background: ansi_default; }
.dialog Static { width: 100%; height: auto; }

"""


class TopApp(App[None]):
    """`bug`: what ended it unexpectedly, for the caller to raise."""

    ENABLE_COMMAND_PALETTE = False
    CSS = STYLES
    TITLE = "crawler top"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", show=False, priority=False),
        Binding("question_mark", "help", show=False),
        Binding("m", "members", show=False),
        Binding("d", "letters", show=False),
        Binding("o", "log", show=False),
        Binding("P", "pause_crawl", show=False),
    ]

    def __init__(
        self, source: Source, *, every_s: float = EVERY_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        self.source = source
        self.bug: BaseException | None = None
        self._every_s = every_s
        self._clock = clock
        self.notes = ""  # on the crawl, as it was read last
        self._poked = asyncio.Event()
        self._look: asyncio.Task[None] | None = None
        self._trouble = ""
        self._done = ""
        self._done_at = 0.0

    @property
    def is_in_trouble(self) -> bool:
        """Does the engine not answer?"""
        return bool(self._trouble)

    @property
    def message(self) -> str:
        """What is more urgent than the notes on the crawl."""
        return self._trouble or (self._done if self._clock() < self._done_at + MESSAGE_S else "")

    def on_mount(self) -> None:
        self.push_screen(DomainsView())
        self.run_worker(self._watch(), exit_on_error=True)

    async def _watch(self) -> None:
        while True:
            self._poked.clear()
            began = self._clock()
            view = self._front
            self._look = asyncio.create_task(view.look(self.source))
            try:
                await asyncio.wait({self._look})
            finally:
                self._look.cancel()  # when this app ends
            if self._look.cancelled():
                continue
            try:
                self._look.result()
                self._trouble = ""
                self._note(view.shown_overview)
            except EngineError as error:
                self._trouble = one_line(redact(f"engine down: {error}; trying again"))
            except CrawlerError as error:
                self._trouble = one_line(redact(str(error)))
            view.redraw()
            pause_s = max(self._every_s, view.rest * (self._clock() - began))
            await self.wait(pause_s)

    async def wait(self, seconds: float) -> None:
        """Until then, or until poked."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._poked.wait(), seconds)

    def _note(self, o: Overview | None) -> None:
        if o is not None:
            self.notes = notes_text(o)

    @property
    def _front(self) -> View:
        return next(screen for screen in reversed(self.screen_stack) if isinstance(screen, View))

    def poke(self) -> None:
        """Read at once: something else is wanted, or was changed."""
        self._poked.set()

    def turned(self) -> None:
        """Another screen came to the front: what is read for the one before is not waited for."""
        if self._look is not None:
            self._look.cancel()
        self.poke()

    # --- what changes something ---

    def ask(self, question: str, act: Callable[[], Awaitable[str]]) -> None:
        """Do it if the answer is yes, and show what it says."""

        def answered(answer: bool | None) -> None:
            if answer:
                self.run_worker(self._do(act()))

        self.push_screen(Confirm(question), answered)

    def ask_text(self, question: str, act: Callable[[str], Awaitable[str]]) -> None:
        """The same with a text that is asked for."""

        def answered(answer: str | None) -> None:
            if answer:
                self.run_worker(self._do(act(answer)))

        self.push_screen(Ask(question), answered)

    async def _do(self, act: Awaitable[str]) -> None:
        try:
            done = await act
        except CrawlerError as error:
            done = f"not done: {error}"
        self._done, self._done_at = one_line(redact(done)), self._clock()
        self._front.redraw()
        self.poke()

    # --- keys ---

    def action_help(self) -> None:
        self.push_screen(Help())

    def action_members(self) -> None:
        self.push_screen(MembersView())

    def action_letters(self) -> None:
        self.push_screen(LettersView(self._front.domain_name if isinstance(self._front, DetailView) else ""))

    def action_log(self) -> None:
        self.push_screen(LogView())

    def action_pause_crawl(self) -> None:
        o = self._front.shown_overview
        if o is not None:
            undo = o.state is CrawlState.PAUSED
            self.ask(crawl_question(o), lambda: self.source.pause("", undo=undo))

    # --- bugs ---

    def _fatal_error(self) -> None:
        """Instead of a traceback over the screen: the caller reports it as all commands do."""
        error = self._exception
        self.bug = error.error if isinstance(error, WorkerFailed) else error
        self._close_messages_no_wait()
