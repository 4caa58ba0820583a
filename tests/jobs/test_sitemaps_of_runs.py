"""Sitemaps of jobs: URLs of the run, as others are, whose entries are its seeds."""

import contextlib
import signal
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from crawler.frontier.jobs import job_id
from crawler.model import SITEMAP, Failure, FailureKind, FetchResult
from crawler.rules.jobs import Outcome, State
from crawler.views import operator
from crawler.web.fetcher import Fetcher
from crawler.worker import fetch
from tests.crawl.harness import lab_names, settings_of
from tests.crawl.rebuild_lab import audit, opened, rebuild
from tests.jobs import process_lab
from tests.jobs.jobs_lab import ME, NAME, Lab, hasten, job_lab, job_web, linked, running, until
from tests.support.engine import Engine
from tests.support.serving import serve_linked
from tests.support.web import Resource

FINISHED, FAILED = (State.STARTED, Outcome.FINISHED), (State.STARTED, Outcome.FAILED)
NOT_STARTED = (State.FAILED_TO_START, Outcome.FAILED)
MAP = "/map.xml"


def xml(root: str, *locs: str, **values: Any) -> Resource:
    inner = "url" if root == "urlset" else "sitemap"
    body = "".join(f"<{inner}><loc>{loc}</loc></{inner}>" for loc in locs)
    return Resource(body=f"<{root}>{body}</{root}>", content_type="application/xml", **values)


def urls(*locs: str, **values: Any) -> Resource:
    return xml("urlset", *locs, **values)


def index(*locs: str, **values: Any) -> Resource:
    return xml("sitemapindex", *locs, **values)


def moved(target: str) -> Resource:
    return Resource(status=301, headers={"Location": target})


PAGES = {("d0.test", f"/{name}"): linked(f"/of-{name}", "http://d1.test/") for name in "abc"}
PAGES |= {("d0.test", f"/of-{name}"): linked() for name in "abc"}
PAGES |= {(host, "/"): linked() for host in ("d1.test", "x.d0.test")}
CUT = 100  # bytes of a sitemap that are read


class Case(NamedTuple):
    web: Mapping[str, Resource]  # paths of d0.test; with a host before them, of that one
    pages: str  # paths, that of d0.test without their host
    end: tuple[State, Outcome] = FINISHED
    errors: int = 0
    reason: str = ""
    run: Mapping[str, Any] = {"depth": 0}
    options: Mapping[str, Any] = {}
    seeds: tuple[str, ...] = ()


