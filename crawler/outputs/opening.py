"""Opens targets: the only place that knows all kinds of them. Each kind's library is imported when one is used."""

from collections.abc import Callable, Sequence
from typing import IO

from msgspec.structs import replace

from crawler.errors import UsageError
from crawler.outputs.files import DraftSink, GrowingSink, StreamSink
from crawler.outputs.lines import CsvLines, JsonLinesFormat, Lines
from crawler.outputs.records import PAGE_COLUMNS, Shape
from crawler.outputs.sink import Mark, Sink
from crawler.outputs.target import Target, TargetKind, target_of


def targets_of(names: Sequence[str], *, csv_safe: bool = True, table: str = "") -> list[Target]:
    """What is named. `table`: of databases, where none is named. Raises UsageError, for what is named twice too."""
    targets = [replace(target_of(name), csv_safe=csv_safe) for name in names]
    places: dict[tuple[object, ...], Target] = {}
    for target in targets:
        first = places.setdefault(_place(target, table), target)
        if first is not target:
            also = f", also as {first.shown}" if first.shown != target.shown else ""
            raise UsageError(f"{target.shown} is named twice{also}; name each target once")
    return targets


def _place(target: Target, table: str) -> tuple[object, ...]:
    """Equal for two names of one target."""
    name = target.table or table
    if target.path is None:
        return target.kind, target.url, name
    try:
        state = target.path.stat()
        where: tuple[object, ...] = (state.st_dev, state.st_ino)
    except OSError:
        where = (target.path.resolve(),)
    return (*where, name.lower() if target.kind is TargetKind.SQLITE else "")


def open_whole(target: Target, shape: Shape, stdout: IO[bytes] | None = None) -> Sink:
    """For one export: files appear at the commit.

    Raises UsageError when nothing can be written there, OutputAway when a server does not answer.
    """
    match target.kind:
        case TargetKind.LINES:
            return DraftSink(target, _lines(target, shape))
        case TargetKind.STREAM:
            return StreamSink(target, _lines(target, shape), stdout)
        case TargetKind.FOLDER:
            from crawler.outputs.markdown_files import MarkdownFolder

            return MarkdownFolder(target, [name for name in shape.columns if name not in PAGE_COLUMNS])
        case _:
            return _table(target, shape, at_once=True)


def open_growing(
    target: Target,
    shape: Shape,
    since: Mark | None,
    stdout: IO[bytes] | None = None,
    *,
    may_replace: bool = False,
    on_replace: Callable[[Mark], None] = lambda _: None,
) -> Sink:
    """For records that come bit by bit: files grow in place from the mark.

    Without one, a file that is there gets another name; `may_replace`: it is the crawl's own, and is taken away.
    `on_replace` hears where a file ends that is about to take the place of this one, with the same records.
    """
    match target.kind:
        case TargetKind.LINES:
            return GrowingSink(target, _lines(target, shape), since, may_replace=may_replace, on_replace=on_replace)
        case TargetKind.STREAM:
            return StreamSink(target, _lines(target, shape), stdout)
        case _:
            return _table(target, shape, at_once=False)


def check_target(target: Target, shape: Shape) -> None:
    """Look whether records of this shape can be written there, and leave nothing behind. Raises as the others do."""
    if target.kind in (TargetKind.SQLITE, TargetKind.PARQUET, TargetKind.POSTGRES):
        _table(target, shape, at_once=True, is_check=True).close()


def open_to_look(target: Target, shape: Shape) -> Sink:
    """For `found` alone, of tables and Parquet files. Raises UsageError when there is none, as the others do else."""
    return _table(target, shape, at_once=True, is_reader=True)


def _lines(target: Target, shape: Shape) -> Lines:
    if target.format == "csv":
        return CsvLines(shape.columns, safe=target.csv_safe)
    return JsonLinesFormat(shown=target.kind is TargetKind.STREAM)


def _table(target: Target, shape: Shape, *, at_once: bool, is_reader: bool = False, is_check: bool = False) -> Sink:
    if target.kind is TargetKind.PARQUET:
        from crawler.outputs.parquet import ParquetSink

        return ParquetSink(target, known=shape.columns)
    if target.kind is TargetKind.SQLITE:
        from crawler.outputs.sqlite import SqliteSink

        return SqliteSink(target, table=shape.name, known=shape.columns, at_once=at_once, is_reader=is_reader)
    from crawler.outputs.postgres import PostgresSink

    return PostgresSink(target, table=shape.name, known=shape.columns, is_reader=is_reader, is_check=is_check)
