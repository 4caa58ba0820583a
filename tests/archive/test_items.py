"""Items on disk: what the index names is read once, whatever else lies there and however the file ended."""

import subprocess
from pathlib import Path

import pytest
from archive_samples import entry, folder_in
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.archive import index as cdxj
from crawler.archive.folder import CrawlFolder
from crawler.archive.index_reader import MissingFile
from crawler.archive.index_writer import IndexWriter
from crawler.archive.items import ItemFiles, ItemReader, ItemWriter, items_of
from crawler.archive.repair import Recovered, recover_open_files
from crawler.errors import ArchiveError
from crawler.model import Followed, ItemsLocation


def indexed(folder: CrawlFolder, places: dict[int, ItemsLocation], session: str = "aa11") -> None:
    index = IndexWriter(folder, session)
    for number, place in places.items():
        index.add(entry(number, items=place))
    index.close()


def found(folder: CrawlFolder) -> list[tuple[str, int, bytes]]:
    return [(page.url, number, item) for page, number, item in items_of(folder)]


def test_items_of_indexed_pages_are_read_once_and_those_that_nothing_names_not_at_all(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    writer = ItemWriter(folder, "aa11", file_bytes_max=100)
    places = {n: writer.add([b'{"n":%d}' % n, b'{"again":%d}' % n], [b'["http://d0.test/x","",0.0]']) for n in range(6)}
    writer.add([b'{"never":"committed"}'])
    writer.sync()
    indexed(folder, {n: places[n] for n in range(5)})
    indexed(folder, {1: places[1], 5: places[5]}, "bb22")
    assert found(folder) == [
        (f"http://d{n % 3}.test/page/{n}", number, item)
        for n in (0, 3, 1, 4, 2, 5)
        for number, item in enumerate([b'{"n":%d}' % n, b'{"again":%d}' % n])
    ]
    writer.close()
    assert len({place.file for place in places.values()}) > 1
    assert len(found(folder)) == 12
    for path in folder.items.iterdir():
        subprocess.run(["gzip", "-t", str(path)], check=True)


def test_followed_links_are_stored_after_the_items_and_are_not_items(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    writer = ItemWriter(folder, "aa11")
    where = writer.add([b'{"a":1}'], [b'["http://d0.test/x","detail",2.0]'])
    nothing = writer.add([], [b'["http://d0.test/y","",0.0]'])
    writer.close()
    with ItemFiles(folder) as files:
        assert files.items(where) == [b'{"a":1}']
        assert files.followed(where) == [Followed("http://d0.test/x", "detail", 2.0)]
        assert (files.items(nothing), len(files.followed(nothing))) == ([], 1)
    indexed(folder, {0: where, 1: nothing})
    assert len(found(folder)) == 1


def test_a_torn_file_keeps_the_items_of_all_pages_that_were_synced(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    writer = ItemWriter(folder, "aa11")
    places = {n: writer.add([b'{"n":%d}' % n]) for n in range(3)}
    writer.sync()
    (path,) = folder.items.iterdir()
    whole = path.read_bytes()
    indexed(folder, {0: places[0], 1: places[1]})
    final = folder.items / places[0].file
    for size in range(places[2].offset, len(whole)):
        path.write_bytes(whole[:size])
        assert len(found(folder)) == 2, "while it is torn"
        (recovered,) = recover_open_files(folder, lambda session: session == "aa11")
        cut = size - places[2].offset
        assert recovered == Recovered(file=f"items/{places[0].file}", kept=2, cut_bytes=cut)
        assert len(found(folder)) == 2
        final.rename(path)


def test_items_that_are_not_there_or_damaged_are_told_by_file_and_number_of_pages(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    writer = ItemWriter(folder, "aa11")
    places = {n: writer.add([b'{"n":%d}' % n]) for n in range(4)}
    writer.close()
    gone = ItemsLocation(file="cc33-00000.items.gz", offset=0, length=10, count=1)
    indexed(folder, places | {5: gone})
    path = folder.items / places[0].file
    raw = bytearray(path.read_bytes())
    raw[places[1].offset + 12] ^= 255
    path.write_bytes(raw)
    reader = ItemReader(folder)
    assert len(list(reader.items())) == 3
    assert reader.missing == [
        MissingFile("items/aa11-00000.items.gz", "items not readable", 1),
        MissingFile("items/cc33-00000.items.gz", "items not readable", 1),
    ]
    with ItemFiles(folder) as files, pytest.raises(ArchiveError, match="not found"):
        files.items(gone)


@given(st.lists(st.binary().map(lambda raw: b'{"x":"%b"}' % raw.hex().encode()), max_size=20))
@settings(max_examples=30)
def test_what_was_yielded_is_what_is_read(tmp_path_factory: pytest.TempPathFactory, items: list[bytes]) -> None:
    folder = folder_in(tmp_path_factory.mktemp("items"))
    writer = ItemWriter(folder, "aa11")
    where = writer.add(items)
    writer.close()
    with ItemFiles(folder) as files:
        assert files.items(where) == items


def test_an_index_line_has_the_location_of_items() -> None:
    place = ItemsLocation(file="aa11-00000.items.gz", offset=5, length=30, count=2)
    line = cdxj.to_line(entry(1, items=place))
    assert cdxj.to_entry(line) == entry(1, items=place)
    assert b"items" not in cdxj.to_line(entry(1))
