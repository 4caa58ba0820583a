"""The app of `crawler top` over a source with fixed values, which notes what is asked of it."""

from collections.abc import Sequence
from typing import Any

from crawler.archive.history import Attempt, Became
from crawler.errors import EngineDown, UsageError
from crawler.frontier.operator_log import LogEntry, Via
from crawler.frontier.series import Rates
from crawler.tui.app import TopApp
from crawler.views.dead_letter_changes import LetterList
from crawler.views.dead_letters import Letter, LetterFailure
from crawler.views.domains import DomainDetail, RobotsView, sentence, with_facts
from crawler.views.explain import ShownAttempt
from crawler.views.figures import DomainState, DomainView
from crawler.views.snapshot import DomainRows, Overview, Point, SeriesView, Snapshot
from tests.support.views import NOW, domain, overview, snapshot

NEVER_S = 3600.0  # between two reads: only keys cause one


def busy(name: str, n: int, **values: Any) -> DomainView:
    """A domain that is being crawled; smaller `n`, more pages."""
    pages = 2_000 - 37 * n
    plain: dict[str, Any] = {
        "fetched": pages, "queued": 5_000 - 41 * n, "claimed": 4, "bytes": pages * 31_000, "fetch_ms": pages * 120,
        "status": {"2": pages - 60, "3": 20, "4": 30, "5": 10}, "errors": {"timeout": n % 4}, "delay_ms": 1_000,
        "next_fetch_in_ms": 400 + 10 * n, "owner": f"vm-{n % 4}", "epoch": 7, "retries": n % 4,
        "pending": 5_004 - 41 * n, "refused": {"robots": 3}, "robots_denied": 3, "latency_ms": 120.0,
        "in_flight": n % 3, "state": DomainState.FETCHING if n % 3 else DomainState.WAITING,
        "rates": Rates(10.0, pages=max(0.0, 9.7 - 0.2 * n), bytes=310_000),
    }  # fmt: skip
    if n % 4:
        plain |= {"last_error": "timeout", "last_error_at": NOW - 60}
    return domain(name, **plain | values)


DOMAINS = (
    busy("docs.example", 0),
    busy("news.example", 1, state=DomainState.PAUSED, stop="paused", rates=None, in_flight=0),
    busy("shop.example", 2, state=DomainState.BLOCKED, stop="blocked", pending=0, queued=0, claimed=0, in_flight=0),
    busy("wiki.example", 3, state=DomainState.SPENT, stop="pages"),
    busy("a-very-long-name-of-a-host-that-has-no-room.subdomain.example", 4),
    *(busy(f"site{n}.example", n) for n in range(5, 40)),
)
POINTS = tuple(
    Point(at=NOW - 900 + 5 * n, rates=Rates(5.0, pages=(20 + n * 7 % 60) * (n > 40), failures=1.0 * (n % 20 == 0)))
    for n in range(180)
)
SERIES = SeriesView(fine=POINTS, coarse=())


def letter(n: int, reason: str) -> Letter:
    return Letter(
        url=f"https://docs.example/p{n}", queue="docs.example", domain="docs.example", depth=1, reason=reason,
        detail="", attempts=4, failed_at=NOW - n, seed=False, redirects=0, score=1.0, seed_number=1,
        failures=[LetterFailure(NOW - n, reason)], label="", trace="",
    )  # fmt: skip


