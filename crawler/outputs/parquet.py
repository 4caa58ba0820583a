"""A Parquet file, by pyarrow. It appears whole: such a file can't be read before its end is written.

Its schema comes from the records. One that does not fit the columns so far has the draft rewritten with wider
ones: rare, and as expensive as copying it.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from crawler.archive.folder import archive_error
from crawler.errors import UsageError
from crawler.outputs.columns import ColumnType, as_kind, grown, is_inexact
from crawler.outputs.files import mark_of, take_place
from crawler.outputs.sink import Mark, Record, Row, Wanted
from crawler.outputs.target import Target
from crawler.outputs.writer_lock import draft_of
from crawler.version import how_to_install

GROUP_ROWS = 20_000
GROUP_BYTES = 32 << 20  # of text
_NESTED = {ColumnType.JSON: ColumnType.TEXT}  # written as JSON text


class ParquetSink:
    """`known`: columns that the file has whether or not a record has them."""

    def __init__(self, target: Target, *, known: Mapping[str, ColumnType]) -> None:
        assert target.path is not None
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise UsageError(f"{target.shown}: Parquet needs pyarrow: {how_to_install('parquet', 'pyarrow')}") from None
        self._pa, self._pq = pa, pq
        self._shown, self._path = target.shown, target.path.resolve()
        self._draft = draft_of(self._path)
        self._columns: dict[str, ColumnType | None] = dict(known)
        self._records: list[Record] = []
        self._bytes = 0
        self._inexact: set[str] = set()  # columns with whole numbers that no floating one equals
        self._writer: Any = None
        self._mark: Mark | None = None

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._records.append(row.record)
            self._bytes += sum(len(value) for value in row.record.values() if isinstance(value, (str, list)))
            if len(self._records) >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
                self._guarded(self._flush)

    def commit(self) -> Mark | None:
        """The mark is of the whole file."""
        self._guarded(self._finish)
        return self._mark

    def found(self, wanted: Iterable[Wanted], pulse: Callable[[], None]) -> int:  # noqa: ARG002
        try:
            with self._pq.ParquetFile(self._path) as file:
                return int(file.metadata.num_rows)
        except (OSError, self._pa.ArrowException) as error:
            raise UsageError(f"{self._shown} can't be read as Parquet: {str(error).partition(chr(10))[0]}") from None

    def _finish(self) -> None:
        if self._records or self._writer is None:
            self._flush()
        self._writer.close()
        with self._draft.open("rb") as file:
            self._mark = mark_of(file)
        take_place(self._draft, self._path)

    def _flush(self) -> None:
        columns = {
            name: _NESTED.get(kind, kind) if kind else None
            for name, kind in grown(self._columns, self._records).items()
        }
        self._inexact |= {name for record in self._records for name, value in record.items() if is_inexact(value)}
        if not columns:
            columns["_"] = None  # a file without columns has no rows, and programs such as DuckDB refuse it
        columns |= {name: ColumnType.TEXT for name in self._inexact if columns[name] is ColumnType.FLOAT}
        if self._writer is not None and columns != self._columns:
            self._rewrite(columns)
        elif self._writer is None:
            self._writer = self._new_writer(self._draft, columns)
        self._columns = columns
        self._writer.write_table(self._table(self._records, columns))
        self._records, self._bytes = [], 0

    def _rewrite(self, columns: dict[str, ColumnType | None]) -> None:
        """What is in the draft, with other columns."""
        self._writer.close()
        draft = draft_of(self._path)
        try:
            writer = self._new_writer(draft, columns)
            with self._pq.ParquetFile(self._draft) as old:
                for batch in old.iter_batches(batch_size=GROUP_ROWS):
                    writer.write_table(self._table(batch.to_pylist(), columns))
            draft.replace(self._draft)
        finally:
            draft.unlink(missing_ok=True)
        self._writer = writer

    def _new_writer(self, path: Path, columns: Mapping[str, ColumnType | None]) -> Any:
        return self._pq.ParquetWriter(path, self._schema(columns), compression="zstd")

    def _schema(self, columns: Mapping[str, ColumnType | None]) -> Any:
        pa = self._pa
        types = {
            ColumnType.BOOL: pa.bool_(),
            ColumnType.INT: pa.int64(),
            ColumnType.FLOAT: pa.float64(),
            ColumnType.TIME: pa.timestamp("ms", tz="UTC"),
        }
        return pa.schema([(name, types[kind] if kind in types else pa.string()) for name, kind in columns.items()])

    def _table(self, records: Sequence[Record], columns: Mapping[str, ColumnType | None]) -> Any:
        arrays = {
            name: [_value(record.get(name), kind or ColumnType.TEXT) for record in records]
            for name, kind in columns.items()
        }
        return self._pa.table(arrays, schema=self._schema(columns))

    def close(self) -> None:
        if self._writer is not None:
            with contextlib.suppress(OSError, self._pa.ArrowException):
                self._writer.close()
        self._draft.unlink(missing_ok=True)

    def _guarded(self, act: Any) -> None:
        try:
            act()
        except OSError as error:
            raise archive_error("write", self._path, error) from None


def _value(value: Any, kind: ColumnType) -> Any:
    if kind is ColumnType.TIME and isinstance(value, str):
        return datetime.fromisoformat(value)
    return value if isinstance(value, datetime) else as_kind(value, kind)