CASES = {
    "good": Case({MAP: urls("/a", "/b")}, "/a /b"),
    "links-are-followed": Case({MAP: urls("/a")}, "/a /of-a", run={"scope": "domain"}),
    "scope-of-each-page": Case({MAP: urls("/a", "http://x.d0.test/")}, "/a /of-a x.d0.test/", run={"scope": "host"}),
    "beside-seeds": Case({MAP: urls("/a")}, "/a /b", seeds=("/b",)),
    "text": Case({MAP: Resource(body="http://d0.test/a\nhttp://d0.test/b\n", content_type="text/plain")}, "/a /b"),
    "feed": Case({MAP: Resource(body="<rss><channel><item><link>/a</link></item></channel></rss>")}, "/a"),
    "index": Case({MAP: index("/1", "/2"), "/1": urls("/a"), "/2": index("/3"), "/3": urls("/b")}, "/a /b"),
    "too-deep": Case({MAP: index("/1", "/2"), "/1": urls("/a"), "/2": index("/3"), "/3": index("/4")}, "/a"),
    "cycle": Case({MAP: index(MAP, "/1"), "/1": index("/1", MAP, "/2"), "/2": urls("/a")}, "/a"),
    "one-is-missing": Case({MAP: index("/1", "/gone"), "/1": urls("/a")}, "/a", errors=1),
    "cut-off": Case({MAP: urls("/a", f"/{'b' * CUT}")}, "/a"),
    "other-domains": Case({MAP: urls("/a", "http://d1.test/", "http://x.d0.test/")}, "/a x.d0.test/"),
    "moved": Case({MAP: moved("http://d1.test/m"), "d1.test/m": urls("http://d0.test/a", "/")}, "/a d1.test/"),
    "beyond-robots": Case(
        {"/robots.txt": Resource(body="User-agent: *\nDisallow: /map"), MAP: urls("/a")}, "", NOT_STARTED,
        reason="no usable page: 1 refused",
    ),
    "beyond-filters": Case(
        {MAP: urls("/a", "/b", "/1.xml")}, "/a", options={"scope__exclude": ["xml$", "/b$"], "scope__include": ["/a"]}
    ),
    "beyond-limits": Case(  # the limit is noticed within a quarter of a second, so before the first page has links
        {MAP: index("/1", "/2"), "/1": urls("/a"), "/2": urls("/b", "/c")}
        | {f"/{name}": linked(f"/of-{name}", delay_s=1.0) for name in "abc"},
        "/a /b /c",
        (State.STARTED, Outcome.LIMITED), reason="limit of urls", run={"urls": 1},
    ),
    "bytes-are-those-of-pages": Case(
        {MAP: urls("/a", "/b", f"/{'x' * 2000}")}, f"/a /b /{'x' * 2000}", errors=1,
        run={"bytes": 2000, "depth": 0},
    ),
    "missing": Case({}, "", NOT_STARTED, 1, "can't read the sitemap http://d0.test/map.xml: status 404"),
    "a-page": Case({MAP: linked("/a")}, "", NOT_STARTED, 1, "it is no sitemap"),
    "without-an-entry": Case({MAP: urls()}, "", NOT_STARTED, reason="no valid seed URL"),
    "not-to-be-followed": Case(
        {MAP: urls("/a", headers={"X-Robots-Tag": "nofollow"})}, "", NOT_STARTED, 1, "X-Robots-Tag"
    ),
    "all-are-missing": Case({MAP: index("/1", "/2")}, "", NOT_STARTED, 2, "no usable page: 2 failed"),
    "moved-and-missing": Case({MAP: moved("/gone")}, "", NOT_STARTED, 1, "no usable page: 1 failed"),
    "missing-beside-seeds": Case({}, "/b", FINISHED, 1, "status 404", seeds=("/b",)),
    "of-missing-pages": Case({MAP: urls("/y", "/x")}, "/x /y", FAILED, 2, "no usable page: 2 error pages"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


def web_of(case: Case, port: int) -> dict[tuple[str, str], Resource]:
    """With the port in URLs."""
    web = dict(PAGES)
    for place, resource in case.web.items():
        host, slash, path = place.partition("/")
        headers = {name: with_port(value, port) for name, value in resource.headers.items()}
        web[host or "d0.test", slash + path] = replace(resource, body=with_port(resource.body, port), headers=headers)
    return web


def with_port(text: str, port: int) -> str:
    return text.replace(".test/", f".test:{port}/")


@contextlib.asynccontextmanager
async def lab_of(folder: Path, engine: Engine, case: Case) -> AsyncIterator[Lab]:
    with serve_linked(lambda port: web_of(case, port)) as site:
        async with lab_names() as dns:
            given = {
                "frontier__redis": engine.url, "dns__nameservers": [dns], "scope__mode": "any",
                "crawl__partitions": 16, "membership__beats": 70.0,
            }  # fmt: skip
            settings = settings_of(folder / "c", **(given | case.options))
            async with running(settings) as crawl:
                yield Lab(site, engine, settings, crawl)


def pages_of(lab: Lab, run: str) -> list[str]:
    """Paths of the pages of a run, those of d0.test without their host."""
    sitemaps = [entry.url for entry in lab.entries(run) if entry.label == SITEMAP]
    found = lab.fetched(run)
    for url in sitemaps:
        found[url.partition("//")[2].replace(f":{lab.site.port}", "")] -= 1
    return sorted(place.removeprefix("d0.test") for place in found.elements())


@pytest.mark.parametrize("name", CASES)
async def test_what_a_sitemap_gives_a_run(
    tmp_path: Path, engine: Engine, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    if name == "cut-off":
        monkeypatch.setattr(fetch, "SITEMAP_BYTES_MAX", CUT)
    async with lab_of(tmp_path, engine, case) as lab:
        await lab.add(*(lab.url("d0.test", path) for path in case.seeds), sitemap=lab.url("d0.test", MAP), run=case.run)
        await lab.run()
        (row,) = await lab.ended()
        assert (row.state, row.outcome) == case.end, row.reason
        assert pages_of(lab, row.run) == sorted(case.pages.split())
        assert (row.pages, row.errors) == (len(case.pages.split()), case.errors)
        assert with_port(case.reason, lab.site.port) in row.reason
        assert bool(case.reason) is bool(row.reason)
        asked = [(one.host, one.target) for one in lab.site.requests()]
        assert len(asked) == len(set(asked)), "nothing twice"
        await lab.nothing_left()
    assert await audit(lab.settings) == 0


async def test_each_run_reads_the_sitemap_for_itself_also_beside_another(tmp_path: Path, engine: Engine) -> None:
    web = {("d0.test", MAP): index("/1"), ("d0.test", "/1"): urls("/a", "/b", delay_s=0.3)}
    async with job_lab(tmp_path, engine, PAGES | web) as lab:
        await lab.add(sitemap=lab.url("d0.test", MAP), overlap="allow", run={"depth": 0})
        await lab.run()
        await lab.run()
        await lab.ended(2)
        await lab.run()
        rows = [row for row in await lab.ended(3) if row.run]
        assert [(row.outcome, row.pages, pages_of(lab, row.run)) for row in rows] == [
            (Outcome.FINISHED, 2, ["/a", "/b"])
        ] * 3
        targets = Counter(one.target for one in lab.site.requests())
        assert targets == {"/robots.txt": 1, MAP: 3, "/1": 3, "/a": 3, "/b": 3}
        await lab.nothing_left()
    assert await audit(lab.settings) == 0


async def test_a_run_waits_with_its_sitemap_while_its_domain_is_paused(tmp_path: Path, engine: Engine) -> None:
    async with job_lab(tmp_path, engine, PAGES | {("d0.test", MAP): urls("/a")}) as lab:
        await operator.pause(lab.crawl, "d0.test", actor=ME)
        await lab.add(sitemap=lab.url("d0.test", MAP), run={"depth": 0})
        await lab.run()

        async def has_added() -> bool:
            return bool([row for row in await lab.rows() if row.run]) and (await lab.crawl.stats.totals()).pending == 1

        await until(has_added, "the sitemap to wait")
        assert lab.site.requests() == []
        await operator.resume(lab.crawl, "d0.test", actor=ME)
        (row,) = await lab.ended()
        assert (row.outcome, pages_of(lab, row.run)) == (Outcome.FINISHED, ["/a"])


async def test_a_rebuild_counts_pages_and_no_sitemaps(tmp_path: Path, engine: Engine) -> None:
    web = PAGES | {("d0.test", MAP): index("/1", "/gone"), ("d0.test", "/1"): urls("/a", "/x")}
    async with job_web(tmp_path, engine, web) as (site, settings):
        async with running(settings) as crawl:
            lab = Lab(site, engine, settings, crawl)
            await lab.add(sitemap=lab.url("d0.test", MAP), run={"depth": 0})
            await lab.run()
            (before,) = await lab.ended()
        engine.flush()
        await rebuild(settings)
        async with opened(settings) as crawl:
            (after,) = await crawl.jobs.history(job_id("default", NAME), limit=9)
        assert (before.pages, before.errors, after.pages, after.errors) == (2, 2, 2, 1)
        assert after.bytes == before.bytes, "without those of sitemaps"
        assert await audit(settings) == 0


@pytest.mark.processes
@pytest.mark.parametrize("point", ["archive.synced#1", "route.added#2", "ack.answered#2"])
def test_an_instance_killed_at_a_sitemap_leaves_one_complete_run(
    tmp_path: Path, engine: Engine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """A sitemap that was committed is not read again."""
    web = process_lab.pages_of(1, 4) | {
        ("d0.test", MAP): index("/1.xml", "/2.xml"), ("d0.test", "/1.xml"): urls("/", "/p0"),
        ("d0.test", "/2.xml"): urls("/p1", "/p2", "/p3"),
    }  # fmt: skip
    monkeypatch.setattr(process_lab, "pages_of", lambda hosts, pages: web)
    with process_lab.job_lab(tmp_path, engine, capsys, hosts=1) as lab:
        words = ("--every", "1d", "--set", f"crawl.partitions={process_lab.PARTITIONS}")
        lab.jobs("add", "once", "--sitemap", lab.site.url("d0.test", MAP), *words)
        lab.jobs("run", "once")
        first = lab.instance(0, SHARDCRAWL_CRASH_POINT=f"{point}=kill")
        assert first.wait() == -signal.SIGKILL, first.err
        lab.keep(1)
        lab.until(lambda: any(row.get("outcome") == "finished" for row in lab.history("once")), "the run to finish")
        (row,) = lab.history("once")
        assert (row["pages"], row.get("errors", 0), lab.exported(row["run"])) == (5, 0, {row["run"]: lab.expected})
        asked = Counter(one.target for one in lab.site.requests() if not one.is_robots)
        assert asked[MAP] == (2 if point == "archive.synced#1" else 1)
        lab.audit()
        lab.stop()


@pytest.mark.parametrize("kind", [FailureKind.NETWORK, FailureKind.PROXY])
async def test_a_run_waits_with_its_sitemap_while_nothing_of_ours_works(
    tmp_path: Path, engine: Engine, kind: FailureKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed, whole = list[str](), Fetcher.fetch

    async def fetched(self: Fetcher, url: str, **options: Any) -> FetchResult:
        if url.endswith(MAP) and len(failed) < 5:
            failed.append(url)
            return FetchResult(url=url, failure=Failure(kind=kind, detail="gone"))
        return await whole(self, url, **options)

    monkeypatch.setattr(Fetcher, "fetch", fetched)
    async with job_lab(tmp_path, engine, PAGES | {("d0.test", MAP): urls("/a")}, retry__attempts=1) as lab:
        await lab.add(sitemap=lab.url("d0.test", MAP), run={"depth": 0})
        await lab.run()
        (row,) = await lab.ended()
        assert (row.outcome, row.errors, pages_of(lab, row.run), len(failed)) == (Outcome.FINISHED, 0, ["/a"], 5)
