"""Rows and targets that the tests of outputs share."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from crawler.outputs.columns import ColumnType
from crawler.outputs.records import Shape
from crawler.outputs.sink import Key, Row
from crawler.outputs.target import Target, target_of

ITEMS = Shape(name="items", columns={})


def shape(**columns: ColumnType) -> Shape:
    return Shape(name="items", columns=columns)


def rows(records: Iterable[Mapping[str, Any]], first: int = 0) -> list[Row]:
    """A row for each record, with keys that no other has."""
    return [Row(Key(number - (1 << 62), 1, 0), dict(record)) for number, record in enumerate(records, first)]


def target(path: Path | str) -> Target:
    return target_of(str(path))


def json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


# What a crawl meets: words of all scripts, what formats take for their own signs, and numbers at their ends.
AWKWARD: list[dict[str, Any]] = [
    {"url": "http://a.test/", "title": 'a "quoted", title;\nof\r\ntwo lines', "price": 19.99, "stock": 3, "new": True},
    {"url": "http://b.test/", "title": "Grüße, 你好 \U0001f600", "price": None, "stock": None, "new": False},
    {"url": "http://c.test/", "title": "\\N \\. \t ' -- \\", "price": -0.0, "stock": -(1 << 63), "new": None},
    {"url": "http://d.test/", "title": "", "price": 2.2250738585072014e-308, "stock": (1 << 63) - 1, "new": None},
]
