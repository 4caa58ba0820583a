"""What an instance knows of runs: read for many at once, again after a second, and never believed after a restart."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from crawler.errors import EngineDown
from crawler.frontier.runs import ActiveRun
from crawler.model import Claim
from crawler.routing import runs_known as run_book
from crawler.routing.recent_urls import RecentUrls
from crawler.routing.router import Router
from crawler.routing.runs_known import RunBook
from crawler.routing.traps_learned import TrapMemory
from crawler.rules.introductions import Introductions
from crawler.rules.job_runs import RunRecord, RunSpec
from crawler.rules.scope import ScopeRules
from crawler.rules.traps import NOTHING_LEARNED
from crawler.settings import TrapSettings
from crawler.worker.counters import Counters
from crawler.worker.open_claims import OpenClaims
from crawler.worker.route import RouteStage
from tests.worker.test_links_of_a_group import RECORD, FakeFrontier, page
from tests.worker.turn_lab import content_steps, work_of

URL = "http://a.test/"


class FakeRuns:
    """Active runs by id; `reads` and `touches` are what was asked."""

    def __init__(self) -> None:
        self.active: dict[str, RunRecord] = {}
        self.reads: list[set[str]] = []
        self.touches: list[tuple[str, set[int]]] = []
        self.noted: dict[str, set[str]] = {}
        self.root_reads = 0
        self.lags = 0  # how often a replica is asked in vain
        self.is_down = False

    def start(self, run: str, *, stopped: str = "", roots: Iterable[str] = ("domain:a.test",), **spec: Any) -> None:
        self.active[run] = RunRecord(
            run=run, user="u", name="j", nominal=1, started_at=1.0, spec=RunSpec(**spec), roots=tuple(roots),
            stopped=stopped,
        )  # fmt: skip

    async def look(self, runs: Iterable[str]) -> dict[str, ActiveRun | None]:
        asked = {*runs}
        self.reads.append(asked)
        if self.is_down:
            raise EngineDown("down")
        noted = {run: len(self.noted.get(run, ())) for run in asked}
        return {run: ActiveRun(self.active[run], noted[run]) if run in self.active else None for run in asked}

    async def roots(self, run: str) -> frozenset[str]:
        self.root_reads += 1
        return frozenset(self.noted[run])

    async def touch(self, run: str, partitions: Iterable[int], roots: Iterable[str] = ()) -> bool:
        assert not {*partitions}
        self.noted.setdefault(run, set()).update(roots)
        return run in self.active

    async def keeps(self, run: str) -> bool:
        self.lags -= 1
        return self.lags < 0

    async def touch_all(self, partitions: Mapping[str, Iterable[int]]) -> set[str]:
        self.touches += [(run, {*mine}) for run, mine in partitions.items()]
        return {run for run in partitions if run not in self.active}


@pytest.fixture
def runs() -> FakeRuns:
    return FakeRuns()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Its one number is the time, ms."""
    now = [10_000]
    monkeypatch.setattr(run_book, "monotonic_ms", lambda: now[0])
    return now


@pytest.fixture
def book(runs: FakeRuns, clock: list[int]) -> RunBook:
    scope = replace(RECORD.scope, mode="domain", exclude=["/no/"], depth_max=5)
    router = Router(RECORD, ScopeRules.of(scope, ["domain:a.test", "domain:b.test"]), RecentUrls(100))
    return RunBook(runs, router, TrapMemory(TrapSettings()))  # type: ignore[arg-type]


def claim(run: str, depth: int = 0) -> Claim:
    return Claim(
        url=URL, fingerprint="1", visit=1, partition=3, epoch=1, token="1.r.1", domain="a.test", queue="a.test",
        depth=depth, redirects=0, attempts=0, deliveries=0, seed=False, run=run,
    )  # fmt: skip


async def test_urls_of_runs_that_are_over_are_refused_and_why(book: RunBook, runs: FakeRuns) -> None:
    runs.start("going", depth=2)
    runs.start("full", stopped="pages")
    refusals = [await book.refusal_of(one) for one in (claim("going", 2), claim("full"), claim("ended"))]
    assert refusals == ["", "run_pages", "run_ended"]
    assert await book.refusal_of(claim("going", 3)) == "run_depth"


