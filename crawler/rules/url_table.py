"""Tables of URLs (CSV): their separator, the column that has the URLs, and the rows. Pure.

A file is read as a table if whoever reads it says so. Else it is one if each of its first lines has the same number of
one separator, and that is not a part of its URLs: addresses like `/a,12.html` exist. So the first row has names of
columns, or something is before the URLs, or what follows them can hardly belong to them: it is behind tabs, or has
blanks, or in ten lines or more the URLs differ and do not go on behind the separator.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from crawler.errors import UsageError
from crawler.rules.url_list import LINE_MAX, bare

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "pipes"}
NAMES = (
    "url",
    "uri",
    "link",
    "loc",
    "address",
    "href",
    "website",
    "page",
    "domain",
    "host",
)  # the first of them counts
SAMPLE_ROWS = 100
ROW_LINES_MAX = 100  # of a row with line ends within quotes
UNLIKELY_ROWS = 10  # of URLs that all go on with one separator, until they are taken for a table
EXCEL_LINE = "sep="  # and the separator: what its tables may begin with
UNCLOSED = "begins a cell with a quote that is not closed"

_COLUMNS_SHOWN, _NAME_CHARS_SHOWN = 20, 40
_QUOTE = re.compile(r' *"')
_SCHEME = re.compile(r"https?://", re.IGNORECASE)
_HOST = re.compile(r"(?:[^\W_][\w-]{0,62}\.){1,8}[^\W\d_][\w-]{1,62}\.?(?::\d{1,5})?(?:[/?#].*)?", re.DOTALL)
_END_OF_URL = re.compile(r"\S*[=/]\S*|\S*\.[a-z]{2,5}\d?")  # behind a separator that may be the URL's own


class Table(NamedTuple):
    """What a table is. `column`: the one with the URLs, from 0; `name`: its name, if the first row has it."""

    separator: str
    column: int
    name: str = ""
    has_names: bool = False

    @property
    def text(self) -> str:
        """Like "CSV (semicolons), URLs in column 2 'Address'"."""
        name = f" {self.name[:_NAME_CHARS_SHOWN]!r}" if self.name else ""
        return f"CSV ({SEPARATORS[self.separator]}), URLs in column {self.column + 1}{name}"


class Row(NamedTuple):
    """A row: the number of its first line, and its cells. `flaw`: why it is none; then its text is the only cell."""

    number: int
    cells: list[str]
    flaw: str = ""


def cells_of(line: str, separator: str) -> tuple[list[str], bool]:
    """The cells of a row, and whether the last one begins with a quote that is not closed: the row may go on."""
    if '"' not in line:
        return line.split(separator), False
    found, at = list[str](), 0
    while True:
        cell, begin = "", _QUOTE.match(line, at)
        if begin is not None:
            at, parts = begin.end(), list[str]()
            while (end := line.find('"', at)) >= 0:
                parts.append(line[at:end])
                at = end + 1
                if not line.startswith('"', at):
                    break
                parts.append('"')
                at += 1
            else:
                return [*found, "".join(parts) + line[at:]], True
            cell = "".join(parts)
        end = line.find(separator, at)
        found.append(cell + (line[at:end] if end >= 0 else line[at:]))
        if end < 0:
            return found, False
        at = end + 1


class RowReader:
    """Makes rows of lines. Memory is bounded: a quote without its end is a flaw of its line alone."""

    def __init__(self, separator: str) -> None:
        self._separator = separator
        self._open: list[tuple[int, str]] = []  # lines of a row that may go on
        self._chars = 0

    def take(self, lines: Iterable[tuple[int, str]]) -> Iterator[Row]:
        """The rows that end in these lines, which have their numbers."""
        for number, line in lines:
            if not self._open and is_comment(line):
                continue
            self._open.append((number, line))
            self._chars += len(line)
            if len(self._open) > 1 and '"' not in line and not self._is_full:
                continue
            yield from self._complete(is_end=False)

    def end(self) -> Iterator[Row]:
        """What is left."""
        return self._complete(is_end=True)

    @property
    def _is_full(self) -> bool:
        return len(self._open) > ROW_LINES_MAX or self._chars > LINE_MAX

    def _complete(self, *, is_end: bool) -> Iterator[Row]:
        """Rows of the open lines. If no later line closes the quote of the first one, the others are on their own."""
        cells, is_open = cells_of("\n".join(line for _, line in self._open), self._separator)
        if is_open and not (is_end or self._is_full):
            return
        lines, self._open, self._chars = self._open, [], 0
        if not is_open:
            if lines:
                yield Row(lines[0][0], cells)
            return
        yield Row(lines[0][0], [lines[0][1]], UNCLOSED)
        yield from self.take(lines[1:])
        if is_end and self._open:
            yield from self._complete(is_end=True)


def is_comment(line: str) -> bool:
    """Is it of no table? Blank, or a comment: but `#` alone may be the name of a column."""
    text = bare(line)
    return not text or (text[0] == "#" and text[1:2] not in SEPARATORS)


def may_be_table(lines: Sequence[str]) -> bool:
    """May the file be a table, as far as its first lines tell? These are given without comments."""
    return any(_even_rows(lines, separator) for separator in SEPARATORS)


def table_in(lines: Sequence[str]) -> Table | None:
    """The table that a file is by its first lines; None if it is a list, or nobody knows."""
    for separator in SEPARATORS:
        rows = _even_rows(lines, separator)
        found = _judged(rows, separator) if rows else None
        if found is not None and len(rows) >= _rows_needed(rows, found):
            return found
    return None


def doubtful_separator(lines: Sequence[str]) -> str:
    """What may separate cells in these lines, which are no certain table; "" if nothing does."""
    for separator in SEPARATORS:
        rows = _even_rows(lines, separator)
        if len(rows) > 1 and _judged(rows, separator) and not _goes_on(rows):
            return separator
    return ""


def table_as_said(lines: Sequence[str], wanted: str = "", *, first: str = "") -> Table:
    """The table that whoever reads these lines says it is. Raises UsageError, with what to say, where that is unclear.

    `wanted`: name or number of the column, from 1. `first`: the separator that its name tells.
    """
    if lines and lines[0][:-1].lower() == EXCEL_LINE and lines[0][-1] in SEPARATORS:
        first, lines = lines[0][4], lines[1:]
    best, best_rank = None, (False, False, 0, 0)
    for separator in SEPARATORS:
        rows = _rows(lines, separator, is_whole=True)
        found = _judged(rows, separator, wanted)
        width = len(rows[0]) if rows else 0
        even = sum(len(row) == width for row in rows)
        rank = (separator == first, found is not None and width > 1, even if width > 1 else 0, width)
        if rank > best_rank:
            best, best_rank = (separator, rows, found), rank
    separator, rows, found = best or (",", _rows(lines, ","), _judged(_rows(lines, ","), ",", wanted))
    if found is None:
        raise UsageError(_unclear(rows, separator, wanted))
    return found


def _unclear(rows: Sequence[list[str]], separator: str, wanted: str) -> str:
    columns = [bare(cell)[:_NAME_CHARS_SHOWN] for cell in rows[0]] if rows else []
    some = ", ".join(repr(name) for name in columns[:_COLUMNS_SHOWN])
    more = f" and {len(columns) - _COLUMNS_SHOWN} more" if len(columns) > _COLUMNS_SHOWN else ""
    what = f"column {wanted!r}" if wanted else "column of URLs"
    return (
        f"no {what} in this CSV ({SEPARATORS[separator]}): its first row has {some or 'nothing'}{more}; "
        "give --column NAME, or its number"
    )


def _rows(lines: Sequence[str], separator: str, *, is_whole: bool = False) -> list[list[str]]:
    """The rows of the beginning of a file; without a row that goes on, unless the file does not (`is_whole`)."""
    reader = RowReader(separator)
    rows = [row.cells for row in reader.take(enumerate(lines, 1)) if not row.flaw]
    return rows + [row.cells for row in reader.end() if not row.flaw] if is_whole else rows


def _even_rows(lines: Sequence[str], separator: str) -> list[list[str]]:
    """The same, if all have as many cells, and more than one; else nothing."""
    if not lines or separator not in lines[0]:
        return []
    rows = _rows(lines, separator)
    widths = {len(row) for row in rows}
    return rows if len(widths) == 1 and widths != {1} else []


def _judged(rows: Sequence[list[str]], separator: str, wanted: str = "") -> Table | None:
    """Where the URLs are, if that is clear."""
    if not rows:
        return None
    first = [bare(cell) for cell in rows[0]]
    if wanted:
        return _wanted(first, separator, wanted)
    has_names = not any(map(is_url, first))
    folded = [name.casefold() for name in first]
    if has_names and (named := next((name for name in NAMES if name in folded), "")):
        column = folded.index(named)
        return Table(separator, column, first[column], has_names=True)
    below = rows[1:] if has_names else rows
    for is_like in (_SCHEME.match, _HOST.fullmatch):
        best = max(range(len(first)), key=lambda n: _likeness(below, n, is_like))
        if _likeness(below, best, is_like) > 0:
            is_name = has_names and not is_like(first[best])
            return Table(separator, best, first[best] if is_name else "", has_names=is_name)
    return None


def _wanted(first: list[str], separator: str, wanted: str) -> Table | None:
    folded = [name.casefold() for name in first]
    if (name := bare(wanted).casefold()) in folded:
        return Table(separator, folded.index(name), first[folded.index(name)], has_names=True)
    if wanted.isdecimal() and 1 <= int(wanted[:9]) <= len(first):
        column = int(wanted[:9]) - 1
        has_names = not is_url(first[column])
        return Table(separator, column, first[column] if has_names else "", has_names=has_names)
    return None


def _likeness(rows: Sequence[list[str]], column: int, is_like: Callable[[str], object]) -> int:
    """In how many rows the column has a URL; 0 if it also has something else."""
    cells = [text for row in rows if len(row) > column and (text := bare(row[column]))]
    return len(cells) if all(map(is_like, cells)) else 0


def is_url(text: str) -> bool:
    """Does it look like a URL, or like the name of a host?"""
    return bool(_SCHEME.match(text) or _HOST.fullmatch(text))


def _rows_needed(rows: Sequence[list[str]], table: Table) -> int:
    """How many make the table certain."""
    if table.has_names:
        return 1 if table.name.casefold() in NAMES else 2
    if table.column > 0 or table.separator == "\t":
        return 2
    rest = [[bare(cell) for cell in row[1:]] for row in rows]
    if any(" " in cell or _SCHEME.match(cell) for cells in rest for cell in cells):
        return 2
    differ = len({bare(row[0]) for row in rows}) == len(rows)
    return UNLIKELY_ROWS if differ and not _goes_on(rows) else SAMPLE_ROWS + 1


def _goes_on(rows: Sequence[list[str]]) -> bool:
    """May the last cells all be the ends of addresses?"""
    return all(_END_OF_URL.fullmatch(bare(row[-1])) for row in rows)
