"""Walking a crawl folder record by record and line by line, with every kind of damage reported and nothing skipped."""

from pathlib import Path

import pytest

from crawler.archive.folder import CrawlFolder
from crawler.archive.index_writer import IndexWriter
from crawler.archive.repair import ArchivedResponse, Flaw, IndexLine, walk_lines, walk_responses, warc_names
from crawler.archive.warc import payload_digest
from crawler.archive.warc_reader import read_record
from crawler.model import WarcLocation
from tests.archive.archive_samples import entry, folder_in, response, writer_in


@pytest.fixture
def folder(tmp_path: Path) -> CrawlFolder:
    return folder_in(tmp_path)


def written(folder: CrawlFolder, pages: int = 4, *, close: bool = True) -> list[WarcLocation]:
    writer = writer_in(folder)
    places = [writer.add(response(n))[0] for n in range(pages)]
    writer.sync()
    if close:
        writer.close()
    return places


def found(folder: CrawlFolder) -> tuple[list[ArchivedResponse], list[Flaw]]:
    all_of_it = list(walk_responses(folder))
    return (
        [one for one in all_of_it if isinstance(one, ArchivedResponse)],
        [one for one in all_of_it if isinstance(one, Flaw)],
    )


@pytest.mark.parametrize("close", [True, False])
def test_every_response_is_found_where_the_index_would_look_for_it(folder: CrawlFolder, close: bool) -> None:
    places = written(folder, close=close)
    records, flaws = found(folder)
    assert flaws == []
    assert [record.location for record in records] == places
    assert [record.stored for record in records] == [read_record(folder, place) for place in places]
    assert records[2].stored.uri == response(2).url
    assert records[2].stored.digest == payload_digest(response(2).raw_body)


def test_a_torn_tail_is_told_from_damage_and_what_follows_damage_is_read(folder: CrawlFolder) -> None:
    places = written(folder)
    (file,) = folder.warc.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: places[3].offset + 40])
    records, flaws = found(folder)
    assert ([r.location for r in records], len(flaws)) == (places[:3], 1)
    assert not flaws[0].is_tail  # a sealed file has no tail to lose
    file.rename(file.with_name(file.name + ".open"))
    assert found(folder)[1][0].is_tail
    hurt = places[1].offset + 20
    file.write_bytes(whole[:hurt] + bytes([whole[hurt] ^ 0xFF]) + whole[hurt + 1 :])
    records, flaws = found(folder)
    assert [r.location for r in records] == [places[0], *places[2:]]
    assert f"damaged from byte {places[1].offset:,}" in flaws[0].reason


def test_a_file_that_can_not_be_opened_is_named_and_an_empty_one_is_nothing(folder: CrawlFolder) -> None:
    (folder.warc / "a.warc.gz").mkdir()
    (folder.warc / "b.warc.gz.open").touch()
    records, (flaw,) = found(folder)
    assert (records, flaw.file) == ([], "warc/a.warc.gz")
    assert warc_names(folder) == ["a.warc.gz", "b.warc.gz"]


def test_lines_are_given_as_they_stand_repeats_included_and_gaps_are_named(folder: CrawlFolder) -> None:
    writer = IndexWriter(folder, "s1", lines_max=2)
    entries = [entry(n % 3) for n in range(5)]
    for one in entries:
        writer.add(one)
    writer.close()
    lines = [one for one in walk_lines(folder) if isinstance(one, IndexLine)]
    assert sorted(line.entry.url for line in lines) == sorted(one.url for one in entries)
    (folder.index / "s1-00001.cdxj").unlink()
    with (folder.index / "s1-00002.cdxj").open("ab") as file:
        file.write(b"no line\n")
    flaws = [one for one in walk_lines(folder) if isinstance(one, Flaw)]
    assert [(flaw.file, flaw.reason) for flaw in flaws] == [
        ("index/s1-00001.cdxj", "not found"), ("index/s1-00002.cdxj", "line 3 at byte 448 is damaged: no line"),
        ("index/s1-00002.cdxj", "it has 2 lines, and had 1"),
    ]  # fmt: skip


def test_a_torn_last_line_of_an_open_segment_is_a_tail(folder: CrawlFolder) -> None:
    writer = IndexWriter(folder, "s1")
    writer.add(entry())
    writer.sync()
    with (folder.index / "s1-00000.cdxj.open").open("ab") as file:
        file.write(b"test,d0)/ 2026")
    lines = list(walk_lines(folder))
    assert isinstance(lines[0], IndexLine)
    assert isinstance(lines[1], Flaw)
    assert lines[1].is_tail
