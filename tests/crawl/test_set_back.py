"""An engine that was set back while nothing ran: what a folder's index knows that the engine does not."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from crawler.archive.folder import CrawlFolder, open_or_create
from crawler.archive.index_reader import segment_names
from crawler.archive.index_writer import IndexWriter, change_lines
from crawler.cli.main import main
from crawler.crawl import set_back
from crawler.crawl.opening import OpenCrawl, open_crawl
from crawler.crawl.set_back import check_set_back
from crawler.errors import ConflictError
from crawler.model import CommitEntry
from crawler.rules.places import partition_of
from crawler.settings import Settings
from tests.crawl.harness import settings_of
from tests.crawl.rebuild_lab import rebuild
from tests.support.engine import Cluster, Engine

PARTITIONS, BEGAN = 16, 1.6e9
FIRST, SECOND = "d1.test", "d2.test"  # of two partitions


def line(number: int, *, host: str = FIRST, at: float = 0.0, url: str = "", **more: Any) -> CommitEntry:
    address = url or f"http://{host}/{number}"
    fields: dict[str, Any] = {
        "mime": "text/html", "status_text": "200", "fingerprint": f"{hash(address) % 2**62}", "visit": 1,
        "fetched_at": BEGAN + at, "sequence": number, "times": {"archived": BEGAN + at},
    }  # fmt: skip
    return CommitEntry(url=address, **(fields | more))


def lines(*numbers: int, host: str = FIRST, every_s: float = 1.0) -> list[CommitEntry]:
    return [line(number, host=host, at=number * every_s) for number in numbers]


class Cell(NamedTuple):
    name: str
    segments: list[list[CommitEntry]]  # the last one was written last
    knows: dict[str, int]  # the number of the last commit in the partition of a host
    lost: int  # commits; 0: none
    refused: str = ""


CELLS = [
    Cell("nothing was ever indexed", [], {}, 0),
    Cell("the engine has all", [lines(1, 2, 3)], {FIRST: 3}, 0),
    Cell("the engine has more, which another folder has", [lines(1, 2, 3)], {FIRST: 90}, 0),
    Cell("one page is missing", [lines(1, 2, 3)], {FIRST: 2}, 1),
    Cell("pages that others indexed are missing, too", [lines(1, 2, 30)], {FIRST: 2}, 28),
    Cell("of two partitions", [lines(1, 2), lines(1, 2, 3, host=SECOND)], {FIRST: 1, SECOND: 1}, 3),
    Cell("one of two partitions has all", [lines(1, 2), lines(1, 2, 3, host=SECOND)], {FIRST: 2, SECOND: 1}, 2),
    Cell("a thousand over hours", [lines(*range(1, 1003))], {FIRST: 2}, 1000),
    Cell("more than a thousand over hours", [lines(*range(1, 1004))], {FIRST: 2}, 1001, "refused"),
    Cell("more than a thousand within two seconds", [lines(*range(1, 1900), every_s=0.001)], {FIRST: 2}, 1897),
    Cell("all of it, as the engine is of before the crawl's first page", [lines(*range(1, 1103))], {}, 1102, "refused"),
    Cell(
        "in several segments", [lines(*range(n, n + 300)) for n in range(1, 1801, 300)], {FIRST: 700}, 1100, "refused"
    ),
    Cell("an old line in a new segment", [lines(4, 5, 6), lines(1, 2, 3)], {FIRST: 6}, 0),
    Cell("lines of pruned pages have no number", [[line(0, pruned=True), line(2)]], {FIRST: 2}, 0),
    Cell("a page has two lines", [[line(7, url="http://d1.test/a"), line(9, url="http://d1.test/a")]], {FIRST: 8}, 1),
]


def write(folder: CrawlFolder, segments: list[list[CommitEntry]]) -> None:
    """A session for each segment; they were written a minute apart."""
    for n, entries in enumerate(segments):
        writer = IndexWriter(folder, f"{n:012x}")
        for entry in entries:
            writer.add(entry)
        writer.close()
        path = folder.index / f"{n:012x}-00000.cdxj"
        os.utime(path, (BEGAN + 60 * n, BEGAN + 60 * n))


@pytest.fixture
def folder(tmp_path: Path) -> CrawlFolder:
    return open_or_create(str(tmp_path / "c"))


@contextlib.asynccontextmanager
async def opened(engine: Engine | Cluster, folder: CrawlFolder, knows: dict[str, int]) -> AsyncIterator[OpenCrawl]:
    settings = settings_of(folder.root, frontier__redis=engine.url, crawl__partitions=PARTITIONS)
    async with open_crawl(settings, create=True) as crawl:
        for host, number in knows.items():
            meta = crawl.keys.meta(partition_of(host, PARTITIONS))
            await crawl.engine.command("HSET", meta, "sequence", number)
        yield crawl


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
async def test_what_is_missing_is_told_or_refused(engine: Engine, folder: CrawlFolder, cell: Cell) -> None:
    assert partition_of(FIRST, PARTITIONS) != partition_of(SECOND, PARTITIONS)
    async with opened(engine, folder, cell.knows) as crawl:
        write(folder, cell.segments)
        if cell.refused:
            with pytest.raises(ConflictError, match=f"lacks {cell.lost:,} pages that .* 'crawler rebuild'"):
                await check_set_back(crawl)
            return
        told = await check_set_back(crawl)
        pages = "1 page is" if cell.lost == 1 else f"{cell.lost:,} pages are"
        assert told == ([f"the engine lost its last writes: {pages} fetched again"] if cell.lost else [])
        assert await check_set_back(crawl) == []  # told once


@pytest.mark.cluster
async def test_one_shard_of_a_cluster_that_was_set_back_is_noticed(cluster: Cluster, folder: CrawlFolder) -> None:
    async with opened(cluster, folder, {FIRST: 2, SECOND: 1200}) as crawl:
        shards = {crawl.engine.shard_of(crawl.keys.meta(partition_of(host, PARTITIONS))) for host in (FIRST, SECOND)}
        assert len(shards) == 2
        write(folder, [lines(*range(1, 1201)), lines(*range(1, 1201), host=SECOND)])
        with pytest.raises(ConflictError, match="lacks 1,198 pages"):
            await check_set_back(crawl)


async def test_what_is_told_once_is_not_counted_again_as_numbers_go_on_above_it(
    engine: Engine, folder: CrawlFolder
) -> None:
    async with opened(engine, folder, {FIRST: 2}) as crawl:
        write(folder, [lines(1, 2, 3, 4, 5)])
        await check_set_back(crawl)
        partition = partition_of(FIRST, PARTITIONS)
        assert await crawl.leases.sequences([partition]) == {partition: 5}
        await crawl.leases.raise_sequences({partition: 3})
        assert await crawl.leases.sequences([partition]) == {partition: 5}


async def test_a_segment_that_is_open_counts_and_so_does_one_that_is_rewritten_later(
    engine: Engine, folder: CrawlFolder
) -> None:
    async with opened(engine, folder, {FIRST: 3}) as crawl:
        write(folder, [lines(1, 2), lines(3)])
        writer = IndexWriter(folder, "f" * 12)
        writer.add(line(4))
        writer.sync()
        assert any(name.endswith(".open") for name in segment_names(folder))
        change_lines(folder, lambda e: CommitEntry(**{**vars_of(e), "title": "new"}) if e.sequence < 3 else e)
        assert await check_set_back(crawl) == ["the engine lost its last writes: 1 page is fetched again"]
        writer.close()


def vars_of(entry: CommitEntry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in entry.__struct_fields__}


async def test_damaged_lines_tell_nothing(engine: Engine, folder: CrawlFolder) -> None:
    async with opened(engine, folder, {FIRST: 3}) as crawl:
        write(folder, [lines(1, 2, 3, 4)])
        (path,) = folder.index.glob("*.cdxj")
        path.write_bytes(path.read_bytes().replace(b'"seq":4', b'"seq":9'))
        assert await check_set_back(crawl) == []


async def test_so_much_is_read_and_no_more_is_claimed_to_be_known(
    engine: Engine, folder: CrawlFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(set_back, "READ_MAX", 3)
    async with opened(engine, folder, {}) as crawl:
        write(folder, [lines(*range(n, n + 500)) for n in range(2, 5002, 500)])
        with pytest.raises(ConflictError, match="lacks at least "):
            await check_set_back(crawl)


def test_a_crawl_on_older_data_is_refused_before_anything_is_added_and_a_rebuild_helps(
    engine: Engine, folder: CrawlFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    async def begin() -> Settings:
        async with opened(engine, folder, {}) as crawl:
            write(folder, [lines(*range(1, 1103))])
            return crawl.settings

    async def mend() -> list[str]:
        await rebuild(settings, refetch=True)
        async with opened(engine, folder, {}) as crawl:
            return await check_set_back(crawl)

    settings = asyncio.run(begin())
    named = ["--redis", engine.url, "--dir", str(folder.root)]
    with contextlib.closing(engine.client()) as client:
        before = client.hget("{main}:crawl", "version"), client.dbsize()
        for command in (["crawl", "http://d9.test/"], ["run"], ["run", "-n", "2"]):
            assert main([*command, "-q", *named]) == 4
            assert "lacks 1,102 pages" in capsys.readouterr().err
        assert (client.hget("{main}:crawl", "version"), client.dbsize()) == before
    assert asyncio.run(mend()) == []
