"""A small generated web, and what a crawl of it must come to. The truth is worked out here, by following links.

Must not know the crawler beyond the hash that places a domain. Everything follows from the generator it is given.
"""

import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from crawler.model import REQUISITE
from crawler.rules.places import partition_of

OUTSIDE = "outside.test"  # never in scope
DEAD_S = 240.0  # how much longer a crawl takes at worst whose web has dead hosts
POSTED = "/posted/"  # the path of what takes a POST
CRAWL_DELAYS = (None, None, None, 1, 2, 3, 10)


class Kind(StrEnum):
    """How a URL answers."""

    PAGE = "page"
    REDIRECT = "redirect"
    MISSING = "missing"
    FLAKY = "flaky"  # fails `failures` times, then answers as a page
    BROKEN = "broken"  # fails for ever
    HIDDEN = "hidden"  # robots.txt forbids it
    PICTURE = "picture"  # what pages show, and no link leads to
    POSTED = "posted"  # answers a POST; where it has `failures`, the connection is cut then


@dataclass(slots=True)
class Url:
    """One URL of the web. `took` counts the requests it got."""

    url: str
    queue: str
    kind: Kind = Kind.PAGE
    links: list[str] = field(default_factory=list)
    shows: list[str] = field(default_factory=list)
    seconds: float = 0.05
    failures: int = 0
    status: int = 200
    took: int = 0


@dataclass(slots=True)
class Site:
    """One domain: its queue, its robots.txt. `redirected_to` is another domain whose robots.txt speaks for this one."""

    domain: str
    crawl_delay_s: int | None = None
    has_robots: bool = True
    robots_failures: int = 0
    redirected_to: str = ""
    took: int = 0
    read: set[str] = field(default_factory=set)  # hosts whose robots.txt was sent, or where it is


class Gone(StrEnum):
    """How a host does not answer."""

    ABSENT = "absent"  # its name does not exist
    NAMELESS = "nameless"  # its name servers fail, after a while
    CLOSED = "closed"  # nothing listens there
    BACK = "back"  # nothing listens there at first


@dataclass(slots=True)
class DeadHost:
    """A host of a living domain that does not answer, BACK for the first `failures` attempts to connect."""

    gone: Gone
    seconds: float  # until that is known
    failures: int = 0
    refused_s: list[float] = field(default_factory=list)

    def refuses(self, now_s: float) -> bool:
        """One attempt to connect."""
        if self.gone is Gone.BACK and len(self.refused_s) >= self.failures:
            return False
        self.refused_s.append(now_s)
        return True

    @property
    def silent_s(self) -> float:
        """How long nothing was heard of it, as far as it was asked."""
        return self.refused_s[-1] - self.refused_s[0] if self.refused_s else 0.0


@dataclass(slots=True)
class Truth:
    """How a crawl must end: URL -> status of those committed; those given up; those that robots.txt refuses."""

    committed: dict[str, int] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)