class FixedSource:
    """`asked`: what was read or commanded, in order. `down`: the engine does not answer."""

    def __init__(self, domains: Sequence[DomainView] = DOMAINS, **headline: Any) -> None:
        self.domains = domains
        self.headline: dict[str, Any] = {
            "pages": 41_203, "pending": 112_345, "in_flight": 64, "dead": 12, "retries": 204, "bytes": 1_300_000_000,
            "instances": 4, "rates": Rates(10.0, pages=97.6), "last_error": "timeout: site7.example",
        } | headline  # fmt: skip
        self.total = 500
        self.asked: list[tuple[Any, ...]] = []
        self.down = False

    def _note(self, *what: Any) -> None:
        self.asked.append(what)
        if self.down:
            raise EngineDown("no answer from the engine: connection refused")

    async def overview(self) -> Overview:
        self._note("overview")
        return overview(**self.headline)

    async def snapshot(self, sort: str, limit: int) -> Snapshot:
        self._note("snapshot", sort, limit)
        return snapshot(*self.domains[:limit], total=self.total, sort=sort, **self.headline)

    async def series(self) -> SeriesView:
        self._note("series")
        return SERIES

    async def by_name(self, after: str, limit: int) -> DomainRows:
        self._note("by_name", after, limit)
        found = [d for d in sorted(self.domains, key=lambda d: d.domain) if d.domain > after]
        following = found[limit - 1].domain if len(found) > limit else ""
        return DomainRows(sort="name", rows=found[:limit], total=self.total, next=following)

    async def matching(self, text: str, limit: int) -> DomainRows:
        self._note("matching", text, limit)
        return DomainRows(sort="match", rows=[d for d in self.domains if text in d.domain][:limit], total=self.total)

    async def detail(self, name: str) -> DomainDetail:
        self._note("detail", name)
        for d in self.domains:
            if d.domain == name:
                detail = DomainDetail(
                    domain=d, sentence=sentence(d, {}, instances=4, crawl_stop=""), instances=4,
                    deferred={"urls": 12}, ordered_delay_ms=None, crawl_paused=False, crawl_spent="",
                    robots=[RobotsView(
                        origin=f"https://{name}", read_at=NOW - 60, rules=3, crawl_delay_s=None, allows_front_page=True
                    )],
                    series=SERIES,
                )  # fmt: skip
                return with_facts(detail)
        raise UsageError(f"this crawl has not met the domain {name}")

    async def members(self) -> str:
        self._note("members")
        return "node  state\nvm-0  alive"

    async def letters(self, domain: str) -> LetterList:
        self._note("letters", domain)
        newest = [letter(1, "timeout"), letter(2, "tls"), letter(3, "timeout")]
        return LetterList(total=3, reasons={"timeout": 2, "tls": 1}, newest=newest)

    async def log(self) -> Sequence[LogEntry]:
        self._note("log")
        first = LogEntry(
            id=1, at=NOW - 50, who="ann", via=Via.CLI, action="pause", target="", detail="", first_at=NOW - 50
        )
        second = LogEntry(
            id=2, at=NOW, who="bob", via=Via.TOP, action="delay", target="a.test", detail="5 s", first_at=NOW
        )
        return [first, second]

    async def attempts(self, domain: str) -> Sequence[ShownAttempt]:
        self._note("attempts", domain)
        url = f"https://{domain}/a"
        return [
            ShownAttempt.of(
                Attempt(
                    url=url, fp="", domain=domain, attempt=1, became=Became.COMMITTED, node="vm-0", session="s",
                    epoch=1, claimed=NOW - 3, started=NOW - 1, finished=NOW, http_status=200,
                )
            )
        ]  # fmt: skip

    async def pause(self, domain: str, *, undo: bool) -> str:
        self._note("resume" if undo else "pause", domain)
        return f"{domain} is now paused"

    async def block(self, domain: str, *, undo: bool) -> str:
        self._note("unblock" if undo else "block", domain)
        return f"{domain} is now blocked"

    async def boost(self, domain: str, boost: int) -> str:
        self._note("boost", domain, boost)
        return f"{domain}: boost {boost}"

    async def delay(self, domain: str, text: str) -> str:
        self._note("delay", domain, text)
        if text == "x":
            raise UsageError("'x' is not a valid duration (use 90, 10m, 2h, 1d)")
        return f"{domain}: {text}"

    async def retry(self, domain: str, reason: str) -> str:
        self._note("retry", domain, reason)
        return "2 URLs back in the queues"

    @property
    def commands(self) -> list[tuple[Any, ...]]:
        """What would have changed something."""
        reads = (
            "overview",
            "snapshot",
            "series",
            "by_name",
            "matching",
            "detail",
            "members",
            "letters",
            "log",
            "attempts",
        )
        return [one for one in self.asked if one[0] not in reads]


def app_of(source: FixedSource) -> TopApp:
    """It reads when a key wants it to, and at no other time."""
    return TopApp(source, every_s=NEVER_S, clock=lambda: 0.0)


def screen_text(app: TopApp) -> str:
    """What the terminal shows."""
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())
