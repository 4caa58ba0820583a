"""Items of all shapes, written by outputs whose process is killed, and readers that share no code with the writers."""

import gzip
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import zstandard
from hypothesis import strategies as st

from crawler.archive.folder import CrawlFolder
from crawler.archive.index_writer import IndexWriter
from crawler.archive.items import ItemWriter
from crawler.handlers.item_encoding import InvalidItemError, pack
from crawler.outputs import files
from crawler.outputs.cursor import Cursor
from crawler.outputs.follow import Follower
from crawler.outputs.postgres import PostgresSink
from crawler.outputs.records import Items
from crawler.outputs.sqlite import SqliteSink
from crawler.outputs.target import Target
from tests.archive.archive_samples import entry, folder_in

Item = dict[str, Any]
KEYS = {"_fingerprint", "_visit", "_number"}

# --- items ---

_TEXT = st.text(max_size=6) | st.text(st.characters(exclude_categories=()), max_size=4) | st.sampled_from(
    ["a\0b", "\r", "\n", "\r\n", '"', '""', ",", "'", "=1+1", "\ufeff", "\u2028", "NULL", "\\N", "\\.", "1", "true",
     "é" * 70_000]
)  # fmt: skip
_WHOLE = st.integers() | st.sampled_from([0, 1, -1, (1 << 53) + 1, -(1 << 63), (1 << 63) - 1, 1 << 63, 10**25])
_FLOAT = st.floats(allow_nan=False, allow_infinity=False, width=32) | st.sampled_from([0.1, -0.0, 1e-300])
_PLAIN = st.none() | st.booleans() | _WHOLE | _FLOAT | _TEXT
_INNER = (
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.sampled_from([0.5, 1e-7]) | st.text(max_size=3)
)
_NESTED = st.recursive(
    st.lists(_INNER, max_size=3), lambda inner: st.dictionaries(st.text("ab\n\"'", max_size=2), inner, max_size=2)
)
_NAMES = st.sampled_from(
    ["url", "title", "price", "Price", "PRICE", "price_", "", "_", "a\0", "a", "\0", "_visit", "_visit_", "xmin",
     "xmin_", "ctid", "rowid", "oid", "a,b", 'a"b', "a\nb", "=a", "'=a", "select", "%s", "{}", "n" * 70, "n" * 71,
     "Größe", "links"]
) | st.text(max_size=3)  # fmt: skip
_ITEM = st.dictionaries(_NAMES, _PLAIN | _NESTED, max_size=5)
_DEEP = st.integers(1, 200).map(lambda levels: {"deep": json.loads("[" * levels + "]" * levels)})
PAGES = st.lists(st.lists(_ITEM | _DEEP, max_size=4), max_size=6)
ROUNDS = st.lists(st.tuples(PAGES, st.integers(0, 40)), min_size=1, max_size=3)  # what comes, and when a kill does


class Shop:
    """A crawl folder that gets pages with items."""

    def __init__(self, place: Path) -> None:
        self.folder: CrawlFolder = folder_in(place)
        self.items, self.index = ItemWriter(self.folder, "aa11"), IndexWriter(self.folder, "aa11", lines_max=7)
        self.wanted: list[Item] = []
        self._pages = 0

    def add(self, pages: Sequence[Sequence[Item]]) -> None:
        for page in pages:
            taken = []
            for item in page:
                try:
                    taken.append(pack(item))
                except InvalidItemError:
                    continue
            self.wanted += map(json.loads, taken)
            self.index.add(entry(self._pages, items=self.items.add(taken)))
            self._pages += 1
        self.items.sync()
        self.index.sync()

    def close(self) -> None:
        self.items.close()
        self.index.close()

    def follower(self, target: Target) -> Follower:
        return Follower(self.folder, target, Items(self.folder), warn=lambda line: None)


# --- kills ---

POINTS: list[tuple[Any, str]] = [
    (files, "fill"), (files, "take_place"), (files, "rewritten"), (Cursor, "begin"), (Cursor, "commit"),
    (Cursor, "reset"), (Cursor, "set_closed"), (SqliteSink, "write"), (SqliteSink, "commit"), (PostgresSink, "write"),
    (PostgresSink, "commit"),
]  # fmt: skip


