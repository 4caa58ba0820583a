"""Runs of a job that ask a site whether its pages have changed: what is sent, committed, counted and handled."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from crawler import Crawler
from crawler.archive import earlier_pages
from crawler.archive.folder import open_existing
from crawler.archive.index_reader import archive_path
from crawler.archive.warc_reader import read_content
from crawler.archive.warc_web import RecordedWeb
from crawler.crawl.build import open_instance
from crawler.crawl.opening import open_crawl
from crawler.frontier.codec import DeadLetter
from crawler.frontier.dead_letters import DeadLetters
from crawler.handlers.page import Page
from crawler.rules.jobs import Row
from crawler.views.pruning import Wanted, prune
from crawler.views.rehandling import rehandle
from tests.crawl.harness import crawl, lab_names, settings_of
from tests.crawl.rebuild_lab import audit, rebuild
from tests.crawl.runs_lab import ONE, TWO, counts, finish, start
from tests.crawl.test_runs_in_a_crawl import run_until_idle
from tests.jobs.jobs_lab import ME, Lab, hasten, until
from tests.revisits.changing_site import Changing, changing_site, linking
from tests.support.engine import Engine

PAGES = {"/": linking("/a", "/b"), "/a": linking("/c", text="one"), "/b": linking(text="two"), "/c": linking("/")}


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)
    monkeypatch.setattr(earlier_pages, "LISTED_S", 0.0)


@contextlib.asynccontextmanager
async def lab_on(
    site: Changing, folder: Path, engine: Engine, app: Crawler | None = None, **options: Any
) -> AsyncIterator[Lab]:
    """A crawl of a site, with one instance that waits for work."""
    async with lab_names() as dns:
        settings = settings_of(
            folder / "c", frontier__redis=engine.url, dns__nameservers=[dns], scope__mode="any", crawl__partitions=16,
            membership__beats=70.0, **options,
        )  # fmt: skip
        async with (
            open_crawl(settings, create=True) as crawl,
            open_instance(await crawl.reloaded(), node="n-0", until_finished=False, app=app) as instance,
        ):
            working = asyncio.ensure_future(instance.run())
            try:
                yield Lab(site, engine, settings, crawl)  # type: ignore[arg-type]
            finally:
                instance.stop()
                await working


@contextlib.asynccontextmanager
async def revisit_lab(
    folder: Path, engine: Engine, pages: dict[str, str] = PAGES, **options: Any
) -> AsyncIterator[tuple[Changing, Lab]]:
    with changing_site(dict(pages)) as site:
        async with lab_on(site, folder, engine, **options) as lab:
            yield site, lab


async def run(lab: Lab, count: int) -> Row:
    """The next run, which is the `count`th."""
    await lab.run()
    row = (await lab.ended(count))[-1]
    await lab.nothing_left()

    async def is_indexed() -> bool:
        return len(lab.entries(row.run)) == row.pages

    await until(is_indexed, "the lines of all pages")
    return row


async def test_a_page_that_has_not_changed_is_not_sent_again(tmp_path: Path, engine: Engine) -> None:
    async with revisit_lab(tmp_path, engine) as (site, lab):
        await lab.add(site.url())
        first = await run(lab, 1)
        assert (first.pages, first.unchanged, site.statuses()) == (4, 0, {200: 4})
        assert not any("if-none-match" in one.headers for one in site.log)
        site.forget()
        site.pages["/b"] = linking(text="three")
        second = await run(lab, 2)
        assert (second.pages, second.unchanged, site.statuses()) == (4, 3, {304: 3, 200: 1})
        entries = {entry.url.partition(".test")[2].partition("/")[2]: entry for entry in lab.entries(second.run)}
        assert {path: entry.status for path, entry in entries.items()} == {"": 304, "a": 304, "b": 200, "c": 304}
        site.forget()
        third = await run(lab, 3)
        assert (third.pages, third.unchanged, site.statuses()) == (4, 4, {304: 4})
        originals = {entry.url: entry.warc for entry in lab.entries(first.run)}
        for entry in lab.entries(third.run):
            assert entry.original == (entries["b"].warc if entry.url.endswith("/b") else originals[entry.url])
            assert (entry.mime, entry.content_type) == ("warc/revisit", "text/html")
    assert await audit(lab.settings) == 0


class Seen(NamedTuple):
    url: str
    status: int
    body: bytes
    is_unchanged: bool
    etag: str


def app_that_notes(seen: list[Seen]) -> Crawler:
    app = Crawler()

    @app.page()
    async def note(page: Page) -> AsyncIterator[dict[str, str]]:
        seen.append(Seen(page.url, page.status, page.body, page.is_unchanged, page.headers.get("etag", "")))
        page.follow("a")
        yield {"title": page.css_first("title").text()}

    return app


async def test_a_handler_gets_what_is_unchanged_from_the_archive(tmp_path: Path, engine: Engine) -> None:
    seen = list[Seen]()
    async with revisit_lab(tmp_path, engine, app=app_that_notes(seen), scope__follow="handlers") as (site, lab):
        await lab.add(site.url())
        runs = [(await run(lab, n)).run for n in (1, 2)]
        first, second = seen[:4], seen[4:]
        assert [one.is_unchanged for one in (*first, *second)] == [False] * 4 + [True] * 4
        assert sorted(one._replace(is_unchanged=False) for one in second) == sorted(first)
        items = [sorted((one.url, one.items and one.items.count) for one in lab.entries(run)) for run in runs]
        assert items[0] == items[1]
        assert site.statuses() == {200: 4, 304: 4}
    assert await audit(lab.settings) == 0


@pytest.mark.slow(ci=True)
async def test_links_go_on_where_the_archive_has_them_compressed(tmp_path: Path, engine: Engine) -> None:
    pages = {"/": linking(*(f"/{n}" for n in range(300)))} | {f"/{n}": linking(text=str(n)) for n in range(3)}
    async with revisit_lab(tmp_path, engine, pages) as (site, lab):
        site.gzips = True
        await lab.add(site.url())
        await run(lab, 1)
        site.forget()
        row = await run(lab, 2)
        assert (row.pages, row.unchanged, site.statuses()) == (301, 4, {304: 4, 404: 297})
    assert await audit(lab.settings) == 0


DATE = "Sat, 01 Jan 2028 00:00:00 GMT"
VALIDATORS: list[tuple[list[tuple[str, str]], dict[str, str]]] = [  # of an answer, and what is sent back
    ([], {}),
    ([("ETag", "*")], {}),
    ([("ETag", 'a"b')], {}),
    ([("ETag", '"a", "b"')], {}),
    ([("ETag", '"a"'), ("ETag", '"b"')], {}),
    ([("ETag", '"' + "x" * 300 + '"')], {}),
    ([("ETag", '"a b"')], {}),
    ([("ETag", '"\xe4"')], {}),
    ([("ETag", '""')], {"if-none-match": '""'}),
    ([("ETag", 'W/"a"')], {"if-none-match": 'W/"a"'}),
    ([("Last-Modified", "yesterday" * 40)], {}),
    ([("Last-Modified", "\x7f")], {}),
    ([("Last-Modified", DATE)], {"if-modified-since": DATE}),
    ([("Last-Modified", "yesterday")], {}),
    ([("ETag", "*"), ("Last-Modified", DATE)], {"if-modified-since": DATE}),
    ([("ETag", '"e"'), ("Last-Modified", DATE)], {"if-none-match": '"e"', "if-modified-since": DATE}),
    ([("ETag", '"e"'), ("Last-Modified", "now")], {"if-none-match": '"e"'}),
    ([("ETag", '"e"'), ("Set-Cookie", "a=b"), ("X-Robots-Tag", "noindex")], {"if-none-match": '"e"'}),
]


@pytest.mark.slow(ci=True)
async def test_only_sound_validators_are_sent_back(tmp_path: Path, engine: Engine) -> None:
    paths = [f"/{number}" for number in range(len(VALIDATORS))]
    pages = {"/": linking(*paths)} | {path: linking(text=path) for path in paths}
    async with revisit_lab(tmp_path, engine, pages) as (site, lab):
        site.headers |= {path: headers for path, (headers, _) in zip(paths, VALIDATORS, strict=True)}
        await lab.add(site.url())
        await run(lab, 1)
        row = await run(lab, 2)
        unchanged = 1  # the first page
        for path, (_, sent) in zip(paths, VALIDATORS, strict=True):
            asked = site.asked(path)[1]
            assert {name: value for name, value in asked.headers.items() if name.startswith("if-")} == sent
            unchanged += asked.status == 304
        assert (row.pages, row.unchanged) == (len(pages), unchanged)


@pytest.mark.parametrize("etag", ['"other"', 'W/"other"', '"e", "f"'])
async def test_a_304_about_another_page_is_no_answer(tmp_path: Path, engine: Engine, etag: str) -> None:
    """The page is requested again, whole: once, and counted once."""
    async with revisit_lab(tmp_path, engine, {"/": linking("/a"), "/a": linking()}) as (site, lab):
        site.headers["/"] = [("ETag", '"e"')]
        await lab.add(site.url())
        await run(lab, 1)
        site.forget()
        site.of_304 = [("ETag", etag)]
        row = await run(lab, 2)
        assert [(one.status, "if-none-match" in one.headers) for one in site.asked("/")] == [(304, True), (200, False)]
        assert (row.pages, row.errors) == (2, 0)
    assert await audit(lab.settings) == 0


async def letters(lab: Lab) -> list[DeadLetter]:
    found = DeadLetters(lab.crawl.frontier, lab.crawl.record.partitions)
    return [one.letter async for some in found.read(-1) for one in some]


UNASKED = [(status, body, times) for status in (304, 412) for body in (b"", b"<p>no") for times in (1, 2)]
AT_ONCE = {"retry__protocol__backoff_s": 0.01}


@pytest.mark.parametrize(("status", "body", "times"), UNASKED)
async def test_an_answer_to_no_question_is_asked_again_once(
    tmp_path: Path, engine: Engine, status: int, body: bytes, times: int
) -> None:
    """In the first run of a job, whose requests have no conditions."""
    async with revisit_lab(tmp_path, engine, {"/": linking()}, **AT_ONCE) as (site, lab):
        site.at_first["/"] = [(status, body)] * times
        await lab.add(site.url())
        row = await run(lab, 1)
        assert (row.pages, row.unchanged, len(site.log)) == (2 - times, 0, 2)
        found = [(letter.reason, letter.detail) for letter in await letters(lab)]
        why = f"status {status} to a request that did not ask for it"
        assert found == ([("protocol", why)] if times == 2 else [])
    assert await audit(lab.settings) == 0


@pytest.mark.parametrize(("status", "body", "times"), UNASKED)
async def test_a_crawl_commits_no_answer_to_no_question(
    tmp_path: Path, engine: Engine, status: int, body: bytes, times: int
) -> None:
    with changing_site({"/": linking(text="here")}) as site:
        site.at_first["/"] = [(status, body)] * times
        async with lab_names() as dns:
            settings = settings_of(
                tmp_path / "c", frontier__redis=engine.url, dns__nameservers=[dns], scope__mode="any", **AT_ONCE
            )
            done = await crawl(settings, [site.url()])
        assert done.statuses == ({site.url(): 200} if times == 1 else {})
        assert len(site.log) == 2
        assert not any(name.startswith("if-") for one in site.log for name in one.headers)


@pytest.mark.parametrize("body", [b"", b"<p>no"])
@pytest.mark.parametrize("times", [1, 2])
async def test_a_412_to_a_question_is_no_page(tmp_path: Path, engine: Engine, body: bytes, times: int) -> None:
    """The page is requested once more, whole; then the URL is given up."""
    async with revisit_lab(tmp_path, engine, {"/": linking()}, **AT_ONCE) as (site, lab):
        await lab.add(site.url())
        await run(lab, 1)
        site.forget()
        site.at_first["/"] = [(412, body)] * times
        row = await run(lab, 2)
        assert (row.pages, row.unchanged) == (2 - times, 0)
        asked = [(one.status, "if-none-match" in one.headers) for one in site.log]
        assert asked == [(412, True), (200 if times == 1 else 412, False)]
        assert [letter.reason for letter in await letters(lab)] == ["protocol"] * (times - 1)
    assert await audit(lab.settings) == 0


async def test_conditions_of_people_are_a_question(tmp_path: Path, engine: Engine) -> None:
    """Who sends them in settings wants to know the answer."""
    sites = [{"match": "*.test", "headers": {"If-None-Match": '"1"'}}]
    async with revisit_lab(tmp_path, engine, {"/": linking()}, sites=sites, **AT_ONCE) as (site, lab):
        site.at_first["/"] = [(304, b"")]
        await lab.add(site.url())
        row = await run(lab, 1)
        assert ([entry.status for entry in lab.entries(row.run)], len(site.log)) == ([304], 1)


@pytest.mark.parametrize(
    ("stored", "of_304", "noindex", "follows"),
    [
        ("", "", False, True),
        ("", "noindex", True, True),
        ("", "nofollow", False, False),
        ("", "none", True, False),
        ("noindex, nofollow", "", True, False),
        ("noindex, nofollow", "all", False, True),
        ("nofollow", "noindex", True, True),
    ],
)
async def test_what_a_304_says_to_robots_counts(
    tmp_path: Path, engine: Engine, stored: str, of_304: str, noindex: bool, follows: bool
) -> None:
    """It takes the place of what the archived page says (RFC 9111 3.2)."""
    async with revisit_lab(tmp_path, engine, {"/": linking("/a"), "/a": linking()}) as (site, lab):
        site.headers["/"] = [("ETag", '"e"'), *([("X-Robots-Tag", stored)] if stored else [])]
        await lab.add(site.url())
        await run(lab, 1)
        site.of_304 = [("ETag", '"e"'), *([("X-Robots-Tag", of_304)] if of_304 else [])]
        row = await run(lab, 2)
        assert (row.pages, row.unchanged >= 1) == (1 + follows, True)
        entry = next(entry for entry in lab.entries(row.run) if entry.url == site.url())
        assert (entry.status, entry.noindex) == (304, noindex)


async def test_all_is_requested_where_the_job_says_so(tmp_path: Path, engine: Engine) -> None:
    async with revisit_lab(tmp_path, engine) as (site, lab):
        await lab.add(site.url(), run={"refetch": "all"})
        for count in (1, 2):
            assert (await run(lab, count)).unchanged == 0
        assert site.statuses() == {200: 8}


@pytest.mark.parametrize(
    "later",
    [{"fetch__accept": "text/plain"}, {"fetch__accept_language": "de"}, {"fetch__body_bytes_max": 20},
     {"sites": [{"match": "*.test", "headers": {"X-Key": "1"}}]}],
    ids=lambda one: next(iter(one)),
)  # fmt: skip
async def test_another_kind_of_request_asks_for_all(tmp_path: Path, engine: Engine, later: dict[str, Any]) -> None:
    """An answer to it may differ, whatever the validators say."""
    with changing_site({"/": linking(text="long enough")}) as site:
        async with lab_on(site, tmp_path, engine) as lab:
            await lab.add(site.url())
            await run(lab, 1)
        async with lab_on(site, tmp_path, engine, **later) as lab:
            assert (await run(lab, 2)).unchanged == 0
        assert site.log[-1].status == 200


async def test_a_record_that_is_damaged_or_gone_is_fetched_again(tmp_path: Path, engine: Engine) -> None:
    """Damage is noticed when the site has said that the page is unchanged. Nothing is lost, or counted twice."""
    large = linking("/c", text=random.Random(1).randbytes(300_000).hex())  # more than is read before the request
    async with revisit_lab(tmp_path, engine, PAGES | {"/a": large}) as (site, lab):
        await lab.add(site.url())
        first = await run(lab, 1)
        site.forget()
        places = {entry.url: entry.warc for entry in lab.entries(first.run)}
        place = places[site.url("/a")]
        assert place is not None
        path = archive_path(open_existing(lab.folder), place.file)
        assert path is not None
        with path.open("r+b") as file:
            file.seek(place.offset + place.length - 8)  # the checksum of the member
            file.write(b"\0\1\2\3")
        row = await run(lab, 2)
        assert (row.pages, row.unchanged, row.errors) == (4, 3, 0)
        assert [one.status for one in site.asked("/a")] == [304, 200]
        site.forget()
        path.unlink()
        row = await run(lab, 3)
        assert (row.pages, row.unchanged, site.statuses()) == (4, 0, {200: 4})


@pytest.mark.slow(ci=True)
async def test_runs_that_overlap_each_have_all_pages(tmp_path: Path, engine: Engine) -> None:
    pages = {"/": linking(*(f"/{n}" for n in range(20)))} | {f"/{n}": linking(text=str(n)) for n in range(20)}
    async with revisit_lab(tmp_path, engine, pages) as (site, lab):
        await lab.add(site.url(), overlap="allow")
        await run(lab, 1)
        for _ in range(3):
            await lab.run()
        rows = await lab.ended(4)
        await lab.nothing_left()
        assert [(row.pages, row.unchanged) for row in rows] == [(21, 0)] + [(21, 21)] * (len(rows) - 1)
    assert await audit(lab.settings) == 0


def check_bodies(site: Changing, lab: Lab, row: Row) -> None:
    """Each page of a run has its body in the archive."""
    folder = open_existing(lab.folder)
    entries = lab.entries(row.run)
    assert len(entries) == len(site.pages)
    for entry in entries:
        assert read_content(folder, entry).payload == site.pages[entry.url.partition(f":{site.port}")[2]].encode()


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(("keep", "gone", "needed"), [(1, 4, 4), (2, 1, 3)])
async def test_a_prune_keeps_what_later_pages_are_unchanged_from(
    tmp_path: Path, engine: Engine, keep: int, gone: int, needed: int
) -> None:
    """Of three runs, between the first two of which one page has changed."""
    with changing_site(dict(PAGES)) as site:
        async with lab_on(site, tmp_path, engine) as lab:
            await lab.add(site.url())
            await run(lab, 1)
            site.pages["/b"] = linking(text="three")
            await run(lab, 2)
            last = await run(lab, 3)
        async with open_crawl(lab.settings, create=False) as crawl:
            done = await prune(crawl, Wanted(keep_runs=keep), dry_run=False, actor=ME)
        assert (done.pages, done.waiting) == (gone, {"unchanged": needed})
        assert await audit(lab.settings) == 0
        check_bodies(site, lab, last)
        async with lab_on(site, tmp_path, engine) as lab:
            row = await run(lab, 4)
            assert (row.pages, row.unchanged) == (4, 4)
        assert await audit(lab.settings) == 0


async def test_a_prune_next_to_an_instance_leaves_its_pages_readable(tmp_path: Path, engine: Engine) -> None:
    """Lines in the open segment of a living session can't be changed: what they refer to is found all the same."""
    with changing_site(dict(PAGES)) as site:
        async with lab_on(site, tmp_path, engine) as lab:
            await lab.add(site.url())
            await run(lab, 1)
        site.pages["/b"] = linking(text="three")
        async with lab_on(site, tmp_path, engine) as lab:
            row = await run(lab, 2)
            async with open_crawl(lab.settings, create=False) as crawl:
                done = await prune(crawl, Wanted(keep_runs=1), dry_run=False, actor=ME)
            assert (done.pages, done.files_rewritten, done.waiting) == (1, 1, {"unchanged": 3})
            check_bodies(site, lab, row)
            site.forget()
            row = await run(lab, 3)
            assert (row.pages, row.unchanged, site.statuses()) == (4, 4, {304: 4})
        assert await audit(lab.settings) == 0


