"""Text for terminals: numbers, times and sizes in words, tables, and where it is printed."""

import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import IO, Any
from unicodedata import east_asian_width

from crawler.errors import ArchiveError
from crawler.redaction import redact
from crawler.rules.text import one_line, printable, printable_json

# Numbers as people read them: durations, sizes, counts. Pure; knows nothing of what they count.

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def duration(seconds: float) -> str:
    """A duration in at most two units: "20 ms", "0.4 s", "42 s", "3 m 07 s", "2 h 05 m", "4 d 03 h"."""
    if 0 < seconds < 0.0995:
        return f"{max(1, round(seconds * 1000))} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    minutes = round(whole / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} m"
    hours = round(whole / 3600)
    return f"{hours // 24} d {hours % 24:02d} h"


def moment(at_s: float) -> str:
    """A wall time: "2026-11-21 08:05:13 UTC"."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def size(count: float) -> str:
    """Bytes in binary units with three digits: "0 B", "31.2 KiB", "1.45 GiB"."""
    unit = 0
    while count >= 1000 and unit < len(_SIZES) - 1:
        count /= 1024
        unit += 1
    if unit == 0:
        return f"{count:.0f} B"
    return f"{count:.{2 if count < 9.995 else 1 if count < 99.95 else 0}f} {_SIZES[unit]}"


def number(count: float) -> str:
    """A count with thin groups of thousands: "1,234,567"."""
    return f"{count:,.0f}"


def rate(per_second: float) -> str:
    """Pages per second, with a decimal only where it tells something."""
    return f"{per_second:,.1f}" if per_second < 9.95 else f"{per_second:,.0f}"


def failure_text(kind: str, detail: str) -> str:
    """A failure in words; the detail of a refused address or port is a whole message."""
    if kind in ("address_refused", "port_refused") and detail:
        return detail
    return f"{kind}: {detail}" if detail else str(kind)


_TOLD_BY_DETAIL = frozenset({"connect", "server_busy", "server_error", "challenged", "address_refused", "port_refused"})


def failure_reason(kind: str, detail: str) -> str:
    """A failure in few words, as in a list: "connection refused", "status 503", "dns not found: a.example"."""
    where = "robots.txt: " if detail.startswith("robots.txt: ") else ""
    said = detail[len(where) :].removeprefix(f"{kind}: ")
    if said.startswith("[Errno "):
        said = said.partition("] ")[2]
    if kind in _TOLD_BY_DETAIL and said:
        return where + (said[0].lower() + said[1:] if said[1:2].islower() else said)
    words = kind.replace("_", " ")
    return where + (f"{words}: {said}" if said else words)


def counted(count: int, noun: str, plural: str = "") -> str:
    """Like "1 page", "2,000 pages", "3 URLs"."""
    return f"{number(count)} {noun if count == 1 else plural or noun + 's'}"


def program() -> str:
    """How people can call us: by name, or by path where their PATH has no such name, as after ./scripts/crawl."""
    import shlex
    import shutil
    import sys
    from pathlib import Path

    called = Path(sys.argv[0]).absolute()
    if called.name not in ("crawler", "shardcrawl") or shutil.which("crawler") or not called.exists():
        return "crawler"
    return shlex.quote(str(called))


def by_number(node: str) -> tuple[tuple[int, str], ...]:
    """Sort key for names of nodes: web-2 before web-10."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", node))


# Tables in plain text, for terminals, pipes and logs alike. Knows columns, not what is in them.
#
# Each cell stays one line, whatever a site has put into it.

GAP = "  "
NOTHING = "-"  # what is zero or unknown: the eye shall find what is there


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Aligned columns under headers; the first `left` columns to the left, the others to the right."""
    headers, *rows = ([one_line(cell) for cell in line] for line in (headers, *rows))
    widths = [max(map(text_width, column)) for column in zip(headers, *rows, strict=True)]
    lines = [headers, *rows]
    return "\n".join(
        GAP.join(
            _cell(cell, width, left=n < left) for n, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """Names and values, one pair a line, values in one column."""
    pairs = [(one_line(name), one_line(value)) for name, value in pairs]
    width = max((text_width(name) for name, _ in pairs), default=0)
    return "\n".join(f"{_cell(name, width, left=True)}{GAP}{value}" for name, value in pairs)


def or_nothing(text: str, value: float) -> str:
    """The text, or a dash where its value is zero."""
    return text if value else NOTHING


def shortened(text: str, width: int) -> str:
    """At most `width` columns; what is cut out of the middle is marked."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def fitted(text: str, width: int, *, left: bool) -> str:
    """Exactly `width` columns: padded, or cut with a mark in its middle."""
    if text_width(text) <= width:
        return _cell(text, width, left=left)
    narrow = text if text.isascii() else "".join(c if text_width(c) == 1 else "□" for c in text)
    return _cell(shortened(narrow, width), width, left=left)


