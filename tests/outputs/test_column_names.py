"""Fields and their columns: never two fields in one column, and the same column whoever opens the table next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.outputs.column_names import KEY_COLUMNS, ColumnNames

RESERVED = ("xmin", "ctid")
ODD = [
    "", "_", "__", "\0", "b", "b\0", "\0b", "B", "b_", "B_", "b__", "Price", "price", "PRICE", "price_", "PRICE_",
    "PRICE__", "price__", "xmin", "xmin_", "xmin__", "XMIN", "_visit", "_visit_", "_visit__", "_VISIT", "x" * 80,
    "x" * 79 + "y", "X" * 80, "Größe", "größe", "GRÖSSE", "ß", "SS",
]  # fmt: skip


@pytest.mark.parametrize("folds", [False, True])
@given(fields=st.lists(st.sampled_from(ODD) | st.text(max_size=4), unique=True), cuts=st.sets(st.integers(0, 40)))
def test_no_two_fields_have_one_column_and_later_writers_find_the_same(
    folds: bool, fields: list[str], cuts: set[int]
) -> None:
    def opened(columns: list[str]) -> ColumnNames:
        return ColumnNames(columns, folds=folds, bytes_max=63, reserved=RESERVED)

    table = list(KEY_COLUMNS)
    names = opened(table)
    found: dict[str, str] = {}
    for number, field in enumerate(fields):
        if number in cuts:  # another process goes on
            names = opened(table)
        column = found[field] = names.column(field)
        if column not in table:
            table.append(column)
        assert names.column(field) == column
    assert len(set(found.values())) == len(fields)
    assert len({name.lower() if folds else name for name in found.values()}) == len(fields)
    assert not set(found.values()) & {*KEY_COLUMNS, *RESERVED, ""}
    assert all("\0" not in name and len(name.encode()) <= 63 for name in found.values())
    again = opened(table)
    assert {field: again.column(field) for field in reversed(fields)} == found


def test_names_that_need_no_change_have_none() -> None:
    names = ColumnNames(KEY_COLUMNS, folds=True, bytes_max=63, reserved=RESERVED)
    plain = ["url", "class_", "a b", 'a"b', "_", "select", "50%", "Größe"]
    assert [names.column(name) for name in plain] == plain
    assert names.renamed == {}
    assert names.column("xmin") == "xmin_"
    assert names.renamed == {"xmin": "xmin_"}
