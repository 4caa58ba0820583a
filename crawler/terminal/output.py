"""Where text leaves for people and programs: every command prints through here, so that none can forget to clean it.

What a site sends is in nearly every line that a command prints. `rules/text.py` says what is made visible.
"""

import json
import os
import shutil
import sys
from typing import IO, Any

from crawler.errors import ArchiveError
from crawler.redaction import redact
from crawler.rules.text import one_line, printable, printable_json

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
