"""A web that is known to the last link: made from a seed number, searched by plain BFS.

The graph comes first (links, rules of robots.txt, failures and their number); the HTML is written from it,
with spellings that a crawler must see through. Nothing here uses the crawler: `expected` is a truth of its own.
"""

import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal
from urllib.parse import urlsplit

AGENT = "shardcrawl"
ATTEMPTS = 3  # fetches before a URL is given up (retry.attempts)
REDIRECTS_MAX = 10

Scope = Literal["domain", "host", "any"]


@dataclass(kw_only=True)
class Resource:
    """What a URL answers. `targets` are the canonical URLs that a correct crawler finds in it."""

    status: int = 200
    content_type: str = "text/html; charset=utf-8"
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    targets: list[str] = field(default_factory=list)
    fails: int = 0  # this many first requests are answered with `fail_status`
    fail_status: int = 500
    delay_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a correct crawl ends with: committed URLs with their status, dead letters, and what is forbidden."""

    committed: dict[str, int]
    dead: frozenset[str]
    refused: frozenset[str]
    out_of_scope: frozenset[str]


class GeneratedWeb:
    """Hosts dN.test and aN.dN.test, `pages` on each domain, with all that links can do to a crawler.

    `port` is in the URLs; 0: in none, as `serve` has it. `slow_s`: how long some pages take. The same arguments
    give the same web, byte for byte, in every process. `resources` maps (host, target) to what is answered; anything
    else is 404. `seeds` reach everything that can be reached.
    """

    def __init__(self, seed: int = 1, *, port: int = 0, domains: int = 6, pages: int = 12, slow_s: float = 0.1) -> None:
        self.domains, self.pages, self.port, self.slow_s = domains, pages, port, slow_s
        self._suffix = f":{port}" if port else ""
        self._random = random.Random(f"{seed}/{domains}/{pages}")  # noqa: S311 - a web, not a secret
        self.resources: dict[tuple[str, str], Resource] = {}
        self.disallowed: dict[str, tuple[str, ...]] = {}
        self._build()

    @property
    def seeds(self) -> list[str]:
        return [self.url("d0.test", "/")]

    def hosts(self, domain: int) -> tuple[str, str]:
        return f"d{domain}.test", f"a{domain}.d{domain}.test"

    def url(self, host: str, target: str) -> str:
        return f"http://{host}{self._suffix}{target}"

    def resource(self, host: str, target: str) -> Resource:
        return self.resources.get((host, target)) or Resource(status=404, body="<p>no such page</p>")

    # -- the graph ----------------------------------------------------------------------------------------------

    def _build(self) -> None:
        for domain in range(self.domains):
            for number, host in enumerate(self.hosts(domain)):
                self._robots(host, 2 * domain + number)
            for page in range(self.pages):
                self._page(domain, page)
            self._specials(domain)

    def _robots(self, host: str, variant: int) -> None:
        texts = [
            (None, ()),
            ("User-agent: *\nDisallow: /private/\nCrawl-delay: 0\n", ("/private/",)),
            (f"User-agent: *\nDisallow: /\n\nUser-agent: {AGENT}\nDisallow: /private/\n", ("/private/",)),
            ("", ()),
            ("User-agent: *\nDisallow: /private/\nAllow: /private/open\n", ("/private/secret",)),
            ("User-agent: other\nDisallow: /\n\nUser-agent: *\nDisallow: /*.cgi$\n", ("/run.cgi",)),
        ]
        text, self.disallowed[host] = texts[variant % len(texts)]
        if text is not None:
            self.resources[host, "/robots.txt"] = Resource(body=text, content_type="text/plain")

    def _path(self, page: int) -> str:
        return "/" if page == 0 else f"/p/{page}.html"

    def _host_of_page(self, domain: int, page: int) -> str:
        return self.hosts(domain)[page % 4 == 3]

    def _page_url(self, domain: int, page: int) -> str:
        return self.url(self._host_of_page(domain, page), self._path(page))

    def _page(self, domain: int, page: int) -> None:
        """An ordinary page: to the next page of its domain, to some others there, now and then to another domain."""
        host = self._host_of_page(domain, page)
        targets = [self._page_url(domain, (page + 1) % self.pages)]
        targets += [self._page_url(domain, self._random.randrange(self.pages)) for _ in range(3)]
        targets += [self._page_url(self._random.randrange(self.domains), 0) for _ in range(page % 3 == 0)]
        if page == 0:
            targets.append(self._page_url((domain + 1) % self.domains, 0))
            targets += [self.url(h, t) for h in self.hosts(domain) for t in self._special_targets()]
        links = "".join(self._anchor(host, target) for target in targets)
        self._put(host, self._path(page), f"<h1>{host} {page}</h1>{links}", targets)

    def _special_targets(self) -> list[str]:
        names = ["/private/secret", "/private/open", "/run.cgi", "/base.html", "/refresh.html", "/meta.html"]
        names += ["/rel.html", "/frames.html", "/gone.html", "/broken.html", "/heals.html", "/busy.html", "/slow.html"]
        names += ["/file.pdf", "/notes.txt", "/hop/0", "/long/0", "/loop/a", "/away", "/temporary", "/q?a=1&b=2"]
        return names

    def _specials(self, domain: int) -> None:
        elsewhere = self._page_url((domain + 2) % self.domains, 0)
        for host in self.hosts(domain):
            for target in ("/private/secret", "/private/open", "/run.cgi", "/q?a=1&b=2"):
                self._put(host, target, "<p>a leaf</p>")
            self._markup(host, elsewhere)
            self._failures(host)
            self._redirects(host, elsewhere)
            self._put(host, "/file.pdf", "%PDF-1.4 <a href='/hidden/pdf'>no link</a>", content_type="application/pdf")
            self._put(host, "/notes.txt", f"see {self.url(host, '/hidden/text')}", content_type="text/plain")

    def _markup(self, host: str, elsewhere: str) -> None:
        """Each leads to leaves of its own, so that one misread element shows as a missing or a surplus URL."""
        u = partial(self.url, host)
        self._leaves(host, "/deep/er/base", "/after-refresh", "/in-iframe", "/in-area", "/follow", "/kept")
        self._put(
            host,
            "/base.html",
            "<a href='base'>b</a>",
            [u("/deep/er/base")],
            head="<base href='/deep/er/'><base href='/wrong/'>",
        )
        refresh = "<meta http-equiv=Refresh content='0; URL=after-refresh'>"
        self._put(host, "/refresh.html", "", [u("/after-refresh")], head=refresh)
        robots = "<meta name=robots content='noindex, nofollow'>"
        self._put(host, "/meta.html", "<a href='/hidden/meta'>no</a>", head=robots)
        rel = "<a rel='nofollow noopener' href='/hidden/rel'>no</a><a rel=noopener href='/follow'>yes</a>"
        rel += "<!-- <a href='/hidden/comment'>no</a> --><script>'<a href=\"/hidden/script\">'</script>"
        rel += "<a href='mailto:x@d0.test'>m</a><a href='javascript:void(0)'>j</a><a href='ftp://d0.test/'>f</a>"
        rel += "<a>none</a><a href=''>self</a><a href='http://[bad'>bad</a><img src='/hidden/img'>"
        self._put(host, "/rel.html", rel, [u("/follow"), u("/rel.html")])
        frames = "<iframe src='/in-iframe'></iframe><map><area href=in-area></map>"
        frames += f"<A HREF=' {elsewhere}#x '>x</A><a href='\n/ke\tpt'>kept</a>"
        self._put(host, "/frames.html", frames, [u("/in-iframe"), u("/in-area"), elsewhere, u("/kept")])

    def _leaves(self, host: str, *targets: str) -> None:
        for target in targets:
            self._put(host, target, "<p>a leaf</p>")

    def _failures(self, host: str) -> None:
        self.resources[host, "/broken.html"] = Resource(fails=1_000_000, body="never")
        self.resources[host, "/heals.html"] = Resource(fails=ATTEMPTS - 1, body="<p>healed</p>")
        self.resources[host, "/busy.html"] = Resource(fails=1, fail_status=503, body="<p>free again</p>")
        self.resources[host, "/slow.html"] = Resource(delay_s=self.slow_s, body="<p>at last</p>")

    def _redirects(self, host: str, elsewhere: str) -> None:
        u = partial(self.url, host)
        self._redirect(host, "/hop/0", 301, "/hop/1", u("/hop/1"))
        self._redirect(host, "/hop/1", 302, "2", u("/hop/2"))
        self._redirect(host, "/hop/2", 307, "../hop/end#part", u("/hop/end"))
        self._leaves(host, "/hop/end", "/hidden/rel", "/hidden/meta", "/hidden/img")
        for step in range(REDIRECTS_MAX + 3):
            self._redirect(host, f"/long/{step}", 308, f"/long/{step + 1}", u(f"/long/{step + 1}"))
        self._redirect(host, "/loop/a", 302, "/loop/b", u("/loop/b"))
        self._redirect(host, "/loop/b", 302, "/loop/a", u("/loop/a"))
        self._redirect(host, "/away", 301, elsewhere, elsewhere)
        self._redirect(host, "/temporary", 303, "//" + elsewhere.partition("//")[2], elsewhere)

    def _redirect(self, host: str, target: str, status: int, location: str, goal: str) -> None:
        self.resources[host, target] = Resource(status=status, headers={"Location": location}, targets=[goal])

    def _put(
        self,
        host: str,
        target: str,
        body: str,
        targets: Iterable[str] = (),
        *,
        head: str = "",
        content_type: str = "text/html",
    ) -> None:
        if content_type == "text/html":
            head = f"<!doctype html><html><head><title>{host}{target}</title>{head}</head>"
            body = f"{head}<body>{body}</body></html>"
        self.resources[host, target] = Resource(body=body, targets=list(targets), content_type=content_type)

    def _anchor(self, host: str, target: str) -> str:
        """One of the ways to write a link to `target` from a page of `host`."""
        parts = urlsplit(target)
        absolute = target.replace("&", "&amp;")
        path = absolute.removeprefix(f"http://{parts.netloc}")
        same = [path, f"{path}#part-{self._random.randrange(9)}", f"/x/..{path}", f"/./{path[1:]}"]
        shouted = absolute.replace(f"http://{parts.hostname}", f"HTTP://{parts.hostname}".upper())
        other = [absolute, shouted, f" {absolute}\n"]
        spelling = self._random.choice(same if parts.hostname == host else other)
        return f'<p>to <a class="l" href="{spelling}">{target[-12:]}</a></p>\n'

    # -- the truth ----------------------------------------------------------------------------------------------

    def is_disallowed(self, url: str) -> bool:
        parts = urlsplit(url)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        return any(target.startswith(rule) for rule in self.disallowed.get(parts.hostname or "", ()))

    def expected(self, seeds: Iterable[str] | None = None, scope: Scope = "any") -> Expected:
        """Search the graph breadth first. A seed's redirect brings its target into the scope, with its host where that
        is of the seed's domain.
        """
        queue = deque((seed, 0, True) for seed in (self.seeds if seeds is None else seeds))
        roots = {self._root(url, scope) for url, _, _ in queue}
        committed: dict[str, int] = {}
        dead, refused, outside = set(), set(), set()
        seen, pages = set(), set[str]()
        while queue:
            url, redirects, is_seed = queue.popleft()
            if url in seen:
                continue
            seen.add(url)
            if self._root(url, scope) not in roots and url not in pages:
                outside.add(url)
                continue
            if redirects > REDIRECTS_MAX or self.is_disallowed(url):
                refused.add(url)
                continue
            found = self.resource(*self._split(url))
            if found.fails >= ATTEMPTS:
                dead.add(url)
                continue
            committed[url] = found.status
            moved = 300 <= found.status < 400
            if moved and is_seed:
                near = {target for target in found.targets if self._root(target, "domain") == self._root(url, "domain")}
                roots.update(self._root(target, scope) for target in near if self._root(url, scope) in roots)
                pages.update(found.targets)
            queue.extend((target, redirects + 1 if moved else 0, moved and is_seed) for target in found.targets)
        return Expected(
            committed=committed, dead=frozenset(dead), refused=frozenset(refused), out_of_scope=frozenset(outside)
        )

    def _root(self, url: str, scope: Scope) -> str:
        host = urlsplit(url).hostname or ""
        return {"any": "", "host": host, "domain": ".".join(host.split(".")[-2:])}[scope]

    def _split(self, url: str) -> tuple[str, str]:
        parts = urlsplit(url)
        return parts.hostname or "", parts.path + (f"?{parts.query}" if parts.query else "")
