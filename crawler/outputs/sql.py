"""Tables in SQLite and PostgreSQL: columns of records, one transaction for each commit."""

import contextlib
import hashlib
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from crawler.archive.folder import FREE_SOME
from crawler.errors import ArchiveError, CrawlerError, OutputError, UsageError
from crawler.outputs.columns import EXACT_MAX, ColumnType, as_kind, check_count, grown, is_inexact, kind_of
from crawler.outputs.files import writing
from crawler.outputs.sink import Key, Mark, OutputAway, Record, Row, TargetChanged, Wanted
from crawler.outputs.target import Target
from crawler.redaction import shown
from crawler.version import how_to_install

# What tables in databases have in common: the columns of a record's key, and how fields become names of columns.

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


# A table in an SQLite file. Each commit is one transaction, so the file is whole at any moment.
#
# Columns of records without a schema have no type: SQLite then keeps each value as it is (a "01234" would become a
# number in a column of numbers).


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

    def remove(self, visits: Sequence[tuple[int, int]]) -> None:
        with self._errors():
            self._begin()
            gone = f"DELETE FROM {_quoted(self._table)} WHERE _fingerprint = ? AND _visit = ?"  # noqa: S608
            self._base.executemany(gone, visits)

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


# A table in PostgreSQL, by psycopg. Rows go by COPY into a table of the transaction, and from there into the real one
# by their key: what is sent twice counts once.
#
# Columns are added as they appear; one that does not fit the values any more is widened. A table that people made
# themselves keeps its types: the server reads our values into them.


CONNECT_S = 10
PARAMETERS = {  # notice a lost server, and limit the wait for a lock
    "connect_timeout": CONNECT_S,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "crawler",
}
LOCK_TIMEOUT = "30s"
POSTGRES_NAME_BYTES_MAX = 63
SYSTEM_COLUMNS = ("ctid", "xmin", "xmax", "cmin", "cmax", "tableoid")  # of every table: no field can have them
_LIMIT_EXCEEDED = "54"  # class of states: the row is too big, there are too many columns. It will not pass
_UNIQUE = "23505"
_MAY_WRITE = "SELECT has_table_privilege(to_regclass(%s), 'INSERT') AND has_table_privilege(to_regclass(%s), 'UPDATE')"
_STAGED = "_crawler_rows"
_POSTGRES_TYPES = {
    ColumnType.BOOL: "boolean",
    ColumnType.INT: "bigint",
    ColumnType.FLOAT: "double precision",
    ColumnType.TEXT: "text",
    ColumnType.JSON: "jsonb",
    ColumnType.TIME: "timestamptz",
}
_OURS = {name: kind for kind, name in _POSTGRES_TYPES.items()} | {"timestamp with time zone": ColumnType.TIME}


