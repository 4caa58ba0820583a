"""The webs that nginx serves to all clients: real pages (corpus.py) or synthetic ones.

A synthetic page is one of a thousand bodies, chosen by its URL, with the URL written into it. So every page has its own
bytes, always the same ones, and costs the server a fraction of what any client needs.
"""

import itertools
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from scripts.bench_lib.corpus import real_web
from scripts.bench_lib.transport import PLAIN, Server, Transport

DOMAINS = 10_000
PAGES = {  # 0: all
    "real": 0,
    "one": 0,
    "three": 0,
    "synthetic": 20_000,
    "endless": 10_000,
    "cold": 10_000,
}
BODIES = 1000
PARAGRAPHS = 50  # of a page, one for each link: 20 KB
NAMES_PER_CERTIFICATE = 100
FRAGMENTS_EVERY = 10  # one link in ten has a #fragment, as in pages that people write
ROBOTS = "User-agent: *\nDisallow: /private/\nCrawl-delay: 0\n"
WORDS = re.findall(r"\w+", "A page of the web that leads where words stand for text which nobody reads but programs")
_PLACE = "@@PAGE@@"  # becomes host and path, early in the page: nginx searches no further


class Web(Protocol):
    """Files and nginx servers that together are a web, and the crawl that all clients make of it."""

    @property
    def name(self) -> str: ...

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names for a hosts file; none where there are too many for one."""

    @property
    def pages_max(self) -> int:
        """A client stops after this many pages; 0: it fetches all, and all clients must get the same ones."""

    @property
    def pages_min(self) -> int:
        """A run with fewer pages is wrong."""

    def missing(self) -> list[str]:
        """Packages that must be installed before it can be served."""

    def seeds(self, port: int) -> list[str]: ...

    def pattern(self, port: int, *, fragments: bool = False) -> str:
        """A regular expression of the crawl's URLs. With `fragments` for clients that match URLs before they cut the
        fragment off."""

    def write(self, home: Path, port: int) -> None:
        """Write the files that its servers need, below `home`."""

    @property
    def transport(self) -> Transport: ...

    def servers(self, home: Path) -> Iterable[Server]: ...


@dataclass(frozen=True, kw_only=True)
class SyntheticWeb:
    """`domains` hosts dN.test with `pages_each` pages /p/N; each has `own` links to its host and `away` to others.

    With `pages_max` 0 it is crawled to its end. Links away go round all pages, so each page is found, unless there are
    more pages than the bodies have links.
    """

    domains: int = DOMAINS
    pages_each: int = 200
    own: int = 40
    away: int = 10
    pages_max: int = 0
    name: str = "synthetic"
    hosts: tuple[str, ...] = ()
    transport: Transport = PLAIN

    @property
    def pages_min(self) -> int:
        return self.pages_max or self.domains * self.pages_each

    def missing(self) -> list[str]:
        return []

    def seeds(self, port: int) -> list[str]:
        return [f"{self.transport.scheme}://d0.test:{port}/p/0"]

    def pattern(self, port: int, *, fragments: bool = False) -> str:
        return rf"^{self.transport.scheme}://d\d+\.test:{port}/p/\d+" + ("(?:#.*)?$" if fragments else "$")

    def write(self, home: Path, port: int) -> None:
        (home / "robots.txt").write_text(ROBOTS, encoding="utf-8")
        rng = random.Random("bodies")
        texts = [_words(rng, 60) for _ in range(10 * PARAGRAPHS)]
        targets = self._targets(rng)
        for number in range(BODIES):
            links = [f"/p/{rng.randrange(self.pages_each)}" for _ in range(self.own)]
            away = itertools.islice(targets, self.away)
            links += [f"{self.transport.scheme}://d{host}.test:{port}/p/{page}" for host, page in away]
            rng.shuffle(links)
            (home / f"v{number}.html").write_text(_body(rng, number, links, texts), encoding="utf-8")

    def servers(self, home: Path) -> Iterator[Server]:
        share = f"{100 / BODIES:.2f}%"
        bodies = " ".join(f"{share} v{number};" for number in range(BODIES - 1)) + f" * v{BODIES - 1};"
        block = f"""root {home};
    location = /robots.txt {{ alias {home}/robots.txt; }}
    location ~ ^/(?:p/\\d+)?$ {{
      rewrite ^ /$body_of_page.html break; sub_filter '{_PLACE}' '$host$request_uri'; }}"""
        choice = f'split_clients "$host$request_uri" $body_of_page {{ {bodies} }}'
        if not self.transport.tls:
            yield Server(("~^d\\d+\\.test$",), block, before=choice)
            return
        for first in range(0, self.domains, NAMES_PER_CERTIFICATE):
            numbers = range(first, min(first + NAMES_PER_CERTIFICATE, self.domains))
            yield Server(tuple(f"d{number}.test" for number in numbers), block, before="" if first else choice)

    def _targets(self, rng: random.Random) -> Iterator[tuple[int, int]]:
        """Host and page of the links away, one after the other, without end."""
        pages = self.domains * self.pages_each
        chosen = rng.sample(range(pages), min(pages, BODIES * self.away))
        return itertools.cycle(divmod(number, self.pages_each) for number in chosen)


@dataclass(frozen=True, kw_only=True)
class ColdWeb(SyntheticWeb):
    """One page without links on each of many domains, all of them seeds: what a first contact costs."""

    pages_each: int = 1
    own: int = 0
    away: int = 0
    name: str = "cold"

    def seeds(self, port: int) -> list[str]:
        return [f"{self.transport.scheme}://d{number}.test:{port}/" for number in range(self.domains)]

    def pattern(self, port: int, *, fragments: bool = False) -> str:
        return rf"^{self.transport.scheme}://d\d+\.test:{port}/" + ("(?:#.*)?$" if fragments else "$")


def web_of(name: str, pages: int = 0, transport: Transport = PLAIN) -> Web:
    """The web of this name. `pages`: its size, or that of the crawl of an endless one; PAGES has the defaults."""
    pages = pages or PAGES[name]
    if name == "synthetic":
        domains = min(DOMAINS, pages)
        return SyntheticWeb(
            domains=domains, pages_each=max(1, pages // domains), own=2, away=48, transport=transport
        )  # fmt: skip
    if name == "endless":
        return SyntheticWeb(pages_max=pages, name=name, transport=transport)
    return ColdWeb(domains=pages, transport=transport) if name == "cold" else real_web(name, transport)


def _body(rng: random.Random, number: int, links: list[str], texts: list[str]) -> str:
    items = ""
    for place, text in enumerate(rng.sample(texts, PARAGRAPHS)):
        if place < len(links):
            link = f"{links[place]}#part" if place % FRAGMENTS_EVERY == 0 else links[place]
            items += f'<li class="item"><a href="{link}" title="item {place}">{_words(rng, 3)}</a>\n'
        items += f"<p>{text}</p>\n"
    head = f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{_PLACE}</title></head>'
    return f"{head}\n<body><h1>Body {number}</h1><ul>\n{items}</ul></body></html>\n"


def _words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(WORDS, k=count))
