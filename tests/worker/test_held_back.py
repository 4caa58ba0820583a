"""Pages whose links wait: for what their domain may introduce, or for room in the engine. On a clock of the test's."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from crawler.errors import EngineFull
from crawler.frontier.messages import AckReply, AddReply
from crawler.frontier.owner import Settlement
from crawler.model import AckOutcome, AddOutcome, Candidate, Claim, ParsedPage
from crawler.routing.recent_urls import RecentUrls
from crawler.routing.router import Router
from crawler.routing.traps_learned import TrapMemory
from crawler.rules import introductions
from crawler.rules.introductions import BURST_BYTES, BYTES_PER_S, Introductions, cost
from crawler.rules.job_runs import RunRecord, RunSpec
from crawler.rules.scope import ScopeRules
from crawler.settings import ArchiveSettings, TrapSettings
from crawler.worker import route
from crawler.worker.activity import Activity
from crawler.worker.commit import Committer, Ends
from crawler.worker.counters import Counters
from crawler.worker.open_claims import OpenClaims
from crawler.worker.outcomes import Committable
from crawler.worker.route import HeldBack, RouteStage
from crawler.worker.schedule import Scheduler
from tests.worker.test_links_of_a_group import RECORD
from tests.worker.turn_lab import BUSY, content_steps, work_of

NEW, SEEN = AddOutcome.NEW, AddOutcome.SEEN


class Frontier:
    """Takes what is added, unless a partition is full."""

    def __init__(self) -> None:
        self.added: list[str] = []
        self.known: set[str] = set()
        self.full: set[int] = set()
        self.calls = 0

    async def add(self, wanted: dict[int, list[Candidate]]) -> dict[int, AddReply | EngineFull]:
        self.calls += 1
        return {p: EngineFull("OOM") if p in self.full else self._take(found) for p, found in wanted.items()}

    def _take(self, found: Sequence[Candidate]) -> AddReply:
        outcomes = tuple(SEEN if candidate.url in self.known else NEW for candidate in found)
        self.added += [c.url for c, outcome in zip(found, outcomes, strict=True) if outcome is NEW]
        self.known.update(candidate.url for candidate in found)
        return AddReply(outcomes=outcomes, woken=0)


class Lab:
    """A committer with the real route stage, between an archive and an ack that take everything."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.frontier, self.acked = Frontier(), list[str]()
        self.returned: list[Claim] = []
        self.lost: set[int] = set()
        self.draining: set[int] = set()
        self.runs: dict[str, Router] = {}
        self.counters = Counters(OpenClaims(1000))
        self.scheduler = Scheduler(self.counters.open_claims, concurrency_per_queue=1)
        self.introductions = Introductions()
        held: Any = SimpleNamespace(
            is_open=lambda p: p not in self.lost | self.draining, holds=lambda claim: claim.partition not in self.lost,
            fence_of=lambda p: None if p in self.lost else "fence", now_of=lambda _: 0, lose=self.lost.add,
        )  # fmt: skip
        nothing: Any = SimpleNamespace(
            node="n", session="s", lost=lambda _: None, accepted=lambda _: None, cut_off=lambda *_: None,
            room_changed=lambda: None,
            passed=lambda: None, queue_due=lambda *_: None, hint=lambda *_: None, store=self._store,
            have_room=self._have_room, committed=lambda *_: None, wants_drain=False, ack=self._ack,
        )  # fmt: skip
        runs: Any = SimpleNamespace(
            router_of=self.runs.get, is_known=self.runs.__contains__, learn=self._learn, touch_all=self._touch_all
        )
        self.router = Router(RECORD, ScopeRules.of(RECORD.scope, frozenset()), RecentUrls(100))
        frontier: Any = self.frontier
        traps = TrapMemory(TrapSettings())
        work = work_of(
            held=held, due=nothing, traps=traps, counters=self.counters, scheduler=self.scheduler,
            activity=Activity(1024),
        )  # fmt: skip
        self.stage = RouteStage(frontier, nothing, self.router, work, content_steps(), runs, self.introductions)
        self.held_back = HeldBack(self.introductions, work, self._return)
        ends = Ends(notes=nothing, hooks=nothing, content=content_steps(), internal_errors=nothing)
        busy = replace(work, scheduler=BUSY)
        self.committer = Committer(nothing, self.stage, nothing, self.held_back, busy, ends, ArchiveSettings(), nothing)

    async def _store(self, group: Sequence[Committable]) -> list[Any]:
        return [SimpleNamespace(digest="", warc=None, items=None) for _ in group]

    async def _have_room(self) -> None:
        pass

    async def _ack(self, acks: Sequence[Any]) -> list[AckReply]:
        self.acked += [ack.claim.url for ack in acks]
        self.frontier.added += [item.url for ack in acks for item in ack.items]
        return [AckReply(outcome=AckOutcome.COMMITTED) for _ in acks]

    async def _return(self, claims: list[Claim]) -> None:
        self.returned += claims
        for claim in claims:
            self.counters.open_claims.ended(claim)

    async def _learn(self, runs: set[str]) -> None:
        pass

    async def _touch_all(self, partitions: dict[str, set[int]]) -> set[str]:
        return set()

    def page(self, url: str, links: Sequence[str], *, run: str = "") -> Committable:
        domain, queue, partition = self.router.placement.of(url)
        claim = Claim(
            url=url, fingerprint="1", visit=1, partition=partition, epoch=1, token=f"1.r.{url}", domain=domain,
            queue=queue, depth=0, redirects=0, attempts=0, deliveries=0, seed=False, run=run,
        )  # fmt: skip
        response: Any = SimpleNamespace(
            status=200, started_at=0.0, request_head=b"", content_type="", body=b"b" * 100, raw_body=b"b" * 100,
            truncated="", decode_error="", fetch_ms=1,
        )  # fmt: skip
        self.counters.open_claims.opened([claim])
        page = ParsedPage(links=tuple(links))
        return Committable(claim=claim, response=response, page=page, settlement=Settlement(next_fetch_ms=0))

    async def commit(self, *pages: Committable, after_s: float = 0) -> None:
        """Commit a group with these pages, some time later."""
        self.now_ms += int(after_s * 1000)
        for page in pages:
            self.committer.deliver(page)
        await self.committer.flush()

    async def commit_all(self, seconds: int) -> int:
        """Go on until nothing waits; how long it took, s."""
        for second in range(seconds):
            if not self.counters.open_claims.total:
                return second
            await self.commit(after_s=1)
        raise AssertionError(f"{self.counters.held_links} links wait after {seconds} s")


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    lab = Lab()
    for module in (route, route):
        monkeypatch.setattr(module, "monotonic_ms", lambda: lab.now_ms)
    return lab


