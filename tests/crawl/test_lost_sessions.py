"""Sites whose URLs lead to the login, or end sessions: no page is lost, and there are few logins."""

import itertools
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from crawler import Crawler, Page
from crawler.hosts.login import Attempt, Logins
from crawler.hosts.sessions import Session, Sessions
from crawler.rules import login_pace
from crawler.testing import Answer, Asked, crawl, serve
from tests.crawl.members_site import MembersSite, html, members_app, redirect

START = "http://club.test/"


class Odd(MembersSite):
    """Next to its pages it has `odd` URLs. What they do: "wants": more than a login; "login", "home", "bye": they end
    the session, and lead to the login, to the front page, or say so. With `public`, others need no login.
    """

    def __init__(self, does: str, odd: list[str], *, public: int = 0, lasts: int = 0) -> None:
        super().__init__(pages=24, lasts=lasts)
        self.does, self.odd, self.public = does, odd, [f"/open/{n}" for n in range(public)]
        self.asked_odd: list[str] = []

    def respond(self, asked: Asked) -> Answer | None:
        parts = urlsplit(asked.url)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        if target in self.odd:
            return self._odd(asked, target)
        if target in self.public:
            self.served[target] += 1
            return html("<p>for all")
        answer = super().respond(asked)
        if answer is None or parts.path != "/" or answer.status != 200:
            return answer
        every = [f"/p/{n}" for n in range(self.pages)]
        mixed = [one for pair in zip(every, [*self.odd, *self.public, *every], strict=False) for one in pair]
        links = "".join(f"<a href='{one}'>x</a>" for one in [*mixed, *self.odd, *self.public])
        return html(f"<h1>member</h1>{links}")

    def _odd(self, asked: Asked, target: str) -> Answer:
        self.asked_odd.append(target)
        session = self._session_of(asked)
        if session not in self._sessions or self.does == "wants":
            return redirect("/login")
        del self._sessions[session]
        self.ended += 1
        return {"login": redirect("/login"), "home": redirect("/open"), "bye": html("<p>good-bye")}[self.does]


def logged_in(page: Page) -> bool | None:
    return None if "/open" in page.url else b"member" in page.body


def app_of(*, judged: bool) -> Crawler:
    return members_app(logged_in if judged else None)


class Case(NamedTuple):
    does: str
    odd: list[str]
    logins: int  # at most
    judged: bool = False
    public: int = 0
    lasts: int = 0


SAME_PATH, ONE_FOLDER = [f"/out?n={n}" for n in range(20)], [f"/out/{n}" for n in range(20)]
BY_QUERY = [f"/x?do=logout&token={n}" for n in range(20)]
ADMIN = [f"/admin/{n}" for n in range(30)]
CASES = {
    **{
        f"{does}, {name}{', judged' * judged}": Case(does, odd, logins, judged)
        for does, logins in (("login", 6), ("home", 6), ("bye", 6))
        for name, odd in (("same path", SAME_PATH), ("one folder", ONE_FOLDER), ("by query", BY_QUERY))
        for judged in (False, True)
    },
    "30 want more": Case("wants", ADMIN, logins=1),
    "30 want more, judged": Case("wants", ADMIN, logins=1, judged=True),
    "30 want more, among public pages": Case("wants", ADMIN, logins=1, public=20),
    "30 want more, sessions end": Case("wants", ADMIN, logins=9, lasts=10),
    "30 want more, sessions end, judged": Case("wants", ADMIN, logins=9, judged=True, lasts=10),
}


