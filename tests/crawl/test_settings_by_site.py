"""Crawls with [[sites]]: the effect of each key in the web server's log."""

import gzip
import logging
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from crawler.crawl.opening import open_crawl
from tests.crawl.handlers_lab import lab
from tests.crawl.harness import Crawled, crawl, lab_names, settings_of
from tests.support.serving import Request, Site, serve_linked, serve_resources
from tests.support.web import Resource

A, B, C = "a.test", "b.test", "c.test"
ONE_AT_A_TIME = {"politeness__delay_s": 0.02, "fetch__concurrency": 1, "frontier__claim_ahead_s": 0.001}


@pytest.fixture
async def dns() -> AsyncIterator[str]:
    async with lab_names() as dns:
        yield dns


def page(*targets: str, **more: Any) -> Resource:
    return Resource(body="<title>p</title>" + "".join(f"<a href='{target}'>x</a>" for target in targets), **more)


def pages_of(site: Site, host: str = "") -> list[Request]:
    return [request for request in site.requests() if not request.is_robots and host in ("", request.host)]


async def crawled(tmp_path: Path, dns: str, site: Site, *hosts: str, sites: Any, **options: Any) -> Crawled:
    settings = settings_of(tmp_path / "c", dns__nameservers=[dns], sites=sites, **options)
    done = await crawl(settings, [site.url(host) for host in hosts])
    assert done.errors == []
    return done


