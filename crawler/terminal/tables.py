"""Tables in plain text, for terminals, pipes and logs alike. Knows columns, not what is in them.

Each cell stays one line, whatever a site has put into it.
"""

from collections.abc import Sequence
from unicodedata import east_asian_width

from crawler.rules.text import one_line

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