class Web:
    """Sites and URLs."""

    def __init__(self) -> None:
        self.sites: dict[str, Site] = {}
        self.urls: dict[str, Url] = {}
        self.seeds: list[str] = []
        self.dead: dict[str, DeadHost] = {}  # by host
        self.has_pictures = False

    def add(self, url: Url) -> Url:
        return self.urls.setdefault(url.url, url)

    def site_of(self, url: str) -> Site | None:
        return self.sites.get(".".join(host_of(url).split(".")[-2:]))

    def truth(
        self, dead_too: frozenset[str] = frozenset(), seeds: Sequence[str] = (), *, scope: str = "any", depth: int = -1
    ) -> Truth:
        """What follows from the seeds (default: those of the crawl), within hosts or domains of these, and so many
        links away; `dead_too` names URLs that were given up for another reason.
        """
        seeds = seeds or self.seeds
        roots = {self._root_of(url, scope) for url in seeds}
        truth, todo, seen = Truth(), deque((url, 0) for url in seeds), set(seeds)
        while todo:
            url, away = todo.popleft()
            page = self.urls[url]
            if page.kind is Kind.HIDDEN:
                truth.refused.add(page.url)
            elif page.kind is Kind.BROKEN or page.url in dead_too or (page.kind is Kind.POSTED and page.failures):
                truth.dead.add(page.url)
            else:
                truth.committed[page.url] = page.status
                is_redirect = page.kind is Kind.REDIRECT
                if is_redirect or away != depth:
                    links = [link for link in page.links if link not in seen and host_of(link) != OUTSIDE]
                    new = [link for link in links if self._root_of(link, scope) in roots]
                    seen.update(new)
                    todo.extend((link, away + (not is_redirect)) for link in new)
        return truth

    def is_shown(self, url: str) -> bool:
        """Does a page show it?"""
        return self.has_pictures and any(url in page.shows for page in self.urls.values())

    def shown(self, committed: Mapping[str, int], dead_too: frozenset[str]) -> tuple[dict[str, int], set[str]]:
        """What these pages show, by the names of requisites: all that must be committed, and what may be, because it is
        a page as well.
        """
        wanted, optional = dict[str, int](), set[str]()
        todo = [url for page in committed for url in self.urls[page].shows]
        while todo:
            url = todo.pop()
            name = as_requisite(url)
            if url in committed:
                optional.add(name)
            elif name not in dead_too and name not in wanted:
                wanted[name] = self.urls[url].status
                todo += self.urls[url].shows
        return wanted, optional

    def _root_of(self, url: str, scope: str) -> str:
        if scope == "any":
            return ""
        return host_of(url) if scope == "host" else ".".join(host_of(url).split(".")[-2:])

    def work_s(self, delay_s: float) -> float:
        """How long the slowest queue takes at best, s."""
        worst = 0.0
        for site in self.sites.values():
            wait = max(delay_s, self.delay_of(site) or 0)
            mine = [u for u in self.urls.values() if u.queue == site.domain]
            turns = sum(1 + u.failures + 6 * (u.kind is Kind.BROKEN) for u in mine) + 3 + site.robots_failures
            worst = max(worst, turns * wait + sum((1 + u.failures) * u.seconds for u in mine))
        return worst + (DEAD_S if self.dead else 0.0)

    def delay_of(self, site: Site) -> int | None:
        """The Crawl-delay in force for a site, s."""
        return self.sites[site.redirected_to].crawl_delay_s if site.redirected_to else site.crawl_delay_s


def as_requisite(url: str) -> str:
    """The name of a URL as what pages show: it may be that of a page."""
    return f"{url} {REQUISITE}"


def host_of(url: str) -> str:
    return url.split("/", 3)[2]


def graph_web(rng: random.Random, *, redirected: float = 0.0) -> Web:
    """Domains with pages that link to each other across partitions, with the misbehaviour that the web has.

    `redirected`: share of sites whose robots.txt is a redirect to that of another site.
    """
    web, hosts = Web(), []
    for i in range(rng.randint(4, 8)):
        site = Site(
            f"site{i}x{rng.randrange(1000)}.test",
            crawl_delay_s=rng.choice(CRAWL_DELAYS),
            has_robots=rng.random() < 0.8,
            robots_failures=rng.choice((0, 0, 0, 0, 1, 2)),
        )
        if not site.has_robots:
            site.crawl_delay_s = None
        web.sites[site.domain] = site
        hosts.append(site.domain)
        if rng.random() < 0.2:
            hosts.append(f"www.{site.domain}")
    for site in list(web.sites.values()):
        others = [s.domain for s in web.sites.values() if s is not site and s.has_robots and not s.redirected_to]
        if others and rng.random() < redirected and not any(s.redirected_to == site.domain for s in web.sites.values()):
            site.redirected_to = rng.choice(others)
    pages = [_page(web, rng, host, n) for host in hosts for n in range(_pages(web, rng, host))]
    for page in pages:
        _link(web, rng, page, pages)
    web.seeds = [next(p.url for p in pages if host_of(p.url) == d) for d in web.sites]
    return web


def kill_hosts(web: Web, rng: random.Random) -> None:
    """Dead hosts inside living domains, which pages of these and of other domains link to."""
    pages = [p for p in web.urls.values() if p.kind is Kind.PAGE]
    for site in rng.sample(list(web.sites.values()), rng.randint(1, 2)):
        for n in range(rng.randint(1, 8)):
            host, gone = f"dead{n}.{site.domain}", rng.choice(list(Gone))
            dead = web.dead[host] = DeadHost(gone, rng.choice((0.01, 0.3, 4.0)), failures=rng.randint(1, 2))
            for number in range(rng.randint(1, 5)):
                url = Url(f"http://{host}/p{number}", site.domain, Kind.PAGE if gone is Gone.BACK else Kind.BROKEN)
                rng.choice(pages).links.append(web.add(url).url)
            dead.seconds = min(dead.seconds, 0.3) if gone is Gone.BACK else dead.seconds


