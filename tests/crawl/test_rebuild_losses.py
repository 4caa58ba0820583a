"""What a rebuild can't know from the index alone: lost commits, lost files, seeds, where redirects of seeds led."""

import base64
import contextlib
import json
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from crawler.archive.crawl_binding import FILE
from crawler.archive.index_writer import IndexWriter
from crawler.archive.warc_reader import read_record
from crawler.crawl.opening import make_router, make_seeder, open_crawl
from crawler.errors import ArchiveError, ConflictError
from crawler.views.whole import losses
from tests.archive.archive_samples import response, writer_in
from tests.crawl.harness import crawl, entries_of, lab_names, warc_of_pages
from tests.crawl.rebuild_lab import (
    Lab,
    WebLab,
    audit,
    folder_of,
    forget_commits,
    given,
    opened,
    opened_anew,
    page_of,
    rebuild,
    totals,
)
from tests.support.engine import Engine
from tests.support.serving import serve_resources, serve_web
from tests.support.web import Resource

A = "a.test"


def page(*targets: str) -> Resource:
    return Resource(body="".join(f"<a href='{target}'>x</a>" for target in targets))


@contextlib.asynccontextmanager
async def served(engine: Engine, home: Path, pages: Mapping[tuple[str, str], Resource]) -> AsyncIterator[Lab]:
    with serve_resources(pages) as site:
        async with lab_names() as dns:
            yield Lab(site, dns, engine, home)


@pytest.fixture
async def lab(tmp_path: Path, engine: Engine) -> AsyncIterator[WebLab]:
    with serve_web(seed=11, domains=4, pages=5) as site:
        async with lab_names() as dns:
            yield WebLab(site, dns, engine, tmp_path)


CHAIN = {(A, "/"): page("/1"), (A, "/1"): page("/2"), (A, "/2"): page("/3"), (A, "/3"): page()}


async def test_where_archived_pages_led_is_kept_although_their_commits_were_lost(
    tmp_path: Path, engine: Engine
) -> None:
    """Three pages in a row were archived, and their commits went with the engine's log. By now the site is another one:
    they are fetched again, and nothing there leads to page 3 any more; it was in the frontier and must be crawled.
    """
    async with served(engine, tmp_path, CHAIN) as lab:
        settings = lab.settings()
        await crawl(settings, [lab.site.url(A)])
        forget_commits(folder_of(settings), [lab.site.url(A, f"/{n}") for n in ("", "1", "2", "3")])
        port = lab.site.port
    engine.flush()
    report = await rebuild(settings)
    assert (report.committed, report.orphans, report.unplaced) == (0, 4, 0)
    async with opened(settings) as found:
        wanted = [make_router(found).candidate(f"http://{A}:{port}/{n}", depth=0) for n in ("", "1", "2", "3")]
        depths = [(await found.inspect.locate(c)).record.depth for c in wanted]
    assert depths == [0, 1, 2, 3]


async def test_links_of_an_uncommitted_second_fetch_are_kept_too(tmp_path: Path, engine: Engine) -> None:
    """A page is archived twice when a crash came before its ack; what the first fetch led to was added by then."""
    async with served(engine, tmp_path, {(A, "/"): page("/1"), (A, "/1"): page("/2")}) as lab:
        settings = lab.settings()
        await crawl(settings, [lab.site.url(A)])
        writer = writer_in(folder_of(settings), session="dead")
        writer.add(response(url=lab.site.url(A, "/1"), raw_body=b"<a href='/once'>x</a>"))
        writer.close()
        engine.flush()
        await rebuild(settings)
        async with opened(settings) as found:
            c = make_router(found).candidate(lab.site.url(A, "/once"), depth=0)
            record = (await found.inspect.locate(c)).record
            assert (await found.stats.totals()).pending == 1
    assert record is not None
    assert record.depth == 2


async def test_an_archived_page_without_a_link_to_it_is_reported(tmp_path: Path, engine: Engine) -> None:
    async with served(engine, tmp_path, {(A, "/"): page()}) as lab:
        settings = lab.settings()
        await crawl(settings, [lab.site.url(A)])
        folder = folder_of(settings)
        forget_commits(folder, [lab.site.url(A)])
        for journal in folder.journal.iterdir():
            journal.unlink()
        engine.flush()
        report = await rebuild(settings, accept_loss=True)  # of the journals
        assert (report.unplaced, report.unplaced_urls) == (1, [lab.site.url(A)])


