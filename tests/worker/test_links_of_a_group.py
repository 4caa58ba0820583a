"""Which ack or add brings a link that several pages of one group have."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from crawler.frontier.messages import AddReply
from crawler.frontier.owner import Settlement
from crawler.frontier.record import CrawlRecord
from crawler.model import AddOutcome, Candidate, Claim, ParsedPage, RefusalReason
from crawler.routing.recent_urls import RecentUrls
from crawler.routing.router import Router
from crawler.routing.traps_learned import TrapMemory
from crawler.rules.introductions import Introductions
from crawler.rules.scope import ScopeRules
from crawler.settings import ScopeSettings, TrapSettings
from crawler.worker.counters import Counters
from crawler.worker.open_claims import OpenClaims
from crawler.worker.outcomes import Committable
from crawler.worker.route import RouteStage
from tests.worker.turn_lab import content_steps, work_of

RECORD = CrawlRecord(
    layout=1,
    partitions=1024,
    begun_at=0.0,
    queue_by="domain",
    hash_key=bytes(16),
    scope=ScopeSettings(mode="any"),
)


class FakeFrontier:
    """Takes what is added."""

    def __init__(self) -> None:
        self.urls: list[tuple[str, int]] = []

    async def add(self, wanted: dict[int, list[Candidate]]) -> dict[int, AddReply]:
        self.urls += [(c.url, c.depth) for candidates in wanted.values() for c in candidates]
        return {p: AddReply(outcomes=(AddOutcome.NEW,) * len(found), woken=0) for p, found in wanted.items()}


@pytest.fixture
def adds() -> FakeFrontier:
    return FakeFrontier()


@pytest.fixture
def stage(adds: FakeFrontier) -> RouteStage:
    router = Router(RECORD, ScopeRules.of(RECORD.scope, frozenset()), RecentUrls(100))
    unused: Any = SimpleNamespace()
    held: Any = SimpleNamespace(is_open=lambda _: False)
    traps = TrapMemory(TrapSettings())
    work = work_of(held=held, traps=traps, counters=Counters(OpenClaims(9)))
    return RouteStage(adds, unused, router, work, content_steps(), unused, Introductions())  # type: ignore[arg-type]


def page(stage: RouteStage, url: str, *links: str, epoch: int = 1, depth: int = 0) -> Committable:
    domain, queue, partition = stage.router.placement.of(url)
    claim = Claim(
        url=url, fingerprint="1", visit=1, partition=partition, epoch=epoch, token=f"{epoch}.r.1", domain=domain,
        queue=queue, depth=depth, redirects=0, attempts=0, deliveries=0, seed=False,
    )  # fmt: skip
    response: Any = SimpleNamespace(status=404)
    return Committable(
        claim=claim, response=response, page=ParsedPage(links=links), settlement=Settlement(next_fetch_ms=0)
    )


async def test_a_link_goes_with_the_ack_of_every_page_that_has_it(stage: RouteStage) -> None:
    """The same page fetched under an earlier epoch stands before it in the group: its ack will be refused."""
    links = ("http://a.test/1", "http://a.test/2")
    late, page_again = (page(stage, "http://a.test/", *links, epoch=epoch) for epoch in (1, 2))
    own = await stage.route([late, page_again])
    assert [c.url for c in own[1]] == list(links)


async def test_a_group_adds_a_foreign_link_once_with_its_smallest_depth(stage: RouteStage, adds: FakeFrontier) -> None:
    link = "http://b.test/"
    await stage.route([page(stage, f"http://a.test/{depth}", link, depth=depth) for depth in (2, 2, 1)])
    assert adds.urls == [(link, 3), (link, 2)]


def test_links_out_of_scope_are_counted_on_each_page_and_judged_again_when_the_scope_grows(stage: RouteStage) -> None:
    router = stage.router
    router.scope = ScopeRules.of(ScopeSettings(mode="host"), frozenset(("host:a.test",)))
    links = ("http://a.test/1", "http://b.test/1", "http://b.test/2")
    claim = page(stage, "http://a.test/").claim
    for _ in range(2):
        refused: Counter[str] = Counter()
        assert [c.url for c in router.links(claim, links, refused)] == ["http://a.test/1"]
        assert refused == {RefusalReason.SCOPE: 2}
    router.scope = router.scope.with_roots(frozenset(("host:b.test",)))
    assert [c.url for c in router.links(claim, links, Counter())] == list(links)
