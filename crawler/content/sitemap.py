"""Reads sitemaps: XML, sitemap indexes, plain lists, RSS and Atom, compressed or not, complete or cut off. Pure.

    url, sitemap    each <loc> in it; a <loc> that is in none is one. Links to other languages (hreflang) are counted:
                    each version has an entry of its own, and pages lead to the others
    item (RSS)      <link>, else an Atom link of whatever prefix, else a <guid> that is a URL
    entry (Atom)    the first <link> of rel "alternate" (in any case, or as the URI of the registry), else an <id> that
                    is a URL
    xml:base        of the file, the entry and the link
    text            a URL a line (see `url_list`)

What has no usable URL is counted.

Expat reads what is XML, without document types: no entity is expanded, and nothing else is read. What is no XML from
some place on, which is most often a bare "&" in a URL, is read from there by a lenient reader, and marked.
"""

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import chain, islice
from typing import TYPE_CHECKING

import msgspec

from crawler.content.sniff import decode, detect_charset
from crawler.lazy_module import LazyModule
from crawler.rules.url_list import lines_in, listed
from crawler.rules.urls import join

if TYPE_CHECKING:
    from xml.parsers import expat

    from crawler.content.coding import Inflated
else:
    expat = LazyModule("xml.parsers.expat")

URLS_MAX = 50_000  # the protocol's own bound
INFLATED_BYTES_MAX = 50 * 1024 * 1024
WEB_BEGAN_AT = 631_152_000.0  # 1990: earlier dates are zeros in somebody's database

ENTRIES_MAX = 10 * URLS_MAX  # that are read, with repeated and invalid ones
VALUE_CHARS_MAX = 8192  # the maximum length of a URL; longer values are ignored
CUT = "it is cut off"
NO_SITEMAP = "it is no sitemap"  # nor a feed, nor a list of URLs
_PIECE_BYTES = 64 * 1024


class SitemapUrl(msgspec.Struct, frozen=True, kw_only=True):
    """`lastmod` is as written ("" when absent); `priority` is from 0 to 1, or None."""

    loc: str
    lastmod: str = ""
    priority: float | None = None

    @property
    def changed_at(self) -> float | None:
        """`lastmod` in seconds since the epoch; None when it is not a valid date."""
        return _date(self.lastmod)


class Sitemap(msgspec.Struct, frozen=True, kw_only=True):
    """Canonical URLs, distinct, in order: of pages in `urls`, of further sitemaps in `sitemaps`.

    `flaw`: why not all of it could be read; "" if all was. `oddity`: why it was read leniently. `left_out`: entries
    without a usable URL. `alternates`: links to versions in other languages, which are not read.
    """

    urls: tuple[SitemapUrl, ...] = ()
    sitemaps: tuple[str, ...] = ()
    flaw: str = ""
    oddity: str = ""
    left_out: int = 0
    alternates: int = 0


def parse_sitemap(body: bytes, url: str) -> Sitemap:
    """Read what was served at the canonical `url`. Never raises; unreadable entries are left out."""
    body, flaw = _inflated(body)
    text = decode(body, detect_charset(body, ""))
    entries = _Entries(url)
    oddity = ""
    if "<" in text[:1024] and not text[:1024].lstrip("\ufeff \t\r\n")[:8].lower().startswith(_HTTP):
        oddity = _read_xml(text, _Reader(entries))
    else:
        oddity = _read_lines(text, entries)
    return entries.found(flaw, oddity)


_HTTP = ("http://", "https://")


def _read_lines(text: str, entries: "_Entries") -> str:
    """Read a URL a line; what is odd with it, or ""."""
    mended = 0
    for line in islice(lines_in(text), ENTRIES_MAX):
        if (one := listed(line)) is not None:
            is_url = not one.flaw and one.url[:8].lower().startswith(_HTTP)
            mended += is_url and one.is_mended
            loc = {"loc": one.url} if is_url else {}
            entries.add("url", {**loc, "lastmod": one.lastmod, "priority": one.priority})
    return f"{mended:,} of its lines have more than a URL" if mended else ""