@pytest.mark.slow(ci=True)
async def test_pages_whose_records_are_gone_end_the_rebuild_or_are_fetched_again(lab: WebLab) -> None:
    some = await lab.crawl_some(120)
    folder = folder_of(lab.settings())
    for path in folder.warc.iterdir():
        path.unlink()
    lab.engine.flush()
    with pytest.raises(ArchiveError, match=f"{len(some.entries)} committed pages can't be read.*--refetch"):
        await rebuild(lab.settings())
    with pytest.raises(ConflictError):
        async with opened(lab.settings()):
            pass
    report = await rebuild(lab.settings(), refetch=True)
    assert report.refetched == len(some.entries)
    await lab.finish(lab.settings())
    assert await audit(lab.settings()) == 0


@pytest.mark.slow(ci=True)
async def test_a_damaged_record_is_named_and_only_its_page_is_fetched_again(lab: WebLab) -> None:
    some = await lab.crawl_some(120)
    hurt = next(e for e in some.entries if e.status == 200 and e.depth == 1 and e.warc is not None)
    assert hurt.warc is not None
    path = folder_of(lab.settings()).warc / hurt.warc.file
    data = bytearray(path.read_bytes())
    middle = hurt.warc.offset + hurt.warc.length // 2
    data[middle : middle + 8] = b"\xff" * 8
    path.write_bytes(data)
    asked = lab.asked()
    lab.engine.flush()
    with pytest.raises(ArchiveError, match="1 committed page"):
        await rebuild(lab.settings())
    report = await rebuild(lab.settings(), refetch=True)
    assert report.refetched == 1
    assert any("damaged from byte" in flaw for flaw in report.flaws)
    await lab.finish(lab.settings())
    later = lab.asked() - asked
    assert [e.url for e in some.entries if later[page_of(e.url)]] == [hurt.url]


@pytest.mark.slow(ci=True)
async def test_a_lost_index_part_ends_the_rebuild_or_causes_refetches(lab: WebLab) -> None:
    await lab.crawl_some(120)
    (segment,) = folder_of(lab.settings()).index.iterdir()
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join([*lines[:50], lines[50][:40] + b"\n", *lines[51:]]))
    lab.engine.flush()
    with pytest.raises(ArchiveError, match="the index has unreadable parts"):
        await rebuild(lab.settings())
    report = await rebuild(lab.settings(), refetch=True)
    assert report.orphans == 1
    await lab.finish(lab.settings())


