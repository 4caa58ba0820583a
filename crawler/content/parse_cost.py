"""An upper bound of the CPU time of parsing a body, known before the parser starts, which can't be interrupted.

The HTML algorithm takes more than linear time on four kinds of input, all measured with lexbor 2:

    depth       a tag may walk all open elements: 3 ns for each of them
    attributes  each is compared with those before it in its tag: 2.5 ns for each pair
    copies      formatting elements that are open when a block ends are copied into the next one: 0.25 us for each
                element, 0.14 us for each of its attributes
    adoption    the end tag of a formatting element moves blocks out of those that are open: 2 ns for the third power of
                the distinct ones, for each that is opened

Nothing here looks for closing tags, or takes anything for text, a comment or a script. A page can hide closing tags
from the parser, and then none of these elements ends. It can't hide a start tag. Elements that are copied are counted
by their distinct texts: the algorithm keeps three of those that are equal. Real pages have few distinct ones.
docs/internals/decisions/event-loop-and-parsing.md has the shapes that were measured.
"""

import enum
import math
import re
from collections import Counter
from typing import NamedTuple

BYTES_MAX = 4 * 1024 * 1024  # at 120 MB/s this size alone takes 40 ms, and its links more
INLINE_BYTES_MAX = 1024 * 1024  # longer ones only in the thread
CHEAP_MS = 500  # nearly all pages take a millisecond
LONG_MS = 1_500  # of walking; 2.5 s if the elements that are walked through exceed the caches
COPIES_MS = 400  # some 1.4 MB of memory for each

_STEP_MS = 3e-6  # of the walk through the open elements
_PAIR_MS = 2.5e-6  # of attributes of one tag
_COPY_MS = 2.5e-4
_COPIED_ATTRIBUTE_MS = 1.4e-4
_COPIED_BYTE_MS = 5e-5  # for each byte of formatting tags that are open, whatever is in them
_MOVE_MS = 2e-6
_END_MS = 3e-5  # of one end tag that moves blocks, for the square of the open elements
_MANY_TAGS = 8_000  # then it pays to tell end tags from start tags
_TAGS_THAT_MOVE = 1_400  # fewer move blocks for 0.5 s at most: the fourth power of the tags
_KEPT_EQUAL = 3  # "Noah's Ark clause" of the HTML standard
_ATTRIBUTE_BYTES = 3  # at least: of ten thousand distinct ones, each with what separates it from the next
_TAG_BYTES_MAX = 16 * 1024  # of those that are not read to their end; 5,000 attributes
_TAIL_BYTES = 5 * 1024  # formatting elements in the last ones take 0.3 s at most, however they are arranged

_BEFORE_VALUE = b"= \t\n\f\r"
_IN_SINGLE_QUOTES = re.compile(rb"=[ \t\n\f\r]*+'")
_MAYBE_IN_VALUE = re.compile(rb"=[ \t\n\f\r]*+(?:\"[^\">]*+>|'[^'>]*+>)")  # a `>` that may be inside a value
_BLANK = rb"[ \t\n\f\r]"
_ATTRIBUTE = re.compile(  # as the tokenizer of the HTML standard reads it
    rb"(?:=[^ \t\n\f\r/>=]*+|[^ \t\n\f\r/>=]++)"
    rb"(?:%b*+=%b*+(?:\"[^\"]*+\"?|'[^']*+'?|[^ \t\n\f\r>\"'][^ \t\n\f\r>]*+)?+)?+" % (_BLANK, _BLANK)
)
_IN_TAG = re.compile(rb"(?:[ \t\n\f\r/]++|%b)*+" % _ATTRIBUTE.pattern)
TAG = re.compile(rb"</?[a-zA-Z][^ \t\n\f\r/>]*+" + _IN_TAG.pattern)
_START = re.compile(rb"</?[a-zA-Z]")
# The first two letters of formatting elements with attributes pass, and few others, not those of `img`. `a` is not
# among them: only one is copied. Without attributes there are at most 39, which take 6 us for each block.
_MAYBE_FORMATTING = re.compile(rb"<[bcefinstuBCEFINSTU][oimtOIMT \t\n\f\r/](?<![iI][mM])[^>]*+")
_FORMATTING = re.compile(rb"<(?:b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)[ \t\n\f\r/]", re.IGNORECASE)
_ENDS_IN_VALUE = re.compile(rb"=[ \t\n\f\r]*+(?:\"[^\"]*+|'[^']*+)\Z")  # the `>` behind it does not end the tag

_NO_SEPARATORS = bytes(set(range(256)) - set(b" \t\n\f\r/\"'"))  # one of these is before each attribute


class Cost(enum.Enum):
    """Cost of parsing one body, at worst."""

    CHEAP = enum.auto()  # CHEAP_MS
    LONG = enum.auto()  # LONG_MS, inside the parser, which lets other threads run
    EXPENSIVE = enum.auto()  # perhaps hours


def cost_of(markup: bytes) -> Cost:
    """How long parsing `markup` may take, which is in UTF-8 as the parser gets it."""
    size = len(markup)
    if size <= _TAIL_BYTES:
        return Cost.CHEAP
    if size > BYTES_MAX:
        return Cost.EXPENSIVE
    tags = starts = markup.count(b"<")  # at most
    if tags > _MANY_TAGS:
        starts = tags - markup.count(b"</")
    walk_ms = starts * (tags - starts / 2) * _STEP_MS
    if walk_ms > LONG_MS or _has_long_tag(markup, _attributes_max(size, starts)):
        return Cost.EXPENSIVE
    spent_ms = max(walk_ms, _formatting_ms(markup, tags, starts))
    if spent_ms > LONG_MS:
        return Cost.EXPENSIVE
    return Cost.CHEAP if size <= INLINE_BYTES_MAX and spent_ms <= CHEAP_MS else Cost.LONG


