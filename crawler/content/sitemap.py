"""Reads sitemaps: XML, sitemap indexes, plain lists, RSS and Atom, compressed or not, complete or cut off. Pure.

It uses patterns, not an XML parser: then no DTD, entity or network access can be abused, and the part before the cut of
an incomplete file is used.
"""

import html
import io
import math
import re
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import islice

import msgspec

from crawler.content.sniff import decode, detect_charset
from crawler.errors import InvalidUrl
from crawler.rules.urls import canonicalize, join

URLS_MAX = 50_000  # the protocol's own bound
INFLATED_BYTES_MAX = 50 * 1024 * 1024
WEB_BEGAN_AT = 631_152_000.0  # 1990: earlier dates are zeros in somebody's database

ENTRIES_MAX = 10 * URLS_MAX  # that are read, with repeated and invalid ones
VALUE_CHARS_MAX = 8192  # the maximum length of a URL; longer values are ignored
_PIECE_BYTES = 64 * 1024
_HEAD_CHARS = 4096  # the root element, which names the type, is in here

# Linear: a name can't reach over the next "<", so the text is scanned once.
_TAG = re.compile(
    r"<(?:[A-Za-z_][\w.-]*:)?(url|sitemap|item|entry|loc|lastmod|priority|link|pubDate|updated)(?=[\s>])", re.IGNORECASE
)
_INDEX = re.compile(r"<(?:[A-Za-z_][\w.-]*:)?sitemapindex(?=[\s>])", re.IGNORECASE)
_FEED = re.compile(r"<(?:[A-Za-z_][\w.-]*:)?(?:rss|feed|RDF)(?=[\s>])", re.IGNORECASE)
_HREF = re.compile(r"""\bhref\s*=\s*["']([^"']*)""", re.IGNORECASE)
_OTHER_REL = re.compile(r"""\brel\s*=\s*["'](?!alternate)""", re.IGNORECASE)
_ENTRY_NAMES = frozenset(("url", "sitemap", "item", "entry"))
_CDATA = "<![CDATA["


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
    """Canonical URLs, distinct, in order: of pages in `urls`, of further sitemaps in `sitemaps`."""

    urls: tuple[SitemapUrl, ...] = ()
    sitemaps: tuple[str, ...] = ()


def parse_sitemap(body: bytes, url: str) -> Sitemap:
    """Read what was served at the canonical `url`. Never raises; unreadable entries are left out."""
    body = _inflated(body)
    text = decode(body, detect_charset(body, ""))
    if "<" not in text[:1024]:
        return Sitemap(urls=tuple(_distinct(_plain(text))))
    text = _without_comments(text)
    entries = _feed_entries(text, url) if _FEED.search(text[:_HEAD_CHARS]) else _entries(text, url)
    if _INDEX.search(text[:_HEAD_CHARS]):
        return Sitemap(sitemaps=tuple(entry.loc for entry in _distinct(entries)))
    return Sitemap(urls=tuple(_distinct(entries)))


def _inflated(body: bytes) -> bytes:
    """The decompressed body, up to the limit; of an incomplete stream the part that can be decompressed."""
    for _ in range(2):  # some servers compress twice
        if body[:2] != b"\x1f\x8b":
            break
        body = _inflated_once(body)
    return body[:INFLATED_BYTES_MAX]


def _inflated_once(body: bytes) -> bytes:
    """The first gzip member only, in pieces: an error costs the last piece, not everything."""
    decoder = zlib.decompressobj(wbits=31)
    out: list[bytes] = []
    room = INFLATED_BYTES_MAX
    for start in range(0, len(body), _PIECE_BYTES):
        try:
            part = decoder.decompress(body[start : start + _PIECE_BYTES], room)
        except zlib.error:
            break
        out.append(part)
        room -= len(part)
        if room <= 0 or decoder.eof:
            break
    return b"".join(out)


