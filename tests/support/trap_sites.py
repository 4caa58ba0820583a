"""Sites with one endless trap each, and real pages among and behind what looks like it, known to the last one.

Pages are made when they are asked for, from the URL alone (serving.py: serve_traps). `real` names what a crawl has to
find; every other page belongs to the trap. Nothing here uses the crawler.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from urllib.parse import parse_qsl, urljoin, urlsplit

from tests.support.web import Resource

Answer = Callable[["TrapSite", str, str], Resource | None]

REAL_PAGES = 30  # ordinary ones on each site
PAGINATION = 150  # pages of a long list


@dataclass(frozen=True, kw_only=True)
class TrapSite:
    """One site. `trap(site, host, target)` answers for its trap, None where there is none."""

    name: str
    port: int
    odd: dict[str, list[str]]  # real pages that look like the trap: target, and the targets or URLs it leads to
    entrances: list[str]  # of the trap, linked from the home page
    trap: Answer
    shown: tuple[str, ...] = ()  # real pages that `trap` answers for
    forget: Callable[[str], str] = str  # one name for all the URLs of one page

    @property
    def host(self) -> str:
        return f"{self.name.replace('_', '-')}.test"

    @property
    def seed(self) -> str:
        return self.url("/")

    def url(self, target: str) -> str:
        """Of a target on the site's own host; a whole URL stays as it is."""
        return urljoin(f"http://{self.host}:{self.port}/", target)

    @cached_property
    def _pages(self) -> dict[str, Resource]:
        pages = self._ordinary() | self.odd
        return {
            self.url(page): page_with(f"{self.name} {page}", [self.url(link) for link in links])
            for page, links in pages.items()
        }

    @property
    def real(self) -> set[str]:
        """What has to be found, in the names that `forget` gives."""
        return {self.url(target) for target in (*self._ordinary(), *self.odd, *self.shown)}

    def _ordinary(self) -> dict[str, list[str]]:
        pages = {f"/page/{n}": ["/", f"/page/{(n + 1) % REAL_PAGES}"] for n in range(REAL_PAGES)}
        first = next(iter(self.odd), "/")
        return {"/": ["/page/0", "/page/7", first, *self.entrances]} | pages

    def answer(self, host: str, target: str) -> Resource:
        """What a URL gives; 404 where there is nothing."""
        found = self._pages.get(f"http://{host}:{self.port}{target}") or self.trap(self, host, target)
        return found or Resource(status=404, body="<p>no such page</p>")


def page_with(words: str, links: Iterable[str]) -> Resource:
    """An HTML page of its own words and absolute links."""
    targets = list(links)
    anchors = "".join('<a href="{}">x</a>'.format(target.replace("&", "&amp;")) for target in targets)
    return Resource(body=f"<!doctype html><title>{words}</title><p>{words}</p>{anchors}", targets=targets)


def chain(targets: list[str]) -> dict[str, list[str]]:
    """Each page leads to the next one only."""
    return {target: targets[n + 1 : n + 2] for n, target in enumerate(targets)}


def word(text: str, number: int = 0) -> str:
    """A word that depends on the text alone."""
    return "w" + sha256(f"{number} {text}".encode()).hexdigest()[:5]


def token(text: str) -> str:
    """What a server gives for a session: 32 hex digits."""
    return sha256(text.encode()).hexdigest()[:32]


def _repeats(port: int) -> TrapSite:
    """A relative link without its slash, on pages that exist wherever one looks; and packages in packages."""

    def trap(site: TrapSite, host: str, target: str) -> Resource | None:
        if not target.startswith("/shop/"):
            return None
        return page_with(target, [site.url(f"{target}{more}") for more in ("shop/", "item/", "shop/item/")])

    deep = "/lib" + "".join(f"/node_modules/{name}" for name in "abcdefgh")
    odd = chain(["/lib/", *(deep[: deep.index(f"/{name}") + 2] + "/" for name in "abcdefgh"), f"{deep}/readme"])
    return TrapSite(name="repeats", port=port, odd=odd, entrances=["/shop/"], trap=trap)