async def test_headers_cookies_and_a_login_arrive_where_they_belong_and_nowhere_else(
    tmp_path: Path, dns: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A redirect leads away from the site with the login: what is asked for there is asked for without it."""
    caplog.set_level(logging.DEBUG)
    sites = [
        {"match": f"http://{A}/in/*", "auth": "me:hush-word", "cookies": {"session": "hush-cookie"}},
        {"match": A, "headers": {"X-Team": "search"}},
    ]

    def web(port: int) -> dict[tuple[str, str], Resource]:
        return {
            (A, "/"): page("/in/1", "/out"),
            (A, "/in/1"): Resource(status=302, headers={"Location": f"http://b.test:{port}/in/3"}),
            (A, "/out"): page(),
            (B, "/"): page("/in/2"),
            (B, "/in/2"): page(),
            (B, "/in/3"): page(),
        }

    with serve_linked(web) as site:
        done = await crawled(tmp_path, dns, site, A, B, sites=sites, scope__mode="any")
        found = {(request.host, request.target): request.headers for request in site.requests()}
        assert done.statuses[site.url(B, "/in/3")] == 200
    secret = {"authorization": "Basic bWU6aHVzaC13b3Jk", "cookie": "session=hush-cookie"}
    assert found[A, "/in/1"] == {"x-team": "search"} | secret
    assert found[A, "/"] == found[A, "/out"] == found[A, "/robots.txt"] == {"x-team": "search"}
    assert [found[B, target] for target in ("/", "/in/2", "/in/3", "/robots.txt")] == [{}] * 4
    archived = b"".join(gzip.decompress(f.read_bytes()) for f in (tmp_path / "c" / "warc").iterdir())
    assert b"Authorization: (not archived)" in archived
    assert b"X-Team: search" in archived
    kept = [f for f in (tmp_path / "c").rglob("*") if f.is_file() and f.suffix != ".gz"]
    for text in (archived, caplog.text.encode(), *(f.read_bytes() for f in kept)):
        assert b"hush" not in text
        assert b"bWU6aHVzaC13b3Jk" not in text


async def test_secrets_are_archived_when_that_is_asked_for(tmp_path: Path, dns: str) -> None:
    sites = [{"match": f"http://{A}", "cookies": {"session": "in the file"}}]
    with serve_resources({(A, "/"): page()}) as site:
        await crawled(tmp_path, dns, site, A, sites=sites, archive__request_secrets=True)
    archived = b"".join(gzip.decompress(f.read_bytes()) for f in (tmp_path / "c" / "warc").iterdir())
    assert b"Cookie: session=in the file\r\n" in archived


async def test_a_cookie_wall_gets_its_cookie_with_those_of_the_file(tmp_path: Path, dns: str) -> None:
    wall = Resource(status=302, headers={"Location": "/", "Set-Cookie": "wall=1; Path=/"})
    with serve_resources({(A, "/"): wall}) as site:
        await crawled(tmp_path, dns, site, A, sites=[{"match": f"http://{A}", "cookies": {"own": "2"}}])
        sent = [request.headers.get("cookie") for request in pages_of(site)]
    assert sent == ["own=2", "own=2; wall=1"]


def gaps(requests: list[Request]) -> list[float]:
    return [after.start - before.end for before, after in pairwise(requests)]


async def test_a_sites_delay_applies_to_all_its_requests_only(tmp_path: Path, dns: str) -> None:
    """`c.test` asks for more by its Crawl-delay: the longer one holds. `www.a.test` is in the queue of its domain."""
    names = [f"/{n}" for n in range(4)]
    web = {(host, name): page() for host in (A, B, C) for name in names}
    web |= {(host, "/"): page(*names) for host in (A, B, C)} | {("www.a.test", "/"): page()}
    web[C, "/robots.txt"] = Resource(content_type="text/plain", body="User-agent: *\nCrawl-delay: 0.4\n")
    sites = [{"match": "*.a.test", "delay_s": 0.25}, {"match": C, "delay_s": 0.1}]
    with serve_resources(web) as site:
        hosts = (A, B, C, "www.a.test")
        await crawled(tmp_path, dns, site, *hosts, sites=sites, politeness__delay_s=0.02)
        everything = site.requests()
    of_a = [request for request in everything if request.host in (A, "www.a.test")]
    assert len(of_a) == 8
    assert min(gaps(of_a)[1:]) >= 0.25
    assert min(gaps([r for r in everything if r.host == C])[1:]) >= 0.4
    others = gaps([r for r in everything if r.host == B])[1:]
    assert min(others) >= 0.02
    assert sum(others) / len(others) < 0.2


async def test_a_new_owner_keeps_the_crawl_delay_of_a_queue(tmp_path: Path, dns: str) -> None:
    with serve_resources({(A, "/"): page("/1"), (A, "/1"): page()}) as site:
        await crawled(tmp_path, dns, site, A, sites=[{"match": A, "delay_s": 0.3}])
        settings = settings_of(tmp_path / "c")
        async with open_crawl(settings, create=False) as opened:
            _, queue, partition = opened.placement.of(site.url(A))
            assert await opened.states.delays([(partition, queue)]) == [300]


@pytest.mark.parametrize(("concurrency", "expected"), [(None, 1), (3, 3)])
async def test_a_site_gets_the_concurrency_of_its_table(
    tmp_path: Path, dns: str, concurrency: int | None, expected: int
) -> None:
    names = [f"/{n}" for n in range(12)]
    web = {(A, name): page(delay_s=0.1) for name in names} | {(A, "/"): page(*names)}
    sites = [{"match": A, "concurrency": concurrency}] if concurrency else []
    with serve_resources(web) as site:
        await crawled(tmp_path, dns, site, A, sites=sites)
        requests = pages_of(site)
    at_a_time = [sum(other.start <= one.start < other.end for other in requests) for one in requests]
    assert max(at_a_time) == expected


CHAIN = {(A, "/"): page("/shop/1", "/1"), (A, "/shop/9"): page(), (A, "/9"): page()}
CHAIN |= {(A, f"{at}/{n}"): page(f"{at}/{n + 1}") for n in range(1, 9) for at in ("/shop", "")}


@pytest.mark.parametrize(
    ("limit", "sites", "deepest"),
    [
        (-1, [{"match": f"{A}/shop/*", "depth_max": 2}], {"/shop": 2, "": 9}),
        (3, [{"match": f"{A}/shop/*", "depth_max": 5}], {"/shop": 5, "": 3}),
        (3, [{"match": f"{A}/shop/*", "depth_max": -1}], {"/shop": 9, "": 3}),
        (0, [{"match": f"{A}/shop/*", "depth_max": 4}], {"/shop": 4, "": 0}),
    ],
)
async def test_a_limit_of_depth_stands_in_place_of_that_of_the_crawl(
    tmp_path: Path, dns: str, limit: int, sites: Any, deepest: dict[str, int]
) -> None:
    with serve_resources(CHAIN) as site:
        await crawled(tmp_path, dns, site, A, sites=sites, scope__depth_max=limit)
        asked = {request.target for request in pages_of(site)}
    expected = {"/"} | {f"{at}/{n}" for at, most in deepest.items() for n in range(1, most + 1)}
    assert asked == expected


async def test_a_shorter_path_lowers_the_depth_of_a_waiting_url(tmp_path: Path, dns: str) -> None:
    """/x is found by /2 first, 3 links from the seed, and then by /late, 2 links from it: so /y is within its limit."""
    web = {
        (A, "/"): page("/1", "/late"), (A, "/1"): page("/2"), (A, "/2"): page("/x"), (A, "/late"): page("/x"),
        (A, "/x"): page("/y"), (A, "/y"): page(),
    }  # fmt: skip
    sites = [
        {"match": f"{A}/x", "priority": -100.0},
        {"match": f"{A}/late", "priority": -50.0},
        {"match": f"{A}/y", "depth_max": 3},
    ]
    with serve_resources(web) as site:
        await crawled(tmp_path, dns, site, A, sites=sites, **ONE_AT_A_TIME)
        order = [request.target for request in pages_of(site)]
    assert order == ["/", "/1", "/2", "/late", "/x", "/y"]


async def test_a_sites_priority_decides_the_usual_order(tmp_path: Path, dns: str) -> None:
    names = ["/last/1", "/plain/1", "/first/1", "/last/2", "/first/2", "/plain/2"]
    sites = [{"match": "*/first/*", "priority": 2.0}, {"match": "*/last/*", "priority": -2.0}]
    with serve_resources({(A, name): page() for name in names} | {(A, "/"): page(*names)}) as site:
        await crawled(tmp_path, dns, site, A, sites=sites, **ONE_AT_A_TIME)
        order = [request.target.split("/")[1] for request in pages_of(site)][1:]
    assert order == ["first"] * 2 + ["plain"] * 2 + ["last"] * 2


async def test_pages_go_to_the_handler_of_their_label(tmp_path: Path, dns: str) -> None:
    app = """
        @app.page(label="product")
        async def product(page):
            yield {"by": "product", "path": page.url.rpartition(":")[2][5:], "label": page.label}

        @app.page(label="special")
        async def special(page):
            yield {"by": "special", "path": page.url.rpartition(":")[2][5:], "label": page.label}

        @app.page("*/p/3")
        async def never(page):
            yield {"by": "never"}

        @app.page()
        async def rest(page):
            page.follow("/p/2", label="special")
    """
    web = {(A, f"/p/{n}"): page() for n in (1, 2, 3)} | {(A, "/"): page("/p/1", "/p/2", "/p/3")}
    made = lab(tmp_path, app, dns__nameservers=[dns], sites=[{"match": f"{A}/p/*", "label": "product"}])
    with serve_resources(web) as site:
        await made.crawl(site.url(A))
    found = {(item["by"], item["path"][-4:], item["label"]) for item in made.items}
    assert found == {("product", "/p/1", "product"), ("special", "/p/2", "special"), ("product", "/p/3", "product")}
