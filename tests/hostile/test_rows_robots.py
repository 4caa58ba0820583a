"""robots.txt as sites serve it (B), in one small crawl; one that does not come whole: test_robots_not_whole.py."""

# ruff: noqa: E501 - a table reads best with one row to a line
import gzip
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crawler.hosts import robots_cache
from crawler.hosts.robots_cache import RobotsCache
from crawler.settings import RobotsSettings, Settings
from tests.hostile.crawled import Close, Outcome, Site, check, crawl_all, host_of, links, moved, ok
from tests.support.hostile_server import Hold, HostileServer, Repeat, Step
from tests.web.fetching import fetching

CHALLENGE = b"<html><script>sucuri_cloudproxy_js='';w=String.fromCharCode</script></html>"
RULES = b"User-agent: *\nDisallow: /no\n"
ALLOWED, FORBIDDEN = ("/good",), ("/no",)


def site(
    robots: bytes | list[Step], *, wanted: tuple[str, ...] = ALLOWED, unwanted: tuple[str, ...] = FORBIDDEN
) -> Site:
    """A front page with a link that RULES forbid and one that they allow."""
    return Site({"/": links("/no", "/good"), "/no": ok(""), "/good": ok(""), "/robots.txt": robots}, wanted, unwanted)


def text(body: bytes, kind: str = "text/plain", more: str = "", status: str = "200 OK") -> bytes:
    return ok(body, kind, more=more, status=status)


OPEN = {"wanted": ("/good", "/no"), "unwanted": ()}
CLOSED = {"wanted": (), "unwanted": ("/good", "/no")}
CLOSED_EVEN_THE_FIRST = Site({"/": ok(""), "/robots.txt": b""}, (), ())
LONG = RULES + b"Disallow: /x\n" * 45_000
REFUSED = b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n"