def _without_comments(text: str) -> str:
    begin = text.find("<!--")
    if begin < 0:
        return text
    kept, at = io.StringIO(), 0  # a list of many short pieces takes ten times their size
    while begin >= 0:
        kept.write(text[at:begin])
        end = text.find("-->", begin + 4)
        at = len(text) if end < 0 else end + 3
        begin = text.find("<!--", at)
    kept.write(text[at:])
    return kept.getvalue()


def _distinct(entries: Iterator[SitemapUrl]) -> Iterator[SitemapUrl]:
    seen: set[str] = set()
    for entry in entries:
        if entry.loc not in seen:
            seen.add(entry.loc)
            yield entry
            if len(seen) >= URLS_MAX:
                return


def _plain(text: str) -> Iterator[SitemapUrl]:
    for line in islice(_lines(text), ENTRIES_MAX):
        try:
            yield SitemapUrl(loc=canonicalize(line))
        except InvalidUrl:
            continue


def _lines(text: str) -> Iterator[str]:
    """Stripped lines, one by one: a list of all takes far more memory than the text."""
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield text[start : min(end, start + VALUE_CHARS_MAX + 1)].strip()
        start = end + 1


def _entries(text: str, base: str) -> Iterator[SitemapUrl]:
    """One for each <url> or <sitemap>, with the values up to the next one."""
    for values in islice(_blocks(text), ENTRIES_MAX):
        loc = join(base, values["loc"]) if values.get("loc") else None
        if loc:
            yield SitemapUrl(loc=loc, lastmod=values.get("lastmod", ""), priority=_priority(values.get("priority")))


def _feed_entries(text: str, base: str) -> Iterator[SitemapUrl]:
    for values in islice(_blocks(text), ENTRIES_MAX):
        href = values.get("link") or values.get("href", "")
        loc = join(base, href) if href else None
        if loc:
            yield SitemapUrl(loc=loc, lastmod=values.get("updated") or values.get("pubdate") or "")


def _blocks(text: str) -> Iterator[dict[str, str]]:
    """For each entry the first values by lower-case name; "href" is that of an Atom link."""
    values: dict[str, str] | None = None
    for match in _TAG.finditer(text):
        name = match[1].lower()
        if name in _ENTRY_NAMES:
            if values is not None:
                yield values
            values = {}
        elif values is not None:
            _take(values, name, text, match.end())
    if values is not None:
        yield values


def _take(values: dict[str, str], name: str, text: str, start: int) -> None:
    """Store the value of the element whose name ends at `start`, and its attributes. Reads up to the next tag."""
    following = _found(text, "<", start)
    end = text.find(">", start, following)
    attributes = text[start : following if end < 0 else end][:VALUE_CHARS_MAX]
    if name == "link" and "href" not in values:
        href = _HREF.search(attributes)
        if href and not _OTHER_REL.search(attributes):
            values["href"] = _unescaped(href[1])
    if end < 0 or attributes.endswith("/") or name in values:
        return
    if text.startswith(_CDATA, following) and not text[end + 1 : following].strip():
        end, following = following + len(_CDATA) - 1, _found(text, "<", following + len(_CDATA))
    value = text[end + 1 : min(following, end + 2 + VALUE_CHARS_MAX)].partition("]")[0].strip()
    values[name] = _unescaped(value) if len(value) <= VALUE_CHARS_MAX else ""


def _found(text: str, what: str, start: int) -> int:
    at = text.find(what, start)
    return len(text) if at < 0 else at


def _unescaped(value: str) -> str:
    """Empty for character references of thousands of digits, which raise an error."""
    try:
        return html.unescape(value)
    except ValueError:
        return ""


_DATE_CHARS_MAX = 64  # RSS has the longest, with 31
_REDUCED = re.compile(r"\d{4}(-\d\d)?")  # W3C-DTF allows a year or a month alone, fromisoformat does not


def _date(text: str) -> float | None:
    """A date in W3C-DTF, as in sitemaps and Atom, or in the format of RSS; UTC without a time zone."""
    text = text.strip()
    if len(text) > _DATE_CHARS_MAX:
        return None
    if _REDUCED.fullmatch(text):
        text += "-01-01"[len(text) - 4 :]
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