def _cell(text: str, width: int, *, left: bool) -> str:
    padding = " " * (width - text_width(text))
    return text + padding if left else padding + text


def text_width(text: str) -> int:
    """Columns on a terminal: wide characters take two."""
    return len(text) if text.isascii() else sum(2 if east_asian_width(c) in "WF" else 1 for c in text)


# Where text leaves for people and programs: every command prints through here, so that none can forget to clean it.
#
# What a site sends is in nearly every line that a command prints. `rules/text.py` says what is made visible.

_drawn_on: IO[str] | None = None  # the terminal that `redraw` has a line on


def out(text: str, *, stream: IO[str] | None = None) -> None:
    """Print text of one or more lines: to standard output, if no stream is given."""
    _write(printable(text) + "\n", sys.stdout if stream is None else stream)


def out_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    _write(printable_json(json.dumps(value)) + "\n", sys.stdout)


def show(value: object, text: str, *, as_json: bool) -> None:
    """An answer on stdout: the value for programs, or the text for people."""
    if as_json:
        from msgspec import to_builtins

        out_json(to_builtins(value))
    else:
        out(text)


def err(text: str) -> None:
    """Print text of one or more lines to standard error, at once."""
    out(text, stream=sys.stderr)
    flush(sys.stderr)


def say(line: str, *, stream: IO[str] | None = None) -> None:
    """Print one line to standard error, at once, whatever is in it. No secret of the settings gets out with it.

    When nobody reads it any more, as behind `head`, the work goes on without.
    """
    try:
        out(one_line(redact(line)), stream=stream or sys.stderr)
        flush(stream or sys.stderr)
    except BrokenPipeError:
        pass


def warn(line: str) -> None:
    """The same as the program speaks: what is wrong, and what to do."""
    say(f"crawler: {line}")


def redraw(text: str, *, stream: IO[str]) -> None:
    """Replace the last line of this terminal; "" removes it. It gives way to whatever is printed meanwhile."""
    global _drawn_on
    if text or _drawn_on is not None:
        put(f"\r\x1b[2K{one_line(text)}", stream)
        flush(stream)
    _drawn_on = stream if text else None


def repaint(text: str) -> None:
    """Replace what a terminal shows by this text, as far as it has room; elsewhere print it, and an empty line."""
    if not sys.stdout.isatty():
        out(text + "\n")
    else:
        columns, rows = shutil.get_terminal_size()
        lines = [line[: columns - 1] for line in printable(text).splitlines()[: rows - 1]]
        # Each line is erased to its end, then the rest of the screen: that does not flicker.
        _write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J", sys.stdout)
    flush(sys.stdout)


def put(text: str, stream: IO[str]) -> None:
    """Write text that needs no cleaning. Raises BrokenPipeError, and ArchiveError as `flush` does."""
    try:
        try:
            stream.write(text)
        except UnicodeEncodeError as error:  # a terminal that is not UTF-8
            stream.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))
    except BrokenPipeError:
        raise
    except OSError as error:
        _lost(stream, error)


def flush(stream: IO[str]) -> None:
    """Raises BrokenPipeError where nobody reads, and ArchiveError where standard output can't be written.

    Of standard error that can't be written nobody can be told: the work goes on without.
    """
    try:
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _lost(stream, error)


def finish() -> None:
    """Write what is left of standard output; of one that nobody reads any more, nothing. Raises ArchiveError."""
    try:
        flush(sys.stdout)
    except BrokenPipeError:
        _forget(sys.stdout)


def _forget(stream: IO[str]) -> None:
    """From here on it goes nowhere, so that nothing complains about it again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _lost(stream: IO[str], error: OSError) -> None:
    if stream is sys.stdout:
        _forget(stream)
        raise ArchiveError(f"can't write standard output: {error.strerror}") from None


def _write(text: str, stream: IO[str]) -> None:
    if _drawn_on is not None:
        redraw("", stream=_drawn_on)
    put(text, stream)
