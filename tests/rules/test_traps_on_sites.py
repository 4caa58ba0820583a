"""The trap rules on whole sites: every generated trap comes to its end with all real pages found, and no page of real
documentation is deferred.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

import pytest

from crawler.archive.warc import payload_digest
from crawler.content.html import parse_page
from crawler.rules.places import registrable_domain, without_session
from crawler.rules.trap_verdict import Action, TrapRules
from crawler.rules.traps import NOTHING_LEARNED, TrapState
from crawler.rules.urls import canonicalize, host_of
from crawler.settings import TrapSettings
from crawler.settings.schema import TrapRule
from tests.support.trap_sites import NAMES, TrapSite, trap_site

DOCUMENTATION = ("/usr/share/doc/python3.11/html", "/usr/share/doc/postgresql-doc-15/html")

RULES = get_args(TrapRule)
PAGES_MAX = 2_000  # of a crawl that does not end

Answer = Callable[[str], tuple[bytes, list[str]]]  # URL -> body, canonical links; an empty body: nothing there


@dataclass
class Crawl:
    """One queue by priority, as the frontier has it: judged when found and again before the fetch."""

    rules: TrapRules
    fetched: list[str] = field(default_factory=list)
    demoted: Counter[str] = field(default_factory=Counter)
    deferred: Counter[str] = field(default_factory=Counter)
    states: dict[str, TrapState] = field(default_factory=dict)
    forget_every: int = 0  # pages after which an owner with an empty memory takes over
    _queue: list[tuple[float, int, int, str]] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)

    def run(self, seed: str, answer: Answer, *, pages_max: int) -> "Crawl":
        self._seen.add(without_session(seed))
        self._queue.append((0.0, 0, 0, seed))
        while self._queue and len(self.fetched) < pages_max:
            _, _, depth, url = heapq.heappop(self._queue)
            if self._judged(url).action is Action.DEFER and url != seed:
                continue
            self.fetched.append(url)
            if self.forget_every and len(self.fetched) % self.forget_every == 0:
                self.states.clear()
            body, links = answer(url)
            digest = payload_digest(body) if body else ""
            domain = registrable_domain(host_of(url))
            self.states[domain] = self.rules.learn(self._state(url), url, links=links, digest=digest, body=body)
            for link in links:
                self._add(link, depth + 1, url, digest)
        return self

    def _state(self, url: str) -> TrapState:
        return self.states.get(registrable_domain(host_of(url)), NOTHING_LEARNED)

    def _judged(self, url: str, parent: str = "", digest: str = ""):
        verdict = self.rules.judge(self._state(url), url, parent=parent, parent_digest=digest)
        if verdict.action is Action.DEFER:
            self.deferred[verdict.rule] += 1
        return verdict

    def _add(self, url: str, depth: int, parent: str, digest: str) -> None:
        if without_session(url) in self._seen:
            return
        self._seen.add(without_session(url))
        verdict = self._judged(url, parent, digest)
        self.demoted[f"{verdict.rule} {registrable_domain(host_of(url))}"] += verdict.action is Action.DEMOTE
        if verdict.action is not Action.DEFER:
            heapq.heappush(self._queue, (depth + verdict.penalty, len(self._seen), depth, url))


def answering(site: TrapSite) -> Answer:
    def answer(url: str) -> tuple[bytes, list[str]]:
        parts = urlsplit(url)
        found = site.answer(parts.hostname or "", url[url.index("/", 8) :])
        return (found.body.encode(), [canonicalize(t) for t in found.targets]) if found.status == 200 else (b"", [])

    return answer


def crawled(name: str, *rules: str, forget_every: int = 0) -> tuple[set[str], Crawl]:
    """Crawl a trap's site with these rules only; the real pages that were not found, and the crawl."""
    site = trap_site(name)
    limits = TrapSettings(off=tuple(rule for rule in RULES if rule not in rules))
    crawl = Crawl(TrapRules(limits), forget_every=forget_every).run(site.seed, answering(site), pages_max=PAGES_MAX)
    return site.real - {site.forget(url) for url in crawl.fetched}, crawl


@pytest.mark.parametrize("name", NAMES)
def test_a_crawl_of_a_trap_ends_and_has_found_every_real_page(name: str) -> None:
    lost, crawl = crawled(name, *RULES)
    assert len(crawl.fetched) < PAGES_MAX, "still fetching"
    assert lost == set()


@pytest.mark.parametrize("name", NAMES)
def test_owners_that_learn_again_cost_fetches_and_no_page(name: str) -> None:
    lost, crawl = crawled(name, *RULES, forget_every=600)
    assert len(crawl.fetched) < PAGES_MAX, "still fetching"
    assert lost == set()


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("name", RULES)
def test_its_own_rule_alone_ends_a_trap_and_without_it_there_is_no_end(name: str) -> None:
    lost, crawl = crawled(name, name)
    assert len(crawl.fetched) < PAGES_MAX, "still fetching"
    assert lost == set()
    assert set(crawl.deferred) == {name}
    assert len(crawled(name)[1].fetched) == PAGES_MAX


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("folder", DOCUMENTATION)
def test_nothing_of_real_documentation_is_suspect(folder: str) -> None:
    root = Path(folder)
    if not root.exists():
        pytest.skip(f"{folder} is not installed")
    crawl = Crawl(TrapRules(TrapSettings()))
    for url, body, links in pages_of(root):
        crawl.run(url, lambda _, body=body, links=links: (body, links), pages_max=len(crawl.fetched) + 1)
        crawl._queue.clear()
    assert len(crawl.fetched) > 400
    assert not crawl.deferred
    assert {rule for rule in +crawl.demoted if rule.endswith("docs.test")} == set()


def pages_of(root: Path) -> Iterator[tuple[str, bytes, list[str]]]:
    for file in sorted(root.rglob("*.html")):
        url = canonicalize(f"http://docs.test/{file.relative_to(root)}")
        body = file.read_bytes()
        page = parse_page(
            url, "text/html", "", body, links_max=5000, obey_nofollow=True, bytes_max=8192, agent="shardcrawl"
        )
        yield url, body, list(page.links)