async def test_a_replay_and_a_rehandle_have_the_whole_page(tmp_path: Path, engine: Engine) -> None:
    seen = list[Seen]()
    async with revisit_lab(tmp_path, engine, scope__follow="links") as (site, lab):
        await lab.add(site.url())
        await run(lab, 1)
        await run(lab, 2)
    web = RecordedWeb([lab.folder])
    for path, text in site.pages.items():
        response = web.read(site.url(path))
        assert response is not None
        assert (response.status, response.body, web.flaws) == (200, text.encode(), [])
    async with open_crawl(lab.settings, create=False) as crawl:
        result = await rehandle(crawl, app_that_notes(seen), actor=ME)
    assert (result.pages, result.unreadable.total(), result.items) == (8, 0, 8)
    assert Counter(one.is_unchanged for one in seen) == {False: 4, True: 4}
    assert {one.status for one in seen} == {200}


async def test_a_rebuild_follows_links_of_unchanged_pages(tmp_path: Path, engine: Engine) -> None:
    """The engine is lost while a run is active: its pages lead on from where they are archived."""
    with changing_site(dict(PAGES)) as site:
        async with lab_names() as dns:
            settings = settings_of(
                tmp_path / "c", frontier__redis=engine.url, dns__nameservers=[dns], scope__mode="any",
                crawl__partitions=16,
            )  # fmt: skip
            async with open_crawl(settings, create=True) as crawl:
                await start(crawl, ONE, [site.url()])
                await run_until_idle(crawl)
                assert (await finish(crawl, ONE)).pages == 4
            async with open_crawl(settings, create=False) as crawl:
                await start(crawl, TWO, [site.url()])
                await run_until_idle(crawl)
                assert (await counts(crawl, TWO)).unchanged == 4
            engine.flush()
            await rebuild(settings)
            async with open_crawl(settings, create=False) as crawl:
                await start(crawl, TWO, [])
            report = await rebuild(settings)
            assert (report.restored, report.flaws, report.orphans, report.unplaced) == (4, [], 0, 0), report
            async with open_crawl(settings, create=False) as crawl:
                assert (await counts(crawl, TWO)).pages == 4
                assert (await crawl.stats.totals()).unchanged == 4
                assert (await finish(crawl, TWO)).pages == 4
        assert site.statuses() == {200: 4, 304: 4}
    assert await audit(settings) == 0
