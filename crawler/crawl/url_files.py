"""Files with lists of URLs, as people have them: seed files, URL lists of imports, standard input. One reader for all.

Bytes are unpacked (gzip, zstd), decoded and cut into lines. Lines are a list (`rules.url_list`), a table
(`rules.url_table`) or JSON. They are taken as they come, so a stream that never ends is read while it flows.
"""

import asyncio
import os
import stat
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from crawler.errors import UsageError
from crawler.rules.url_list import LineSplitter, bare
from crawler.rules.url_table import (
    EXCEL_LINE,
    NAMES,
    SAMPLE_ROWS,
    RowReader,
    Table,
    doubtful_separator,
    is_comment,
    may_be_table,
    table_as_said,
    table_in,
)
from crawler.terminal.output import warn
from crawler.terminal.words import counted

STDIN = "-"
BLOCK_BYTES = 1 << 18
SAMPLE_CHARS = 1 << 18  # of the first lines, which tell what a file is
JSON_COLUMN = "url"
JSON_SHOWN = "{...}"  # of what can't be read: it may hold the password of a form

# What a file is whose URLs nobody can read, by its first bytes, and how it becomes one that can be read.
_FOREIGN = (
    (b"PK\x03\x04", "a ZIP archive or a spreadsheet (.xlsx, .ods); save the sheet as CSV, or unpack it"),
    (b"\xd0\xcf\x11\xe0", "a spreadsheet (.xls); save it as CSV"),
    (b"\xfd7zXZ\x00", "packed by xz; 'xz -dc FILE | crawler ... -i -' reads it"),
    (b"BZh", "packed by bzip2; 'bzip2 -dc FILE | crawler ... -i -' reads it"),
    (b"7z\xbc\xaf", "packed by 7-Zip; unpack it"),
    (b"PAR1", "Parquet; export its column of URLs as CSV"),
    (b"SQLite format 3", "an SQLite database; export its column of URLs as CSV"),
    (b"%PDF-", "a PDF"),
    (b"<?xml", "XML; a sitemap is given with --sitemap URL"),
    (b"<urlset", "a sitemap; it is given with --sitemap URL"),
    (b"<!doctype", "an HTML page; give its URL"),
    (b"<html", "an HTML page; give its URL"),
)
_FOREIGN_BYTES = max(len(head) for head, _ in _FOREIGN)
_decode = msgspec.json.Decoder().decode


class ListForm(NamedTuple):
    """What people say that a file is; "": as found. `format`: "lines", "csv" or "jsonl"; `column`: a name or number."""

    format: str = ""
    column: str = ""


class ListRow(NamedTuple):
    """What may have a URL: a line, a cell of a table, a value of JSON, with its line. `flaw`: why it can't have one."""

    number: int
    text: str
    flaw: str = ""


AS_FOUND = ListForm()