QUICK = ("login, one folder", "home, same path", "bye, by query, judged", "30 want more, among public pages")


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in CASES if name not in QUICK)]
)
def test_few_logins_and_all_pages(name: str) -> None:
    case = CASES[name]
    site = Odd(case.does, case.odd, public=case.public, lasts=case.lasts)
    with serve(site) as web:
        found = crawl(app_of(judged=case.judged), START, web=web, settings={"fetch.links_max": 5000})
    pages = {"/", *(f"/p/{n}" for n in range(site.pages)), *site.public}
    assert pages <= {item["path"] for item in found.items}
    wanted = {f"http://club.test{path}" for path in case.odd}
    assert set(found.dead) | set(found.pages) >= wanted  # each has an end
    assert not [url for url in found.dead if url not in wanted], found.dead
    reasons = {reason.partition(" ")[0] for reason in found.dead.values()}
    assert reasons <= ({"login_required"} if case.does == "wants" else {"ends_session"})
    assert site.logins <= case.logins, (site.logins, found.dead)
    assert site.logins <= login_pace.LOGINS_AN_HOUR


def test_few_logins_where_nothing_but_such_urls_is_left() -> None:
    """As after a takeover: the page that a login leads to shows that sessions last."""
    site, seeds = Odd("bye", BY_QUERY), [f"http://club.test{path}" for path in BY_QUERY]
    with serve(site) as web:
        found = crawl(app_of(judged=False), seeds, web=web, settings={"scope.follow": "handlers"})
    assert len(found.pages) + len(found.dead) == len(BY_QUERY)
    assert {reason.partition(" ")[0] for reason in found.dead.values()} == {"ends_session"}
    assert site.logins <= 6


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour has five looks at the clock, and one login."""
    clock = itertools.count(1)
    monkeypatch.setattr(login_pace, "LOGINS_AN_HOUR", 1)
    monkeypatch.setattr(login_pace, "HOUR_MS", 5)
    monkeypatch.setattr(Sessions, "now_ms", lambda *_: next(clock))


@pytest.mark.usefixtures("ticks")
def test_above_so_many_logins_an_hour_urls_wait(caplog: pytest.LogCaptureFixture) -> None:
    site = MembersSite(pages=8, lasts=6)
    with serve(site) as web:
        found = crawl(app_of(judged=True), START, web=web)
    assert sorted(item["path"] for item in found.items) == sorted(["/", *(f"/p/{n}" for n in range(8))])
    assert found.dead == {}
    assert "login.waits" in {record.getMessage() for record in caplog.records}


@pytest.mark.usefixtures("ticks")
def test_a_site_that_is_full_for_three_hours_is_blocked(caplog: pytest.LogCaptureFixture) -> None:
    site = MembersSite(pages=60, lasts=3)
    with serve(site) as web:
        found = crawl(app_of(judged=True), START, web=web)
    (failed,) = [record for record in caplog.records if record.getMessage() == "login.failed"]
    assert failed.__dict__["why"].endswith("logins an hour, for 3 hours: something ends its sessions")
    assert (found.dead, found.why) == ({}, "finished")
    assert 3 <= site.logins <= 4


@pytest.mark.parametrize(("named", "waits"), [(["", "a", "b", "c"], False), (["", "a", "b", "a"], True)])
async def test_the_limit_is_of_a_site_without_the_first_login_of_each_named_session(
    monkeypatch: pytest.MonkeyPatch, named: list[str], waits: bool
) -> None:
    monkeypatch.setattr(login_pace, "LOGINS_AN_HOUR", 1)
    records = dict[str, login_pace.LoginRecord]()

    async def login_record(site: str) -> login_pace.LoginRecord:
        return records.get(site, login_pace.LoginRecord())

    async def note_logins(site: str, record: login_pace.LoginRecord) -> None:
        records[site] = record

    stub: Any = SimpleNamespace(now_ms=lambda _session: 1000)
    book: Any = SimpleNamespace(login_record=login_record, note_logins=note_logins)
    rules = Logins({}, None, stub, stub, stub, book=book, stop_site=stub)
    known = {name: Session(site="club.test", name=name, partition=0, epoch=1) for name in named}
    found = []
    for name in named:
        attempt = Attempt("http://club.test/login", 1)
        found.append(await rules.wait_ms(known[name], attempt))
        attempt.is_sent = True
        await rules.count(known[name], attempt)
        known[name].login += 1
    assert [bool(wait_ms) for wait_ms in found] == [False, False, False, waits]
    assert records["club.test"].logins == 4
