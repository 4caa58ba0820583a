"""`crawler audit -o`: a target next to the index."""

import gzip
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from crawler.errors import UsageError
from crawler.outputs.export import export
from crawler.outputs.opening import targets_of
from crawler.outputs.records import Items, Pages, RecordSource
from crawler.outputs.verify import Comparison, compare
from tests.outputs.growing import Crawl, running
from tests.outputs.round_trip import Shop
from tests.outputs.samples import target
from tests.support.heard_meter import HeardMeter
from tests.support.postgres import PostgresServer

ITEMS = [{"n": n, "text": "=1\n,x"} for n in range(10)]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    made.add([ITEMS[:3], [], ITEMS[3:]])
    made.close()
    return made


def exported(shop: Shop, name: str, source: RecordSource) -> None:
    export(shop.folder, targets_of([name]), source)
    source.close()


def numbers(found: Comparison) -> tuple[int, int, int, int]:
    return found.found, found.wanted, found.missing, found.extra


NAMES = ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.csv", "a.csv.gz", "a.csv.zst", "a.parquet", "a.sqlite"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("items", [False, True])
def test_a_target_that_has_everything_once_is_equal(tmp_path: Path, shop: Shop, name: str, items: bool) -> None:
    path = tmp_path / name
    exported(shop, str(path), Items(shop.folder) if items else Pages(shop.folder))
    before = path.read_bytes()
    meter = HeardMeter()
    found = compare([shop.folder], target(path), items=items, meter=meter)
    wanted = 10 if items else 3
    assert numbers(found) == (wanted, wanted, 0, 0)
    assert path.read_bytes() == before
    assert [part.what for part in meter.parts] == ["reading index", f"reading {name}"]


def less(text: str) -> str:
    return "".join(text.splitlines(keepends=True)[:-2])


def doubled(text: str) -> str:
    return text + text.splitlines(keepends=True)[-1]


def swapped(text: str) -> str:
    """One record is there twice, and another is not: the number is right."""
    lines = text.splitlines(keepends=True)
    return "".join([*lines[:-1], lines[-2]])


def foreign(text: str) -> str:
    return text + "not a record\n"


@pytest.mark.parametrize(
    ("change", "expected"),
    [(less, (8, 10, 2, 0)), (doubled, (11, 10, 0, 1)), (swapped, (10, 10, 1, 1)), (foreign, (11, 10, 0, 1))],
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_what_lines_lack_or_have_too_many_is_counted(
    tmp_path: Path, shop: Shop, name: str, change: Callable[[str], str], expected: tuple[int, int, int, int]
) -> None:
    path = tmp_path / name
    exported(shop, str(path), Items(shop.folder))
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(change(gzip.decompress(path.read_bytes()).decode()).encode()))
    else:
        path.write_text(change(path.read_text()))
    assert numbers(compare([shop.folder], target(path), items=True)) == expected


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.csv.zst", "a.csv"])
def test_a_file_that_is_cut_off_or_no_such_file_has_what_can_be_read(tmp_path: Path, shop: Shop, name: str) -> None:
    path = tmp_path / name
    exported(shop, str(path), Items(shop.folder))
    path.write_bytes(path.read_bytes()[:-9])
    found = compare([shop.folder], target(path), items=True)
    assert found.missing + found.extra > 0
    path.write_bytes(b"\xff\xfe nothing of the kind \x00")
    assert compare([shop.folder], target(path), items=True).missing == 10


def test_rows_that_a_table_lacks_are_counted(tmp_path: Path, shop: Shop) -> None:
    path = tmp_path / "a.sqlite"
    exported(shop, str(path), Items(shop.folder))
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("DELETE FROM items WHERE n IN (2, 5, 6)")
        base.execute("INSERT INTO items (_fingerprint, _visit, _number) VALUES (1, 1, 0), (2, 1, 0)")
    assert numbers(compare([shop.folder], target(path), items=True)) == (7, 10, 3, 0)
    with pytest.raises(UsageError, match="table pages does not exist in"):
        compare([shop.folder], target(path), items=False)


def test_rows_that_postgresql_lacks_are_counted(postgres: PostgresServer, shop: Shop) -> None:
    database = postgres.new_database()
    url = postgres.url(database)
    with pytest.raises(UsageError, match="table items does not exist at"):
        compare([shop.folder], target(url), items=True)
    exported(shop, url, Items(shop.folder))
    assert numbers(compare([shop.folder], target(url), items=True)) == (10, 10, 0, 0)
    postgres.psql(database, "DELETE FROM items WHERE n = 2")
    assert numbers(compare([shop.folder], target(url), items=True)) == (9, 10, 1, 0)


def test_what_a_target_has_is_known_by_who_keeps_it_up_to_date(tmp_path: Path, shop: Shop) -> None:
    path = tmp_path / "a.jsonl"
    with running(shop.follower(target(path))):
        pass
    found = compare([shop.folder], target(path), items=False)
    assert (found.what, *numbers(found)) == ("items", 10, 10, 0, 0)


def test_several_folders_are_one_crawl_unless_one_alone_writes_the_file(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    one, other = Crawl(tmp_path / "one"), Crawl(tmp_path / "other")
    one.add(5)
    other.urls = ["", ""]
    other.add(6)
    for crawl in (one, other):
        crawl.index.close()
    folders = [one.folder, other.folder]
    export(one.folder, targets_of([str(tmp_path / "all.sqlite")]), Pages(one.folder))
    assert numbers(compare(folders, target(tmp_path / "all.sqlite"), items=False)) == (5, 8, 3, 0)
    with running(one.follower(tmp_path / "one.jsonl")):
        pass
    assert numbers(compare(folders, target(tmp_path / "one.jsonl"), items=False)) == (5, 5, 0, 0)


def test_what_can_not_be_compared_is_one_line(tmp_path: Path, shop: Shop) -> None:
    with pytest.raises(UsageError, match=r"file .*none\.jsonl"):
        compare([shop.folder], target(tmp_path / "none.jsonl"), items=False)
    (tmp_path / "a.parquet").write_bytes(b"nothing of the kind" * 10)
    with pytest.raises(UsageError, match=r"a\.parquet can't be read as Parquet"):
        compare([shop.folder], target(tmp_path / "a.parquet"), items=False)
    (tmp_path / "a.sqlite").write_bytes(b"nothing of the kind" * 100)
    with pytest.raises(UsageError, match=r"a\.sqlite is not an SQLite file"):
        compare([shop.folder], target(tmp_path / "a.sqlite"), items=False)
    with pytest.raises(UsageError, match="standard output can't be read back"):
        compare([shop.folder], target("-"), items=False)
