"""One domain in full: why it is or is not fetched, its numbers, and charts of its last 15 minutes."""

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from crawler.errors import UsageError
from crawler.terminal.words import rate
from crawler.tui.charts import bars, columns_of
from crawler.tui.domain_actions import DomainActions
from crawler.tui.screen import put
from crawler.tui.source import Source
from crawler.views.domains import DomainDetail, detail_text
from crawler.views.figures import DomainView
from crawler.views.snapshot import Point

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
