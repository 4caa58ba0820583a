"""Every row of docs/internals/hostile-web.md has a test, and every test a row."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COUNTS = {
    "H": 24, "R": 7, "K": 2, "L": 6, "S": 4, "P": 5, "C": 2, "M": 18, "U": 12, "B": 16, "X": 9, "D": 9, "T": 11, "W": 3,
}  # fmt: skip
_LINE = re.compile(r"^\| ([A-Z]\d\d) \|.*\| `([^`|]+)` \|$", re.MULTILINE)
_NAME = re.compile(r"[A-Z]\d\d\b")
TABLE = dict(_LINE.findall((ROOT / "docs" / "internals" / "hostile-web.md").read_text("utf-8")))
FILES = sorted(Path(__file__).parent.glob("test_rows_*.py"))


def names_in(file: Path) -> set[str]:
    """Ids of rows in the keys and names of a module's tables, as they are written there."""
    strings = {node.value for node in ast.walk(ast.parse(file.read_text("utf-8")))
               if isinstance(node, ast.Constant) and isinstance(node.value, str)}  # fmt: skip
    return {found[0] for text in strings if (found := _NAME.match(text)) and " of " not in text[:7]}


def test_the_table_has_every_row_once() -> None:
    assert list(TABLE) == [f"{letter}{n:02}" for letter, count in COUNTS.items() for n in range(1, count + 1)]


@pytest.mark.parametrize("row", TABLE)
def test_each_row_has_a_test(row: str) -> None:
    file, _, name = TABLE[row].partition("::")
    assert (ROOT / file).exists()
    if name:
        assert f"def {name}(" in (ROOT / file).read_text("utf-8")
    else:
        assert row in names_in(ROOT / file)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_test_has_a_row(file: Path) -> None:
    assert names_in(file) <= set(TABLE)
