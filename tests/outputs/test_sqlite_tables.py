import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from crawler.errors import UsageError
from crawler.outputs.column_names import KEY_COLUMNS
from crawler.outputs.columns import ColumnType
from crawler.outputs.opening import check_target, open_growing, open_whole
from crawler.outputs.sink import Key, OutputAway, Row
from tests.outputs.samples import AWKWARD, ITEMS, rows, shape, target


def read(path: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as base:
        return base.execute(statement).fetchall()


def test_values_come_back_as_they_went(tmp_path: Path) -> None:
    path = tmp_path / "items.sqlite"
    sink = open_whole(target(path), ITEMS)
    sink.write(rows([*AWKWARD, {"zip": "01234", "nested": [1, {"a": None}], "big": 1 << 70}]))
    sink.commit()
    sink.close()
    found = read(path, "SELECT url, title, price, stock, new FROM items WHERE url NOT NULL ORDER BY _fingerprint")
    assert found == [tuple(one.values()) for one in AWKWARD]
    assert read(path, "SELECT zip, nested, big FROM items WHERE zip NOT NULL") == [
        ("01234", '[1,{"a":null}]', "1180591620717411303424")
    ]


def test_a_record_that_comes_twice_is_there_once(tmp_path: Path) -> None:
    path = tmp_path / "items.db"
    for _ in range(3):
        sink = open_growing(target(path), ITEMS, None)
        sink.write(rows(AWKWARD))
        sink.commit()
        sink.close()
    assert read(path, "SELECT count(*) FROM items") == [(len(AWKWARD),)]


def test_what_comes_again_renews_its_own_columns_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "items.sqlite"
    for record in ({"a": 1, "text": "long"}, {"a": 2}):
        sink = open_whole(target(path), ITEMS)
        sink.write(rows([record]))
        sink.commit()
        sink.close()
    assert read(path, "SELECT a, text FROM items") == [(2, "long")]


def test_columns_are_added_as_they_appear_and_names_that_sqlite_folds_are_kept_apart(tmp_path: Path) -> None:
    path = tmp_path / "items.sqlite"
    sink = open_growing(target(path), ITEMS, None)
    for number, record in enumerate(
        [{"Price": 1}, {"price": 2, 'a"b': 3}, {"PRICE": 4, "_visit": "mine"}, {"Price": 5}]
    ):
        sink.write(rows([record], number))
        sink.commit()
    sink.close()
    names = [row[1] for row in read(path, "PRAGMA table_info(items)")]
    assert names == [*KEY_COLUMNS, "Price", "price_", 'a"b', "PRICE__", "_visit_"]
    assert read(path, "SELECT Price, price_, PRICE__ FROM items ORDER BY _fingerprint") == [
        (1, None, None), (None, 2, None), (None, None, 4), (5, None, None)
    ]  # fmt: skip


def test_declared_columns_are_there_with_their_types_before_the_first_record(tmp_path: Path) -> None:
    path = tmp_path / "pages.sqlite"
    sink = open_whole(target(f"{path}?table=my_pages"), shape(url=ColumnType.TEXT, status=ColumnType.INT))
    sink.commit()
    sink.close()
    found = [(row[1], row[2]) for row in read(path, "PRAGMA table_info(my_pages)")]
    assert found == [*((name, "INTEGER") for name in KEY_COLUMNS), ("url", "TEXT"), ("status", "INTEGER")]


def test_without_a_commit_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "items.sqlite"
    sink = open_whole(target(path), ITEMS)
    sink.write(rows(AWKWARD))
    sink.close()
    assert not path.exists()
    sink = open_growing(target(path), ITEMS, None)
    sink.write(rows(AWKWARD))
    sink.commit()
    sink.write(rows([{"n": 1}], 100))
    sink.close()
    assert read(path, "SELECT count(*) FROM items") == [(len(AWKWARD),)]


def test_a_look_at_a_target_writes_no_record_and_makes_no_file(tmp_path: Path) -> None:
    check_target(target(tmp_path / "items.sqlite"), ITEMS)
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_kind_and_a_table_of_somebody_else_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "notes.db"
    other.write_bytes(b"these are notes, and no database" * 100)
    with pytest.raises(UsageError, match=r"notes\.db is not an SQLite file"):
        open_growing(target(other), ITEMS, None)
    assert other.read_bytes().startswith(b"these are notes")
    path = tmp_path / "base.sqlite"
    with closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE items (id INTEGER)")
        base.execute("CREATE TABLE keyless (_fingerprint, _visit, _number)")
    with pytest.raises(UsageError, match=r"is not a results table: it has no columns _fingerprint, _visit"):
        open_growing(target(path), ITEMS, None)
    with pytest.raises(UsageError, match="is not a unique key"):
        open_growing(target(f"{path}?table=keyless"), ITEMS, None)
    open_growing(target(f"{path}?table=other"), ITEMS, None).close()
    assert path.exists()


def test_a_file_that_another_program_locks_is_away_for_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crawler.outputs.sqlite.BUSY_S", 0.05)
    path = tmp_path / "items.sqlite"
    sink = open_growing(target(path), ITEMS, None)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(OutputAway, match="database is locked"):
            sink.write(rows(AWKWARD))
    sink.close()


def test_records_of_one_page_differ_by_their_number(tmp_path: Path) -> None:
    path = tmp_path / "items.sqlite"
    sink = open_growing(target(path), ITEMS, None)
    sink.write([Row(Key(7, visit, number), {"n": number}) for visit in (1, 2) for number in range(3)])
    sink.commit()
    sink.close()
    assert read(path, "SELECT count(*) FROM items") == [(6,)]
