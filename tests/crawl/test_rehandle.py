"""Pages handled again: their items are those of a fresh crawl with the app; nothing is requested, lost or doubled."""

import json
import os
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from crawler.archive.folder import open_existing
from crawler.archive.index_reader import IndexReader
from crawler.archive.index_writer import change_lines
from crawler.crawl.opening import open_crawl
from crawler.errors import ArchiveError, ConflictError
from crawler.frontier.operator_log import Actor, Via
from crawler.handlers.load_app import load_app
from crawler.model import FailureKind
from crawler.rules.job_runs import run_id
from crawler.views import rehandling
from crawler.views.dead_letter_changes import LetterFilter, retry
from crawler.views.pruning import Wanted, prune
from crawler.views.rehandling import RehandleResult, rehandle
from tests.crawl.handlers_lab import HOST, Lab, asked, lab, page
from tests.crawl.harness import crawl, lab_names, settings_of, warc_of_pages
from tests.crawl.rebuild_lab import audit, rebuild
from tests.support.engine import Engine
from tests.support.serving import Site, serve_resources
from tests.support.web import Resource

ME = Actor(who="ann", via=Via.CLI)
NAMES = [f"/p{n}" for n in range(6)]
WEB = {(HOST, name): page("/", title=f"Page {name}") for name in NAMES} | {(HOST, "/"): page(*NAMES, title="Home")}
HIDDEN = {(HOST, f"/hidden{name}"): page(title="Hidden") for name in NAMES}
URLS = """
@app.page()
async def every(page):
    yield {"url": page.url}
"""
TITLES = """
@app.page()
async def every(page):
    yield {"url": page.url, "title": page.title}
"""
FOLLOWS = """
@app.page()
async def every(page):
    yield {"url": page.url, "n": 1}
    yield {"url": page.url, "n": 2}
    if "/p" in page.url:
        page.follow("/hidden" + page.url[-3:], label="hidden")

@app.page(label="hidden")
async def hidden(page):
    yield {"hidden": page.url}
"""
FAILS_ON_TWO = """
@app.page()
async def every(page):
    yield {"new": page.url}
    if page.url.endswith(("1", "2")):
        raise KeyError("price")
"""


def write(lab: Lab, app: str) -> None:
    lab.app.write_text("from crawler import Crawler\napp = Crawler()\n" + textwrap.dedent(app))
    load_app.cache_clear()


async def again(lab: Lab, app: str, **options: Any) -> RehandleResult:
    write(lab, app)
    async with open_crawl(lab.settings, create=False) as crawl:
        return await rehandle(crawl, load_app(str(lab.app)), actor=ME, **options)


async def crawled(tmp_path: Path, site: Site, app: str = URLS, **options: Any) -> Lab:
    tmp_path.mkdir(exist_ok=True)
    made = lab(tmp_path, app, **options)
    load_app.cache_clear()
    await made.crawl(site.url(HOST))
    return made


def texts(lab: Lab) -> list[str]:
    return sorted(json.dumps(item, sort_keys=True) for item in lab.items)


def leftovers(lab: Lab) -> list[str]:
    """Item files that no line names, and what a rehandling that came to its end should not leave."""
    folder = open_existing(lab.folder)
    named = {entry.items.file for entry in IndexReader(folder).entries() if entry.items}
    names = [path.name for where in (folder.root, folder.tmp) for path in where.iterdir()]
    unnamed = [path.name for path in folder.items.iterdir() if path.name not in named]
    return unnamed + [name for name in names if "rehandle" in name]