async def test_records_are_read_together_and_again_after_a_second(
    book: RunBook, runs: FakeRuns, clock: list[int]
) -> None:
    runs.start("one")
    runs.start("two")
    await book.learn({"one", "two"})
    await book.refusal_of(claim("one"))
    clock[0] += 999
    await book.learn({"two"})
    assert runs.reads == [{"one", "two"}]
    del runs.active["one"]
    clock[0] += 1
    assert await book.refusal_of(claim("one")) == "run_ended"
    assert runs.reads[1:] == [{"one"}]


async def test_a_run_that_is_triggered_again_after_a_rollback_is_not_taken_for_ended(
    book: RunBook, runs: FakeRuns
) -> None:
    """A session may have looked for it between the engine's fall and its second start."""
    await book.learn({"one"})
    assert await book.refusal_of(claim("one")) == "run_ended"
    runs.start("one")
    runs.is_down = True
    with pytest.raises(EngineDown):
        await book.learn({"one"})
    runs.is_down = False
    assert await book.refusal_of(claim("one")) == ""


async def test_a_claim_is_not_judged_while_the_engine_does_not_answer(
    book: RunBook, runs: FakeRuns, clock: list[int]
) -> None:
    runs.start("one")
    await book.learn({"one"})
    clock[0] += 1000
    runs.is_down = True
    with pytest.raises(EngineDown):
        await book.refusal_of(claim("one"))
    runs.is_down = False
    assert await book.refusal_of(claim("one")) == ""


async def test_a_run_is_routed_by_its_own_scope_and_by_the_filters_of_the_crawl(book: RunBook, runs: FakeRuns) -> None:
    runs.start("one", depth=1, priority=7.0)
    await book.learn({"one"})
    plain, router = book.router_of(""), book.router_of("one")
    assert plain is not None
    assert router is not None
    links = ["http://a.test/1", "http://a.test/no/", "http://b.test/"]
    assert [c.url for c in plain.links(claim(""), links, Counter())] == [links[0], links[2]]
    (found,) = router.links(claim("one"), links, Counter())
    assert (found.url, found.run, found.seed_number) == (links[0], "one", 0)
    (same,) = plain.links(claim(""), links[:1], Counter())
    assert found.fingerprint != same.fingerprint
    assert round(found.score - same.score, 3) == 7.0
    assert not router.links(claim("one", 1), links, Counter())


async def test_what_the_crawl_added_lately_is_new_to_a_run(book: RunBook, runs: FakeRuns) -> None:
    runs.start("one")
    await book.learn({"one"})
    plain, router = book.router_of(""), book.router_of("one")
    assert plain is not None
    assert router is not None
    plain.recent.add("http://a.test/1", 1)
    assert router.recent.unknown(["http://a.test/1"], 1) == ["http://a.test/1"]
    router.recent.add("http://a.test/1", 1)
    assert book.router_of("one") is router, "while nothing changes"
    plain.scope = plain.scope.with_roots(["domain:c.test"])
    assert book.router_of("one") is not router, "the crawl's rules have changed"


async def test_a_partition_is_touched_once_until_the_engine_restarts(book: RunBook, runs: FakeRuns) -> None:
    for run in ("one", "two"):
        runs.start(run)
    await book.learn({"one", "two"})
    for partitions in ((1, 2), (2, 1), (2, 3)):
        assert await book.touch_all({"one": partitions, "two": (1,)}) == set()
    assert runs.touches == [("one", {1, 2}), ("two", {1}), ("one", {3})]
    book.forget()
    assert book.router_of("one") is None
    assert await book.touch_all({"one": (1,)}) == set()
    assert runs.touches[3:] == [("one", {1})]


async def test_a_touch_that_a_restart_overtakes_is_not_believed(book: RunBook, runs: FakeRuns) -> None:
    runs.start("one")
    await book.learn({"one"})
    answer = runs.touch_all

    async def overtaken(partitions: Mapping[str, Iterable[int]]) -> set[str]:
        ended = await answer(partitions)
        book.forget()
        await book.learn({"one"})
        return ended

    runs.touch_all = overtaken  # type: ignore[method-assign]
    assert await book.touch_all({"one": (1,)}) == set()
    runs.touch_all = answer  # type: ignore[method-assign]
    assert await book.touch_all({"one": (1,)}) == set()
    assert len(runs.touches) == 2


