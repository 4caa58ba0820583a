"""Rights in a crawl: recorded with each page, and skipped by robots.txt or by the page's own words, without a byte."""

import contextlib
import gzip
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from crawler.archive.folder import open_existing
from crawler.archive.items import ItemReader
from crawler.archive.warc_reader import read_content
from crawler.crawl.build import open_instance
from crawler.crawl.opening import open_crawl
from crawler.frontier.operator_log import Actor, Via
from crawler.handlers.load_app import load_app
from crawler.jobs import runs
from crawler.model import CommitEntry
from crawler.outputs.records import Pages
from crawler.rules.rights import short_text
from crawler.rules.urls import canonicalize
from crawler.settings import Settings
from crawler.views.facts import explain
from crawler.views.losses import losses_of
from crawler.views.operator import release
from crawler.views.pruning import Wanted, prune
from crawler.views.reasons import explanation, record_of
from crawler.views.rehandling import rehandle
from tests.crawl.harness import Crawled, crawl, entries_of, lab_names
from tests.crawl.rebuild_lab import Lab, audit, rebuild
from tests.crawl.runs_lab import ONE, TWO, start, waiting_for_urls
from tests.support.engine import Engine
from tests.support.serving import serve_resources
from tests.support.web import Resource

HOST, QUIET, LATER, OTHER = "said.test", "quiet.test", "later.said.test", "other.test"
CANARY, OPEN = "canary-7f3a", "open-text"  # in pages that say no, and in others
ME = Actor(who="ann", via=Via.CLI)
APP = """
from crawler import Crawler
app = Crawler()

@app.page()
async def every(page):
    yield {"title": page.title, "text": page.text}
"""


def page(*links: str, head: str = "", title: str = CANARY, **headers: str) -> Resource:
    text = CANARY if title == CANARY else OPEN
    anchors = "".join(f'<a href="{link}">{text}</a>' for link in links)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Resource(body=f"<title>{title}</title>{head}<p>{text}</p>{anchors}", headers=named)


ROBOTS = """\
License: https://said.test/license.xml
User-agent: *
Content-Signal: search=yes
Content-Usage: /closed train-ai=n
Content-Usage: /closed/but/ train-ai=y
Disallow: /never
"""
OF_PAGES = {
    "/header": page("/behind-header", Content_Usage="train-ai=n", Set_Cookie="secret=1"),
    "/signal": page(Content_Signal="ai-train=no"),
    "/reserved": page(tdm_reservation="1", tdm_policy="https://said.test/policy.json"),
    "/noai": page(X_Robots_Tag="otherbot: noindex, shardcrawl: noai"),
    "/meta": page("/behind-meta", head='<meta name="tdm-reservation" content="1">'),
    "/nofollow": page("/not-followed", head='<meta name="robots" content="noai, nofollow">'),
    "/disagree": page(head='<meta name="robots" content="noai">', Content_Usage="train-ai=y"),
    "/moved": Resource(status=302, headers={"Location": "/target", "Content-Usage": "train-ai=n"}, body=CANARY),
    "/doc.pdf": Resource(body=f"%PDF-1.4 {CANARY}", content_type="application/pdf", headers={"X-Robots-Tag": "noai"}),
    "/photo": Resource(body=CANARY, content_type="image/png", headers={"X-Robots-Tag": "noimageai"}),
}
FREE = {
    "/": page(*OF_PAGES, "/closed/x", "/closed/but/x", "/linked", "/images", title="Home"),
    "/closed/but/x": page(title="Open"),
    "/linked": page(head='<link rel="license" href="/by.html">', Link='</rsl.xml>; rel="license"', title="Linked"),
    "/images": page(X_Robots_Tag="noimageai, noindex", title="Images"),
    "/behind-header": page(title="Behind"),
    "/behind-meta": page(title="Behind"),
    "/target": page(title="Target"),
}
WEB = {
    **{(host, "/robots.txt"): Resource(body=ROBOTS, content_type="text/plain") for host in (HOST, LATER, OTHER)},
    (HOST, "/closed/x"): page("/only-from-closed"),
    (QUIET, "/"): Resource(body="<title>Quiet</title>Nothing is said"),
    **{(HOST, path): resource for path, resource in (OF_PAGES | FREE).items()},
}
SKIP: dict[str, Any] = {"rights__purpose": "ai-train", "rights__policy": "skip"}


@pytest.fixture
async def lab(tmp_path: Path, engine: Engine) -> AsyncIterator[Lab]:
    load_app.cache_clear()
    (tmp_path / "shop.py").write_text(textwrap.dedent(APP))
    with serve_resources(WEB) as site:
        async with lab_names() as dns:
            yield Lab(site, dns, engine, tmp_path)


