"""Estimates the cost of parsing a body, before the parser starts, which can't be interrupted.

The HTML algorithm takes more than linear time on three kinds of input, measured with lexbor 2 on the reference
machine: depth (9,500 open elements: up to 0.28 s, 50,000: 2 s, quadratic), attributes of one tag (10,000: 0.2 s,
quadratic), and unclosed formatting elements that every later paragraph reopens (460 of them before 460 paragraphs:
0.3 s, 4,000 before 4,000: 45 s). Depth is bounded for any content. The other two are detected in what generators and
fuzzers produce, not in a page written to evade this file, so the caller still needs a deadline.
"""

import enum
import re

OPENS_MAX = 9_500  # opening tags: an upper bound of the depth
DEEP_MAX = 50_000  # the longest pages of documentation have this many, without being deep
TAG_BYTES_MAX = 16 * 1024  # about 4,000 attributes
REOPENED_MAX = 150_000  # unclosed formatting elements times tags
BYTES_MAX = 4 * 1024 * 1024  # at 120 MB/s this size alone takes 40 ms, and its links more

_FEW_TAGS = 300  # fewer are never expensive
_NO_MARKUP = bytes(set(range(256)) - set(b"</"))
_FORMATTING = rb"(?:a|b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)"
_OPENED = re.compile(rb"<" + _FORMATTING + rb"[\s/]", re.IGNORECASE)
_CLOSED = re.compile(rb"</" + _FORMATTING + rb"[\s>]", re.IGNORECASE)


class Cost(enum.Enum):
    """Cost of parsing one body."""

    CHEAP = enum.auto()  # at most 0.3 s, a millisecond for nearly all
    LONG = enum.auto()  # at most 2 s, inside the parser, which lets other threads run
    EXPENSIVE = enum.auto()  # perhaps hours


def cost_of(body: bytes) -> Cost:
    """How long parsing `body` may take. Costs about 1 us per KB."""
    if len(body) > BYTES_MAX:
        return Cost.EXPENSIVE
    if len(body) > TAG_BYTES_MAX and _has_long_tag(body):
        return Cost.EXPENSIVE
    markup = body.translate(None, _NO_MARKUP)  # one pass over the body for both counts
    tags = markup.count(b"<")
    if tags <= _FEW_TAGS:
        return Cost.CHEAP
    # Pages that close their tags have a slash for every other tag, besides those of their URLs.
    if (len(markup) - tags) * 3 < tags and _formatting_left_open(body) * tags > REOPENED_MAX:
        return Cost.EXPENSIVE
    opens = tags if tags <= OPENS_MAX else tags - body.count(b"</")
    if opens <= OPENS_MAX:
        return Cost.CHEAP
    return Cost.LONG if opens <= DEEP_MAX else Cost.EXPENSIVE


def _has_long_tag(body: bytes) -> bool:
    """Looks for windows without any `<`: before text and scripts the last tag is closed, in a long tag it is not."""
    half = TAG_BYTES_MAX // 2
    is_open = False  # the last `<` before the window has no `>` yet
    for start in range(0, len(body) - half + 1, half):
        opening = body.rfind(b"<", start, start + half)
        if opening >= 0:
            is_open = body.find(b">", opening, start + half) < 0
        elif is_open and body.find(b">", start, start + half) >= 0:
            is_open = False
        elif is_open and not _is_one_value(body, start, half):
            return True
    return False


def _is_one_value(body: bytes, start: int, size: int) -> bool:
    """A window inside one attribute's value, most often an image in base64, has hardly any blanks."""
    window = body[start : start + size]
    return sum(map(window.count, (b" ", b"\n", b"\t", b"\f", b"\r", b"/"))) < size // 40


def _formatting_left_open(body: bytes) -> int:
    return len(_OPENED.findall(body)) - len(_CLOSED.findall(body))
