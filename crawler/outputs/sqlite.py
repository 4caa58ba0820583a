"""A table in an SQLite file. Each commit is one transaction, so the file is whole at any moment.

Columns of records without a schema have no type: SQLite then keeps each value as it is (a "01234" would become a
number in a column of numbers).
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from crawler.errors import OutputError, UsageError
from crawler.outputs.columns import Kind, as_kind, check_count, kind_of
from crawler.outputs.naming import Target
from crawler.outputs.sink import Mark, OutputAway, Record, Row
from crawler.outputs.tables import KEY_COLUMNS, column_name

BUSY_S = 10.0  # while another process writes the file
_TYPES = {Kind.BOOL: "INTEGER", Kind.INT: "INTEGER", Kind.FLOAT: "REAL"}


class SqliteSink:
    """`known`: columns that are made with the table. `at_once`: there will be one commit, and
    without it there is no table either. A record that is there gets the new values.
    """

    def __init__(self, target: Target, *, table: str, known: Mapping[str, Kind], at_once: bool) -> None:
        assert target.path is not None
        self._path, self._shown = target.path, target.shown
        self._table = target.table or table
        self._known = known
        self._is_new = not self._path.exists()
        self.is_new_table = False
        with self._errors():
            self._base = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            with self._errors():
                self._base.execute("BEGIN IMMEDIATE")
                self._columns = self._columns_there() or self._create()
                if not at_once:
                    self._base.execute("COMMIT")  # others may write too while there is nothing to be written
        except BaseException:
            self.close()
            raise

    def _columns_there(self) -> list[str]:
        found = [row[1] for row in self._base.execute(f"PRAGMA table_info({_quoted(self._table)})")]
        if found and not set(KEY_COLUMNS) <= set(found):
            self._refuse(f"it has no columns {', '.join(KEY_COLUMNS)}")
        if found:
            try:
                self._base.execute(f"EXPLAIN {self._statement(list(KEY_COLUMNS))}", [0] * len(KEY_COLUMNS))
            except sqlite3.OperationalError:
                self._refuse(f"({', '.join(KEY_COLUMNS)}) is not a key of it")
        return found

    def _refuse(self, why: str) -> None:
        raise UsageError(f"table {self._table} of {self._shown} was made for something else: {why}; add ?table=NAME")

    def _create(self) -> list[str]:
        self.is_new_table = True
        keys = ", ".join(f"{name} INTEGER NOT NULL" for name in KEY_COLUMNS)
        others = "".join(f", {_quoted(name)} {_TYPES.get(kind, 'TEXT')}" for name, kind in self._known.items())
        self._base.execute(
            f"CREATE TABLE {_quoted(self._table)} ({keys}{others}, PRIMARY KEY ({', '.join(KEY_COLUMNS)}))"
        )
        return [*KEY_COLUMNS, *self._known]

    def write(self, rows: Sequence[Row]) -> None:
        base = self._base
        with self._errors():
            if not base.in_transaction:
                base.execute("BEGIN IMMEDIATE")
            named = [(row.key, self._by_column(row.record)) for row in rows]
            names = list(dict.fromkeys(name for _, values in named for name in values))
            base.executemany(
                self._statement([*KEY_COLUMNS, *names]),
                ([*key, *(_value(values.get(name)) for name in names)] for key, values in named),
            )

    def _by_column(self, record: Record) -> Record:
        """The record with names of columns; those that are new are added to the table."""
        named = {}
        for field, value in record.items():
            name = column_name(field, self._columns, folds=True)
            if name not in self._columns:
                check_count([*self._columns, name])
                self._base.execute(f"ALTER TABLE {_quoted(self._table)} ADD COLUMN {_quoted(name)}")
                self._columns.append(name)
            named[name] = value
        return named

    def _statement(self, names: Sequence[str]) -> str:
        columns = ", ".join(map(_quoted, names))
        values = [name for name in names if name not in KEY_COLUMNS]
        updates = ", ".join(f"{_quoted(name)} = excluded.{_quoted(name)}" for name in values)
        then = f"UPDATE SET {updates}" if updates else "NOTHING"
        return (
            f"INSERT INTO {_quoted(self._table)} ({columns}) VALUES ({', '.join('?' * len(names))}) "  # noqa: S608
            f"ON CONFLICT ({', '.join(KEY_COLUMNS)}) DO {then}"
        )

    def commit(self) -> Mark | None:
        with self._errors():
            if self._base.in_transaction:
                self._base.execute("COMMIT")
        self._is_new = False
        return None

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            if self._base.in_transaction:
                self._base.execute("ROLLBACK")
            self._base.close()
        if self._is_new:
            self._path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:  # locked, disk full, not writable
            raise OutputAway(f"can't write {self._shown}: {error}") from None
        except sqlite3.DatabaseError as error:
            if "not a database" in str(error):
                self._is_new = False
                raise UsageError(f"{self._shown} is not an SQLite file") from None
            raise OutputError(f"can't write {self._shown}: {error}") from None


def _value(value: Any) -> Any:
    kind = kind_of(value)
    return value if kind in (None, Kind.BOOL, Kind.INT, Kind.FLOAT) else as_kind(value, kind)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