def _inflated(body: bytes) -> tuple[bytes, str]:
    """The decompressed body, up to the limit, and what is wrong with it; of an incomplete stream what can be read."""
    from crawler.content.coding import inflate  # with decoders that most processes which parse never need

    flaw = ""
    for _ in range(2):  # some servers compress twice
        if body[:2] != b"\x1f\x8b":
            break
        found = inflate(body, "gzip", limit=INFLATED_BYTES_MAX, ratio_max=INFLATED_BYTES_MAX)
        body = found.body
        flaw = flaw or _flaw_of(found)
    return body[:INFLATED_BYTES_MAX], flaw


def _flaw_of(found: "Inflated") -> str:
    from crawler.content.coding import INCOMPLETE, TAIL

    if found.truncated:
        return f"it has more than {INFLATED_BYTES_MAX:,} bytes"
    if found.error == INCOMPLETE:
        return CUT
    return "its compression is damaged" if found.error not in ("", TAIL) else ""


_ROOT = re.compile(rb"<(?:[A-Za-z_][\w.-]*:)?(?:urlset|sitemapindex|rss|feed|rdf)[\s>]", re.IGNORECASE)
_HEAD_BYTES = 1024


def looks_like_one(body: bytes) -> bool:
    """Does what is no HTML begin as a sitemap or a feed does?"""
    return _ROOT.search(body, 0, _HEAD_BYTES) is not None


