"""What handlers yielded, as rows of outputs: each once for each visit, with a key that never changes."""

import csv
import json
import math
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from crawler.archive.folder import CrawlFolder
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
from tests.outputs.growing import FILES
from tests.outputs.round_trip import Shop, unpacked
from tests.support.postgres import PostgresServer


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


NUMBERS = {"whole": 1.5, "nan": math.nan, "high": math.inf, "low": -math.inf, "in": [math.nan, {"x": -math.inf}]}
OTHERS = {"whole": math.inf, "nan": 2.5, "high": 3, "low": "text", "in": None}


@pytest.mark.parametrize("name", [*FILES, "postgresql"])
def test_numbers_that_json_does_not_have_are_null_in_every_format(
    tmp_path: Path, request: pytest.FixtureRequest, name: str
) -> None:
    """Alone in their column, or among values of it."""
    place = Shop(tmp_path)
    place.add([[NUMBERS], [OTHERS]])
    path, text = tmp_path / name, str(tmp_path / name)
    if name == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        text = server.url(server.new_database())
    source = Items(place.folder)
    export(place.folder, targets_of([text]), source)
    source.close()
    place.close()
    names, nothing = list(NUMBERS), "" if ".csv" in path.suffixes else None
    match path.suffix:
        case ".sqlite":
            with closing(sqlite3.connect(path)) as base:
                rows = base.execute('SELECT whole, nan, high, low, "in" FROM items').fetchall()
        case ".parquet":
            pq = pytest.importorskip("pyarrow.parquet")
            rows = [tuple(row[n] for n in names) for row in pq.read_table(path).to_pylist()]
        case "":
            import psycopg

            with psycopg.connect(text) as server_base:
                rows = server_base.execute('SELECT whole, nan, high, low, "in"::text FROM items').fetchall()
        case _:
            lines = unpacked(path).decode().splitlines()
            found = csv.DictReader(lines) if nothing == "" else map(json.loads, lines)
            rows = [tuple(one[n] for n in names) for one in found]
    first = next(row for row in rows if row[0] not in (None, ""))
    assert float(first[0]) == 1.5
    assert first[1:4] == (nothing, nothing, nothing)
    nested = json.loads(first[4]) if isinstance(first[4], str) else first[4]
    assert nested == [None, {"x": None}]
    (other,) = (row for row in rows if row is not first)
    assert (other[0], float(other[1]), float(other[2]), other[3], other[4]) == (nothing, 2.5, 3.0, "text", nothing)