def links(count: int, tag: str = "x") -> list[str]:
    return [f"http://{tag}{number}.test/" for number in range(count)]


@pytest.mark.slow(ci=True)
async def test_of_50_000_links_to_own_domains_all_are_added_and_the_page_is_acked_once(lab: Lab) -> None:
    some = links(50_000)
    await lab.commit(lab.page("http://a.test/", some))
    assert 7_000 < len(lab.frontier.added) < 9_000, "a burst at once"
    assert lab.acked == []
    assert (lab.counters.held_pages, lab.counters.held_links) == (1, 50_000 - len(lab.frontier.added))
    assert [claim.url for claim in lab.committer.claims] == ["http://a.test/"], "its claim is kept alive"
    took_s = await lab.commit_all(300)
    assert took_s == pytest.approx((sum(map(cost, some)) - BURST_BYTES) / BYTES_PER_S, abs=2)
    assert sorted(lab.frontier.added) == sorted(some)
    assert lab.acked == ["http://a.test/"]
    assert (lab.counters.held_pages, lab.committer.uncommitted, lab.committer.claims) == (0, 0, [])


async def test_other_domains_of_its_group_and_later_ones_are_acked_at_once(lab: Lab) -> None:
    await lab.commit(lab.page("http://a.test/", links(9_000)), lab.page("http://b.test/", links(100, "y")))
    await lab.commit(lab.page("http://c.test/", links(100, "z")))
    assert lab.acked == ["http://b.test/", "http://c.test/"]


async def test_links_to_the_own_queue_cost_nothing(lab: Lab) -> None:
    own = [f"http://a.test/{number}" for number in range(20_000)]
    await lab.commit(lab.page("http://a.test/", own))
    assert lab.acked == ["http://a.test/"]
    assert sorted(lab.frontier.added) == sorted(own)


@pytest.mark.slow(ci=True)
async def test_what_was_known_is_refunded(lab: Lab) -> None:
    some = links(20_000)
    lab.frontier.known.update(some)
    for number in range(5):
        await lab.commit(lab.page(f"http://a.test/{number}", some))
    assert len(lab.acked) == 5
    assert lab.introductions.room("a.test", lab.now_ms) == BURST_BYTES


async def test_links_that_wait_are_judged_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = []
    before = lab.stage.traps.learn
    monkeypatch.setattr(lab.stage.traps, "learn", lambda *one: judged.append(one[0].url) or before(*one))
    await lab.commit(lab.page("http://a.test/", links(9_000)))
    await lab.commit_all(30)
    assert judged == ["http://a.test/"]