class _Entries:
    """Collects the entries of one file."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._urls: dict[str, SitemapUrl] = {}
        self._sitemaps: dict[str, None] = {}
        self._joined: tuple[Sequence[str], str] = ((), base)  # what URLs are relative to, as last joined
        self._left_out = 0
        self._number = 0
        self.alternates = 0
        self.is_one = False  # an element was met that only a sitemap or a feed has

    @property
    def is_full(self) -> bool:
        return self._number >= ENTRIES_MAX or len(self._urls) + len(self._sitemaps) >= URLS_MAX

    def add(self, kind: str, values: dict[str, str], bases: Sequence[str] = (), more: Sequence[str] = ()) -> None:
        """One entry with the values of its elements, by lower-case name. `bases`: what its URL is relative to, from the
        outermost; `more`: further values of its <loc>, each an entry with the same values.
        """
        if self._joined[0] != bases:
            base = self._base
            for inner in bases:
                base = join(base, inner) or base
            self._joined = (bases, base)
        base = self._joined[1]
        for given in chain([_place_of(values)], more):
            if self.is_full:
                return
            self._number += 1
            loc = self._url_of(base, given.strip())
            if loc is None:
                self._left_out += 1
            elif kind == "sitemap":
                self._sitemaps[loc] = None
            elif loc not in self._urls:
                changed = next((values[name] for name in _DATES if values.get(name)), "")
                self._urls[loc] = SitemapUrl(loc=loc, lastmod=changed, priority=_priority(values.get("priority")))

    @staticmethod
    def _url_of(base: str, given: str) -> str | None:
        return join(base, given) if given and "\ufffd" not in given else None  # which nobody meant

    def found(self, flaw: str, oddity: str) -> Sitemap:
        if not (self.is_one or self._urls or self._sitemaps):
            flaw, oddity = NO_SITEMAP, ""
        elif self.is_full:
            flaw = flaw or f"it has more than {len(self._urls) + len(self._sitemaps):,} URLs"
        elif oddity == CUT:
            flaw, oddity = flaw or oddity, ""
        return Sitemap(
            urls=tuple(self._urls.values()),
            sitemaps=tuple(self._sitemaps),
            flaw=flaw,
            oddity=oddity,
            left_out=self._left_out,
            alternates=self.alternates,
        )


def _place_of(values: dict[str, str]) -> str:
    """What an entry has as its URL."""
    ids = (values.get(name, "") for name in ("guid", "id"))
    named = values.get("loc") or values.get("link") or values.get("href")
    return named or next((one for one in ids if one.lower().startswith(_HTTP)), "") or values.get("", "")


_DATES = ("lastmod", "updated", "pubdate", "date", "published")
_VALUES = {
    "url": frozenset(("loc", "lastmod", "priority")),
    "sitemap": frozenset(("loc", "lastmod")),
    "item": frozenset(("link", "guid", *_DATES)),
    "entry": frozenset(("link", "id", *_DATES)),
}
_ATOM = frozenset(("http://www.w3.org/2005/atom", "http://purl.org/atom/ns#"))
_ATOM_PREFIXES = frozenset(("atom", "a10"))  # also where a file does not bind them
_ALTERNATE = frozenset(("alternate", "http://www.iana.org/assignments/relation/alternate"))


_ROOTS = frozenset(("urlset", "sitemapindex", "rss", "feed", "rdf"))
_LISTS = {"urlset": "url", "sitemapindex": "sitemap"}  # and what is in them
PREFIXES_MAX = 16


class _Full(Exception):
    """Enough was read."""


class _Reader:
    """Makes entries of the tags and texts of a file, from its XML parser or from the lenient one.

    An element belongs to its entry if it has the same prefix, or that of Atom, and no other element is around it: the
    <image:loc> of a page, or the <loc> of its image, is not its own.
    """

    def __init__(self, entries: _Entries) -> None:
        self._entries = entries
        self._entry = self._prefix = ""  # the name of the open entry, and its prefix
        self._is_bare = False  # the entry is a <loc> without one
        self._list = ("", "")  # the prefix of a sitemap's root, and what its entries are
        self._atom = set(_ATOM_PREFIXES)
        self._bases = {"": "", "entry": "", "link": ""}  # xml:base of the file, the entry, and its link
        self._values: dict[str, str] = {}
        self._more: list[str] = []  # further values of <loc>
        self._value = ""  # the name of the element whose text is read; that of the entry itself is ""
        self._text: list[str] = []
        self._chars = 0
        self._around = ""  # the name of another element within the entry
        self._depth = 0  # how often that is open

    def start(self, name: str, attributes: dict[str, str]) -> None:
        prefix, _, local = name.lower().rpartition(":")
        self._entries.is_one |= local in _ROOTS
        if attributes:
            self._note_prefixes(attributes)
        if local in _VALUES and (not self._entry or (prefix == self._prefix and local == self._entry)):
            self._begin(local, prefix, attributes)
        elif local == "loc" and prefix == self._list[0] and self._list[1] and (not self._entry or self._is_bare):
            self._begin(self._list[1], prefix, {})
            self._is_bare, self._value = True, local
        elif not self._entry:
            self._note_file(local, prefix, attributes)
        elif self._around:
            self._depth += name == self._around
        elif self._is_own(local, prefix):
            self.keep()
            self._value = local
            self._note(local, attributes)
        elif not (self._value and not prefix):  # markup in a value
            self.keep()
            self._around, self._depth = name, 1
            self._entries.alternates += local == "link" and "hreflang" in attributes

    def _begin(self, entry: str, prefix: str, attributes: dict[str, str]) -> None:
        self.keep()
        self.close()
        self._entry, self._prefix = entry, prefix
        self._bases["entry"] = _base_in(attributes)

    def _is_own(self, local: str, prefix: str) -> bool:
        """Is it an element of the open entry?"""
        if local not in _VALUES[self._entry]:
            return False
        return prefix == self._prefix or local == "date" or (prefix in self._atom and self._entry in ("item", "entry"))

    def _note_prefixes(self, attributes: dict[str, str]) -> None:
        for name, value in attributes.items():
            if name.startswith("xmlns:") and value.lower() in _ATOM and len(self._atom) < PREFIXES_MAX:
                self._atom.add(name[len("xmlns:") :].lower())

    def _note_file(self, local: str, prefix: str, attributes: dict[str, str]) -> None:
        """What an element outside of entries says of all that follow."""
        if local in _LISTS:
            self._list = (prefix, _LISTS[local])
        if local in _ROOTS or local == "channel":
            self._bases[""] = _base_in(attributes) or self._bases[""]

    def text(self, text: str) -> None:
        if self._entry and not self._around and self._chars <= VALUE_CHARS_MAX:
            self._text.append(text[: VALUE_CHARS_MAX + 1])
            self._chars += len(text)

    def end(self, name: str) -> None:
        prefix, _, local = name.lower().rpartition(":")
        if not self._entry:
            return
        if local == self._entry and prefix == self._prefix:
            self.keep()
            self.close()
        elif self._around:
            self._depth -= name == self._around
            self._around = self._around if self._depth else ""
        elif local == self._value:
            self.keep()
        elif self._is_bare and local in _LISTS:
            self.close()

    def close(self, *, is_cut: bool = False) -> None:
        """The entry ends, or the file (`is_cut`). A value without its end is not one: the file was cut off there."""
        entry, self._entry, self._around = self._entry, "", ""
        self._text, self._chars, self._value, self._is_bare = [], 0, "", False
        if entry:
            bases, self._bases["entry"], self._bases["link"] = tuple(filter(None, self._bases.values())), "", ""
            values, self._values, more, self._more = self._values, {}, self._more, []
            if values or not is_cut:
                self._entries.add(entry, values, bases, more)
            if self._entries.is_full:
                raise _Full

    def _note(self, local: str, attributes: dict[str, str]) -> None:
        """What the attributes of a value say: an Atom link has its URL there, and a guid may be none."""
        if local == "link" and attributes.get("href") and _is_alternate(attributes):
            if "href" in self._values:
                self._entries.alternates += "hreflang" in attributes
            else:
                self._values["href"] = attributes["href"][: VALUE_CHARS_MAX + 1]
                self._bases["link"] = _base_in(attributes)
        if local == "guid" and _attribute(attributes, "ispermalink").strip().lower() == "false":
            self._values.setdefault("guid", "")

    def keep(self) -> None:
        """The text of a value is complete: a tag follows. The first of a name counts, and what is too long is none."""
        text = "".join(self._text).strip() if self._chars <= VALUE_CHARS_MAX else ""
        if text and not self._values.get(self._value):
            self._values.setdefault(self._value, text)
        elif text and self._value == "loc" and len(self._more) < URLS_MAX:
            self._more.append(text)
        self._text, self._chars, self._value = [], 0, ""


def _attribute(attributes: dict[str, str], name: str) -> str:
    """Its value, whatever the case of its name; "" if it is absent."""
    return attributes.get(name) or next((value for key, value in attributes.items() if key.lower() == name), "")


def _is_alternate(attributes: dict[str, str]) -> bool:
    rels = _attribute(attributes, "rel").lower().split()
    return not rels or not _ALTERNATE.isdisjoint(rels)


def _base_in(attributes: dict[str, str]) -> str:
    return _attribute(attributes, "xml:base").strip()[:VALUE_CHARS_MAX]


def _read_xml(text: str, reader: _Reader) -> str:
    """Pass the tags and texts of a file to the reader; the first thing that is wrong with it, or ""."""
    data = text.lstrip("\ufeff \t\r\n").encode()
    del text
    parser = expat.ParserCreate("utf-8")
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = _refuse_doctype
    oddity = ""
    try:
        try:
            for at in range(0, len(data), _PIECE_BYTES):
                parser.Parse(data[at : at + _PIECE_BYTES])
            parser.Parse(b"", True)  # noqa: FBT003 - the end
        except _Doctype:
            _read_leniently(data[parser.CurrentByteIndex :].decode(errors="replace"), reader)
        except expat.ExpatError as error:
            at = _token_at(data, parser.ErrorByteIndex)
            wrong = f"it is no XML at line {error.lineno}: {expat.ErrorString(error.code)}"
            oddity = CUT if error.code in _cut_codes() else wrong
            _read_leniently(data[at:].decode(errors="replace"), reader)
        reader.close(is_cut=True)
    except _Full:
        pass
    return oddity


def _token_at(data: bytes, error_at: int) -> int:
    """Where the token begins in which the parser met an error: what is before it was passed on."""
    begin = max(0, error_at - VALUE_CHARS_MAX)
    tag, reference = data.rfind(b"<", begin, error_at), data.rfind(b"&", begin, error_at)
    if tag >= 0 and data.find(b">", tag, error_at) < 0:
        return tag
    return reference if reference > tag and _PART_OF_REFERENCE.fullmatch(data, reference, error_at) else error_at


class _Doctype(Exception):
    """The file has a document type: entities of its own."""


def _refuse_doctype(*_: object) -> None:
    raise _Doctype


# Linear: none of these can reach over what the next match begins with, so the text is scanned once.
_MARKUP = re.compile(
    r"<(?:(?P<cdata>!\[CDATA\[)|(?P<comment>!--)|(?P<other>[!?])|(?P<end>/)?(?P<name>[A-Za-z_:][\w.:-]{0,99})(?P<rest>[^<>]*)>)"
)
_ATTRIBUTE = re.compile(r"""([A-Za-z_:][\w.:-]{0,99})\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_REFERENCE = re.compile(r"&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);")
_PART_OF_REFERENCE = re.compile(rb"&#?[\w.:-]*")
_REFERENCE_CHARS_MAX = 40  # longer ones mean nothing, and thousands of digits are an error in the library
_ENDS = {"cdata": "]]>", "comment": "-->", "other": ">"}