class PostgresSink:
    """`known`: columns that are made with the table. A record that is there gets the new values. `is_reader`: for
    `found` alone. `is_check`: what is opened will be closed again, and nothing of it stays.

    Opening connects and looks at the table, so that a bad target is known before any work.
    """

    def __init__(
        self,
        target: Target,
        *,
        table: str,
        known: Mapping[str, ColumnType],
        is_reader: bool = False,
        is_check: bool = False,
    ) -> None:
        try:
            import psycopg
            from psycopg import sql
        except ImportError:
            raise UsageError(
                f"{target.shown}: PostgreSQL needs psycopg: {how_to_install('postgresql', 'psycopg[binary]')}"
            ) from None
        self._psycopg, self._sql = psycopg, sql
        self._url, self._shown = target.url, target.shown
        self._name = target.table or table
        self._table = sql.Identifier(*self._name.split("."))
        self._known = known
        self.is_new_table = False
        self._connection = self._connected()
        try:
            with self._errors():
                self._connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
                self._connection.commit()
                # None: of a type that is not ours
                self._columns: dict[str, ColumnType | None] = self._columns_there()
                if not self._columns:
                    if is_reader:
                        raise UsageError(f"table {self._name} does not exist at {self._shown}; add ?table=NAME")
                    self._columns = self._create()
                self._names = ColumnNames(self._columns, bytes_max=POSTGRES_NAME_BYTES_MAX, reserved=SYSTEM_COLUMNS)
                if not is_check:
                    self._connection.commit()
        except BaseException:
            self.close()
            raise

    # --- the connection and the table ---

    def _connected(self) -> Any:
        try:
            return self._psycopg.connect(self._url, prepare_threshold=None, **PARAMETERS)
        except self._psycopg.OperationalError as error:
            said = _one_line(error)
            lasts = "FATAL" in said and not any(word in said for word in ("starting up", "shutting down", "too many"))
            if lasts:  # wrong password, no such database or user
                raise UsageError(f"can't use {self._shown}: {said}") from None
            raise OutputAway(f"no answer from {self._shown}: {said}") from None
        except (self._psycopg.Error, ValueError) as error:
            raise UsageError(f"can't use {self._shown}: {_one_line(error)}") from None

    def _columns_there(self) -> dict[str, ColumnType | None]:
        """Columns of the table and their kinds; none when there is no table. Raises UsageError for another's table."""
        name = self._table.as_string(self._connection)
        rows = self._connection.execute(
            "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum", [name]
        ).fetchall()  # fmt: skip
        if not rows:
            return {}
        found = {column: _OURS.get(kind) for column, kind in rows}
        if not set(KEY_COLUMNS) <= set(found):
            self._refuse(f"it has no columns {', '.join(KEY_COLUMNS)}")
        is_key = self._connection.execute(
            "SELECT count(*) FROM pg_index WHERE indrelid = to_regclass(%s) AND indisunique AND indpred IS NULL AND "
            "(SELECT array_agg(attname::text ORDER BY attname) FROM pg_attribute WHERE attrelid = indrelid "
            "AND attnum = ANY(indkey)) = %s", [name, sorted(KEY_COLUMNS)]
        ).fetchone()[0]  # fmt: skip
        if not is_key:
            self._refuse(f"({', '.join(KEY_COLUMNS)}) is not a unique key")
        may = self._connection.execute(_MAY_WRITE, [name, name]).fetchone()[0]
        if not may:
            raise UsageError(f"can't use {self._shown}: no permission to insert and update in table {self._name}")
        return found

    def _refuse(self, why: str) -> None:
        raise UsageError(f"table {self._name} at {self._shown} is not a results table: {why}; add ?table=NAME")

    def _create(self) -> dict[str, ColumnType | None]:
        sql = self._sql
        self.is_new_table = True
        keys = [sql.SQL("{} bigint NOT NULL").format(sql.Identifier(name)) for name in KEY_COLUMNS]
        others = [
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(_POSTGRES_TYPES[kind]))
            for name, kind in self._known.items()
        ]
        self._connection.execute(
            sql.SQL("CREATE TABLE IF NOT EXISTS {} ({}, PRIMARY KEY ({}))").format(
                self._table, sql.SQL(", ").join(keys + others), _names(sql, KEY_COLUMNS)
            )
        )
        return {**dict.fromkeys(KEY_COLUMNS, ColumnType.INT), **self._known}

    # --- rows ---

    def write(self, rows: Sequence[Row]) -> None:
        connection = self._connection
        named = {key: self._by_column(row.record) for key, row in last_of_each(rows).items()}
        if not named:
            return
        with self._errors():
            self._fit(list(named.values()))
            names = list(dict.fromkeys(name for record in named.values() for name in record if name in self._columns))
            self._stage(names)
            columns = _names(self._sql, [*KEY_COLUMNS, *names])
            copy = self._sql.SQL("COPY {} ({}) FROM STDIN").format(self._sql.Identifier(_STAGED), columns)
            with connection.cursor() as cursor, cursor.copy(copy) as copying:
                for key, record in named.items():
                    copying.write_row([*key, *(self._value(record.get(name), name) for name in names)])
            done = connection.execute(self._insert(names)).rowcount
            if names and done != len(named):
                raise OutputError(
                    f"{self._shown} took {done:,} of {len(named):,} records; is there a trigger or a rule?"
                )
            connection.execute(self._sql.SQL("DROP TABLE {}").format(self._sql.Identifier(_STAGED)))

    def remove(self, visits: Sequence[tuple[int, int]]) -> None:
        gone = self._sql.SQL(
            "DELETE FROM {} WHERE (_fingerprint, _visit) IN (SELECT * FROM unnest(%s::bigint[], %s::bigint[]))"
        ).format(self._table)
        with self._errors():
            self._connection.execute(gone, [[one[0] for one in visits], [one[1] for one in visits]])

    def _by_column(self, record: Record) -> Record:
        column = self._names.column
        return {column(field): value for field, value in record.items()}

    @property
    def renamed(self) -> dict[str, str]:
        return self._names.renamed

    def _fit(self, records: list[Record]) -> None:
        """Add and widen columns, by what the table has now: other machines may write to it too.

        In one statement: the server writes the whole table again for each one that changes types.
        """
        if not self._changes(records):
            return
        self._columns = self._columns_there()
        changes, after = [], dict[str, ColumnType]()
        for name, kind in self._changes(records).items():
            if kind is ColumnType.FLOAT and self._columns.get(name) is ColumnType.INT and self._has_inexact(name):
                kind = ColumnType.TEXT  # noqa: PLW2901
            part = self._sql.SQL("ADD COLUMN IF NOT EXISTS {0} {1}")
            if name in self._columns:
                part = self._sql.SQL("ALTER COLUMN {0} TYPE {1} USING {0}::{1}")
            changes.append(part.format(self._sql.Identifier(name), self._sql.SQL(_POSTGRES_TYPES[kind])))
            after[name] = kind
        if changes:
            change = self._sql.SQL(", ").join(changes)
            self._connection.execute(self._sql.SQL("ALTER TABLE {} {}").format(self._table, change))
            self._columns |= after

    def _changes(self, records: list[Record]) -> dict[str, ColumnType]:
        after = grown(self._columns, records)
        for name in [name for name, kind in after.items() if kind is ColumnType.FLOAT]:
            if any(is_inexact(record.get(name)) for record in records):
                after[name] = ColumnType.TEXT
        return {
            name: kind
            for name, kind in after.items()
            if kind is not None
            and kind is not self._columns.get(name)
            and (name not in self._columns or self._columns[name] is not None)
        }

    def _has_inexact(self, name: str) -> bool:
        query = self._sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE abs({}::numeric) > {})")
        found = query.format(self._table, self._sql.Identifier(name), self._sql.Literal(EXACT_MAX))
        return bool(self._connection.execute(found).fetchone()[0])

    def _stage(self, names: Sequence[str]) -> None:
        """A table of this transaction, with our columns of the real one, without its constraints."""
        self._connection.execute(
            self._sql.SQL("CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
                self._sql.Identifier(_STAGED), _names(self._sql, [*KEY_COLUMNS, *names]), self._table
            )
        )

    def _insert(self, names: Sequence[str]) -> Any:
        sql = self._sql
        then = sql.SQL("NOTHING")
        if names:
            one = sql.SQL("{0} = excluded.{0}")
            then = sql.SQL("UPDATE SET ") + sql.SQL(", ").join(one.format(sql.Identifier(name)) for name in names)
        return sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} ON CONFLICT ({}) DO {}").format(
            self._table, columns := _names(sql, [*KEY_COLUMNS, *names]), columns,
            sql.Identifier(_STAGED), _names(sql, KEY_COLUMNS), then,
        )  # fmt: skip

    def _value(self, value: Any, name: str) -> Any:
        """As the column takes it. PostgreSQL has no NUL in text: it becomes a replacement character."""
        found = as_kind(value, self._columns[name] or ColumnType.TEXT)
        if isinstance(found, str) and ("\0" in found or "\\u0000" in found):
            return as_kind(_without_nul(value), self._columns[name] or ColumnType.TEXT)
        return found

    def commit(self) -> Mark | None:
        with self._errors():
            self._connection.commit()
        return None

    def found(self, wanted: Iterable[Wanted], pulse: Callable[[], None]) -> int:
        """By their keys, some at a time: the table may have many more rows of other crawls."""
        keys = ((one.fingerprint, one.visit, number) for one in wanted for number in range(one.records))
        query = self._sql.SQL(
            "SELECT count(*) FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[]) AS wanted ({0}) JOIN {1} USING ({0})"
        ).format(_names(self._sql, KEY_COLUMNS), self._table)
        found = 0
        with self._errors():
            while batch := list(islice(keys, PULSE_ROWS)):
                found += self._connection.execute(
                    query, [list(column) for column in zip(*batch, strict=True)]
                ).fetchone()[0]
                pulse()
            self._connection.commit()
        return found

    def close(self) -> None:
        """Let the connection go, and with it what was not committed."""
        with contextlib.suppress(self._psycopg.Error):
            self._connection.close()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self._psycopg.Error as error:
            if isinstance(error, self._psycopg.errors.UndefinedTable) and self._is_dropped():
                raise TargetChanged(f"table {self._name} at {self._shown} was dropped by another program") from None
            if self._may_pass(error):
                raise OutputAway(f"{self._shown}: {_one_line(error)}") from None
            raise OutputError(f"{self._shown} rejects the records: {_one_line(error)}") from None

    def _is_dropped(self) -> bool:
        """It may also be a table that a trigger needs."""
        self._connection.rollback()
        name = self._table.as_string(self._connection)
        return self._connection.execute("SELECT to_regclass(%s)", [name]).fetchone()[0] is None

    def _may_pass(self, error: Any) -> bool:
        """May the same rows be taken later?"""
        if isinstance(error, self._psycopg.IntegrityError):
            # In a catalog: two made the table, or a column of it, at the same time. Else it is a rule of the table.
            return bool(error.sqlstate == _UNIQUE and (error.diag.constraint_name or "").startswith("pg_"))
        away = (self._psycopg.OperationalError, self._psycopg.InterfaceError)
        return isinstance(error, away) and (error.sqlstate or "")[:2] != _LIMIT_EXCEEDED


def _names(sql: Any, names: Sequence[str]) -> Any:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _one_line(error: Exception) -> str:
    """The last line says why; those before it say to which address."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[0] if lines else type(error).__name__
    return shown(said.removeprefix("connection failed: ").rstrip("."))


def _without_nul(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\0", "\ufffd")
    if isinstance(value, list):
        return [_without_nul(one) for one in value]
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for name, one in value.items():
            cleaned = _without_nul(name)
            while cleaned != name and (cleaned in value or cleaned in found):
                cleaned += "\ufffd"
            found[cleaned] = _without_nul(one)
        return found
    return value