async def test_items_are_those_of_the_new_app_without_a_request(tmp_path: Path) -> None:
    with serve_resources(WEB) as site:
        made = await crawled(tmp_path, site)
        requests, before = len(site.requests()), made.items
        result = await again(made, TITLES)
        assert len(site.requests()) == requests
    assert [one["title"] for one in made.items] == ["Home", *(f"Page {name}" for name in NAMES)]
    assert [one["url"] for one in made.items] == [one["url"] for one in before]
    assert (result.pages, result.items_before, result.items, result.changed) == (7, 7, 7, 7)
    assert leftovers(made) == []
    files = sorted((made.folder / "items").iterdir())
    result = await again(made, TITLES)
    assert (result.items, result.changed) == (7, 0)
    assert sorted((made.folder / "items").iterdir()) == files, "where nothing changes, nothing is written"


async def test_a_crawl_without_an_app_gets_one_and_keeps_it(tmp_path: Path) -> None:
    with serve_resources(WEB) as site:
        made = lab(tmp_path, TITLES)
        assert not (await crawl(settings_of(made.folder, crawl__partitions=16), [site.url(HOST)])).errors
        assert made.items == []
        assert (await again(made, TITLES)).items == 7
        assert len(made.items) == 7
        async with open_crawl(made.settings, create=False) as opened:
            assert opened.record.needs.app == "shop.py"
            assert opened.record.needs.app_digest


@pytest.mark.slow(ci=True)
async def test_what_handlers_follow_is_fetched_by_the_next_crawl_once_and_by_its_label(
    tmp_path: Path, engine: Engine
) -> None:
    with serve_resources(WEB | HIDDEN) as site:
        made = await crawled(tmp_path, site, frontier__redis=engine.url)
        result = await again(made, FOLLOWS)
        assert (result.urls_added, result.items) == (6, 14)
        assert (await again(made, FOLLOWS)).urls_added == 0
        assert (await made.totals()).pending == 6
        await made.crawl()
        hidden = sorted(one["hidden"] for one in made.items if "hidden" in one)
        assert hidden == [site.url(HOST, f"/hidden{name}") for name in NAMES]
        assert {n for name, n in asked(site).items()} == {1}
        assert (await made.totals()).items == 20
        assert await audit(made.settings) == 0
        fresh = await crawled(tmp_path / "fresh", site, FOLLOWS)
        assert texts(fresh) == texts(made)


async def test_a_rebuild_knows_where_the_new_handlers_led_and_where_the_old_ones_did(
    tmp_path: Path, engine: Engine
) -> None:
    with serve_resources(WEB | HIDDEN) as site:
        made = await crawled(tmp_path, site, FOLLOWS, frontier__redis=engine.url, crawl__pages_max=7)
        known = (await made.totals()).pending + 7
        await again(made, URLS)
        engine.flush()
        await rebuild(made.settings)
        totals = await made.totals()
        assert totals.pending + totals.fetched == known == 13
        assert totals.items == len(made.items) == 7


@pytest.mark.parametrize("domain", ["a.test", "b.test"])
async def test_only_pages_of_the_domain_change(tmp_path: Path, domain: str) -> None:
    web = {(host, "/"): page(title=host) for host in ("a.test", "b.test")}
    with serve_resources(web) as site:
        async with lab_names() as dns:
            made = lab(tmp_path, URLS, dns__nameservers=[dns])
            load_app.cache_clear()
            await made.crawl(site.url("a.test"), site.url("b.test"))
            result = await again(made, TITLES, domain=domain)
    assert result.pages == 1
    assert {one["url"] for one in made.items if "title" in one} == {site.url(domain)}
    assert len(made.items) == 2