async def test_a_root_that_a_redirect_opens_counts_once_it_is_kept_and_is_read_once(
    book: RunBook, runs: FakeRuns, clock: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_book, "ENGINE_PAUSE_S", 0)
    runs.start("one")
    await book.learn({"one"})
    runs.lags = 3
    await book.open("one", ("domain:b.test",))
    assert runs.lags == -1, "a failover of the run's home would forget it"
    router = book.router_of("one")
    assert router is not None
    assert router.scope.allows("http://b.test/")
    assert router.scope.allows("http://a.test/")
    assert book.may_lead_to(claim("one"), "http://b.test/")
    clock[0] += 5000
    await book.learn({"one"})
    assert book.router_of("one") is router
    assert runs.root_reads == 1


async def test_an_ended_run_is_known_from_the_first_touch_that_fails(book: RunBook, runs: FakeRuns) -> None:
    for run in ("one", "two"):
        runs.start(run)
    await book.learn({"one", "two"})
    del runs.active["one"]
    assert await book.touch_all({"one": (1,), "two": (1,)}) == {"one"}
    assert await book.touch_all({"one": (2,)}) == {"one"}
    assert len(runs.touches) == 2
    assert book.router_of("one") is None


async def test_of_too_many_runs_those_that_were_read_longest_ago_are_forgotten(
    book: RunBook, runs: FakeRuns, clock: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_book, "RUNS_MAX", 2)
    for run in ("one", "two", "one", "three"):
        runs.start(run)
        clock[0] += 1000
        await book.learn({run})
    assert [run for run in ("one", "two", "three") if book.router_of(run)] == ["one", "three"]


async def test_runs_that_were_not_met_for_long_are_forgotten_with_what_was_learned_for_them(
    runs: FakeRuns, clock: list[int]
) -> None:
    """A run that has ended is met no more; nobody tells those who only fetched some of its pages."""
    traps = TrapMemory(TrapSettings())
    book = RunBook(runs, Router(RECORD, ScopeRules.of(RECORD.scope, ()), RecentUrls(100)), traps)  # type: ignore[arg-type]
    for run in ("", "ended", "slow"):
        runs.start(run)
        await book.learn({run})
        traps.learn(claim(run), (), "digest")
    for run in ("slow", "new"):
        runs.start(run)
        clock[0] += run_book.IDLE_MS // 2
        await book.learn({run})
    assert [run for run in ("ended", "slow", "new") if book.is_known(run)] == ["slow", "new"]
    learned = traps.state_of("a.test")
    assert learned != NOTHING_LEARNED
    assert [traps.state_of("a.test", run) for run in ("ended", "slow")] == [NOTHING_LEARNED, learned]


async def test_a_page_whose_run_is_forgotten_while_its_group_is_judged_keeps_its_links(
    book: RunBook, runs: FakeRuns
) -> None:
    """The engine restarts while the run of another page of the group is read."""
    runs.start("one")
    runs.start("two")
    look, reads = runs.look, count(1)

    async def restarting(asked: Iterable[str]) -> dict[str, ActiveRun | None]:
        if next(reads) == 2:
            book.forget()
        return await look(asked)

    runs.look = restarting  # type: ignore[method-assign]
    unused: Any = SimpleNamespace()
    held: Any = SimpleNamespace(is_open=lambda _: False)
    work = work_of(held=held, traps=TrapMemory(TrapSettings()), counters=Counters(OpenClaims(9)))
    router = Router(RECORD, ScopeRules.of(RECORD.scope, frozenset()), RecentUrls(100))
    stage = RouteStage(FakeFrontier(), unused, router, work, content_steps(), book, Introductions())  # type: ignore[arg-type]
    inside, beyond = page(stage, URL, f"{URL}link"), page(stage, "http://c.test/")
    inside.claim, beyond.claim = replace(inside.claim, run="one"), replace(beyond.claim, run="two")
    own = await stage.route([inside, beyond])
    assert [c.url for c in own[0]] == [f"{URL}link"]