SITES = {
    "B01-half-a-mebibyte": site(text(LONG[:512_000])),
    "B01-five-mebibytes": site(text(LONG * 9)),
    "B01-endless": site([b"HTTP/1.1 200 OK\r\n\r\n" + RULES, Repeat(b"Disallow: /x\n" * 4000)]),
    "B01-gzip-bomb": site(text(gzip.compress(RULES + b"#" * 20_000_000), more="Content-Encoding: gzip\r\n")),
    "B02-BOM": site(text(b"\xef\xbb\xbf" + RULES)),
    "B02-half-a-BOM": site(text(b"\xef\xbb" + RULES)),
    "B02-UTF-16": site(text(RULES.decode().encode("utf-16"))),
    "B02-CR-only": site(text(RULES.replace(b"\n", b"\r"))),
    "B02-NULs": site(text(b"\0".join(RULES[n : n + 1] for n in range(len(RULES))))),
    "B02-binary": site(text(bytes(range(256)) * 40, "image/png"), **OPEN),
    "B02-rules-as-an-image": site(text(RULES, "image/png")),
    "B03-a-page": site(text(b"<!doctype html><title>Hello</title>User-agent", "text/html"), **OPEN),
    "B04-five-redirects": Site({"/": links("/no", "/good"), "/no": ok(""), "/good": ok(""), "/robots.txt": moved("/1"),
                                **{f"/{n}": moved(f"/{n + 1}") for n in range(1, 5)}, "/5": text(RULES)},
                               ALLOWED, FORBIDDEN),
    "B04-six-redirects": Site({"/": links("/no", "/good"), "/no": ok(""), "/good": ok(""), "/robots.txt": moved("/1"),
                               **{f"/{n}": moved(f"/{n + 1}") for n in range(1, 7)}, "/7": text(RULES)}, ("/no",), ()),
    "B04-loop": site(moved("/robots.txt"), **OPEN),
    "B04-elsewhere": Site({"/": links("/no", "/good"), "/no": ok(""), "/good": ok(""),
                           "/robots.txt": moved("//b04-there.test:PORT0/robots.txt"),
                           "b04-there.test/robots.txt": text(RULES)}, ALLOWED, FORBIDDEN),
    "B05-401": site(REFUSED % 401, **OPEN),
    "B05-403": site(REFUSED % 403, **OPEN),
    "B05-404": site(REFUSED % 404, **OPEN),
    "B05-410": site(REFUSED % 410, **OPEN),
    "B06-429": site(REFUSED % 429, **CLOSED),
    "B07-500": site(REFUSED % 500, **CLOSED),
    "B07-599": site(REFUSED % 599, **CLOSED),
    "B07-silence": site([Hold()], **CLOSED),
    "B07-closed": site([Close()], **CLOSED),
    "B07-cut-off": site([b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + RULES, Close()], **CLOSED),
    "B07-not-decodable": site(text(RULES, more="Content-Encoding: gzip\r\n"), **CLOSED),
    "B08-delays": site(text(RULES + b"".join(b"Crawl-delay: %b\n" % d for d in (b"-1", b"NaN", b"inf", b"5s", b"1e999"))
                            + b"Request-rate: 1/10\n")),
    "B09-ten-thousand-groups": site(text(b"".join(b"User-agent: b%d\nDisallow: /\n" % n for n in range(10_000)) + RULES)),
    "B09-wildcards": site(text(b"User-agent: *\n" + b"Disallow: /*a*a*a*a*a*b\n" * 4000 + b"Disallow: /no\n")),
    "B09-a-long-line": site(text(b"User-agent: *\nDisallow: /" + b"x" * 16_384 + b"\nDisallow: /no\n")),
    "B10-agents": site(text(b"User-agent: Foo Bar\nDisallow: /\nUser-agent: shardcrawl/1.2\nOdd: 1\n"
                            b"User-agent: \xff\n"
                            b"Disallow: /no\nUser-agent: *\nDisallow: /\n")),
    "B11-longest-pattern": Site({"/": links("/no/%2F", "/yesx", "/tie", "/no/*", "/good"), "/good": ok(""),
                                 "/robots.txt": text(b"User-agent: *\nDisallow: /no\nAllow: /tie\nDisallow: /tie\n"
                                                     b"Disallow: /yes$\n")},
                                ("/good", "/yesx", "/tie"), ("/no",)),
    "B14-202": site(text(b"<html>wait</html>", "text/html", status="202 Accepted"), **CLOSED),
    "B14-202-with-rules": site(text(RULES, status="202 Accepted"), **CLOSED),
    "B14-challenge": site(text(CHALLENGE, "text/html"), **CLOSED),
    "B14-challenge-403": site(text(CHALLENGE, "text/html", status="403 Forbidden"), **CLOSED),
    "B14-challenge-by-header": site(text(RULES, more="CF-Mitigated: challenge\r\n"), **CLOSED),
    "B13-itself-forbidden": site(text(b"User-agent: *\nDisallow: /robots.txt\nDisallow: /no\n")),
}  # fmt: skip


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder: Path = tmp_path_factory.mktemp("robots")
    return crawl_all(SITES, folder / "c", retry__attempts=2, retry__server_busy__attempts=2)


@pytest.mark.parametrize("row", SITES)
def test_row(row: str, outcome: Outcome) -> None:
    check(row, SITES[row], outcome)
    first = next(r for r in outcome.requests if r.startswith(host_of(row)))
    assert first == f"{host_of(row)}/robots.txt", "nothing before it"
    if SITES[row].unwanted == CLOSED["unwanted"]:
        assert f"{host_of(row)}/" not in outcome.requests


@pytest.mark.parametrize("row", ["B12-changed"])
async def test_row_of_a_file_that_changes(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read again when its time is over, and holds for URLs that were found before."""

    async def nothing_shared(partition: int, origin: str) -> None:
        return None

    now_ms = 1_000_000
    monkeypatch.setattr(robots_cache, "monotonic_ms", lambda: now_ms)
    settings = Settings(robots=RobotsSettings(ttl_s=3600))
    frontier: Any = SimpleNamespace(robots=nothing_shared)
    cache = RobotsCache(frontier, settings)
    by_path: dict[str, Sequence[Step]] = {"/robots.txt": [text(b"")]}
    async with HostileServer(by_path=by_path) as server, fetching() as fetcher:
        origin = server.url[:-1]
        for forbidden in (False, True):
            result = await fetcher.fetch(f"{origin}/robots.txt")
            entry, _ = await cache.judge(origin, result)
            assert entry.rules is not None
            assert entry.rules.allows(f"{origin}/no") is not forbidden
            assert cache.known(origin) is entry
            now_ms += 3_600_000
            assert cache.known(origin) is None, "asked for again"
            by_path["/robots.txt"] = [text(RULES)]