def flipped(data: bytes) -> bytes:
    at = data.index(b'"fp":"') + 8
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def spliced(data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join([*lines[:9], lines[3], *lines[10:]])


HURT: dict[str, Callable[[bytes], bytes | None]] = {
    "a flipped bit": flipped,
    "a line replaced by another": spliced,
    "cut between two lines": lambda data: data[: data.index(b"\n", 5000) + 1],
    "emptied": lambda _: b"",
    "deleted": lambda _: None,
    "500 bytes put over others": lambda data: data[:3000] + data[5000:5500] + data[3500:],
}


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("is_kept", [True, False], ids=["the engine kept", "the engine lost"])
@pytest.mark.parametrize("how", [next(iter(HURT)), *(pytest.param(how, marks=pytest.mark.slow) for how in [*HURT][1:])])
async def test_a_damaged_index_is_named_and_costs_at_most_a_request_for_each_lost_line(
    lab: WebLab, how: str, is_kept: bool
) -> None:
    await lab.crawl_some(120)
    folder = folder_of(lab.settings())
    (segment,) = folder.index.iterdir()
    before = {entry.url for entry in entries_of(folder.root)}
    hurt = HURT[how](segment.read_bytes())
    if hurt is None:
        segment.unlink()
    else:
        segment.write_bytes(hurt)
    left = {entry.url for entry in entries_of(folder.root)}
    if not is_kept:
        lab.engine.flush()
    with pytest.raises(ArchiveError, match="the index has unreadable parts"):
        await rebuild(lab.settings())
    asked = lab.asked()
    await rebuild(lab.settings(), refetch=True)
    await lab.finish(lab.settings())
    again = {page_of(url) for url in before if (lab.asked() - asked)[page_of(url)]}
    assert again <= set(map(page_of, before - left)), "the engine's log may still have the others"
    assert (await rebuild(lab.settings())).flaws == []
    assert await audit(lab.settings()) == 0


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("is_empty", [True, False], ids=["emptied", "cut where nobody sees it"])
async def test_pages_that_lost_their_line_are_fetched_again_though_no_link_leads_to_them(
    tmp_path: Path, engine: Engine, *, is_empty: bool
) -> None:
    """The engine knows them as done; only the journal of seeds leads to one of them."""
    async with served(engine, tmp_path, CHAIN | {("b.test", "/"): page()}) as lab:
        settings, seeds = lab.settings(), [lab.site.url(A), lab.site.url("b.test")]
        before = (await crawl(settings, seeds)).statuses
        folder = folder_of(settings)
        forget_commits(folder, before if is_empty else [lab.site.url("b.test"), lab.site.url(A, "/3")])
        if is_empty:
            next(folder.index.iterdir()).write_bytes(b"")
        assert await audit(settings) != 0
        await rebuild(settings, refetch=True)
        assert (await crawl(settings, [])).statuses == before
        assert await audit(settings) == 0


@pytest.mark.slow(ci=True)
async def test_a_rebuild_takes_damage_out_of_a_warc_file_and_keeps_its_bytes(lab: WebLab) -> None:
    some = await lab.crawl_some(120)
    folder = folder_of(lab.settings())
    file = warc_of_pages(folder.root)
    hurt = sorted((e for e in some.entries if e.warc is not None), key=lambda e: e.warc.offset if e.warc else 0)[9]
    assert hurt.warc is not None
    data, begin, end = file.read_bytes(), hurt.warc.offset, hurt.warc.offset + hurt.warc.length
    damaged = data[begin : begin + 40] + b"\xff" * 8 + data[begin + 48 : end]
    file.write_bytes(data[:begin] + damaged + data[end:])
    with pytest.raises(ArchiveError, match="1 committed page can't be read"):
        await rebuild(lab.settings())
    report = await rebuild(lab.settings(), refetch=True)
    assert [(one.file, one.damaged_bytes) for one in report.taken_out] == [(f"warc/{file.name}", len(damaged))]
    assert (folder.root / report.taken_out[0].kept_in).read_bytes() == damaged
    assert (folder.root / report.taken_out[0].left).read_bytes() == data[:begin] + data[end:]
    assert not file.exists()
    done = await lab.finish(lab.settings())
    assert all(read_record(folder, entry.warc).uri == entry.url for entry in done.entries if entry.warc is not None)
    assert (await rebuild(lab.settings())).flaws == []
    assert await audit(lab.settings()) == 0


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(
    "is_kept", [pytest.param(True, marks=pytest.mark.slow), False], ids=["the engine kept", "the engine lost"]
)
async def test_records_that_other_bytes_moved_are_found_by_everybody_after_a_rebuild(
    lab: WebLab, is_kept: bool
) -> None:
    some = await lab.crawl_some(120)
    file = warc_of_pages(folder_of(lab.settings()).root)
    places = sorted(entry.warc.offset for entry in some.entries if entry.warc is not None)
    data, at = file.read_bytes(), places[len(places) // 2]
    file.write_bytes(data[:at] + b"\xff" * 77 + data[at:])
    assert await audit(lab.settings()) != 0
    if not is_kept:
        lab.engine.flush()
    asked, behind = lab.asked(), sum(place >= at for place in places)
    report = await rebuild(lab.settings())
    assert (report.mended, report.refetched) == (behind, 0)
    done = await lab.finish(lab.settings())
    folder = folder_of(lab.settings())
    assert all(read_record(folder, entry.warc).uri == entry.url for entry in done.entries if entry.warc is not None)
    assert not {url for url in map(page_of, (e.url for e in some.entries)) if (lab.asked() - asked)[url]}
    assert (await rebuild(lab.settings())).mended == 0


@pytest.mark.slow(ci=True)
async def test_pages_whose_records_are_gone_are_fetched_again_although_the_engine_knows_them(lab: WebLab) -> None:
    some = await lab.crawl_some(120)
    for path in folder_of(lab.settings()).warc.iterdir():
        path.unlink()
    with pytest.raises(ArchiveError, match=f"{len(some.entries)} committed pages can't be read"):
        await rebuild(lab.settings())
    await rebuild(lab.settings(), refetch=True)
    await lab.finish(lab.settings())
    assert await audit(lab.settings()) == 0


@pytest.mark.slow(ci=True)
async def test_a_crawl_without_an_archive_is_fetched_again_when_told_so(lab: WebLab) -> None:
    await lab.crawl_some(100, archive__warc=False)
    lab.engine.flush()
    with pytest.raises(ArchiveError, match="no archive"):
        await rebuild(lab.settings())
    await rebuild(lab.settings(), refetch=True)
    await lab.finish(lab.settings())


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("policy", ["site", "follow"])
@pytest.mark.parametrize("depth", [0, pytest.param(3, marks=pytest.mark.slow)])
async def test_where_a_seed_redirected_to_is_in_scope_again(lab: WebLab, depth: int, policy: str) -> None:
    """d0.test/away links to d2.test, which is not a seed."""
    options: dict[str, Any] = {"scope__mode": "domain", "scope__redirected_seeds": policy}
    away, there = lab.site.url("d0.test", "/away"), lab.site.url("d2.test")

    async def crawled(folder: str, **more: int) -> dict[str, int]:
        async with opened_anew(lab, folder, **options) as found:
            await make_seeder(found, depth=depth).add_all([given(away)])
        return (await crawl(lab.settings(folder, **options, **more), [])).statuses

    whole = await crawled("whole")
    lab.engine.flush()
    assert len(await crawled("c", crawl__pages_max=20 if policy == "follow" else 1)) < len(whole)
    lab.engine.flush()
    await rebuild(lab.settings(**options))
    async with opened(lab.settings(**options)) as found:
        assert found.roots == {"domain:d0.test", "domain:d2.test" if policy == "follow" else f"page:{there} {away}"}
    assert (await crawl(lab.settings(**options), [])).statuses == whole


@pytest.mark.slow(ci=True)
async def test_a_folder_without_a_seed_journal_is_rebuilt_from_given_seeds(lab: WebLab) -> None:
    await lab.crawl_some(100)
    folder = folder_of(lab.settings())
    for journal in folder.journal.iterdir():
        journal.unlink()
    lab.engine.flush()
    with pytest.raises(ArchiveError, match="its lines have 111 bytes, and had 222"):
        await rebuild(lab.settings(), seeds=lab.site.web.seeds)
    await rebuild(lab.settings(), seeds=lab.site.web.seeds, accept_loss=True)
    await lab.finish(lab.settings())


@pytest.mark.parametrize("note", ["", "{", '{"name":"main","begun_at":1.0}'], ids=["none", "damaged", "no record"])
async def test_without_the_hash_key_nothing_is_rebuilt_or_crawled_again(lab: WebLab, note: str) -> None:
    """What was seen could not be told by the index: every page would be fetched again into the same archive."""
    await lab.crawl_some(30)
    folder = folder_of(lab.settings())
    file = folder.root / FILE
    file.unlink()
    if note:
        file.write_text(note)
    lab.engine.flush()
    with pytest.raises(ConflictError, match="hash key") as refused:
        await rebuild(lab.settings(), seeds=lab.site.web.seeds)
    assert "\n" not in str(refused.value)
    with pytest.raises(ConflictError, match="another --dir"):
        await crawl(lab.settings(), [])
    assert not lab.kept()


@pytest.mark.slow(ci=True)
async def test_a_rebuilt_crawl_keeps_its_hash_key(lab: WebLab) -> None:
    await lab.crawl_some(30)
    async with opened(lab.settings()) as found:
        key, begun_at = found.record.hash_key, found.record.begun_at
    assert len(key) == 16
    lab.engine.flush()
    await rebuild(lab.settings())
    async with opened(lab.settings()) as found:
        assert (found.record.hash_key, found.record.begun_at != begun_at) == (key, True)
        assert repr(key) not in repr(found.record)


async def test_folders_with_different_hash_keys_are_refused_in_one_line(lab: WebLab) -> None:
    await lab.crawl_some(30)
    first, second = folder_of(lab.settings()), lab.home / "other"
    shutil.copytree(first.root, second)
    note = json.loads((second / FILE).read_bytes())
    note["record"]["hash_key"] = base64.b64encode(bytes(16)).decode()
    (second / FILE).write_text(json.dumps(note))
    with pytest.raises(ConflictError, match="hash key") as refused:
        await rebuild(lab.settings("other"))
    assert "\n" not in str(refused.value)
    lab.engine.flush()
    with pytest.raises(ConflictError, match="different hash keys"):
        await rebuild(lab.settings(), second)
    assert not lab.kept()


@pytest.mark.slow(ci=True)
async def test_what_was_given_up_or_forbidden_is_tried_again_and_what_was_cut_is_known(
    tmp_path: Path, engine: Engine
) -> None:
    pages = {
        (A, "/"): page("/broken", "/private", "/large", "/odd", "/many", "/app"),
        (A, "/many"): page(*(f"/{n}" for n in range(9))),
        (A, "/app"): Resource(body="<body><script src=x.js></script>"),
        (A, "/away"): Resource(status=301, headers={"Location": "http://elsewhere.test/"}),
        (A, "/cut.xml"): Resource(body="<urlset><url><loc>http:", content_type="text/xml"),
        (A, "/odd"): Resource(body="whole", headers={"Content-Encoding": "none"}),
        (A, "/large"): Resource(body="x" * 5_000),
        (A, "/broken"): Resource(fails=1_000_000),
        (A, "/robots.txt"): Resource(
            body="User-agent: *\nDisallow: /private\nSitemap: /cut.xml", content_type="text/plain"
        ),
    }
    async with served(engine, tmp_path, pages) as lab:
        settings = lab.settings(scope__mode="domain", fetch__body_bytes_max=4_000, fetch__links_max=6)
        await crawl(settings, [lab.site.url(A), lab.site.url(A, "/away")])
        before = await totals(settings)
        assert (before.dead, before.refused["robots"], before.fetched) == (2, 1, 12)
        lost = {"body:length": 1, "decode_error": 1, "links": 3, "scripts": 1, "sitemap": 1, "seed_redirect": 1}
        assert before.lost == lost
        async with open_crawl(settings, create=False) as opened_before:
            listed = await losses(opened_before)
        engine.flush()
        await rebuild(settings)
        assert (await totals(settings)).pending == 3
        assert (await totals(settings)).lost == before.lost
        await crawl(settings, [])
        after = await totals(settings)
        assert (after.dead, after.refused["robots"], after.fetched) == (2, 1, 12)
        async with open_crawl(settings, create=False) as opened_after:
            assert await losses(opened_after) == listed


async def test_seeds_that_wait_keep_their_depth_and_their_priority(tmp_path: Path, engine: Engine) -> None:
    async with served(engine, tmp_path, CHAIN) as lab:
        async with opened_anew(lab) as found:
            await make_seeder(found, depth=3, priority=9.5).add_all([given(lab.site.url(A))])
            c = make_router(found).candidate(lab.site.url(A), depth=0)
            before = (await found.inspect.locate(c)).record
        engine.flush()
        await rebuild(lab.settings())
        async with opened(lab.settings()) as found:
            after = (await found.inspect.locate(c)).record
    assert before is not None
    assert after is not None
    assert (after.depth, after.seed) == (before.depth, before.seed) == (3, 1)
    assert abs(after.score - before.score) < 60.0


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_commits_indexed_on_another_machine_keep_their_links(
    tmp_path: Path, engine: Engine, order: tuple[int, int]
) -> None:
    """One machine archived page 1 and died, the next owner of its partition put the commit into its own index. By now
    the site is gone: that page 2 is known is the archive's doing.
    """
    async with served(engine, tmp_path, CHAIN) as lab:
        folders = [lab.settings("c0"), lab.settings("c1")]
        whole = await crawl(folders[0], [lab.site.url(A)])
        adopted = next(e for e in whole.entries if e.depth == 1)
        async with opened_anew(lab, "c1") as found:
            writer = IndexWriter(found.folder, "second")
            writer.add(adopted)
            writer.close()
        forget_commits(folder_of(folders[0]), [adopted.url, lab.site.url(A, "/2"), lab.site.url(A, "/3")])
        engine.flush()
        reports = [await rebuild(folders[n]) for n in order]
        assert sum(report.elsewhere for report in reports) == 1
        async with opened(folders[0]) as found:
            wanted = [make_router(found).candidate(lab.site.url(A, f"/{n}"), depth=0) for n in (1, 2, 3)]
            records = [(await found.inspect.locate(c)).record for c in wanted]
    assert [record and record.depth for record in records] == [1, 2, 3]


def flip(path: Path, text: bytes) -> None:
    """Damage the first line that has this text: one bit of it."""
    data = bytearray(path.read_bytes())
    data[data.index(text)] ^= 1
    path.write_bytes(data)


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("how", ["emptied", "removed", "folder removed", "folder emptied", "note damaged"])
async def test_a_journal_of_seeds_that_is_empty_or_gone_ends_the_rebuild_until_that_is_accepted(
    tmp_path: Path, engine: Engine, how: str
) -> None:
    async with served(engine, tmp_path, CHAIN | {("b.test", "/"): page("/1"), ("b.test", "/1"): page()}) as lab:
        settings, seeds = lab.settings(scope__mode="domain"), [lab.site.url(A), lab.site.url("b.test")]
        await crawl(lab.settings(scope__mode="domain", crawl__pages_max=2), seeds)
        (journal,) = folder_of(settings).journal.glob("seeds-*.jsonl")
        note = journal.with_name(f"{journal.name}.size")
        if how == "folder removed":
            shutil.rmtree(journal.parent)
        elif how == "folder emptied":
            journal.unlink()
            note.unlink()
        elif how == "removed":
            journal.unlink()
        else:
            journal.write_bytes(b"")
        if how == "note damaged":
            note.write_bytes(b"damaged")
        assert await audit(settings) != 0
        engine.flush()
        with pytest.raises(ArchiveError, match=r"seeds-main-\d+\.jsonl: .*--accept-loss"):
            await rebuild(settings)
        report = await rebuild(settings, seeds=seeds, accept_loss=True)
        assert [str(journal) in hurt for hurt in report.journals_hurt] == [True]
        await crawl(settings, [])
        assert len(entries_of(Path(settings.archive.dir))) == 6
        assert await audit(settings) == 0


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("kind", ["root", "url"])
async def test_a_damaged_line_of_the_seeds_journal_ends_the_rebuild_until_its_loss_is_accepted(
    tmp_path: Path, engine: Engine, kind: str
) -> None:
    async with served(engine, tmp_path, CHAIN | {("b.test", "/"): page("/1"), ("b.test", "/1"): page()}) as lab:
        settings, seeds = lab.settings(scope__mode="domain"), [lab.site.url(A), lab.site.url("b.test")]
        await crawl(lab.settings(scope__mode="domain", crawl__pages_max=2), seeds)
        (journal,) = folder_of(settings).journal.glob("seeds-*.jsonl")
        flip(journal, b'"root":"' if kind == "root" else b'"url":"http://b.test')
        engine.flush()
        before = journal.read_bytes()
        with pytest.raises(
            ArchiveError, match=r"seeds-main-\d+\.jsonl: line \d+ at byte \d+ is damaged: .*--accept-loss"
        ):
            await rebuild(settings)
        assert journal.read_bytes() == before
        report = await rebuild(settings, seeds=seeds, accept_loss=True)
        assert report.lines_lost == 1
        assert (folder_of(settings).log / "damaged.jsonl").read_bytes() in before
        assert (await rebuild(settings)).lines_lost == 0
        await crawl(settings, [])
        assert len(entries_of(Path(settings.archive.dir))) == 6
        assert await audit(settings) == 0