def add_posts(web: Web, rng: random.Random) -> None:
    """Pages that take a POST, which other pages name."""
    pages = [p for p in web.urls.values() if p.kind is Kind.PAGE]
    for site in rng.sample(list(web.sites.values()), rng.randint(1, 3)):
        for n in range(rng.randint(1, 6)):
            page = Url(f"http://{site.domain}{POSTED}{n}", site.domain, Kind.POSTED, failures=rng.random() < 0.1)
            page.links = [rng.choice(pages).url]
            rng.choice(pages).links.append(web.add(page).url)


def add_pictures(web: Web, rng: random.Random) -> None:
    """Pictures that several pages show, and pages that pages show as if they were pictures."""
    web.has_pictures = True
    pages = [p for p in web.urls.values() if p.kind is Kind.PAGE and host_of(p.url) not in web.dead]
    shown = [p.url for p in rng.sample(pages, min(len(pages), rng.randint(1, 6)))]
    for site in rng.sample(list(web.sites.values()), rng.randint(1, 3)):
        for n in range(rng.randint(1, 6)):
            shown.append(web.add(Url(f"http://{site.domain}/shown/{n}.gif", site.domain, Kind.PICTURE)).url)
    for url in shown:
        for page in rng.sample(pages, min(len(pages), rng.randint(1, 4))):
            if url.endswith(".gif") or page.url not in shown:  # so nothing is too deep
                page.shows.append(url)


def _pages(web: Web, rng: random.Random, host: str) -> int:
    """How many pages a host has: fewer where each takes long."""
    site = web.site_of(f"http://{host}/")
    assert site is not None
    return rng.randint(4, 16) if (web.delay_of(site) or 0) < 10 else rng.randint(2, 5)


def _page(web: Web, rng: random.Random, host: str, n: int) -> Url:
    site = web.site_of(f"http://{host}/")
    assert site is not None
    page = Url(f"http://{host}/p{n}", site.domain, seconds=rng.choice((0.02, 0.05, 0.1, 0.3)))
    luck = rng.random()
    if n == 0:
        pass  # a seed, or a way into its host
    elif luck < 0.08:
        page.kind, page.status = Kind.MISSING, 404
    elif luck < 0.16:
        page.kind, page.failures = Kind.FLAKY, rng.randint(1, 2)
    elif luck < 0.18:
        page.kind = Kind.BROKEN
    elif luck < 0.26 and web.sites[site.redirected_to or site.domain].has_robots:
        page.kind, page.url = Kind.HIDDEN, f"http://{host}/private/p{n}"
    elif luck < 0.36:
        page.kind, page.status = Kind.REDIRECT, rng.choice((301, 302))
    if rng.random() < 0.06:
        page.seconds = rng.uniform(1.0, 6.0)
    return web.add(page)


def _link(web: Web, rng: random.Random, page: Url, pages: list[Url]) -> None:
    if page.kind is Kind.REDIRECT:
        page.links = [rng.choice([p for p in pages if p is not page]).url]
    elif page.kind in (Kind.PAGE, Kind.FLAKY):
        page.links = list(dict.fromkeys(rng.choice(pages).url for _ in range(rng.randint(2, 6))))
        if rng.random() < 0.1:
            page.links.append(f"http://{OUTSIDE}/p{rng.randrange(5)}")


def chain_web(rng: random.Random, partitions: int) -> Web:
    """Chains in which each page has one link, into another partition: nothing is pending but one URL on its way."""
    web, by_partition = Web(), {}
    while len(by_partition) < min(partitions, 5):
        domain = f"chain{rng.randrange(10_000)}.test"
        by_partition.setdefault(partition_of(domain, partitions), domain)
    domains = sorted(by_partition.values())
    for domain in domains:
        web.sites[domain] = Site(domain, has_robots=False)
    for chain in range(rng.randint(1, 2)):
        at, before = rng.choice(domains), None
        for n in range(rng.randint(15, 60)):
            page = web.add(Url(f"http://{at}/c{chain}-{n}", at, seconds=rng.choice((0.005, 0.02, 0.05))))
            if before is None:
                web.seeds.append(page.url)
            else:
                before.links = [page.url]
            before, at = page, rng.choice([d for d in domains if d != at])
    return web
