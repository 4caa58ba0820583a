"""Webs without a disk full of pages: nginx picks one of some hundred bodies for each URL and writes the URL into it.

So every page has its own bytes, always the same ones, and costs the server a fraction of what any client needs.
"""

import random
import re
from dataclasses import dataclass
from pathlib import Path

BODIES = 400
LINKS_AWAY = 10  # of each page, to other hosts; the rest stay on its own
FRAGMENTS_EVERY = 10  # one link in so many has a #fragment, as in pages that people write
ROBOTS = "User-agent: *\nDisallow: /private/\nCrawl-delay: 0\n"
WORDS = re.findall(r"\w+", "A page of the web that leads where words stand for text which nobody reads but programs")
_PLACE = "@@PAGE@@"  # becomes host and path, early in the page: nginx searches no further


@dataclass(frozen=True, kw_only=True)
class SyntheticWeb:
    """`domains` hosts dN.test with `pages_each` pages /p/N, each with `links` links to pages drawn by lot.

    With `pages_max` 0 it is crawled to its end.
    """

    domains: int = 10_000
    pages_each: int = 200
    links: int = 50
    pages_max: int = 0
    name: str = "synthetic"
    hosts: tuple[str, ...] = ()

    @property
    def pages_min(self) -> int:
        return self.pages_max or self.domains * self.pages_each

    def missing(self) -> list[str]:
        return []

    def seeds(self, port: int) -> list[str]:
        return [f"http://d0.test:{port}/p/0"]

    def pattern(self, port: int, *, fragments: bool = False) -> str:
        return rf"^http://d\d+\.test:{port}/p/\d+" + ("(?:#.*)?$" if fragments else "$")

    def write(self, home: Path, port: int) -> None:
        (home / "robots.txt").write_text(ROBOTS, encoding="utf-8")
        for number in range(BODIES):
            (home / f"v{number}.html").write_text(self._body(number, port), encoding="utf-8")

    def servers(self, home: Path) -> list[str]:
        share = f"{100 / BODIES:.2f}%"
        bodies = " ".join(f"{share} v{number};" for number in range(BODIES - 1)) + f" * v{BODIES - 1};"
        picks = f'split_clients "$host$request_uri" $body_of_page {{ {bodies} }}'
        server = f"""server {{ {{listen}}; server_name ~^d\\d+\\.test$; root {home};
    location = /robots.txt {{ alias {home}/robots.txt; }}
    location ~ ^/(?:p/\\d+)?$ {{
      rewrite ^ /$body_of_page.html break; sub_filter '{_PLACE}' '$host$request_uri'; }} }}"""
        return [picks, server]

    def _body(self, number: int, port: int) -> str:
        dice = random.Random(f"body {number}")
        items = "".join(
            f'<li class="item"><a href="{link}" title="item {place}">{_words(dice, 3)}</a>\n'
            f"<p>{_words(dice, 60)}</p></li>\n"
            for place, link in enumerate(self._links(dice, port))
        )
        head = f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{_PLACE}</title></head>'
        return f"{head}\n<body><h1>Body {number}</h1><ul>\n{items}</ul></body></html>\n"

    def _links(self, dice: random.Random, port: int) -> list[str]:
        away = min(LINKS_AWAY, self.links)
        links = [f"/p/{dice.randrange(self.pages_each)}" for _ in range(self.links - away)]
        for _ in range(away):
            host, page = dice.randrange(self.domains), dice.randrange(self.pages_each)
            links.append(f"http://d{host}.test:{port}/p/{page}")
        dice.shuffle(links)
        return [f"{link}#part" if place % FRAGMENTS_EVERY == 0 else link for place, link in enumerate(links)]


@dataclass(frozen=True, kw_only=True)
class ColdWeb(SyntheticWeb):
    """One page on each of many domains, all known from the beginning: what a first contact costs."""

    links: int = 0
    name: str = "cold"

    @property
    def pages_min(self) -> int:
        return self.domains

    def seeds(self, port: int) -> list[str]:
        return [f"http://d{number}.test:{port}/" for number in range(self.domains)]

    def pattern(self, port: int, *, fragments: bool = False) -> str:
        return rf"^http://d\d+\.test:{port}/" + ("(?:#.*)?$" if fragments else "$")

    def _links(self, dice: random.Random, port: int) -> list[str]:  # noqa: ARG002
        return ["/private/"] * 20  # paragraphs as on other pages, with a link that is not part of the crawl


def _words(dice: random.Random, count: int) -> str:
    return " ".join(dice.choices(WORDS, k=count))