@pytest.mark.slow(ci=True)
async def test_appended_items_come_after_the_others_and_none_comes_twice(tmp_path: Path) -> None:
    same = "@app.page()\nasync def every(page):\n    yield {'same': 1}\n    yield {'same': 1}\n"
    with serve_resources({(HOST, "/"): page()}) as site:
        made = await crawled(tmp_path, site, "@app.page()\nasync def every(page):\n    yield {'same': 1}\n")
    for _ in range(2):
        await again(made, same, append=True)
        assert made.items == [{"same": 1}, {"same": 1}]
    for _ in range(2):
        await again(made, "@app.page()\nasync def every(page):\n    yield {'other': 1}\n", append=True)
        assert made.items == [{"same": 1}, {"same": 1}, {"other": 1}]
    await again(made, "@app.page()\nasync def every(page):\n    pass\n", append=True)
    assert len(made.items) == 3
    await again(made, "@app.page()\nasync def every(page):\n    pass\n")
    assert made.items == []
    assert leftovers(made) == []


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(
    "how", ["raise KeyError('price')", "raise SystemExit(3)", "await asyncio.sleep(60)", "x = [yield]"]
)
async def test_a_page_whose_handler_fails_keeps_its_items(tmp_path: Path, how: str) -> None:
    app = f"""
import asyncio

@app.page(timeout_s=0.2)
async def every(page):
    yield {{"new": page.url}}
    if page.url.endswith(("1", "2")):
        {how if "yield" not in how else "for n in range(100): yield n"}
"""
    with serve_resources(WEB) as site:
        made = await crawled(tmp_path, site, handlers__items_max=50)
        result = await again(made, app)
    assert (result.failed, result.changed, result.items) == (2, 5, 7)
    assert {one.url for one in result.failures} == {site.url(HOST, name) for name in ("/p1", "/p2")}
    assert {one["url"] for one in made.items if "url" in one} == {one.url for one in result.failures}
    assert len(made.items) == 7
    if "KeyError" in how:
        assert "KeyError: 'price'" in result.failures[0].trace
    assert (await again(made, TITLES)).failed == 0
    assert {tuple(one) for one in made.items} == {("url", "title")}


@pytest.mark.slow(ci=True)
async def test_a_page_whose_body_is_missing_keeps_its_items_and_is_counted(tmp_path: Path) -> None:
    with serve_resources(WEB) as site:
        made = await crawled(tmp_path, site)
        none = await crawled(tmp_path / "none", site, archive__warc=False)
    result = await again(none, TITLES)
    assert (result.unreadable, result.items, result.changed) == ({"no_record": 7}, 7, 0)
    warc = warc_of_pages(made.folder)
    whole = warc.read_bytes()
    entry = next(one for one in IndexReader(open_existing(made.folder)).entries() if one.url.endswith("/p3"))
    assert entry.warc
    at = entry.warc.offset + 40
    warc.write_bytes(whole[:at] + bytes(20) + whole[at + 20 :])
    result = await again(made, TITLES)
    assert (result.unreadable, result.unreadable_urls) == ({"damaged": 1}, {"damaged": entry.url})
    assert [one["url"] for one in made.items if "title" not in one] == [entry.url]
    warc.rename(warc.with_name("elsewhere"))
    result = await again(made, URLS)
    assert (result.unreadable, result.changed, result.items) == ({"not_found": 7}, 0, 7)


async def test_items_that_were_damaged_are_whole_again(tmp_path: Path) -> None:
    with serve_resources(WEB) as site:
        made = await crawled(tmp_path, site)
    (file,) = (made.folder / "items").iterdir()
    file.write_bytes(bytes(file.stat().st_size))
    assert (await again(made, URLS, append=True)).unreadable == {"damaged": 7}
    assert (await again(made, TITLES)).changed == 7
    assert [one["title"] for one in made.items] == ["Home", *(f"Page {name}" for name in NAMES)]


async def test_pruned_pages_stay_pruned(tmp_path: Path) -> None:
    with serve_resources(WEB) as site:
        made = await crawled(tmp_path, site)
    async with open_crawl(made.settings, create=False) as crawl:
        await prune(crawl, Wanted(domain=HOST), dry_run=False, actor=ME)
    result = await again(made, TITLES)
    assert (result.pages, result.pruned, made.items) == (0, 7, [])


