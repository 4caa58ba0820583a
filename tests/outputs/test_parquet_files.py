import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from crawler.errors import UsageError
from crawler.outputs.columns import ColumnType
from crawler.outputs.opening import open_whole
from tests.outputs.samples import AWKWARD, ITEMS, rows, shape, target


@pytest.fixture(autouse=True, scope="module")
def _pyarrow() -> None:
    pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")  # 30 MB, in the workers that use it


def written(path: Path, batches: list[list[dict[str, Any]]], **columns: ColumnType) -> Any:
    sink = open_whole(target(path), shape(**columns))
    for number, batch in enumerate(batches):
        sink.write(rows(batch, number * 100))
    sink.commit()
    sink.close()
    return pytest.importorskip("pyarrow.parquet").read_table(path)


def test_values_come_back_with_their_types(tmp_path: Path) -> None:
    table = written(tmp_path / "items.parquet", [AWKWARD])
    assert table.to_pylist() == AWKWARD
    assert {f.name: str(f.type) for f in table.schema} == {
        "url": "string", "title": "string", "price": "double", "stock": "int64", "new": "bool"
    }  # fmt: skip
    assert [p.name for p in tmp_path.iterdir()] == ["items.parquet"]


@pytest.mark.parametrize(
    ("values", "type_name", "found"),
    [
        ([1, 2.5], "double", [1.0, 2.5]),
        ([None, 3], "int64", [None, 3]),
        ([1, "x"], "string", ["1", "x"]),
        ([True, 2], "string", ["true", "2"]),
        ([2.0, [1, {"a": "ü"}]], "string", ["2.0", '[1,{"a":"ü"}]']),
        ([(1 << 53) + 1, 0.5], "string", ["9007199254740993", "0.5"]),
        ([0.5, (1 << 53) + 1], "string", ["0.5", "9007199254740993"]),
        ([1 << 64], "string", ["18446744073709551616"]),
        ([None, None], "string", [None, None]),
    ],
)
@pytest.mark.parametrize("group_rows", [1, 100])
def test_columns_widen_to_what_holds_all_values_exactly_whenever_they_come(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    group_rows: int,
    values: list[Any],
    type_name: str,
    found: list[Any],
) -> None:
    monkeypatch.setattr("crawler.outputs.parquet.GROUP_ROWS", group_rows)
    table = written(tmp_path / "items.parquet", [[{"v": value, "n": n}] for n, value in enumerate(values)])
    assert str(table.schema.field("v").type) == type_name
    assert table["v"].to_pylist() == found
    assert table["n"].to_pylist() == list(range(len(values)))


def test_times_are_times_and_an_empty_crawl_is_a_file_with_columns(tmp_path: Path) -> None:
    table = written(tmp_path / "a.parquet", [[{"at": "2024-05-01T12:00:00.250Z"}, {"at": None}]], at=ColumnType.TIME)
    assert table["at"].to_pylist() == [datetime(2024, 5, 1, 12, 0, 0, 250_000, UTC), None]
    empty = written(tmp_path / "b.parquet", [], at=ColumnType.TIME, url=ColumnType.TEXT)
    assert (empty.num_rows, empty.column_names) == (0, ["at", "url"])
    nothing_known = written(tmp_path / "c.parquet", [])
    assert (nothing_known.num_rows, nothing_known.column_names) == (0, ["_"]), (
        "some programs refuse one without columns"
    )


def test_a_time_survives_a_draft_that_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crawler.outputs.parquet.GROUP_ROWS", 1)
    at = {"at": "2024-05-01T12:00:00.250Z"}
    table = written(tmp_path / "a.parquet", [[at], [at | {"late": 1}]], at=ColumnType.TIME)
    assert table["at"].to_pylist() == [datetime(2024, 5, 1, 12, 0, 0, 250_000, UTC)] * 2
    assert table["late"].to_pylist() == [None, 1]


def test_without_a_commit_the_old_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crawler.outputs.parquet.GROUP_ROWS", 1)
    path = tmp_path / "items.parquet"
    path.write_bytes(b"old")
    sink = open_whole(target(path), ITEMS)
    sink.write(rows(AWKWARD))
    sink.close()
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["items.parquet"]


def test_without_pyarrow_one_line_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"Parquet needs pyarrow: .* install .*parquet"):
        open_whole(target(tmp_path / "items.parquet"), ITEMS)
    assert list(tmp_path.iterdir()) == []