@cache
def _cut_codes() -> frozenset[int]:
    """The errors of a file that was cut off."""
    errors = expat.errors
    names = errors.XML_ERROR_NO_ELEMENTS, errors.XML_ERROR_UNCLOSED_TOKEN, errors.XML_ERROR_UNCLOSED_CDATA_SECTION
    return frozenset(errors.codes[name] for name in names)


def _read_leniently(text: str, reader: _Reader) -> None:
    """Tags and texts of a file that is no XML, as far as they can be told. Only a tag ends a value."""
    at = 0
    while (found := _MARKUP.search(text, at)) is not None:
        reader.text(_unescaped(text[at : min(found.start(), at + VALUE_CHARS_MAX + 1)]))
        at = found.end()
        if found["name"] is None:
            at = _after(text, at, found.lastgroup or "", reader.text)
        elif found["end"]:
            reader.end(found["name"])
        else:
            rest = found["rest"][:VALUE_CHARS_MAX]
            attributes = {name: _unescaped(a or b) for name, a, b in _ATTRIBUTE.findall(rest)}
            reader.start(found["name"], attributes)
            if rest.endswith("/"):
                reader.end(found["name"])
    last, tag, _ = text[at:].partition("<")  # of a tag that was cut off
    if tag:
        reader.text(_unescaped(last[: VALUE_CHARS_MAX + 1]))
        reader.keep()


