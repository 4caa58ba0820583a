"""The fixed pages of `scripts/bench work`: the same bytes on every machine, in shapes that documentation has.

Random numbers come from a seed, so a page is one text for ever. Who changes it changes what all recorded values mean.
"""

import gzip
import random
from dataclasses import dataclass
from functools import cache

from scripts.bench_lib.webs import WORDS

HOSTS, PAGES_EACH = 4, 50
ROBOTS = b"User-agent: *\nDisallow: /private/\nAllow: /\n"
AWAY_EVERY = 5  # one link in five leads to another host, as far as there are others


@dataclass(frozen=True)
class Answer:
    """What a host sends for a path."""

    status: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def raw(self) -> bytes:
        lines = [f"HTTP/1.1 {self.status}", *(f"{name}: {value}" for name, value in self.headers)]
        return "\r\n".join([*lines, f"Content-Length: {len(self.body)}", "", ""]).encode() + self.body


@dataclass(frozen=True)
class FixedWeb:
    """Hosts hN.test with pages /p/K. Each page links to the next ones, so that all are found from the first."""

    hosts: int = HOSTS
    pages_each: int = PAGES_EACH

    @property
    def seeds(self) -> list[str]:
        return [f"http://h{host}.test/p/0" for host in range(self.hosts)]

    @property
    def pages(self) -> int:
        return self.hosts * self.pages_each

    @cache  # noqa: B019 - a handful of webs; to write a page takes longer than to crawl it
    def answers(self) -> dict[tuple[str, str], Answer]:
        """By host and path."""
        found = {}
        for host in range(self.hosts):
            name = f"h{host}.test"
            found[name, "/robots.txt"] = Answer("200 OK", _headers("text/plain"), ROBOTS)
            for page in range(self.pages_each):
                found[name, f"/p/{page}"] = self._answer(host, page)
        return found

    def _answer(self, host: int, page: int) -> Answer:
        if page % 25 == 24:  # a redirect, and a page that is gone
            place = f"/p/{page - 1}" if page % 50 == 24 else ""
            status = "301 Moved Permanently" if place else "404 Not Found"
            more = (("Location", place),) if place else ()
            return Answer(status, _headers("text/html") + more, b"<html><body><h1>elsewhere</h1></body></html>")
        body = self.html(host, page).encode()
        if page % 2:
            return Answer(
                "200 OK", (*_headers("text/html"), ("Content-Encoding", "gzip")), gzip.compress(body, 6, mtime=0)
            )
        return Answer("200 OK", _headers("text/html; charset=utf-8"), body)

    def html(self, host: int, page: int) -> str:
        rng = random.Random(f"{host} {page}")
        links = [f"/p/{(page + step) % self.pages_each}" for step in (1, 2, 3)]
        for number in range(rng.choice((20, 40, 60, 120))):
            target = rng.randrange(self.pages_each)
            away = number % AWAY_EVERY == 0 and self.hosts > 1
            begin = f"http://h{rng.randrange(self.hosts)}.test" if away else ""
            links.append(f"{begin}/p/{target}{'#part' if number % 4 == 0 else ''}")
        shape = (_article, _reference, _table)[page % 3]
        head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Page {page}</title>'
        style = '<link rel="stylesheet" href="/style.css"><script src="/menu.js"></script>'
        return f'<!doctype html>\n<html lang="en"><head>{head}{style}</head>\n<body>{shape(rng, links)}</body></html>\n'


def _headers(media: str) -> tuple[tuple[str, str], ...]:
    return (
        ("Server", "nginx"),
        ("Date", "Sun, 15 Jun 2025 15:06:40 GMT"),
        ("Content-Type", media),
        ("Last-Modified", "Sun, 01 Jun 2025 00:00:00 GMT"),
        ("Connection", "keep-alive"),
        ("Cache-Control", "max-age=600"),
        ("X-Content-Type-Options", "nosniff"),
    )


def _article(rng: random.Random, links: list[str]) -> str:
    """Paragraphs with some links in lists."""
    parts = []
    for number, link in enumerate(links):
        if number % 8 == 0:
            parts.append(f'<h2 id="s{number}">{_words(rng, 4)}</h2>')
        parts.append(f"<p>{_words(rng, 40)} <em>{_words(rng, 2)}</em> {_words(rng, 20)}</p>")
        parts.append(
            f'<ul class="simple"><li><a class="reference internal" href="{link}">{_words(rng, 3)}</a></li></ul>'
        )
    return "\n".join(parts)


def _reference(rng: random.Random, links: list[str]) -> str:
    """Definitions of functions, as Sphinx writes them: many small elements."""
    parts = []
    for number, link in enumerate(links):
        named = f'<span class="sig-name descname"><span class="pre">{_words(rng, 1)}</span></span>'
        taken = [
            f'<em class="sig-param"><span class="n"><span class="pre">{_words(rng, 1)}</span></span></em>'
            for _ in range(4)
        ]
        mark = f'<a class="headerlink" href="#f{number}" title="Permalink">&#182;</a>'
        code = f'<a href="{link}"><code class="docutils">{_words(rng, 1)}</code></a>'
        example = f'<pre><span></span><span class="gp">&gt;&gt;&gt; </span>{_words(rng, 8)}\n</pre>'
        parts += [
            f'<dl class="py function"><dt class="sig py" id="f{number}">{named}({", ".join(taken)}){mark}</dt>',
            f'<dd><p>{_words(rng, 30)} {code} {_words(rng, 20)}</p><div class="highlight">{example}</div></dd></dl>',
        ]
    return "\n".join(parts)


def _table(rng: random.Random, links: list[str]) -> str:
    """An index: a row for each link, with attributes in both kinds of quotes."""
    rows = [
        f"<tr class='row-{number % 2}'><td><a href='{link}' title=\"{_words(rng, 3)}\">{_words(rng, 2)}</a></td>"
        f"<td align=left>{_words(rng, 6)}</td><td><b>{_words(rng, 1)}</b> <i class=x>{_words(rng, 2)}</i></td></tr>"
        for number, link in enumerate(links)
    ]
    return f"<div id=menu><form action=/search><input name=q></form></div><table>{''.join(rows)}</table>"


def _words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(WORDS, k=count))
