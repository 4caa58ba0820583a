"""What tables in databases have in common: the columns of a record's key, and how fields become names of columns."""

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence

from crawler.outputs.sink import Key, Row, Wanted

KEY_COLUMNS = ("_fingerprint", "_visit", "_number")  # with these in it a table can't have a record twice


_MARK_CHARS = 8


PULSE_ROWS = 10_000


class ColumnNames:
    """The columns of a table, and which field each one is of. Two fields never have one column.

    The names of the columns, in their order, tell what a later writer of the same table needs: it comes to the same
    column for each field. `folds`: "Price" and "price" would be one column; the second gets an underscore.
    `reserved`: names that the database has for itself. Names longer than `bytes_max` are cut.
    """

    def __init__(
        self, names: Iterable[str], *, folds: bool = False, bytes_max: int, reserved: Collection[str] = ()
    ) -> None:
        self._folds, self._bytes_max = folds, bytes_max
        self._reserved = frozenset((*KEY_COLUMNS, *reserved))
        self._columns: dict[str, str] = {}  # by field
        self._fields: dict[str, str | None] = {}  # by column, in the order of the table; None: not known
        self._lower: set[str] = set()
        for name in names:
            is_known = name not in KEY_COLUMNS and not _is_marked(name)
            self._take(self._field_of(name) if is_known else None, name)

    def column(self, field: str) -> str:
        """The column of a field; one that is new counts as there from now on."""
        found = self._columns.get(field)
        if found is None:
            found = self._free(field)
            self._take(field, found)
        return found

    @property
    def renamed(self) -> dict[str, str]:
        """Fields whose columns have other names, of those that were met."""
        return {field: column for field, column in self._columns.items() if field != column}

    def _take(self, field: str | None, column: str) -> None:
        if field is not None:
            self._columns[field] = column
        self._fields[column] = field
        self._lower.add(column.lower())

    def _free(self, field: str) -> str:
        plain = self._plain(field)
        name, mark = self._folded(plain), ""
        # What another field has, or would come to: it could not be told from that one's.
        while (self._fields.get(name) or field) != field or (not mark and self._field_of(name) not in (field, name)):
            mark = _mark(field + mark)
            name = self._folded(self._cut(plain, mark))
        return name

    def _plain(self, field: str) -> str:
        """What is in the way of a name taken out. What was changed has a mark, for others may end up the same."""
        name = field.replace("\0", "")
        if name != field or not name or len(name.encode()) > self._bytes_max:
            return self._cut(name, _mark(field))
        # "xmin_" gets one more as well, so that it is not the column of "xmin".
        return f"{name}_" if name.rstrip("_") in self._reserved else name

    def _cut(self, name: str, mark: str) -> str:
        return f"{name.encode()[: self._bytes_max - _MARK_CHARS - 1].decode(errors='ignore')}_{mark}"

    def _folded(self, name: str) -> str:
        while self._folds and name not in self._fields and name.lower() in self._lower:
            name += "_"
        return name

    def _field_of(self, column: str) -> str:
        """The field that has this column after all others: itself, or one that is renamed to it."""
        stem = column.rstrip("_")
        for end in range(max(len(stem), len(column) - len(self._fields) - 1), len(column)):
            name = column[:end]
            if name and name not in self._columns and self._folded(self._plain(name)) == column:
                return name
        return column


def _is_marked(column: str) -> bool:
    """Does it end as `_mark` would have it?"""
    _, line, mark = column.rpartition("_")
    return bool(line) and len(mark) == _MARK_CHARS and set("0123456789abcdef").issuperset(mark)


def _mark(field: str) -> str:
    return hashlib.blake2b(field.encode(errors="surrogatepass"), digest_size=_MARK_CHARS // 2).hexdigest()


def last_of_each(rows: Iterable[Row]) -> dict[Key, Row]:
    """Rows by their keys: one statement can't write one key twice."""
    return {row.key: row for row in rows}


def found_of(wanted: Iterable[Wanted], there: Iterable[Sequence[int]], pulse: Callable[[], None]) -> int:
    """How many of the wanted records are there: (fingerprint, visit, records) of a table, both in the same order."""
    found, rows = 0, iter(there)
    row = next(rows, None)
    for number, (fingerprint, visit, records) in enumerate(wanted):
        while row is not None and (row[0], row[1]) < (fingerprint, visit):
            row = next(rows, None)
        if row is not None and (row[0], row[1]) == (fingerprint, visit):
            found += min(records, row[2])
        if number % PULSE_ROWS == 0:
            pulse()
    return found
