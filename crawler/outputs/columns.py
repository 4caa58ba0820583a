"""What a table needs to know of records that have no schema: which columns there are, and of what kind.

A column is as narrow as all its values allow. Where they disagree, whole numbers become floating ones, and all else
becomes text; what is nested is JSON. Pure; must not know any kind of table.
"""

import enum
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from crawler.errors import OutputError
from crawler.outputs.sink import COLUMNS_MAX, Record

INT_MIN, INT_MAX = -(1 << 63), (1 << 63) - 1
EXACT_MAX = 1 << 53  # whole numbers up to here are themselves as floating ones
_json = msgspec.json.Encoder().encode


class ColumnType(enum.Enum):
    """Kinds of values. A time is text that is known to be one (ISO 8601, UTC): only declared, never guessed."""

    BOOL = "bool"
    INT = "int"  # of 64 bits
    FLOAT = "float"
    TEXT = "text"
    JSON = "json"
    TIME = "time"


def kind_of(value: Any) -> ColumnType | None:
    """The narrowest kind of one value; None for null."""
    if value is None:
        return None
    if isinstance(value, bool):
        return ColumnType.BOOL
    if isinstance(value, int):
        return ColumnType.INT if INT_MIN <= value <= INT_MAX else ColumnType.TEXT
    if isinstance(value, float):
        return ColumnType.FLOAT
    return ColumnType.TEXT if isinstance(value, str) else ColumnType.JSON


def joined(one: ColumnType, other: ColumnType) -> ColumnType:
    """The kind of a column that has values of both."""
    if one is other:
        return one
    return ColumnType.FLOAT if {one, other} == {ColumnType.INT, ColumnType.FLOAT} else ColumnType.TEXT


def as_kind(value: Any, kind: ColumnType) -> Any:
    """A value as a column of this kind has it; `kind` is that of the value or joined with it."""
    if value is None:
        return None
    if kind is ColumnType.JSON:
        return _json(value).decode()
    if kind is ColumnType.FLOAT:
        return float(value)
    if kind in (ColumnType.TEXT, ColumnType.TIME):
        return value if isinstance(value, str) else _json(value).decode()
    return value


def grown(known: Mapping[str, ColumnType | None], records: Iterable[Record]) -> dict[str, ColumnType | None]:
    """The columns that it takes to hold these records too, in order of appearance; None: no value so far.

    Raises OutputError when they are too many.
    """
    columns = dict(known)
    for record in records:
        for name, value in record.items():
            before, kind = columns.get(name), kind_of(value)
            if before is None:
                columns[name] = kind
            elif kind is not None and kind is not before and before is not ColumnType.TIME:
                columns[name] = joined(before, kind)
    check_count(columns)
    return columns


def is_inexact(value: Any) -> bool:
    """Is this a whole number that no floating one equals, as far as its size tells?"""
    return isinstance(value, int) and abs(value) > EXACT_MAX


def check_count(columns: Iterable[str]) -> None:
    """Raises OutputError for more columns than a table can have."""
    if len(list(columns)) > COLUMNS_MAX:
        raise OutputError(f"the records have more than {COLUMNS_MAX:,} different fields: write them as .jsonl")