def killed_after(points: int, work: Callable[[], None]) -> int:
    """Do it in a process that dies as kill -9 does, without a word, before or after one of its steps, or in the middle
    of a write. Its exit code: 9, or 0 when it was done before.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        left = [points]
        for owner, name in POINTS:
            setattr(owner, name, _deadly(getattr(owner, name), left, halves=name == "fill"))
        work()
        os._exit(0)
    except BaseException:  # noqa: BLE001 - the fork must not go on as pytest
        import traceback

        traceback.print_exc()
        os._exit(70)


def _deadly(real: Callable[..., Any], left: list[int], *, halves: bool) -> Callable[..., Any]:
    def step() -> None:
        left[0] -= 1
        if left[0] < 0:
            os._exit(9)

    def deadly(*arguments: Any, **named: Any) -> Any:
        step()
        if halves and left[0] == 0:
            lines, records, file, how, _ = arguments
            data = lines.encode(records)
            file.seek(0, os.SEEK_END)
            file.write(files.packed(data, how)[: len(data) // 2])
            file.flush()
            os._exit(9)
        found = real(*arguments, **named)
        step()
        return found

    return deadly


# --- readers ---


def unpacked(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(data) if data else b""
    if path.suffix == ".zst":
        return zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()
    return data


def csv_rows(text: str) -> list[list[str]]:
    """By the grammar of RFC 4180, a character at a time; lines end with LF here."""
    rows: list[list[str]] = []
    row: list[str] = []
    cell: list[str] = []
    is_quoted = was_quoted = False
    place, end = 0, len(text)
    while place < end:
        sign = text[place]
        if is_quoted:
            if sign != '"':
                stop = text.find('"', place)
                cell.append(text[place:stop])
                place = stop
                continue
            if text[place + 1 : place + 2] == '"':
                cell.append('"')
                place += 1
            else:
                is_quoted = False
        elif sign == '"' and not cell:
            is_quoted = was_quoted = True
        elif sign == ",":
            row.append("".join(cell))
            cell, was_quoted = [], False
        elif sign == "\n":
            if row or cell or was_quoted:
                row.append("".join(cell))
            rows.append(row)
            row, cell, was_quoted = [], [], False
        else:
            cell.append(sign)
        place += 1
    assert not row, "the last line has no end"
    assert not cell
    return rows


def json_found(path: Path) -> Counter[str]:
    return Counter(exact(json.loads(line)) for line in unpacked(path).split(b"\n")[:-1])


def csv_found(path: Path) -> Counter[str]:
    names, *rows = csv_rows(unpacked(path).decode()) or [[]]
    assert len(set(names)) == len(names)
    assert all(len(row) == len(names) for row in rows)
    return Counter(exact({n: unnested(c) for n, c in zip(names, row, strict=True) if c}) for row in rows)


def csv_wanted(items: Sequence[Item]) -> Counter[str]:
    cells = [{name: csv_cell(name, value) for name, value in item.items()} for item in items]
    return Counter(exact({name: unnested(cell) for name, cell in record.items() if cell}) for record in cells)


def unnested(cell: str) -> Any:
    """JSON has more than one way to write a number."""
    try:
        return json.loads(cell) if cell[0] in "[{" else cell
    except ValueError:
        return cell


def csv_cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == "links" and isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return str(value)


def sqlite_found(path: Path) -> Counter[str]:
    with closing(sqlite3.connect(path)) as base:
        rows = base.execute("SELECT * FROM items")
        names = [column[0] for column in rows.description]
        return values_found(names, rows.fetchall())


def parquet_found(path: Path) -> Counter[str]:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    columns = [column.to_pylist() for column in table.columns]
    if not columns:
        return Counter({exact([]): table.num_rows} if table.num_rows else {})
    return values_found(["" for _ in columns], list(zip(*columns, strict=True)))


def postgres_found(url: str, table: str) -> Counter[str]:
    import psycopg

    with psycopg.connect(url) as base:
        rows = base.execute(f"SELECT * FROM {table}".encode())
        assert rows.description is not None
        return values_found([column.name for column in rows.description], rows.fetchall())


def values_found(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Counter[str]:
    """The values of each row: in a table, odd names are changed, so they are not compared."""
    places = [place for place, name in enumerate(names) if name not in KEYS]
    return Counter(values_of([row[place] for place in places]) for row in rows)


def values_wanted(items: Sequence[Item], *, nul: str = "\0") -> Counter[str]:
    return Counter(values_of(list(item.values()), nul) for item in items)


def values_of(values: Sequence[Any], nul: str = "\0") -> str:
    texts = (exact(as_value(value)) for value in values if value is not None)
    return exact(sorted(text.replace("\\u0000", json.dumps(nul)[1:-1]) for text in texts))


def as_value(value: Any) -> Any:
    """Equal for what a column may make of one value: text of a number is the number, true is 1."""
    if isinstance(value, str):
        try:
            found = json.loads(value, parse_constant=_refuse)
        except ValueError:
            return value
        return value if isinstance(found, str) or found is None else as_value(found)
    if isinstance(value, (bool, int, float)):
        number = float(value) if abs(value) < 1 << 53 else value
        return int(number) if number == int(number) else number
    return value


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def exact(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
