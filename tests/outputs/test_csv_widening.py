"""CSV files whose columns come late: no row is dropped, whatever it holds."""

import csv
import io
from pathlib import Path

import pytest

from crawler.errors import OutputError
from crawler.outputs.files import StreamSink
from crawler.outputs.lines import CsvLines
from crawler.outputs.opening import open_growing, open_whole
from tests.outputs.samples import ITEMS, rows, target
from tests.outputs.test_line_files import UNPACK


def cells_of(path: Path) -> list[list[str]]:
    packing = path.suffix if path.suffix in UNPACK else ""
    return list(csv.reader(io.StringIO(UNPACK[packing](path.read_bytes()).decode(), newline="")))


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".csv.zst"])
@pytest.mark.parametrize("grows", [False, True])
def test_no_row_is_dropped_when_columns_come_late(tmp_path: Path, suffix: str, grows: bool) -> None:
    path = tmp_path / f"items{suffix}"
    sink = open_growing(target(path), ITEMS, None) if grows else open_whole(target(path), ITEMS)
    for start in range(0, 10_000, 1000):
        sink.write(rows([{"n": n, f"late{start}": 1} for n in range(start, start + 1000)], start))
        if grows:
            sink.commit()
    if not grows:
        sink.commit()
    sink.close()
    header, *found = cells_of(path)
    assert len(header) == 11
    assert [row[0] for row in found] == [str(n) for n in range(10_000)]


@pytest.mark.parametrize("grows", [False, True])
def test_a_field_larger_than_the_csv_modules_limit_is_kept(tmp_path: Path, grows: bool) -> None:
    path, text = tmp_path / "items.csv", "x" * 300_000
    sink = open_growing(target(path), ITEMS, None) if grows else open_whole(target(path), ITEMS)
    sink.write(rows([{"a": text}]))
    mark = sink.commit() if grows else None
    sink.write(rows([{"b": text + "\n" + text}], 1))
    mark = sink.commit() or mark
    sink.close()
    if grows:
        open_growing(target(path), ITEMS, mark).close()
    assert cells_of(path) == [["a", "b"], [text, ""], ["", text + "\n" + text]]


def test_a_header_larger_than_the_csv_modules_limit_is_read_back(tmp_path: Path) -> None:
    path, name = tmp_path / "items.csv", "n" * 200_000
    sink = open_growing(target(path), ITEMS, None)
    sink.write(rows([{name: 1}]))
    mark = sink.commit()
    sink.close()
    sink = open_growing(target(path), ITEMS, mark)
    sink.write(rows([{name: 2}], 1))
    sink.commit()
    sink.close()
    assert cells_of(path) == [[name], ["1"], ["2"]]


@pytest.mark.parametrize("grows", [False, True])
def test_items_without_fields_are_rows_too(tmp_path: Path, grows: bool) -> None:
    path = tmp_path / "items.csv"
    sink = open_growing(target(path), ITEMS, None) if grows else open_whole(target(path), ITEMS)
    for number, record in enumerate([{}, {}, {"a": 1}, {}, {"b": 2}, {}]):
        sink.write(rows([record], number))
        if grows:
            sink.commit()
    if not grows:
        sink.commit()
    sink.close()
    assert cells_of(path) == [["a", "b"], ["", ""], ["", ""], ["1", ""], ["", ""], ["", "2"], ["", ""]]


def test_a_file_of_items_without_fields_has_a_line_for_each_after_an_empty_header(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    sink = open_whole(target(path), ITEMS)
    sink.write(rows([{}, {}]))
    sink.commit()
    sink.close()
    assert path.read_bytes() == b"\n\n\n"


def test_a_stream_of_csv_refuses_a_field_that_its_header_does_not_have() -> None:
    out = io.BytesIO()
    sink = StreamSink(target("-"), CsvLines(), out)
    sink.write(rows([{"a": 1}]))
    with pytest.raises(OutputError, match=r"field 'late' came after the header of .* was written; name a file, or"):
        sink.write(rows([{"a": 2, "late": 3}], 1))


@pytest.mark.parametrize("names", [["=a", "'=a", "''=a"], ["''=a", "=a", "'=a"], ["'b", "b", "'"]])
def test_headers_like_formulas_stay_distinct_when_the_file_is_opened_again(tmp_path: Path, names: list[str]) -> None:
    path, mark = tmp_path / "items.csv", None
    for number in range(3):
        sink = open_growing(target(path), ITEMS, mark)
        sink.write(rows([{name: f"{number}{place}" for place, name in enumerate(names)}], number))
        mark = sink.commit()
        sink.close()
    header, *found = cells_of(path)
    assert len(header) == len(set(header)) == 3
    assert found == [["00", "01", "02"], ["10", "11", "12"], ["20", "21", "22"]]