@pytest.mark.slow(ci=True)
async def test_pages_whose_handler_failed_in_the_crawl_are_told_of_and_come_back_when_they_are_retried(
    tmp_path: Path,
) -> None:
    with serve_resources(WEB) as site:
        made = await crawled(tmp_path, site, FAILS_ON_TWO)
        result = await again(made, TITLES)
        assert (result.pages, result.dead, result.items) == (5, 2, 5)
        async with open_crawl(made.settings, create=False) as opened:
            await retry(opened, LetterFilter(reason=FailureKind.HANDLER), actor=ME)
        await made.crawl()
    result = await again(made, TITLES)
    assert (result.pages, result.dead, result.changed) == (7, 0, 0)


@pytest.mark.slow(ci=True)
async def test_what_is_left_of_replaced_items_goes_with_a_prune(tmp_path: Path) -> None:
    with serve_resources(WEB) as site:
        made = await crawled(tmp_path, site)
    await again(made, FAILS_ON_TWO)
    files = list((made.folder / "items").iterdir())
    assert len(files) == 2, "the first has what two pages keep"
    before = texts(made)
    entry = next(one for one in IndexReader(open_existing(made.folder)).entries() if one.url.endswith("/p3"))
    async with open_crawl(made.settings, create=False) as crawl:
        await prune(crawl, Wanted(before=entry.fetched_at), dry_run=False, actor=ME)
    assert 0 < len(made.items) < len(before)
    assert set(texts(made)) < set(before)
    result = await again(made, TITLES)
    assert result.pruned + result.pages == 7
    assert {tuple(one) for one in made.items} == {("url", "title")}


@pytest.mark.parametrize("is_begun", [False, True])
async def test_a_damaged_index_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_begun: bool) -> None:
    with serve_resources(WEB) as site:
        made = await crawled(tmp_path, site)
    before = texts(made)
    if is_begun:
        monkeypatch.setattr(rehandling, "_step", killer("begun", 1))
        with pytest.raises(Killed):
            await again(made, TITLES)
        monkeypatch.undo()
    (index,) = (made.folder / "index").iterdir()
    whole = index.read_bytes()
    index.write_bytes(whole[:-30])
    with pytest.raises(ArchiveError, match="no items were changed: 'crawler rebuild' mends it"):
        await again(made, TITLES)
    index.write_bytes(whole)
    assert texts(made) == before
    assert (await again(made, TITLES)).completed == is_begun
    assert {tuple(one) for one in made.items} == {("url", "title")}
    assert leftovers(made) == []


async def test_handlers_get_the_page_as_it_was_fetched(tmp_path: Path) -> None:
    app = """
@app.page(statuses=(200, 404))
async def every(page):
    yield {
        "url": page.url, "status": page.status, "headers": dict(page.headers), "body": page.body.hex(),
        "text": page.text, "title": page.title, "links": page.links(), "depth": page.depth, "label": page.label,
        "domain": page.domain, "charset": page.charset, "truncated": page.truncated, "error": page.decode_error,
        "run": page.run,
    }
    page.follow("a", label="linked")

@app.page(label="linked", statuses=(200, 404))
async def linked(page):
    yield {"label": page.label, "depth": page.depth, "text": page.text, "truncated": page.truncated}
"""
    web = {
        (HOST, "/"): Resource(body="<title>\xe9</title><a href=/long>x</a><a href=/gone>x</a><a href=/j>x</a>",
                              content_type="text/html; charset=iso-8859-1", headers={"X-Mine": "1"}),
        (HOST, "/long"): Resource(body="<p>" + "x" * 3000),
        (HOST, "/gone"): Resource(status=404, body="<p>gone"),
        (HOST, "/j"): Resource(body='{"a": 1}', content_type="application/json"),
    }  # fmt: skip
    with serve_resources(web) as site:
        made = await crawled(tmp_path, site, app, fetch__body_bytes_max=2000)
        before = texts(made)
        assert len(before) == 4
        await again(made, "@app.page()\nasync def every(page):\n    pass\n")
        assert texts(made) == []
        await again(made, app)
    assert texts(made) == before


