"""A table in an SQLite file. Each commit is one transaction, so the file is whole at any moment.

Columns of records without a schema have no type: SQLite then keeps each value as it is (a "01234" would become a
number in a column of numbers).
"""

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from crawler.archive.folder import FREE_SOME
from crawler.errors import ArchiveError, CrawlerError, OutputError, UsageError
from crawler.outputs.column_names import KEY_COLUMNS, ColumnNames, found_of
from crawler.outputs.columns import ColumnType, as_kind, check_count, kind_of
from crawler.outputs.sink import Mark, OutputAway, Record, Row, TargetChanged, Wanted
from crawler.outputs.target import Target
from crawler.outputs.writer_lock import writing

BUSY_S = 10.0  # while another process writes the file


SQLITE_NAME_BYTES_MAX = 1000  # SQLite takes any; what is longer helps nobody


_OF_THE_DISK = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


_SQLITE_TYPES = {ColumnType.BOOL: "INTEGER", ColumnType.INT: "INTEGER", ColumnType.FLOAT: "REAL"}


class SqliteSink:
    """`known`: columns that are made with the table. `at_once`: there will be one commit, and
    without it there is no table either. `is_reader`: for `found` alone. A record that is there gets the new values.
    """

    def __init__(
        self, target: Target, *, table: str, known: Mapping[str, ColumnType], at_once: bool, is_reader: bool = False
    ) -> None:
        assert target.path is not None
        self._path, self._shown = target.path, target.shown
        self._table = target.table or table
        self._known = known
        self.is_new_table = False
        self._file: tuple[int, int] | None = None
        # Who makes the file, and who takes an empty one away again, does so alone.
        with contextlib.nullcontext() if is_reader else self._alone():
            self._is_new = not is_reader and not self._path.exists()
            with self._errors():
                self._base = self._connected(is_reader=is_reader)
            try:
                self._file = self._named_file()
                with self._errors():
                    self._base.execute("BEGIN" if is_reader else "BEGIN IMMEDIATE")
                    self._look(may_create=not is_reader)
                    if not at_once:
                        self._base.execute("COMMIT")  # others may write too while there is nothing to be written
            except BaseException:
                self._let_go()
                raise

    def _connected(self, *, is_reader: bool) -> sqlite3.Connection:
        name = f"{self._path.as_uri()}?mode=ro" if is_reader else self._path
        return sqlite3.connect(name, timeout=BUSY_S, isolation_level=None, check_same_thread=False, uri=is_reader)

    def _alone(self) -> contextlib.AbstractContextManager[object]:
        return writing(self._path, self._shown, "", timeout_s=BUSY_S)

    def _named_file(self) -> tuple[int, int] | None:
        """Which file has the name now."""
        try:
            state = self._path.stat()
        except OSError:
            return None
        return state.st_dev, state.st_ino

    def _check_file(self) -> None:
        """Raises TargetChanged when the file that is open has lost its name to another, or to none."""
        if self._named_file() != self._file:
            raise TargetChanged(f"{self._shown} was replaced or removed by another program")

    def _look(self, *, may_create: bool) -> None:
        """Know the table as it is now; make it when there is none."""
        self._columns = self._columns_there()
        if not self._columns:
            if not may_create:
                raise UsageError(f"table {self._table} does not exist in {self._shown}; add ?table=NAME")
            self._columns = self._create()
        self._names = ColumnNames(self._columns, folds=True, bytes_max=SQLITE_NAME_BYTES_MAX)
        self._version = self._schema_version()

    def _schema_version(self) -> int:
        """Counts changes of tables, of all writers."""
        return int(self._base.execute("PRAGMA schema_version").fetchone()[0])

    def _columns_there(self) -> list[str]:
        found = self._table_info()
        if found and not set(KEY_COLUMNS) <= set(found):
            self._refuse(f"it has no columns {', '.join(KEY_COLUMNS)}")
        if found:
            try:
                self._base.execute(f"EXPLAIN {self._statement(list(KEY_COLUMNS))}", [0] * len(KEY_COLUMNS))
            except sqlite3.OperationalError:
                self._refuse(f"({', '.join(KEY_COLUMNS)}) is not a unique key")
        return found

    def _table_info(self) -> list[str]:
        """Names of columns; none when there is no table."""
        return [row[1] for row in self._base.execute(f"PRAGMA table_info({_quoted(self._table)})")]

    def _refuse(self, why: str) -> None:
        raise UsageError(f"table {self._table} of {self._shown} is not a results table: {why}; add ?table=NAME")

    def _create(self) -> list[str]:
        self.is_new_table = True
        keys = ", ".join(f"{name} INTEGER NOT NULL" for name in KEY_COLUMNS)
        others = "".join(f", {_quoted(name)} {_SQLITE_TYPES.get(kind, 'TEXT')}" for name, kind in self._known.items())
        self._base.execute(
            f"CREATE TABLE {_quoted(self._table)} ({keys}{others}, PRIMARY KEY ({', '.join(KEY_COLUMNS)}))"
        )
        return [*KEY_COLUMNS, *self._known]

    def write(self, rows: Sequence[Row]) -> None:
        base = self._base
        with self._errors():
            self._begin()
            named = [(row.key, self._by_column(row.record)) for row in rows]
            names = list(dict.fromkeys(name for _, values in named for name in values))
            done = base.executemany(
                self._statement([*KEY_COLUMNS, *names]),
                ([*key, *(_value(values.get(name)) for name in names)] for key, values in named),
            ).rowcount
            if names and done != len(named):
                raise OutputError(f"{self._shown} took {done:,} of {len(named):,} records; is there a trigger?")
            self._version = self._schema_version()

    def remove(self, visits: Sequence[tuple[int, int]]) -> int:
        with self._errors():
            self._begin()
            gone = f"DELETE FROM {_quoted(self._table)} WHERE _fingerprint = ? AND _visit = ?"  # noqa: S608
            return self._base.executemany(gone, visits).rowcount

    def compact(self) -> None:
        """No byte of removed rows stays in the file."""
        with self._errors():
            self._base.execute("VACUUM")
            self._base.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _begin(self) -> None:
        if self._base.in_transaction:
            return
        self._check_file()
        self._base.execute("BEGIN IMMEDIATE")
        if self._schema_version() != self._version:  # another writer added columns
            self._columns = self._columns_there()
            self._names = ColumnNames(self._columns, folds=True, bytes_max=SQLITE_NAME_BYTES_MAX)

    def _by_column(self, record: Record) -> Record:
        """The record with names of columns; those that are new are added to the table."""
        named = {}
        for field, value in record.items():
            name = self._names.column(field)
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
            self._check_file()
        return None

    def found(self, wanted: Iterable[Wanted], pulse: Callable[[], None]) -> int:
        with self._errors():
            self._check_file()
            keys = "_fingerprint, _visit"
            there = self._base.execute(
                f"SELECT {keys}, count(*) FROM {_quoted(self._table)} GROUP BY {keys} ORDER BY {keys}"  # noqa: S608
            )
            return found_of(wanted, there, pulse)

    @property
    def renamed(self) -> dict[str, str]:
        return self._names.renamed

    def close(self) -> None:
        """Deletes a new file that has no table."""
        if not self._is_new:
            self._let_go()
            return
        with contextlib.suppress(CrawlerError), self._alone():
            self._let_go()
        self._base.close()  # where another held the lock

    def _let_go(self) -> None:
        is_empty = False
        with contextlib.suppress(sqlite3.Error):
            if self._base.in_transaction:
                self._base.execute("ROLLBACK")
            if self._is_new:
                is_empty = not self._base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        self._base.close()
        if is_empty and self._named_file() == self._file:
            self._path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:  # locked, disk full, not writable
            if error.sqlite_errorcode & 0xFF in _OF_THE_DISK:
                hint = FREE_SOME if error.sqlite_errorcode == sqlite3.SQLITE_FULL else ""
                raise ArchiveError(f"can't write {self._shown}: {error}{hint}") from None
            if str(error).startswith("no such table") and not self._table_info():
                raise TargetChanged(f"table {self._table} of {self._shown} was dropped by another program") from None
            raise OutputAway(f"can't write {self._shown}: {error}") from None
        except sqlite3.DatabaseError as error:
            if "not a database" in str(error):
                self._is_new = False
                raise UsageError(f"{self._shown} is not an SQLite file") from None
            raise OutputError(f"can't write {self._shown}: {error}") from None


def _value(value: Any) -> Any:
    kind = kind_of(value)
    return value if kind in (None, ColumnType.BOOL, ColumnType.INT, ColumnType.FLOAT) else as_kind(value, kind)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
