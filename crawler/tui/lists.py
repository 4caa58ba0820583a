"""Screens of one list: members and ring, dead letters by reason, the operator log, the attempts at a domain."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from crawler.frontier.operator_log import LogEntry
from crawler.rules.text import printable
from crawler.terminal.tables import table
from crawler.terminal.words import counted, moment, number
from crawler.tui.lines import Lines, Row
from crawler.tui.screen import View, put
from crawler.tui.source import Source
from crawler.views.dead_letter_changes import LetterList
from crawler.views.explain import ShownAttempt, history_table

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
