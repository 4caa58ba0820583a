"""A spreadsheet must not run what a site wrote: text cells of CSV never begin as a formula does."""

import csv
from pathlib import Path

import pytest

from crawler.outputs.lines import CsvLines
from crawler.outputs.opening import open_growing, open_whole, targets_of
from crawler.outputs.records import ITEMS
from crawler.outputs.sink import Key, Row

FORMULAS = [
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "  =1",
    "\xa0=1",
    "\ufeff=1",
    "＝1",
    "＋1",
    "－1",
    "＠1",
]


def rows_of(data: bytes) -> list[list[str]]:
    return list(csv.reader(data.decode().splitlines(keepends=True)))


@pytest.mark.parametrize("text", FORMULAS)
def test_text_that_begins_as_a_formula_gets_an_apostrophe(text: str) -> None:
    lines = CsvLines(["a"])
    assert lines.encode([{"a": text}]).decode().lstrip('"').startswith("'")


@pytest.mark.parametrize("value", ["plain", "a=b", "", "https://a.test/", -1, -2.5, None, True, ["-1"], {"=": 1}])
def test_numbers_and_other_text_stay(value: object) -> None:
    assert CsvLines(["a"]).encode([{"a": value}]) == CsvLines(["a"], safe=False).encode([{"a": value}])


def test_without_safety_text_stays_as_it_is() -> None:
    assert CsvLines(["a"], safe=False).encode([{"a": "=1"}]) == b"=1\n"


def row(number: int, **record: object) -> Row:
    return Row(Key(number, 0, 0), record)


@pytest.mark.parametrize("opened", [open_whole, lambda target, shape: open_growing(target, shape, None)])
def test_headers_are_safe_and_known_again_when_columns_are_added(tmp_path: Path, opened) -> None:
    (target,) = targets_of([str(tmp_path / "items.csv")])
    sink = opened(target, ITEMS)
    sink.write([row(1, **{"=evil": "=1"})])
    mark = sink.commit()
    sink.close()
    if mark is not None:  # a growing file goes on: no second column of the same field
        sink = open_growing(target, ITEMS, mark)
        sink.write([row(2, **{"=evil": "=2"}), row(3, b="@3")])
        sink.commit()
        sink.close()
    header, *rows = rows_of((tmp_path / "items.csv").read_bytes())
    assert header.count("'=evil") == 1
    assert "=evil" not in header
    assert all(cell[:1] != "=" for line in rows for cell in line)


def test_no_csv_safe_reaches_the_file(tmp_path: Path) -> None:
    (target,) = targets_of([str(tmp_path / "items.csv")], csv_safe=False)
    sink = open_whole(target, ITEMS)
    sink.write([row(1, a="=1")])
    sink.write([row(2, a="=1", b="@2")])  # with another column: written anew
    sink.commit()
    text = (tmp_path / "items.csv").read_text()
    assert "'" not in text
    assert "=1" in text