def _path(port: int) -> TrapSite:
    """Each page leads two new steps down; and a manual of 24 levels."""

    def trap(site: TrapSite, host: str, target: str) -> Resource | None:
        if not target.startswith("/dive/"):
            return None
        return page_with(target, [site.url(f"{target}{word(target, n)}/") for n in range(2)])

    levels = ["/manual/" + "".join(f"part-{n}/" for n in range(depth)) for depth in range(24)]
    return TrapSite(name="path", port=port, odd=chain(levels), entrances=["/dive/"], trap=trap)


def _query(port: int) -> TrapSite:
    """Facets that can be added without end; and a long list behind a form of 14 fields."""

    def trap(site: TrapSite, host: str, target: str) -> Resource | None:
        if not target.startswith("/facets"):
            return None
        mark = "&" if "?" in target else "?"
        links = [site.url(f"{target}{mark}{word(target, n)}=1") for n in range(3)]
        return page_with(target, links)

    form = "&".join(f"field{n}=" for n in range(13))
    pages = [f"/search?{form}&page={n}" for n in range(PAGINATION)]
    return TrapSite(name="query", port=port, odd=chain(pages), entrances=["/facets"], trap=trap)


def _calendar(port: int) -> TrapSite:
    """Months and days before and after, for ever; and an archive of 30 years that only leads back, month by month."""

    def trap(site: TrapSite, host: str, target: str) -> Resource | None:
        parts = target.strip("/").split("/")
        if parts[0] != "calendar" or len(parts) < 3:
            return None
        months = int(parts[1]) * 12 + int(parts[2]) - 1
        if not 12_000 <= months < 120_000:
            return None
        near = [f"/calendar/{m // 12}/{m % 12 + 1:02}" for m in (months - 1, months + 1)]
        return page_with(target, [site.url(link) for link in near])

    months = [f"/archive/{m // 12}-{m % 12 + 1:02}" for m in range(2026 * 12 + 10, 1996 * 12 - 1, -1)]
    return TrapSite(name="calendar", port=port, odd=chain(months), entrances=["/calendar/2026/11"], trap=trap)


def _session(port: int) -> TrapSite:
    """A token under a name of the shop's own, another one on each page; and things that have such names for ids."""

    def forget(url: str) -> str:
        return url.partition("?visitor=")[0]

    def trap(site: TrapSite, host: str, target: str) -> Resource | None:
        path = target.partition("?")[0]
        if path.startswith("/shop/") and path[6:].isdecimal() and int(path[6:]) < 25:
            mine = token(target)
            links = [f"{site.url(f'/shop/{n}')}?visitor={mine}" for n in range(25)]
            return page_with(f"article {path}", links)
        return None

    return TrapSite(
        name="session",
        port=port,
        odd=chain([f"/thing/{token(f'thing {n}')}" for n in range(PAGINATION)]),
        entrances=[f"/shop/0?visitor={token('home')}"],
        trap=trap,
        shown=tuple(f"/shop/{n}" for n in range(25)),
        forget=forget,
    )


def _jsessionid(port: int) -> TrapSite:
    """A session id under a name that everybody uses, another one on each page."""

    def forget(url: str) -> str:
        return url.partition(";jsessionid=")[0]

    def trap(site: TrapSite, host: str, target: str) -> Resource | None:
        path, _, _ = target.partition(";")
        if not path.startswith("/shop/") or not path[6:].isdecimal() or int(path[6:]) >= PAGINATION:
            return None
        number, mine = int(path[6:]), token(target)
        near = [n % PAGINATION for n in range(number - 2, number + 20)]
        return page_with(f"article {path}", [f"{site.url(f'/shop/{n}')};jsessionid={mine}" for n in near])

    return TrapSite(
        name="jsessionid",
        port=port,
        odd={},
        entrances=[f"/shop/0;jsessionid={token('x')}"],
        trap=trap,
        shown=tuple(f"/shop/{n}" for n in range(PAGINATION)),
        forget=forget,
    )


