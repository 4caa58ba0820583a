"""An upper bound of the CPU time of parsing a body, known before the parser starts, which can't be interrupted.

The HTML algorithm takes more than linear time on four kinds of input, all measured with lexbor 2:

    depth              a tag may walk all open elements: 3 ns for each tag and each start tag
    attributes         each is compared with those before it in its tag: 2.5 ns for each pair
    reopened elements  formatting elements that are open when a block ends are copied into the next one: 0.3 us for each
                       element, 0.1 us for each of its attributes
    reopened links     the same, but only the last `a` is copied

Nothing here looks for closing tags, or takes anything for text, a comment or a script. A page can hide closing tags
from the parser, and then none of these elements ends. It can't hide a start tag. Elements that are copied are counted
by their distinct texts: the algorithm keeps three of those that are equal. Real pages have few distinct ones.
docs/internals/decisions/event-loop-and-parsing.md has the shapes that were measured.
"""

import enum
import re

BYTES_MAX = 4 * 1024 * 1024  # at 120 MB/s this size alone takes 40 ms, and its links more
INLINE_BYTES_MAX = 1024 * 1024  # longer ones only in the thread
CHEAP_MS = 300  # of walking; nearly all pages take a millisecond
LONG_MS = 2_500
COPIES_MS = 300  # of copying: some 1.6 MB of memory for each

_STEP_MS = 3e-6  # of the walk through the open elements
_PAIR_MS = 2.5e-6  # of attributes of one tag
_COPY_MS = 3e-4
_COPIED_ATTRIBUTE_MS = 1e-4
_KEPT_EQUAL = 3  # "Noah's Ark clause" of the HTML standard
_ATTRIBUTE_BYTES = 3  # at least: of ten thousand distinct ones, each with what separates it from the next
_TAG_BYTES_MAX = 16 * 1024  # of those that are not read to their end; 5,000 attributes
_TRY_BYTES = 64  # what the try of a tag costs, as if so many bytes more were read

_BLANK = rb"[ \t\n\f\r]"
_ATTRIBUTE = (  # as the tokenizer of the HTML standard reads it
    rb"(?:=[^ \t\n\f\r/>=]*+|[^ \t\n\f\r/>=]++)"
    rb"(?:%b*+=%b*+(?:\"[^\"]*+\"?|'[^']*+'?|[^ \t\n\f\r>\"'][^ \t\n\f\r>]*+)?+)?+"
) % (_BLANK, _BLANK)  # fmt: skip
_ATTRIBUTES = rb"(?:[ \t\n\f\r/]++|%b)*+" % _ATTRIBUTE
_EACH_ATTRIBUTE = re.compile(_ATTRIBUTE)
_IN_TAG = re.compile(_ATTRIBUTES)
_TAG = re.compile(rb"</?[a-zA-Z][^ \t\n\f\r/>]*+" + _ATTRIBUTES)
_START = re.compile(rb"</?[a-zA-Z]")
# An attribute and what comes before it, read as the tokenizer does. Nothing in it can hide the end of the tag.
_PLAIN = rb"[^<>\"'=]%b+(?<=[a-z])=(?:\"[^<>\"]*+\"|'[^<>']*+'|[^<>\"'= \t\n\f\r]++)"
# b big code em font i nobr s small strike strong tt u, if they may have attributes: of others three are kept. The whole
# tag if it is plain, otherwise its name.
_FORMATTING = re.compile(
    rb"<[bcefinstu](?:|m|t|ig|ode|ont|obr|mall|trike|trong)[ \t\n\f\r/](?:(?:%b)*+[^<>\"'=]*+>)?+" % (_PLAIN % b"*"),
    re.IGNORECASE,
)
# A link that is not plain, or has more than a hundred attributes.
_ODD_LINK = re.compile(rb"<a[ \t\n\f\r/](?!(?:%b){0,8}+[^<>\"'=]{0,24}+>)" % (_PLAIN % b"{0,24}"), re.IGNORECASE)


class Cost(enum.Enum):
    """Cost of parsing one body, at worst."""

    CHEAP = enum.auto()  # CHEAP_MS
    LONG = enum.auto()  # LONG_MS, inside the parser, which lets other threads run
    EXPENSIVE = enum.auto()  # perhaps hours


def cost_of(markup: bytes) -> Cost:
    """How long parsing `markup` may take, which is in UTF-8 as the parser gets it. Costs 2 to 5 us a KB."""
    size = len(markup)
    if size > BYTES_MAX:
        return Cost.EXPENSIVE
    tags = markup.count(b"<")
    starts = tags if tags * tags * _STEP_MS <= CHEAP_MS else tags - markup.count(b"</")  # at most
    walk_ms = starts * tags * _STEP_MS
    if walk_ms > LONG_MS or _has_long_tag(markup) or _copies_much(markup, tags):
        return Cost.EXPENSIVE
    return Cost.CHEAP if size <= INLINE_BYTES_MAX and walk_ms <= CHEAP_MS else Cost.LONG