def settings_of(lab: Lab, **more: Any) -> Settings:
    return lab.settings(scope__mode="any", crawl__partitions=16, handlers__app=str(lab.home / "shop.py"), **more)


def seeds_of(lab: Lab) -> list[str]:
    return [lab.site.url(HOST), lab.site.url(QUIET)]


def by_path(done: Crawled, lab: Lab, host: str = HOST) -> dict[str, CommitEntry]:
    origin = lab.site.url(host)[:-1]
    return {e.url.removeprefix(origin): e for e in done.entries if e.url.startswith(f"{origin}/")}


def everything(settings: Settings) -> bytes:
    """All bytes of the crawl folder, with what is compressed in it."""
    found = []
    for path in sorted(Path(settings.archive.dir).rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            found.append(gzip.decompress(data) if path.suffix == ".gz" else data)
    return b"\n".join(found)


RECORDED = {
    "/": "search y, license https://said.test/license.xml",
    "/header": "search y, ai-train n, license https://said.test/license.xml",
    "/signal": "search y, ai-train n, license https://said.test/license.xml",
    "/reserved": "search y, ai-input n, ai-train n, tdm n, license https://said.test/license.xml "
    "https://said.test/policy.json",
    "/noai": "search y, ai-input n, ai-train n, license https://said.test/license.xml",
    "/meta": "search y, ai-input n, ai-train n, tdm n, license https://said.test/license.xml",
    "/nofollow": "search y, ai-input n, ai-train n, license https://said.test/license.xml",
    "/disagree": "search y, ai-input n, ai-train n, license https://said.test/license.xml",
    "/moved": "search y, ai-train n, license https://said.test/license.xml",
    "/doc.pdf": "search y, ai-input n, ai-train n, license https://said.test/license.xml",
    "/photo": "search y, ai-input n, ai-train n, license https://said.test/license.xml",
    "/images": "search n, license https://said.test/license.xml",
    "/closed/x": "search y, ai-train n, license https://said.test/license.xml",
    "/closed/but/x": "search y, ai-train y, license https://said.test/license.xml",
}


async def test_what_is_said_is_recorded_with_each_page_and_shown(lab: Lab) -> None:
    settings = settings_of(lab)
    done = await crawl(settings, seeds_of(lab))
    found = by_path(done, lab)
    assert {path: short_text(found[path].rights) for path in RECORDED} == RECORDED
    assert by_path(done, lab, QUIET)["/"].rights is None, "nothing is written where nothing is said"
    origin = lab.site.url(HOST)[:-1]
    assert short_text(found["/linked"].rights).endswith(
        f"license https://said.test/license.xml {origin}/by.html {origin}/rsl.xml"
    )
    sources = {(one.place, one.key, one.value) for one in found["/disagree"].rights.sources}  # type: ignore[union-attr]
    assert sources == {
        ("robots.txt:1", "license", "https://said.test/license.xml"),
        ("robots.txt:3", "content-signal", "search=yes"),
        ("header", "content-usage", "train-ai=y"),
        ("meta", "x-robots-tag", "noai"),
    }
    records = Pages(open_existing(settings.archive.dir))
    (record,) = records.records_of(found["/disagree"])
    assert (record["rights.search"], record["rights.ai_train"], record["rights.tdm"]) == ("y", "n", "unknown")
    assert "meta: x-robots-tag: noai" in record["rights.sources"]
    (quiet,) = records.records_of(by_path(done, lab, QUIET)["/"])
    assert not any(name.startswith("rights") for name in quiet)
    async with open_crawl(settings, create=False) as opened:
        facts = await explain(opened, found["/disagree"].url)
        totals = await opened.stats.totals()
    assert "rights      header: content-usage: train-ai=y" in explanation(facts)
    assert record_of(facts).commits[0].rights == found["/disagree"].rights
    assert totals.rights["ai_train:n"] == sum(e.rights is not None and e.rights.ai_train == "n" for e in done.entries)
    assert totals.lost.get("rights", 0) == 0


SHOWS_RIGHTS = """
from crawler import Crawler
app = Crawler()

@app.page("said.test/closed/*", processes=True)
def closed(page):
    yield {"path": page.url.partition("test")[2].partition("/")[2], "rights": page.rights.ai_train}

@app.page()
async def every(page):
    yield {"path": page.url.partition("test")[2].partition("/")[2], "rights": page.rights.ai_train}
"""


@pytest.mark.slow(ci=True)
async def test_handlers_get_the_rights_of_each_page_also_in_processes_and_again(lab: Lab) -> None:
    (lab.home / "rights_app.py").write_text(SHOWS_RIGHTS)
    settings = lab.settings(
        scope__mode="any", crawl__partitions=16, handlers__app=str(lab.home / "rights_app.py"), handlers__processes=1
    )
    done = await crawl(settings, seeds_of(lab))
    assert not done.errors
    rows = [msgspec.json.decode(text) for _, _, text in ItemReader(open_existing(settings.archive.dir)).items()]
    found = {row["path"]: row["rights"] for row in rows}
    assert {path: found[path] for path in ("header", "meta", "closed/x", "closed/but/x", "linked")} == {
        "header": "n", "meta": "n", "closed/x": "n", "closed/but/x": "y", "linked": "",
    }  # fmt: skip
    async with open_crawl(settings, create=False) as opened:
        result = await rehandle(opened, load_app(settings.handlers.app), actor=ME)
    assert (result.changed, result.failed) == (0, 0)
    assert result.pages > 0


async def test_a_page_that_says_no_is_committed_with_its_links_and_without_its_content(lab: Lab) -> None:
    settings = settings_of(lab, **SKIP)
    done = await crawl(settings, seeds_of(lab))
    assert not done.errors
    found = by_path(done, lab)
    assert {path for path, entry in found.items() if entry.is_withheld} == set(OF_PAGES)
    assert set(found) == set(OF_PAGES) | set(FREE), "links are followed unless nofollow; /closed/x is not requested"
    assert not any(request.target == "/closed/x" for request in lab.site.requests())
    folder = open_existing(settings.archive.dir)
    for path, resource in OF_PAGES.items():
        entry = found[path]
        stored = read_content(folder, entry)
        assert (stored.is_withheld, stored.payload, stored.status) == (True, b"", entry.status)
        assert entry.title == ""
        assert entry.items is None
        assert entry.body_bytes == len(resource.body.encode()), "budgets count what came"
    assert found["/doc.pdf"].content_type == "application/pdf"
    assert read_content(folder, found["/header"]).header("set-cookie") != "secret=1"
    reader = ItemReader(folder)
    assert sorted(msgspec.json.decode(text)["title"] for _, _, text in reader.items()) == sorted(
        ["Behind", "Behind", "Home", "Images", "Linked", "Open", "Quiet", "Target"]
    )
    assert CANARY.encode() not in everything(settings), "no byte of what they hold"
    assert OPEN.encode() in everything(settings)
    async with open_crawl(settings, create=False) as opened:
        totals, examples = await opened.stats.totals_and_examples()
        facts = await explain(opened, canonicalize(f"{lab.site.url(HOST)}closed/x"))
        withheld_facts = await explain(opened, found["/meta"].url)
    assert totals.lost["rights"] == len(OF_PAGES)
    assert totals.deferred_by["rights"] == 1
    assert {one.reason for one in losses_of(totals, examples)} == {"rights"}
    assert "robots.txt line 4: content-usage: train-ai=n" in explanation(facts)
    assert "--reason rights" in explanation(facts)
    assert "without its body, because of its rights" in explanation(withheld_facts)
    with contextlib.closing(Pages(folder, columns=("text", "links"))) as pages:
        (record,) = pages.records_of(found["/header"])
    assert (record["withheld"], record["text"], record["title"]) == (True, None, "")
    assert record["links"] == [f"{lab.site.url(HOST)}behind-header"]
    assert await audit(settings) == 0


async def test_what_robots_txt_refused_is_fetched_once_it_is_released(lab: Lab) -> None:
    settings = settings_of(lab, **SKIP)
    await crawl(settings, seeds_of(lab))
    async with open_crawl(settings, create=False) as opened:
        assert (await release(opened, "said.test", reason="rights", actor=ME)).released == 1
    done = await crawl(settings, [])
    found = by_path(done, lab)
    assert not found["/closed/x"].is_withheld
    assert found["/closed/x"].rights is not None
    assert found["/closed/x"].rights.ai_train == "n", "and what was said is recorded all the same"
    assert [r.target for r in lab.site.requests()].count("/closed/x") == 1
    assert await audit(settings) == 0


async def test_a_release_holds_for_hosts_of_the_domain_that_come_later(lab: Lab) -> None:
    settings = settings_of(lab, frontier__queue_by="host", **SKIP)
    await crawl(settings, [lab.site.url(HOST, "/closed/x"), lab.site.url(HOST, "/closed/y")])
    async with open_crawl(settings, create=False) as opened:
        assert (await release(opened, HOST, reason="rights", actor=ME)).released == 2
    later = [lab.site.url(host, path) for host in (LATER, OTHER) for path in ("/closed/x", "/closed/y")]
    done = await crawl(settings, later)
    assert {*by_path(done, lab, LATER)} == {"/closed/x", "/closed/y"} <= {*by_path(done, lab)}
    assert by_path(done, lab, OTHER) == {}, "those of another domain stay deferred"
    async with open_crawl(settings, create=False) as opened:
        assert (await opened.stats.totals()).deferred == 2
    assert await audit(settings) == 0


async def test_a_release_holds_for_runs_of_jobs_which_defer_nothing(lab: Lab) -> None:
    settings = settings_of(lab, **SKIP)
    await crawl(settings, [lab.site.url(QUIET)])
    closed = canonicalize(f"{lab.site.url(HOST)}closed/x")
    async with open_crawl(settings, create=False) as opened:
        for number, run in enumerate((ONE, TWO)):
            if number:
                told = await release(opened, "said.test", reason="rights", actor=ME)
                assert told.text.startswith("0 URLs released; those that come later, also in runs of jobs, are fetched")
            await start(opened, run, [closed])
            with patch.object(runs, "LOOK_S", (600.0, 600.0)), waiting_for_urls(opened):
                async with open_instance(await opened.reloaded(), node="n", until_finished=True) as instance:
                    await instance.run()
            assert [r.target for r in lab.site.requests()].count("/closed/x") == number
        assert (await opened.stats.totals()).refused == {"rights": 1}
        assert [e.run for e in entries_of(Path(settings.archive.dir)) if e.url == closed] == [TWO]


@pytest.mark.slow(ci=True)
async def test_a_crawl_with_withheld_pages_is_rebuilt_rehandled_and_pruned(lab: Lab) -> None:
    settings = settings_of(lab, **SKIP)
    done = await crawl(settings, seeds_of(lab))
    async with open_crawl(settings, create=False) as opened:
        before = await opened.stats.totals()
    requests = len(lab.site.requests())
    lab.engine.flush()
    await rebuild(settings)
    again = await crawl(settings, [])
    assert {e.url: e for e in again.entries} == {e.url: e for e in done.entries}
    assert [r for r in lab.site.requests()[requests:] if not r.is_robots] == []
    async with open_crawl(settings, create=False) as opened:
        after = await opened.stats.totals()
        assert (after.lost, after.fetched) == (before.lost, before.fetched)
        result = await rehandle(opened, load_app(settings.handlers.app), actor=ME)
        assert (result.pages, result.unreadable.total(), result.changed) == (len(done.entries) - len(OF_PAGES), 0, 0)
        assert result.withheld == len(OF_PAGES)
    assert await audit(settings) == 0
    async with open_crawl(settings, create=False) as opened:
        pruned = await prune(opened, Wanted(domain="said.test"), dry_run=False, actor=ME)
    assert pruned is not None
    assert await audit(settings) == 0


TDMREP = """[
  {"location": "/free/*", "tdm-reservation": 0},
  {"location": "/", "tdm-reservation": 1, "tdm-policy": "https://said.test/policy.json"}
]"""


@pytest.mark.parametrize(("body", "status"), [(TDMREP, 200), ("<html>", 200), ("", 404), ("", 503)])
async def test_tdmrep_json_is_read_once_an_origin_and_its_failure_says_nothing(
    lab: Lab, body: str, status: int
) -> None:
    web = {
        (HOST, "/"): page("/free/a", "/b", title="Home"), (HOST, "/free/a"): page(title="Free"), (HOST, "/b"): page(),
        (HOST, "/.well-known/tdmrep.json"): Resource(body=body, status=status, content_type="application/json"),
    }  # fmt: skip
    with serve_resources(web) as site:
        mine = Lab(site, lab.dns, lab.engine, lab.home)
        settings = settings_of(mine, rights__tdmrep=True, rights__purpose="tdm", rights__policy="skip")
        found = by_path(await crawl(settings, [site.url(HOST)]), mine)
        asked = [request.target for request in site.requests()]
        assert asked[:2] == ["/robots.txt", "/.well-known/tdmrep.json"]
        assert len(asked) == 5
        assert await audit(settings) == 0
    if body != TDMREP:
        assert {path: (e.rights, e.is_withheld) for path, e in found.items()} == dict.fromkeys(
            ("/", "/free/a", "/b"), (None, False)
        )
        return
    assert {path for path, entry in found.items() if entry.is_withheld} == {"/", "/b"}
    assert short_text(found["/free/a"].rights) == "tdm y"
    assert short_text(found["/b"].rights) == ("ai-input n, ai-train n, tdm n, license https://said.test/policy.json")


async def test_the_policy_is_kept_with_the_crawl(lab: Lab) -> None:
    await crawl(settings_of(lab, **SKIP), seeds_of(lab))
    async with open_crawl(settings_of(lab), create=False) as opened:
        assert (opened.settings.rights.purpose, opened.settings.rights.policy) == ("ai-train", "skip")
