"""Lists with a URL a line: seed files, URL lists of imports, text sitemaps. One reader for all of them. Pure.

bytes               UTF-8; UTF-16 and UTF-32 with a byte-order mark; UTF-16 without one, by its zeros
line ends           LF, CR LF, or CR alone
blanks around       cut, also those beyond ASCII, byte-order marks and marks without width; empty lines are none
"URL", 'URL', <URL> the URL, also with a comma behind; a string of JSON is decoded
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

import msgspec

from crawler.rules.urls import without_comment

LINE_MAX = 1 << 20  # bytes, or characters: a longer line is no URL: it is cut, so that memory is bounded
TWO_URLS = "has more than one URL: give each a line of its own"
NOT_TEXT = "has bytes that are not UTF-8, so nobody knows which URL is meant"

# What has no width, and stays at the ends of lines that were copied: joiners, marks of direction, soft hyphens.
_AROUND = "\ufeff\u00ad\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069"
_BLANKS = _AROUND + "".join(filter(str.isspace, map(chr, range(0x3001))))
_QUOTES = {'"': '"', "'": "'", "<": ">", "\u201c": "\u201d", "\u201e": "\u201c", "\u00ab": "\u00bb"}
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
    text = bare(line)
    if not text or text.startswith("#"):
        return None
    if "\ufffd" in text or "\0" in text:
        return ListedUrl(text, flaw=NOT_TEXT)
    url, tab, rest = _unquoted(without_comment(text)).partition("\t")
    first, *words = url.split()
    fields = rest.split("\t") if tab else []
    if words and all(map(_is_of_sitemaps, words)):
        url, fields = first, words + fields
        words = []
    if any(_URL.match(bare(word)) for word in (*words, *fields)):
        return ListedUrl(text, flaw=TWO_URLS)
    fields = [word for field in fields if (word := bare(field))]
    return ListedUrl(
        _unquoted(bare(url)),
        lastmod=next(filter(_DATE.fullmatch, fields), ""),
        priority=next(filter(_PRIORITY.fullmatch, fields), ""),
        is_mended=bool(fields),
        fields=tuple(field for field in fields if not all(map(_is_of_sitemaps, field.split()))),
    )


def bare(text: str) -> str:
    """Without what can't be seen at its ends."""
    return text.strip(_BLANKS)


def _unquoted(text: str) -> str:
    """Without the quotes around it, if that is what they are: none of them is within."""
    end = _QUOTES.get(text[:1])
    if end is None:
        return text
    whole = text.rstrip(",; ")
    within = whole[1:-1]
    if len(whole) < 2 or not whole.endswith(end) or end in within or text[0] in within:
        return text
    if text[0] == '"' and "\\" in within:
        try:
            within = msgspec.json.decode(whole, type=str)
        except msgspec.MsgspecError:
            return text
        if any(character < " " for character in within):  # parsers of URLs would leave them out
            return text
    return bare(within)


def _is_of_sitemaps(word: str) -> bool:
    """Is it what a sitemap has for a URL: a date, a time, a priority, how often it changes?"""
    is_number = _DATE.fullmatch(word) or _TIME.fullmatch(word) or _PRIORITY.fullmatch(word)
    return is_number is not None or word.lower() in _FREQUENCIES


def lines_in(text: str) -> Iterator[str]:
    """The lines of a text that are not empty, one by one: a list of all takes far more memory than the text."""
    for line in _LINE.finditer(text):
        yield text[line.start() : min(line.end(), line.start() + LINE_MAX)]


class LineSplitter:
    """Cuts a stream of bytes into lines, as text."""

    def __init__(self) -> None:
        self._rest = b""
        self._head: bytes | None = b""  # what is too short to tell the coding; None when that is known
        self._wide: codecs.IncrementalDecoder | None = None  # of UTF-16 or UTF-32

    def lines(self, block: bytes) -> list[str]:
        """The lines that end in this block, empty ones too."""
        text = self._in_utf_8(block)
        if not (self._rest.endswith(b"\r") or b"\n" in text or b"\r" in text):
            if len(self._rest) < LINE_MAX:
                self._rest += text[: LINE_MAX - len(self._rest)]
            return []
        data = self._rest + text
        is_half = data.endswith(b"\r")  # it may be half of a line end
        *found, rest = _split(data.removesuffix(b"\r"))
        self._rest = rest[:LINE_MAX] + b"\r" * is_half
        return [line[:LINE_MAX].decode("utf-8", "replace") for line in found]

    def last(self) -> list[str]:
        """What follows the last line end, if anything does."""
        *found, rest = _split(self._rest + self._in_utf_8(b"", is_end=True))
        self._rest = b""
        return [line.decode("utf-8", "replace") for line in (*found, *([rest] if rest else []))]

    def _in_utf_8(self, block: bytes, *, is_end: bool = False) -> bytes:
        if self._head is not None:
            block = self._head + block
            if len(block) < _HEAD_BYTES and not is_end:
                self._head = block
                return b""
            self._head = None
            if coding := _wide_coding(block):
                self._wide = codecs.getincrementaldecoder(coding)("replace")
            block = block.removeprefix(codecs.BOM_UTF8)
        return block if self._wide is None else self._wide.decode(block, is_end).encode("utf-8", "replace")


_HEAD_BYTES = 4


def _wide_coding(head: bytes) -> str:
    """The coding of a text that is not UTF-8, by its first bytes: a byte-order mark, or where the zeros are."""
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    zeros = "".join("0" if byte == 0 else "x" for byte in head[:_HEAD_BYTES])
    return {"x0x0": "utf-16-le", "0x0x": "utf-16-be"}.get(zeros, "")


def _split(data: bytes) -> list[bytes]:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
