"""What handlers yielded, as rows of outputs: each once for each visit, with a key that never changes."""

import csv
import json
from pathlib import Path

from crawler.archive.crawl_folder import CrawlFolder
from crawler.archive.index_reader import MissingFile
from crawler.archive.index_writer import IndexWriter
from crawler.archive.items import ItemWriter
from crawler.errors import ArchiveError
from crawler.model import ItemsLocation
from crawler.outputs.export import export
from crawler.outputs.follow import Outputs
from crawler.outputs.opening import targets_of
from crawler.outputs.records import Items, rows_of
from crawler.outputs.sink import Key
from tests.archive.archive_samples import entry, folder_in


def shop(tmp_path: Path) -> CrawlFolder:
    """Three pages: with two items, with none, and without a handler; and one whose items are gone."""
    folder = folder_in(tmp_path)
    items, index = ItemWriter(folder, "aa11"), IndexWriter(folder, "aa11")
    two = items.add([b'{"title":"a","price":1.5}', b'{"title":"b","tags":["x"]}'], [b'["http://a.test/","",0.0]'])
    places = [two, items.add([]), None, ItemsLocation(file="lost-00000.items.gz", offset=0, length=9, count=2)]
    items.add([b'{"never":"committed"}'])
    for number, place in enumerate(places):
        for _ in range(2):  # a commit that two sessions wrote down counts once
            index.add(entry(number, items=place))
    items.close()
    index.close()
    return folder


def test_an_export_of_items_has_each_once_and_names_what_is_gone(tmp_path: Path) -> None:
    folder, source = shop(tmp_path), None
    names = [str(tmp_path / name) for name in ("items.jsonl", "items.csv")]
    source = Items(folder)
    summary = export(folder, targets_of(names), source)
    source.close()
    found = [json.loads(line) for line in (tmp_path / "items.jsonl").read_text().splitlines()]
    assert found == [{"title": "a", "price": 1.5}, {"title": "b", "tags": ["x"]}]
    with (tmp_path / "items.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == [
            {"title": "a", "price": "1.5", "tags": ""}, {"title": "b", "price": "", "tags": '["x"]'}
        ]  # fmt: skip
    assert summary.records == 2
    assert summary.missing == [MissingFile("items/lost-00000.items.gz", "items not readable", 1)]


def test_keys_of_items_are_page_visit_and_place(tmp_path: Path) -> None:
    folder = shop(tmp_path)
    place = ItemWriter(folder, "bb22")
    where = place.add([b'{"n":%d}' % n for n in range(3)])
    place.close()
    page = entry(7, items=where, visit=2)
    source = Items(folder)
    found = [(row.key, row.record) for row in rows_of(source, page)]
    source.close()
    assert found == [(Key(int(page.fingerprint), 2, n), {"n": n}) for n in range(3)]


def test_an_output_beside_a_crawl_says_at_its_end_which_items_are_gone(tmp_path: Path) -> None:
    folder, path = shop(tmp_path), tmp_path / "items.jsonl"
    outputs = Outputs(folder, targets_of([str(path)]), lambda: Items(folder), warn=print)
    outputs.start()
    (problem,) = outputs.finish()
    assert isinstance(problem, ArchiveError)
    assert str(problem) == ("items of 1 pages could not be read (items/lost-00000.items.gz: items not readable)")
    assert path.read_text().count("\n") == 2


def test_pages_and_items_of_one_crawl_have_cursors_of_their_own(tmp_path: Path) -> None:
    from crawler.outputs.records import Pages

    folder, path = shop(tmp_path), tmp_path / "both.sqlite"
    for source_of in (Items, Pages, Items, Pages):
        outputs = Outputs(folder, targets_of([str(path)]), lambda of=source_of: of(folder), warn=print)  # type: ignore[misc]
        outputs.start()
        outputs.finish()
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(path)) as base:
        assert base.execute("SELECT count(*) FROM items").fetchone() == (2,)
        assert base.execute("SELECT count(*) FROM pages").fetchone() == (4,)