class ListReader:
    """Makes rows of the blocks of one file: `take` each, then its `end`. Both raise UsageError.

    `say` gets lines for people: how it is read, if not as a URL a line, and what was left out.
    """

    def __init__(self, name: str, form: ListForm = AS_FOUND, say: Callable[[str], None] = lambda _: None) -> None:
        """`name`: of the file, by whose end a table is known; "-" for standard input."""
        self._name = name
        self.shown = "standard input" if name == STDIN else name
        self._say = say
        self._form = form
        from crawler.content.unpacking import Unpacker  # most commands that name a URL read no file

        self._unpacker, self._splitter, self._number = Unpacker(), LineSplitter(), 0
        self._head: bytes | None = b""
        self._held: list[tuple[int, str]] | None = []  # the first lines, until it is known what the file is
        self._sample, self._sample_chars = list[str](), 0
        self._read: Callable[[Sequence[tuple[int, str]]], Iterator[ListRow]] = self._of_list
        self._rows: RowReader | None = None
        self._table: Table | None = None
        self._empty = self._like_csv = 0
        self._doubtful = ""  # what may separate the cells of a table that is taken for a list

    def take(self, block: bytes) -> Iterator[list[ListRow]]:
        """The rows that end in a block, some at a time."""
        from crawler.content.unpacking import PackedError

        try:
            for data in self._unpacker.take(block):
                yield self._taken(data)
        except PackedError as error:
            yield self._numbered((), is_end=True)
            raise self._cut(error) from None

    def end(self) -> Iterator[list[ListRow]]:
        """What is left when the file has ended."""
        from crawler.content.unpacking import PackedError

        try:
            for data in self._unpacker.end():
                yield self._taken(data)
        except PackedError as error:
            yield self._numbered((), is_end=True)
            raise self._cut(error) from None
        yield self._last()
        self._say_what_was_left()

    def _cut(self, error: Exception) -> UsageError:
        """Whole lines were read; the URL of one that was cut off is another one."""
        return UsageError(f"can't read {self.shown} beyond line {self._number}: {error}")

    def _taken(self, data: bytes) -> list[ListRow]:
        if self._head is not None:
            self._head += data
            if len(self._head) >= _FOREIGN_BYTES:
                self._check_head()
        return self._numbered(self._splitter.lines(data))

    def _check_head(self) -> None:
        """Raises UsageError for a file that is something else."""
        head, self._head = (self._head or b"").removeprefix(b"\xef\xbb\xbf").lstrip().lower(), None
        for begin, what in _FOREIGN:
            if head.startswith(begin.lower()):
                raise UsageError(f"{self.shown} is {what}")

    def _numbered(self, lines: Sequence[str], *, is_end: bool = False) -> list[ListRow]:
        begin, self._number = self._number + 1, self._number + len(lines)
        if any("\0" in line for line in lines):
            raise UsageError(f"{self.shown} is not a text file (line {begin} or later): nothing more is read")
        if self._held is None:
            return list(self._read(list(enumerate(lines, begin))))
        for number, line in enumerate(lines, begin):
            if is_comment(line):  # no form has anything of it, and there may be any number of them
                continue
            self._held.append((number, line))
            if not self._is_sampled:
                self._sample.append(line)
                self._sample_chars += len(line)
        if not (is_end or (lines and (self._is_sampled or self._is_clear))):
            return []
        self._settle()
        held, self._held = self._held, None
        return list(self._read(held))

    @property
    def _is_sampled(self) -> bool:
        return len(self._sample) >= SAMPLE_ROWS or self._sample_chars > SAMPLE_CHARS

    @property
    def _is_clear(self) -> bool:
        """Is it known what the file is, however it goes on?"""
        if self._form.format in ("lines", "jsonl"):
            return True
        if not self._sample:
            return False
        if self._is_csv_said:
            return table_in(self._sample) is not None
        return self._is_json or not may_be_table(self._sample) or table_in(self._sample) is not None

    @property
    def _is_json(self) -> bool:
        return bare(self._sample[0])[:1] in ("{", "[") if self._sample else False

    @property
    def _is_csv_said(self) -> bool:
        form, name = self._form, self._name.lower().removesuffix(".gz").removesuffix(".zst")
        return form.format == "csv" or (not form.format and (bool(form.column) or name.endswith((".csv", ".tsv"))))

    def _settle(self) -> None:
        """Decide what the file is. Raises UsageError."""
        form, table, how = self._form, None, ""
        if form.format == "jsonl" or (not form.format and form.column and self._is_json):
            self._read = self._of_json
            return
        if self._is_csv_said and not (not form.format and not form.column and self._is_json):
            first = "\t" if ".tsv" in self._name.lower()[-8:] else ""
            try:
                table = table_as_said(self._sample, form.column, first=first) if self._sample else None
            except UsageError as error:
                raise UsageError(f"{self.shown}: {error}") from None
        elif not form.format and not self._is_json and (table := table_in(self._sample)):
            how = "; --format lines takes each line as a URL"
        if table is None:
            self._check_list()
            self._doubtful = "" if form.format or self._is_json else doubtful_separator(self._sample)
            return
        self._table, self._rows, self._read = table, RowReader(table.separator), self._of_table
        self._say(f"reading {self.shown} as {table.text}{how}")

    def _check_list(self) -> None:
        """Raises UsageError for JSON that is not a value a line."""
        first = bare(self._sample[0]) if self._sample else ""
        if first == "[" or first.startswith(('["', "[{", "[ ")):
            raise UsageError(
                f"{self.shown} is one list in JSON, not a value a line: 'jq -c .[] FILE | crawler ... -i -' reads it"
            )

    # --- the three forms ---

    def _of_list(self, lines: Sequence[tuple[int, str]]) -> Iterator[ListRow]:
        for number, line in lines:
            if _is_like_csv(line) or (self._doubtful and self._doubtful in line):
                self._like_csv += 1
            if number == 1 and bare(line).casefold() in NAMES:  # a table with one column
                continue
            yield ListRow(number, line)

    def _of_table(self, lines: Sequence[tuple[int, str]]) -> Iterator[ListRow]:
        assert self._rows is not None
        yield from self._cells(self._rows.take(lines))

    def _cells(self, rows: Any) -> Iterator[ListRow]:
        table = self._table
        assert table is not None
        for number, cells, flaw in rows:
            if flaw:
                yield ListRow(number, cells[0], flaw)
                continue
            if cells[0].lower() == EXCEL_LINE:
                continue
            if table.has_names:
                self._table = table = table._replace(has_names=False)
                continue
            text = bare(cells[table.column]) if len(cells) > table.column else ""
            if text:
                yield ListRow(number, text)
            else:
                self._empty += 1

    def _of_json(self, lines: Sequence[tuple[int, str]]) -> Iterator[ListRow]:
        column = self._form.column or JSON_COLUMN
        for number, line in lines:
            if not (text := bare(line)):
                continue
            try:
                value = _decode(text)
            except msgspec.MsgspecError:
                yield ListRow(number, JSON_SHOWN, "not JSON")
                continue
            if isinstance(value, dict):
                value = value.get(column)
            if value is None or value == "":
                self._empty += 1
            elif isinstance(value, str):
                yield ListRow(number, value)
            else:
                yield ListRow(number, JSON_SHOWN, f"has no URL in {column!r}")

    # --- the end ---

    def _last(self) -> list[ListRow]:
        if self._head:
            self._check_head()
        found = self._numbered(self._splitter.last(), is_end=True)
        return [*found, *self._cells(self._rows.end())] if self._rows is not None else found

    def _say_what_was_left(self) -> None:
        if self._empty:
            self._say(f"{self.shown}: {counted(self._empty, 'row')} without a URL left out")
        if self._like_csv and not self._form.format:
            n, one = f"{self._like_csv:,}", self._like_csv == 1
            what = (
                "line looks like CSV, and was taken as a URL" if one else "lines look like CSV, and were taken as URLs"
            )
            self._say(f"{self.shown}: {n} {what}; with --format csv, the same command reads cells")


