"""Lists with a URL a line: seed files, URL lists of imports, text sitemaps. One reader for all of them. Pure.

line ends           LF, CR LF, or CR alone
blanks around       cut, also those beyond ASCII and byte-order marks; empty lines are none
# ...               a comment: a whole line, or what follows a blank or tab
URL<TAB>fields      the URL; a date and a priority are read, what else is there is in `fields`
URL 2026-01-02 0.8  likewise, if all words behind the URL are dates, times, priorities or frequencies
URL with blanks     one URL, as browsers read it
two URLs, bytes that are not text, NUL      refused, with a reason
"""

import codecs
import re
from collections.abc import Iterator
from typing import NamedTuple

from crawler.rules.urls import without_comment

LINE_MAX = 1 << 20  # bytes, or characters: a longer line is no URL: it is cut, so that memory is bounded
TWO_URLS = "has more than one URL: give each a line of its own"
NOT_TEXT = "has bytes that are not UTF-8, so nobody knows which URL is meant"

_AROUND = "\ufeff\u200b\u2060"  # marks without width, which copying leaves at the ends of lines
_LINE = re.compile(r"[^\r\n]+")
_URL = re.compile(r"https?://", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:T[\d:.,Z+-]{2,30})?")
_TIME = re.compile(r"\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?")
_PRIORITY = re.compile(r"0?\.\d{1,9}|1\.0{1,9}")
_FREQUENCIES = frozenset(("always", "hourly", "daily", "weekly", "monthly", "yearly", "never"))


class ListedUrl(NamedTuple):
    """A line: its URL as written, and what was behind it. `flaw`: why it can't be used; "" if it can.

    `is_mended`: the line has more than a URL. `fields`: of that, what has no meaning here.
    """

    url: str
    lastmod: str = ""
    priority: str = ""
    is_mended: bool = False
    fields: tuple[str, ...] = ()
    flaw: str = ""


def listed(line: str) -> ListedUrl | None:
    """What a line has; None for an empty one and a comment."""
    text = _stripped(line)
    if not text or text.startswith("#"):
        return None
    if "\ufffd" in text or "\0" in text:
        return ListedUrl(text, flaw=NOT_TEXT)
    url, tab, rest = without_comment(text).partition("\t")
    first, *words = url.split()
    fields = rest.split("\t") if tab else []
    if words and all(map(_is_of_sitemaps, words)):
        url, fields = first, words + fields
        words = []
    if any(_URL.match(_stripped(word)) for word in (*words, *fields)):
        return ListedUrl(text, flaw=TWO_URLS)
    fields = [word for field in fields if (word := _stripped(field))]
    return ListedUrl(
        _stripped(url),
        lastmod=next(filter(_DATE.fullmatch, fields), ""),
        priority=next(filter(_PRIORITY.fullmatch, fields), ""),
        is_mended=bool(fields),
        fields=tuple(field for field in fields if not all(map(_is_of_sitemaps, field.split()))),
    )


def _stripped(text: str) -> str:
    return text.strip().strip(_AROUND).strip()


def _is_of_sitemaps(word: str) -> bool:
    """Is it what a sitemap has for a URL: a date, a time, a priority, how often it changes?"""
    is_number = _DATE.fullmatch(word) or _TIME.fullmatch(word) or _PRIORITY.fullmatch(word)
    return is_number is not None or word.lower() in _FREQUENCIES


def lines_in(text: str) -> Iterator[str]:
    """The lines of a text that are not empty, one by one: a list of all takes far more memory than the text."""
    for line in _LINE.finditer(text):
        yield text[line.start() : min(line.end(), line.start() + LINE_MAX)]


class LineSplitter:
    """Cuts a stream of bytes into lines, as text. UTF-16 with a byte-order mark is read, too."""

    def __init__(self) -> None:
        self._rest = b""
        self._utf_16: codecs.IncrementalDecoder | None = None
        self._is_begun = False

    def lines(self, block: bytes) -> list[str]:
        """The lines that end in this block, empty ones too."""
        data = self._rest + self._in_utf_8(block)
        is_half = data.endswith(b"\r")  # it may be half of a line end
        *found, rest = _split(data.removesuffix(b"\r"))
        self._rest = rest[:LINE_MAX] + b"\r" * is_half
        return [line[:LINE_MAX].decode("utf-8", "replace") for line in found]

    def last(self) -> list[str]:
        """What follows the last line end, if anything does."""
        rest, self._rest = self._rest, b""
        return [line.decode("utf-8", "replace") for line in rest.split(b"\r") if line]

    def _in_utf_8(self, block: bytes) -> bytes:
        if not self._is_begun and block:
            self._is_begun = True
            if block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                self._utf_16 = codecs.getincrementaldecoder("utf-16")("replace")
        return block if self._utf_16 is None else self._utf_16.decode(block).encode("utf-8", "replace")


def _split(data: bytes) -> list[bytes]:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