def _chain(port: int) -> TrapSite:
    """One page whose only link leads to it under another token; and lists and things that look like that."""

    def forget(url: str) -> str:
        return url.partition("?sid=")[0]

    def trap(site: TrapSite, host: str, target: str) -> Resource | None:
        if not target.startswith("/s?sid="):
            return None
        return page_with("one page", [f"{site.url('/s')}?sid={token(target)}"])

    odd = chain([f"/thing/{token(f'thing {n}')}" for n in range(PAGINATION)])
    odd |= chain([f"/list?cursor={token(f'cursor {n}')}" for n in range(PAGINATION)])
    entrances = [f"/s?sid={token('home')}", f"/list?cursor={token('cursor 0')}"]
    return TrapSite(name="chain", port=port, odd=odd, entrances=entrances, trap=trap, shown=("/s",), forget=forget)


def _hosts(port: int) -> TrapSite:
    """Any name resolves, and each page leads to names under its own; and a few deep names that are real."""

    def trap(site: TrapSite, host: str, target: str) -> Resource | None:
        if not host.endswith(f"any.{site.host}") or target != "/" or len(host) > 230:
            return None
        return page_with(host, [f"http://{word(host, n)}.{host}:{site.port}/" for n in range(3)])

    hosts = [".".join(["e", "d", "c", "b", "a"][-depth:]) + ".hosts.test" for depth in range(1, 6)]
    odd = chain([f"http://{host}:{port}/" for host in (*hosts, "five.six." + hosts[-1])])
    return TrapSite(name="hosts", port=port, odd=odd, entrances=[f"http://any.hosts.test:{port}/"], trap=trap)


def _soft_404(port: int) -> TrapSite:
    """Whatever is asked for gives the same words and relative links; and 60 pages that say the same on purpose."""
    nothing_yet = [f"/empty/{n}" for n in range(60)]

    def trap(site: TrapSite, host: str, target: str) -> Resource | None:
        if target in nothing_yet:
            return page_with("nothing here yet", [site.seed])
        if not target.startswith("/lost/"):
            return None
        body = "<title>Not found</title><a href=again/>x</a><a href=more/>x</a><a href=/page/3>x</a>"
        own = site.url(target)
        return Resource(body=body, targets=[urljoin(own, "again/"), urljoin(own, "more/"), site.url("/page/3")])

    return TrapSite(
        name="soft_404",
        port=port,
        odd={"/empty/": nothing_yet},
        entrances=["/lost/"],
        trap=trap,
        shown=tuple(nothing_yet),
    )


def _long(port: int) -> TrapSite:
    """A state in the URL that each click makes longer; and a long list with cursors of some 1,400 bytes."""

    def trap(site: TrapSite, host: str, target: str) -> Resource | None:
        state = dict(parse_qsl(urlsplit(target).query)).get("state", "")
        if not target.startswith("/game"):
            return None
        return page_with(target, [site.url(f"/game?state={state}{word(target, n) * 12}") for n in range(2)])

    cursors = [f"/list?cursor={token(str(n)) * 43}{'x' * (n * 7 % 12)}" for n in range(PAGINATION)]
    return TrapSite(name="long", port=port, odd=chain(cursors), entrances=["/game"], trap=trap)


def answer_anywhere(host: str, target: str, port: int) -> Resource:
    """What the web of all trap sites gives."""
    for name in NAMES:
        site = trap_site(name, port)
        if host == site.host or host.endswith(f".{site.host}"):
            return site.answer(host, target)
    return Resource(status=404)


_MAKERS = (_repeats, _path, _query, _calendar, _session, _jsessionid, _chain, _hosts, _soft_404, _long)
NAMES = tuple(maker.__name__[1:] for maker in _MAKERS)


@cache
def trap_site(name: str, port: int = 8080) -> TrapSite:
    """The site of a trap, one of NAMES."""
    return next(maker for maker in _MAKERS if maker.__name__ == f"_{name}")(port)