def _attributes_max(size: int) -> int:
    """How many attributes a tag may have: if the whole body is such tags, they are compared for this long."""
    limit_ms = CHEAP_MS if size <= INLINE_BYTES_MAX else LONG_MS
    return int(min(limit_ms / _PAIR_MS / (size / _ATTRIBUTE_BYTES + 1), _TAG_BYTES_MAX / _ATTRIBUTE_BYTES))


def _copies_much(markup: bytes, tags: int) -> bool:
    """May copying formatting elements take longer than COPIES_MS?"""
    if tags * len(markup) / _ATTRIBUTE_BYTES * _COPIED_ATTRIBUTE_MS <= 2 * COPIES_MS:
        return False  # whatever they are: what is copied and where to share the body
    distinct = set(_FORMATTING.findall(markup))
    if not all(tag.endswith(b">") for tag in distinct):
        distinct = _in_full(markup)
        if not distinct:
            return True
    one_block_ms = sum(_COPY_MS + _COPIED_ATTRIBUTE_MS * len(_EACH_ATTRIBUTE.findall(tag, 2)) for tag in distinct)
    copies_ms = _KEPT_EQUAL * one_block_ms * tags
    if copies_ms > COPIES_MS:
        starts = tags - markup.count(b"</")  # each block has a start tag
        if copies_ms * starts / tags > COPIES_MS:
            return True
    link_max = int(COPIES_MS / _COPIED_ATTRIBUTE_MS / tags)
    return 2 * link_max < _attributes_max(len(markup)) and _has_long_link(markup, link_max)


def _has_long_link(markup: bytes, attributes_max: int) -> bool:
    """Does an `a` have more attributes than this, and some hundred?"""
    left = len(markup) + _TAG_BYTES_MAX  # bytes to read: tags that overlap are not read again and again
    for opening in _ODD_LINK.finditer(markup):
        tag = _TAG.match(markup, opening.start(), opening.start() + _TAG_BYTES_MAX)
        assert tag is not None
        left -= tag.end() - tag.start()
        if left < 0:
            return True
        is_long = tag.end() - tag.start() > attributes_max * _ATTRIBUTE_BYTES
        if is_long and len(_EACH_ATTRIBUTE.findall(tag.group(), 2)) > attributes_max:
            return True
    return False


def _in_full(markup: bytes) -> set[bytes]:
    """The distinct formatting tags as the parser reads them, also those with a `>` in quotes; empty: too much work."""
    distinct: set[bytes] = set()
    left = len(markup) + _TAG_BYTES_MAX  # bytes to read: tags that overlap are not read again and again
    for opening in _FORMATTING.finditer(markup):
        at = opening.start()
        tag = _TAG.match(markup, at, at + _TAG_BYTES_MAX)
        assert tag is not None
        left -= tag.end() - at
        if left < 0:
            return set()
        # Two that are cut off here may differ.
        distinct.add(tag.group() if tag.end() < at + _TAG_BYTES_MAX else b"%b %d" % (tag.group(), at))
    return distinct


def _has_long_tag(markup: bytes) -> bool:
    """Does a tag have more attributes than may be compared, if the whole body were such tags?

    Such a tag is so long that it covers a window of half its length from end to end. Few windows can be inside a tag:
    any `>` outside of quotes ends it. For these, each `<` before that may begin the tag is tried.
    """
    size = len(markup)
    attributes_max = _attributes_max(size)
    window = attributes_max * _ATTRIBUTE_BYTES // 2
    run = tried = 0  # where the windows begin that may be inside one tag; the `<` before `tried` begin no long tag
    left = size + _TAG_BYTES_MAX  # bytes to read: tags that overlap are not read again and again
    for start in range(0, size - window + 1, window):
        may_cover, has_attributes = _may_cover(markup, max(0, run - window), start, start + window)
        if not may_cover:
            run = start + window
            continue
        if not has_attributes:
            continue
        for opening in _START.finditer(markup, max(tried, run - window), start):
            tag = _TAG.match(markup, opening.start())
            assert tag is not None
            left -= tag.end() - tag.start() + _TRY_BYTES
            if left < 0:
                return True
            if tag.end() < start + window:
                continue
            if len(_EACH_ATTRIBUTE.findall(markup, opening.end(), tag.end())) > attributes_max:
                return True
        tried = start
    return False


def _may_cover(markup: bytes, begin: int, start: int, end: int) -> tuple[bool, bool]:
    """May a tag from `begin` or later reach over the window from `start` to `end`, and may it have attributes there?"""
    first = markup.find(b">", start, end)
    if first < 0:
        return True, True
    covers = False
    for quote in (b'"', b"'"):  # a tag that does not end with this `>` has it in a quoted value
        if markup.rfind(quote, begin, first) < 0:
            continue
        closing = markup.find(quote, first, end)
        if closing < 0:
            covers = True
        elif _IN_TAG.match(markup, closing + 1, end).end() == end:  # type: ignore[union-attr]
            return True, True
    return covers, False