def _after(text: str, at: int, kind: str, take: Callable[[str], None]) -> int:
    """The end of a part of `kind` that begins at `at`. The text of a CDATA section is taken."""
    end = text.find(_ENDS[kind], at)
    subset = text.find("[", at, end) if kind == "other" else -1
    if subset >= 0:  # declarations in a document type
        end = text.find("]", subset)
        end = text.find(">", end) if end >= 0 else end
    if end < 0:
        return len(text)
    if kind == "cdata":
        take(text[at : min(end, at + VALUE_CHARS_MAX + 1)])
    return end + len(_ENDS[kind])


def _unescaped(text: str) -> str:
    """References are those with a semicolon: the "&copy=1" of a URL is none."""
    return _REFERENCE.sub(_character, text) if "&" in text else text


def _character(reference: re.Match[str]) -> str:
    import html

    return html.unescape(reference[0]) if len(reference[0]) <= _REFERENCE_CHARS_MAX else "\ufffd"


_DATE_CHARS_MAX = 64  # RSS has the longest, with 31
_REDUCED = re.compile(r"\d{4}(-\d\d)?")  # W3C-DTF allows a year or a month alone, fromisoformat does not


def _date(text: str) -> float | None:
    """A date in W3C-DTF, as in sitemaps and Atom, or in the format of RSS; UTC without a time zone."""
    text = text.strip()
    if len(text) > _DATE_CHARS_MAX:
        return None
    if _REDUCED.fullmatch(text):
        text += "-01-01"[len(text) - 4 :]
    from email.utils import parsedate_to_datetime

    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            found = parse(text)
            seconds = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
            return seconds if seconds >= WEB_BEGAN_AT else None
        except (ValueError, OverflowError, IndexError, TypeError):
            continue
    return None


def _priority(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= 1 else None