class _Formatting(NamedTuple):
    """Formatting elements with attributes: how many the parser keeps open, the attributes of these, how many there
    are.
    """

    kept: int
    attributes: int
    opened: int


def _formatting_ms(markup: bytes, tags: int, starts: int) -> float:
    """Of moving blocks out of formatting elements; infinite if these have too many copies."""
    # All that is there, if each tag were one of them, or what it is copied into:
    if starts * len(markup) * _COPIED_BYTE_MS <= COPIES_MS and tags <= _TAGS_THAT_MOVE:
        return 0
    found = _MAYBE_FORMATTING.findall(markup, 0, len(markup) - _TAIL_BYTES)
    distinct = set(found)
    texts = b">".join(distinct) + b">"
    if not _MAYBE_IN_VALUE.search(texts):
        separators = len(texts.translate(None, _NO_SEPARATORS))
        at_most = _Formatting(min(len(found), _KEPT_EQUAL * len(distinct)), _KEPT_EQUAL * separators, len(found))
        if (spent_ms := _moved_ms(at_most, tags, starts)) <= CHEAP_MS:
            return spent_ms
    exactly = _formatting(markup, found)
    if exactly is None:
        return math.inf
    spent_ms = _moved_ms(exactly, tags, starts)
    if spent_ms <= CHEAP_MS or starts < tags:  # end tags are not among them
        return spent_ms
    return _moved_ms(exactly, tags, tags - markup.count(b"</"))


def _moved_ms(formatting: _Formatting, tags: int, starts: int) -> float:
    kept, attributes, opened = formatting
    if (kept * _COPY_MS + attributes * _COPIED_ATTRIBUTE_MS) * starts > COPIES_MS:
        return math.inf
    return min(opened * kept * _MOVE_MS, tags * _END_MS) * kept**2


def _formatting(markup: bytes, found: list[bytes]) -> _Formatting | None:
    """Read exactly, as the parser reads them; None: too much to read. `found`: as far as the first `>` of each."""
    times = Counter(found)
    if cut := set(filter(_ENDS_IN_VALUE.search, times)):  # a `>` in quotes
        left = 2 * len(markup)  # bytes: tags that overlap are not read again and again
        for opening in _MAYBE_FORMATTING.finditer(markup, 0, len(markup) - _TAIL_BYTES):
            if (text := opening.group()) in cut:
                at = opening.start()
                tag = TAG.match(markup, at, at + _TAG_BYTES_MAX)
                assert tag is not None
                left -= tag.end() - at
                if left < 0 or tag.end() == at + _TAG_BYTES_MAX:
                    return None
                times[text] -= 1
                times[tag.group()] += 1
    kept = attributes = opened = 0
    for text, count in times.items():
        if name := _FORMATTING.match(text):
            equal = min(count, _KEPT_EQUAL)
            kept += equal
            attributes += equal * len(_ATTRIBUTE.findall(text, name.end()))
            opened += count
    return _Formatting(kept, attributes, opened)


def _attributes_max(size: int, starts: int) -> int:
    """How many a tag may have: if all tags have as many, or if each start tag copies an `a` with so many."""
    compared_ms = CHEAP_MS if size <= INLINE_BYTES_MAX else LONG_MS
    compared = compared_ms / _PAIR_MS / (size / _ATTRIBUTE_BYTES)
    copied = CHEAP_MS / _COPIED_ATTRIBUTE_MS / (starts + 1)
    return int(min(compared, copied, _TAG_BYTES_MAX / _ATTRIBUTE_BYTES))


def _has_long_tag(markup: bytes, attributes_max: int) -> bool:
    """Does a tag have more attributes?

    Goes from one place where no tag is open to the next. Where they are further apart than such a tag is long, each tag
    that begins between them is read.
    """
    size, step = len(markup), attributes_max * _ATTRIBUTE_BYTES
    begin = 0  # all tags before it are short
    left = 2 * size  # bytes to read: tags that overlap are not read again and again
    while size - begin > step:
        begin = markup.find(b"<", begin)
        if begin < 0:
            return False
        end = begin + step
        at = markup.rfind(b'">', begin + 1, end)
        is_end = at > 0 and markup[at - 1] not in _BEFORE_VALUE
        if is_end and (markup.find(b"'", begin, at) < 0 or not _IN_SINGLE_QUOTES.search(markup, begin, at)):
            begin = at + 2  # this quote closes a value or is part of a name; in both cases the `>` ends the tag
            continue
        at = markup.rfind(b">", begin, end)
        if at > 0 and not _MAYBE_IN_VALUE.search(markup, begin, at + 1):
            begin = at + 1  # the first `>` behind each start of a tag ends it
            continue
        for opening in _START.finditer(markup, begin, end):
            tag = TAG.match(markup, opening.start())
            assert tag is not None
            length = tag.end() - opening.start()
            left -= length
            if left < 0 or (length > step and len(_ATTRIBUTE.findall(tag.group(), 2)) > attributes_max):
                return True
        begin = end
    return False
