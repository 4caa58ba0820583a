"""What a page's links become by what was learned of their domain, and what of a claim."""

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from crawler.frontier.record import CrawlRecord
from crawler.model import Candidate, Claim
from crawler.routing.recent_urls import RecentUrls
from crawler.routing.router import Router
from crawler.routing.traps_learned import TrapMemory
from crawler.rules.scope import ScopeRules
from crawler.settings import OrderSettings, ScopeSettings, TrapSettings

LIMITS = TrapSettings()
PROVEN = LIMITS.path_segments + LIMITS.steps_max + 1  # levels of a path, after which it is one


def record(**order: Any) -> CrawlRecord:
    scope = ScopeSettings(mode="any")
    return CrawlRecord(
        layout=1,
        partitions=64,
        begun_at=0.0,
        queue_by="domain",
        hash_key=bytes(16),
        scope=scope,
        ordering=OrderSettings(**order),
    )


def router(**order: Any) -> Router:
    made = record(**order)
    return Router(made, ScopeRules.of(made.scope, frozenset()), RecentUrls(0), LIMITS)


def claim(url: str, *, seed: bool = False) -> Claim:
    domain = url.split("/")[2]
    return Claim(
        url=url, fingerprint="1", visit=1, partition=0, epoch=1, token="1.r.1", domain=domain, queue=domain, depth=1,
        redirects=0, attempts=0, deliveries=0, seed=seed,
    )  # fmt: skip


def deep(levels: int, domain: str = "a.test") -> str:
    return f"http://{domain}/dive/" + "".join(f"s{n}/" for n in range(levels))


def proven(domain: str = "a.test") -> TrapMemory:
    """An instance that has seen that a path of a domain has no end."""
    memory = TrapMemory(LIMITS)
    for levels in range(PROVEN):
        memory.learn(claim(deep(levels, domain)), [deep(levels + 1, domain)], "")
    return memory


def found(memory: TrapMemory, links: list[str], at: str = "http://a.test/", **order: Any) -> list[Candidate]:
    page = claim(at)
    return router(**order).links(page, links, Counter(), memory.state_of(page.domain))


ORDERS = [
    {"order": "breadth"},
    {"order": "priority", "links_weight": 1.0},
    {"order": "freshness", "half_life_s": 3600.0},
]


@pytest.mark.parametrize("order", ORDERS)
def test_a_suspect_goes_last_in_every_order(order: dict[str, Any]) -> None:
    plain, near, far = found(TrapMemory(LIMITS), ["http://a.test/x", deep(11), deep(14)], **order)
    assert plain.score - 300 > far.score > near.score
    assert {plain.deferred, near.deferred, far.deferred} == {""}


def test_urls_of_a_proven_trap_are_deferred_by_its_rule() -> None:
    trap, elsewhere = found(proven(), [deep(30), deep(30).replace("dive", "manual")])
    assert (trap.deferred, elsewhere.deferred) == ("trap:path", "")


def test_links_to_another_domain_are_judged_by_their_url_alone() -> None:
    memory = proven("b.test")
    plain, suspect = found(memory, ["http://b.test/", deep(30, "b.test")])
    assert suspect.deferred == ""
    assert suspect.score < plain.score - 300


def test_redirects_are_judged_like_links_except_those_of_seeds() -> None:
    memory = proven()
    routed, state = router(), memory.state_of("a.test")
    targets = [
        routed.redirect(claim("http://a.test/", seed=seed), deep(30), 302, Counter(), state) for seed in (False, True)
    ]
    assert [target and target.deferred for target in targets] == ["trap:path", ""]


def test_a_waiting_claim_of_a_proven_trap_is_deferred_unless_a_seed() -> None:
    memory = proven()
    assert memory.reason_to_defer(claim(deep(30))) == "trap:path"
    assert memory.reason_to_defer(claim(deep(30), seed=True)) == memory.reason_to_defer(claim("http://a.test/x")) == ""
    assert memory.reason_to_defer(claim(deep(30, "b.test"))) == ""


def test_released_urls_are_fetched_in_their_queue_only() -> None:
    memory, waiting = proven(), claim(deep(30))
    memory.release("a.test", "trap:path")
    assert memory.reason_to_defer(waiting) == ""
    assert memory.reason_to_defer(replace(waiting, queue="www.a.test")) == "trap:path"


def test_many_domains_without_suspects_do_not_push_out_one_that_has_some() -> None:
    memory = TrapMemory(LIMITS, domains_max=3)
    for levels in range(PROVEN):
        memory.learn(claim(deep(levels)), [deep(levels + 1)], "")
        for n in range(4):
            memory.learn(claim(f"http://{levels}-{n}.test/"), [], f"sha1:{n}")
    assert memory.reason_to_defer(claim(deep(30))) == "trap:path"
    assert [bool(memory.state_of(f"{PROVEN - 1}-{n}.test").digests) for n in range(4)] == [False, True, True, True]


def test_the_least_recently_used_domain_with_suspects_is_evicted() -> None:
    memory = TrapMemory(LIMITS, domains_max=2)
    for domain in ("a.test", "b.test", "a.test", "c.test"):
        memory.learn(claim(deep(12, domain)), [], "")
    assert [bool(memory.state_of(domain).counts) for domain in ("a.test", "b.test", "c.test")] == [True, False, True]