@pytest.mark.slow(ci=True)
async def test_hooks_of_pages_and_of_the_end_run_and_processes_get_pages(tmp_path: Path) -> None:
    app = """
import os

told = []

@app.on_fetch
async def fetched(page):
    told.append(page.url)

@app.on_finish
async def finished(why):
    told.append(why)

@app.page(processes=True)
def every(page):
    return {"url": page.url, "other": os.getpid() != PARENT}
"""
    with serve_resources(WEB) as site:
        made = await crawled(tmp_path, site)
        await again(made, app.replace("PARENT", str(os.getpid())))
    told = made.told("told")
    assert Counter(told) == Counter([*(site.url(HOST, name) for name in ("/", *NAMES)), "rehandled"])
    assert {one["other"] for one in made.items} == {True}


async def test_pages_of_runs_and_active_runs_go_their_own_way(tmp_path: Path, engine: Engine) -> None:
    """A run that is over takes no more URLs; the pages of both are handled with the id of theirs."""
    app = "@app.page()\nasync def every(page):\n    yield {'run': page.run}\n    page.follow('/more')\n"
    with serve_resources({(HOST, "/"): page()}) as site:
        made = await crawled(tmp_path, site, frontier__redis=engine.url)
        folder, over = open_existing(made.folder), run_id("job1", 1, 1)
        change_lines(folder, lambda entry: replace(entry, run=over))
        result = await again(made, app)
    assert (made.items, result.urls_added, result.items) == ([{"run": over}], 0, 1)


async def test_it_waits_for_nobody_and_goes_before_a_prune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_resources(WEB) as site:
        made = await crawled(tmp_path, site)
    monkeypatch.setattr(rehandling, "_step", killer("placed", 1))
    with pytest.raises(Killed):
        await again(made, TITLES)
    monkeypatch.undo()
    async with open_crawl(made.settings, create=False) as crawl:
        with pytest.raises(ConflictError, match="run 'crawler rehandle' first"):
            await prune(crawl, Wanted(domain=HOST), dry_run=False, actor=ME)
        with crawl.folder.exclusive("prune"), pytest.raises(ConflictError, match=r"prune\.lock"):
            await rehandle(crawl, load_app(str(made.app)), actor=ME)
    assert (await again(made, TITLES)).completed
    (made.folder / "prune.db").touch()
    with pytest.raises(ConflictError, match="a prune was interrupted"):
        await again(made, TITLES)


# --- kills ---


class Killed(BaseException):
    """The process ends here."""


def killer(name: str, number: int) -> Any:
    count = 0

    def step(reached: str) -> None:
        nonlocal count
        count += reached == name
        if reached == name and count == number:
            raise Killed

    return step


STEPS = ["page", "handled", "begun", "linked", "line", "placed", "outputs", "removed", "counted", "ended"]


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("append", [False, True])
@pytest.mark.parametrize("step", STEPS)
async def test_killed_at_any_step_the_same_command_again_gives_what_one_run_gives(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, step: str, append: bool
) -> None:
    with serve_resources(WEB | HIDDEN) as site:
        made = await crawled(tmp_path, site, frontier__redis=engine.url)
    wanted = [{"url": one["url"]} | more for one in made.items for more in [{}] * append + [{"n": 1}, {"n": 2}]]
    monkeypatch.setattr(rehandling, "_step", killer(step, 2 if step in ("page", "line") else 1))
    with pytest.raises(Killed):
        await again(made, FOLLOWS, append=append)
    monkeypatch.undo()
    assert {one["url"] for one in made.items} == {one["url"] for one in wanted}, "each line names what is there"
    result = await again(made, FOLLOWS, append=append)
    assert result.completed == (step not in ("page", "handled", "ended"))
    assert made.items == wanted
    assert leftovers(made) == []
    totals = await made.totals()
    assert (totals.items, totals.pending) == (len(wanted), len(NAMES))