def _is_like_csv(line: str) -> bool:
    """Does a line of a list look as if it had fields behind its URL? In quotes, it is a line of code."""
    return line[:1] not in ("'", '"') and _has_empty_cells(line)


def _has_empty_cells(line: str) -> bool:
    return ",," in line or ";;" in line or line.rstrip().endswith((",", ";", "|"))


async def read_rows(
    file: str, form: ListForm = AS_FOUND, *, quiet: bool = False, taken: Callable[[int], None] = lambda _: None
) -> AsyncGenerator[list[ListRow], None]:
    """Batches of rows as they arrive. What is to be said of the file is said unless `quiet`. Raises UsageError.

    `taken` is called with the bytes of each block of the file when what follows it is requested.
    """
    reader = ListReader(file, form, (lambda _: None) if quiet else warn)
    async for block in _blocks(file):
        for rows in reader.take(block):
            yield rows
        taken(len(block))
    for rows in reader.end():
        yield rows


def bytes_of(files: Sequence[str]) -> int:
    """How much there is to read; 0 when one of the files flows."""
    try:
        found = [os.fstat(sys.stdin.fileno()) if file == STDIN else Path(file).stat() for file in files]
    except (OSError, ValueError):  # `read_rows` reports it
        return 0
    return sum(one.st_size for one in found) if all(stat.S_ISREG(one.st_mode) for one in found) else 0


def is_plain_file(file: str) -> bool:
    """Can it be read twice?"""
    return file != STDIN and Path(file).is_file()


def check_readable(file: str) -> None:
    """Raises UsageError for a file that can't be read."""
    if not file.strip():
        raise UsageError("the name of a seed file is empty; give it a value, or leave -i out")
    try:
        with Path(file).open("rb"):
            pass
    except OSError as error:
        raise UsageError(f"can't read seed file {file}: {error.strerror}") from None


async def _blocks(file: str) -> AsyncIterator[bytes]:
    descriptor = sys.stdin.fileno() if file == STDIN else os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            while block := os.read(descriptor, BLOCK_BYTES):
                yield block
                await asyncio.sleep(0)
        else:
            async for block in _flowing(descriptor):
                yield block
    except OSError as error:
        raise UsageError(f"can't read {file}: {error.strerror}") from None
    finally:
        if file != STDIN:
            os.close(descriptor)


async def _flowing(descriptor: int) -> AsyncIterator[bytes]:
    """Blocks of a pipe or terminal, read by a thread that may be left behind in its read when we stop."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue(maxsize=4)

    def read() -> None:
        try:
            while True:
                block = os.read(descriptor, BLOCK_BYTES)
                asyncio.run_coroutine_threadsafe(queue.put(block), loop).result()
                if not block:
                    return
        except (OSError, RuntimeError, CancelledError):
            return  # closed, or the loop is gone, or about to be

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while block := await queue.get():
        yield block
