"""A table in PostgreSQL, by psycopg. Rows go by COPY into a table of the transaction, and from there into the real one
by their key: what is sent twice counts once.

Columns are added as they appear; one that does not fit the values any more is widened. A table that people made
themselves keeps its types: the server reads our values into them.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from crawler.errors import OutputError, UsageError
from crawler.outputs.column_names import KEY_COLUMNS, PULSE_ROWS, ColumnNames, last_of_each
from crawler.outputs.columns import EXACT_MAX, ColumnType, as_kind, grown, is_inexact
from crawler.outputs.sink import Mark, OutputAway, Record, Row, TargetChanged, Wanted
from crawler.outputs.target import Target
from crawler.redaction import shown
from crawler.version import how_to_install

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

    def remove(self, visits: Sequence[tuple[int, int]]) -> int:
        gone = self._sql.SQL(
            "DELETE FROM {} WHERE (_fingerprint, _visit) IN (SELECT * FROM unnest(%s::bigint[], %s::bigint[]))"
        ).format(self._table)
        with self._errors():
            return int(
                self._connection.execute(gone, [[one[0] for one in visits], [one[1] for one in visits]]).rowcount
            )

    def compact(self) -> None:
        """The table is rewritten, without removed rows; the server's log and its backups still have them."""
        with self._errors():
            self._connection.commit()
            self._connection.autocommit = True
            try:
                self._connection.execute(self._sql.SQL("VACUUM (FULL) {}").format(self._table))
            finally:
                self._connection.autocommit = False

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
