"""Who is blamed for a lost session: plain models of sites, crawled by the rules alone, in any order."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from crawler.hosts.login import Logins
from crawler.hosts.login_plans import LoginPlan
from crawler.hosts.session_loss import NOTHING, Fate, Length, Paths, Seen, Sight
from crawler.hosts.sessions import Session
from crawler.model import Claim, FailureKind
from crawler.rules.login_pace import LoginRecord

LOST = Seen(Sight.LOST, "it leads to the login")
INNOCENT = ("private", "public", "moved", "missing")


class Model:
    """A site, whose URLs are of a kind, and what became of them. `lasts`: answers of a session, at least `shortest`."""

    def __init__(self, seed: int, *, judged: bool, shortest: int, longest: int) -> None:
        self.random = random.Random(seed)
        self.judged, self.shortest, self.longest = judged, shortest, longest
        self.left = 0  # answers of the session
        self.logins = self.ended = self.requests = self.checks = 0
        stub: Any = SimpleNamespace(lost=self._lost)
        self.rules = Logins({}, None, stub, stub, stub, book=stub, stop_site=stub)
        self.session = Session(site="a.test", name="", partition=0, epoch=1)
        self.fates: dict[str, Fate] = {}
        self.committed: list[str] = []

    def _lost(self, session: Session) -> None:
        session.is_in = False

    def crawl(self, urls: dict[str, str]) -> None:
        """`urls`: URL -> kind. Each is at the head of the queue until it has an end."""
        queue = list(urls)
        self.random.shuffle(queue)
        while queue:
            url = queue[0]
            claim: Any = SimpleNamespace(url=url, fingerprint=url, request=None)
            if self._turn(claim, urls):
                queue.pop(0)
            assert self.requests < 100 * len(urls), "it does not end"

    def _turn(self, claim: Claim, urls: dict[str, str]) -> bool:
        """One turn of a queue; has the claim ended?"""
        watch = self.rules.watch(self.session)
        fate = self.rules._losses.fate_of(claim, watch)
        if fate is not None:
            self.fates[claim.url] = fate
            return True
        if not self.session.is_in:
            self.logins += 1
            self.left = self.random.randint(self.shortest, self.longest)
            self.session.login, self.session.is_in, self.session.answers = self.session.login + 1, True, 0
            return False
        if self.rules.must_log_in(self.session, claim):
            assert watch.check is not None
            self.checks += 1
            page = watch.check.pages[0]
            seen = self._answer(urls[page], is_anonymous=watch.check.is_anonymous)
            if self.rules._losses.checked(watch, seen, login=self.session.login):
                self._lost(self.session)
            return False
        seen = self._answer(urls[claim.url])
        found = self.rules.page_answered(claim, self.session, self.session.login, seen)
        if isinstance(found, Fate):
            self.fates[claim.url] = found
        elif not found:
            self.committed.append(claim.url)
        return found is not True

    def _answer(self, kind: str, *, is_anonymous: bool = False) -> Seen:
        self.requests += 1
        is_in = self.left > 0 and not is_anonymous
        if not is_anonymous and self.left:
            self.left -= 1
            self.ended += not self.left
        if kind == "public":
            return Seen(Sight.GOOD)
        if kind == "bye" and not is_in:
            return LOST if self.judged else Seen(Sight.GOOD)
        if kind == "home" and not is_in:
            return NOTHING
        if not is_in or kind == "wants":
            return LOST
        if kind in ("moved", "missing"):
            return NOTHING
        if kind == "private":
            return Seen(Sight.PROOF if self.judged else Sight.GOOD)
        self.ended += self.left > 0
        self.left = 0
        return {"login": LOST, "home": NOTHING, "bye": LOST if self.judged else Seen(Sight.GOOD)}[kind]


def site(**counts: int) -> dict[str, str]:
    places = {"private": "/p/{}", "public": "/open/{}", "moved": "/p/m{}", "missing": "/p/x{}", "wants": "/admin/{}"}
    return {
        f"http://a.test{places.get(kind, f'/{kind}/{{}}').format(n)}": kind
        for kind, count in counts.items() for n in range(count)
    }  # fmt: skip


@pytest.mark.parametrize("judged", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_no_innocent_url_is_given_up(seed: int, judged: bool) -> None:
    choose = random.Random(seed)
    urls = site(
        private=40, public=choose.choice((0, 5, 40)), moved=choose.choice((0, 10)), missing=choose.choice((0, 10)),
        **{kind: choose.choice((0, 0, 1, 10)) for kind in ("wants", "login", "home", "bye")},
    )  # fmt: skip
    longest = choose.choice((3, 4, 12, 60, 10_000))
    model = Model(seed, judged=judged, shortest=max(2, longest // 2), longest=longest)
    model.crawl(urls)
    blamed = {url: fate for url, fate in model.fates.items() if urls[url] in INNOCENT}
    assert blamed == {}
    assert len(model.committed) == len(set(model.committed))
    assert set(model.committed) | set(model.fates) == set(urls)
    assert {urls[url] for url, fate in model.fates.items() if fate.kind is FailureKind.LOGIN_REQUIRED} <= {
        "wants", "login", *(["bye"] if judged else []),
    }  # fmt: skip
    assert not [url for url in model.committed if urls[url] in ("wants", "login")]
    assert model.logins <= model.ended + 1 + 2  # a login without need is rare


@pytest.mark.parametrize("judged", [False, True])
@pytest.mark.parametrize("lasts", [2, 3, 4, 6])
def test_sessions_that_end_by_themselves_blame_no_path(lasts: int, judged: bool) -> None:
    for seed in range(12):
        choose = random.Random(seed)
        urls = site(private=40, public=choose.choice((0, 5, 40)), moved=choose.choice((0, 10)))
        model = Model(seed, judged=judged, shortest=lasts, longest=lasts)
        model.crawl(urls)
        assert (model.rules.watch(model.session).paths.ends, model.fates) == ([], {})


def test_a_path_is_blamed_once_a_session_was_long_and_never_where_none_was() -> None:
    url = "http://a.test/out/{}"
    for is_long, wanted in ((True, ["a.test/out/*"]), (False, [])):
        paths = Paths()
        for n in range(3):
            paths.strike(url.format(n), str(n))
        assert (paths.length, paths.ends) == (Length.DOUBTFUL, [])
        paths.are_long() if is_long else paths.are_short()
        assert paths.ends == wanted
        for n in range(3, 6):
            paths.strike(url.format(n), str(n))
        assert paths.ends == wanted


async def test_a_path_that_an_operator_takes_off_the_list_is_requested() -> None:
    records = {"a.test": LoginRecord(logins=3, ends=("a.test/out", "a.test/x/*"))}

    async def login_record(site: str) -> LoginRecord:
        return records[site]

    stub: Any = SimpleNamespace()
    book: Any = SimpleNamespace(login_record=login_record)
    rules = Logins({}, None, stub, stub, stub, book=book, stop_site=stub)
    session = session_of(1)
    claims: list[Any] = [
        SimpleNamespace(url=f"http://a.test/{path}", fingerprint=path) for path in ("out", "x/1", "x/2", "y")
    ]
    fates = [await rules.fate_of(claim, session) for claim in claims]
    assert [fate and fate.kind for fate in fates] == [FailureKind.ENDS_SESSION] * 3 + [None]
    records["a.test"] = LoginRecord(logins=4, ends=("a.test/out",))
    fates = [await rules.fate_of(claim, session) for claim in claims]
    assert [fate and fate.kind for fate in fates] == [FailureKind.ENDS_SESSION, None, None, None]


@pytest.mark.parametrize("judged", [False, True])
@pytest.mark.parametrize("kind", ["wants", "login", "home", "bye"])
def test_many_of_a_kind_cost_few_logins(kind: str, judged: bool) -> None:
    logins = []
    for seed in range(20):
        model = Model(seed, judged=judged, shortest=10_000, longest=10_000)
        model.crawl(site(private=60, **{kind: 30}))
        logins.append(model.logins)
    assert max(logins) <= {"wants": 4, "login": 10, "home": 10, "bye": 10}[kind], logins  # with none good before, more


def test_the_next_owner_of_a_session_begins_its_login_again() -> None:
    """The form was filled in under the lease before: its token and its cookies are of then."""
    stub: Any = SimpleNamespace()
    rules = Logins({}, None, stub, stub, stub, book=stub, stop_site=stub)
    plan, before, after = LoginPlan(site="a.test", url="http://a.test/login"), *map(session_of, (1, 2))
    attempt = rules.begin(before, plan)
    assert attempt is not None
    attempt.url, attempt.is_sent = "http://a.test/in", True
    rules.end(before)
    assert rules.begin(before, plan) is attempt
    rules.end(before)
    fresh = rules.begin(after, plan)
    assert fresh is not None
    assert (fresh.url, fresh.is_sent) == ("http://a.test/login", False)


def session_of(epoch: int) -> Session:
    return Session(site="a.test", name="", partition=0, epoch=epoch)
