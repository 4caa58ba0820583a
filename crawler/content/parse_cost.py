"""What will parsing a body cost? A cheap estimate, made before the parser that nothing can stop once it runs.

The HTML algorithm costs more than its input in three shapes, measured with lexbor 2 on the reference machine:
depth (9,500 open elements: up to 0.28 s, 50,000: 2 s, quadratic), attributes of one tag (10,000: 0.2 s, quadratic),
and unclosed formatting elements that every later paragraph opens anew (460 of them before 460 paragraphs: 0.3 s,
4,000 before 4,000: 45 s). Depth is bounded whatever the content; the other two are found as generators and fuzzers
make them, not when a page is written against this very file: the deadline of whoever waits for the parse stays
necessary.
"""

import enum
import re

OPENS_MAX = 9_500  # nothing can be nested deeper than it has opening tags
DEEP_MAX = 50_000  # the longest pages of documentation have that many, nested no deeper than others
TAG_BYTES_MAX = 16 * 1024  # some 4,000 attributes
REOPENED_MAX = 150_000  # unclosed formatting elements times tags
BYTES_MAX = 4 * 1024 * 1024  # plain size: at 120 MB/s this alone takes 40 ms, its links take more

_FEW_TAGS = 300  # below, no shape is dear
_NO_MARKUP = bytes(set(range(256)) - set(b"</"))
_FORMATTING = rb"(?:a|b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)"
_OPENED = re.compile(rb"<" + _FORMATTING + rb"[\s/]", re.IGNORECASE)
_CLOSED = re.compile(rb"</" + _FORMATTING + rb"[\s>]", re.IGNORECASE)


class Cost(enum.Enum):
    """Of parsing one body."""

    CHEAP = enum.auto()  # 0.3 s at most, a millisecond for nearly all
    LONG = enum.auto()  # 2 s at most, in the parser itself, which lets other threads run meanwhile
    EXPENSIVE = enum.auto()  # perhaps without end


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
    # Pages that close what they open have a slash for every other tag, besides those of their URLs.
    if (len(markup) - tags) * 3 < tags and _formatting_left_open(body) * tags > REOPENED_MAX:
        return Cost.EXPENSIVE
    opens = tags if tags <= OPENS_MAX else tags - body.count(b"</")
    if opens <= OPENS_MAX:
        return Cost.CHEAP
    return Cost.LONG if opens <= DEEP_MAX else Cost.EXPENSIVE


def _has_long_tag(body: bytes) -> bool:
    """Looks at windows without any `<`: text and scripts have their `>` before them, a long tag has not."""
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
    """A window full of one attribute's value, an image in base64 most often, has hardly any blanks."""
    window = body[start : start + size]
    return sum(map(window.count, (b" ", b"\n", b"\t", b"\f", b"\r", b"/"))) < size // 40


def _formatting_left_open(body: bytes) -> int:
    return len(_OPENED.findall(body)) - len(_CLOSED.findall(body))