async def test_its_queue_makes_no_requests_meanwhile(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    await lab.commit(lab.page("http://a.test/", links(9_000)))
    for _ in range(3):
        assert lab.scheduler.wait_of("a.test") > 2_000
        await lab.commit(after_s=1)


async def test_a_page_whose_lease_is_lost_is_dropped_and_does_not_count(lab: Lab) -> None:
    page = lab.page("http://a.test/", links(9_000))
    await lab.commit(page)
    lab.lost.add(page.claim.partition)
    await lab.commit()
    assert (lab.acked, lab.returned, lab.counters.open_claims.total) == ([], [], 0)
    assert lab.counters.fenced == 1


async def test_pages_of_a_run_wait_too_and_their_claims_stay_open(lab: Lab) -> None:
    spec = RunSpec(scope="any")
    record = RunRecord(run="r1", user="", name="j", nominal=0, started_at=0.0, spec=spec, roots=("any:*",))
    lab.runs["r1"] = lab.router.of_run(record)
    some = links(9_000)
    await lab.commit(lab.page("http://a.test/", some, run="r1"))
    assert lab.acked == []
    assert lab.counters.open_claims.total == 1
    await lab.commit_all(30)
    assert lab.acked == ["http://a.test/"]
    assert sorted(lab.frontier.added) == sorted(some)


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("leaving", ["stop", "drain"])
async def test_held_pages_are_returned_at_once_when_they_have_to_leave(lab: Lab, leaving: str) -> None:
    page = lab.page("http://a.test/", links(50_000))
    await lab.commit(page)
    if leaving == "stop":
        lab.counters.is_stopping = True
    else:
        lab.draining.add(page.claim.partition)
    await lab.commit()
    assert [claim.url for claim in lab.returned] == ["http://a.test/"]
    assert (lab.acked, lab.committer.uncommitted, lab.counters.open_claims.total) == ([], 0, 0)
    assert lab.scheduler.wait_of("a.test") > 100_000, "as long as its domain owes"


@pytest.mark.slow(ci=True)
async def test_beyond_the_bound_the_newest_is_returned(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "BYTES_MAX", 3_000_000)
    await lab.commit(*(lab.page(f"http://{name}.test/", links(9_000, name)) for name in "abcdef"))
    kept = [claim.domain for claim in lab.committer.claims]
    assert kept == ["a.test", "b.test", "c.test"][: len(kept)]
    assert [claim.domain for claim in lab.returned] == [f"{name}.test" for name in "abcdef"[len(kept) :]]
    assert 0 < len(kept) < 6
    assert lab.counters.open_claims.total == lab.counters.held_pages == len(kept)


@pytest.mark.slow(ci=True)
async def test_a_page_that_was_returned_goes_on_where_it_was(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time it is fetched, what is known already is passed over at no cost."""
    monkeypatch.setattr(route, "PAGES_MAX", 0)
    some, times = links(20_000), 0
    while not lab.acked:
        times += 1
        await lab.commit(lab.page("http://a.test/", some), after_s=60)
    assert times == 3
    assert sorted(lab.frontier.added) == sorted(some)


async def test_only_pages_with_links_to_a_full_partition_wait(lab: Lab) -> None:
    full = lab.router.placement.of("http://x1.test/")[2]
    lab.frontier.full.add(full)
    await lab.commit(lab.page("http://a.test/", links(3)), lab.page("http://b.test/", links(1)))
    assert lab.acked == ["http://b.test/"]
    assert lab.introductions.room("a.test", lab.now_ms) > BURST_BYTES - 3 * cost("http://x1.test/")
    lab.frontier.full.clear()
    await lab.commit(after_s=1)
    assert lab.acked == ["http://b.test/", "http://a.test/"]
    assert sorted(lab.frontier.added) == sorted(links(3))


async def test_while_the_engine_has_no_room_held_links_wait(lab: Lab) -> None:
    await lab.commit(lab.page("http://a.test/", links(9_000)))
    before = len(lab.frontier.added)
    lab.counters.is_engine_full = True
    await lab.commit(after_s=60)
    assert len(lab.frontier.added) == before
    lab.counters.is_engine_full = False
    await lab.commit_all(30)
    assert lab.acked == ["http://a.test/"]


async def test_a_small_burst_lets_each_link_pass_in_its_turn(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(introductions, "BURST_BYTES", 1)
    monkeypatch.setattr(introductions, "BYTES_PER_S", 1000)
    await lab.commit(lab.page("http://a.test/", links(5)))
    assert await lab.commit_all(10) > 1
    assert lab.frontier.added == links(5)


async def test_of_a_full_engine_without_files_only_pages_without_new_links_are_acked(lab: Lab) -> None:
    lab.counters.is_engine_full = True
    own = "http://a.test/1"
    await lab.commit(lab.page("http://a.test/", [own, *links(2)]), lab.page("http://b.test/", []))
    assert (lab.acked, lab.frontier.added) == (["http://b.test/"], [])
    lab.counters.is_engine_full = False
    await lab.commit(after_s=1)
    assert lab.acked == ["http://b.test/", "http://a.test/"]
    assert sorted(lab.frontier.added) == sorted([own, *links(2)])


async def test_where_long_queues_move_to_disk_own_links_pass_a_full_engine_and_few_others(lab: Lab) -> None:
    lab.counters.is_engine_full = lab.counters.can_spill = True
    own = [f"http://a.test/{number}" for number in range(500)]
    await lab.commit(lab.page("http://a.test/", own), lab.page("http://b.test/", links(50)))
    assert len(lab.acked) == 2
    await lab.commit(lab.page("http://c.test/", links(500, "y")))
    assert len(lab.acked) == 2
    assert 100 < len(lab.frontier.added) - 550 < 150
