"""Sitemaps: XML, indexes of them, plain lists, RSS and Atom, compressed or not, whole or torn.

Read with patterns, not with an XML parser: there is then no DTD, no entity and no network to be abused, and what
stands before the place where a file was cut is kept. Knows nothing of fetching or scope.
"""

import html
import math
import re
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

from crawler.content.charset import decode, detect_charset
from crawler.errors import InvalidUrl
from crawler.rules.urls import canonicalize, join

URLS_MAX = 50_000  # the protocol's own bound
INFLATED_BYTES_MAX = 50 * 1024 * 1024
WEB_BEGAN_AT = 631_152_000.0  # 1990: earlier dates are the zeros of somebody's database

_NAME = r"(?:[A-Za-z_][\w.-]*:)?"
_HIDDEN = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_ENTRY = re.compile(rf"<{_NAME}(url|sitemap|item|entry)(?=[\s>])", re.IGNORECASE)
_INDEX = re.compile(rf"<{_NAME}sitemapindex(?=[\s>])", re.IGNORECASE)
_FEED = re.compile(rf"<{_NAME}(?:rss|feed|RDF)(?=[\s>])", re.IGNORECASE)
_VALUE = re.compile(
    rf"<{_NAME}(loc|lastmod|priority|link|pubDate|updated)(?:\s[^>]*)?(?<!/)>\s*(?:<!\[CDATA\[)?([^<\]]*)",
    re.IGNORECASE,
)
_ATOM_LINK = re.compile(rf"""<{_NAME}link\s([^>]*)""", re.IGNORECASE)
_HREF = re.compile(r"""\bhref\s*=\s*["']([^"']*)""", re.IGNORECASE)
_OTHER_REL = re.compile(r"""\brel\s*=\s*["'](?!alternate)""", re.IGNORECASE)


class SitemapUrl(msgspec.Struct, frozen=True, kw_only=True):
    """`lastmod` is as written ("" when absent); `priority` is within 0 and 1, or None."""

    loc: str
    lastmod: str = ""
    priority: float | None = None

    @property
    def changed_at(self) -> float | None:
        """`lastmod` in seconds since the epoch; None when it is no date that we can read."""
        return _date(self.lastmod)


class Sitemap(msgspec.Struct, frozen=True, kw_only=True):
    """Canonical URLs, distinct, in order; of pages in `urls`, of further sitemaps in `sitemaps`."""

    urls: tuple[SitemapUrl, ...] = ()
    sitemaps: tuple[str, ...] = ()


def parse_sitemap(body: bytes, url: str) -> Sitemap:
    """Read what was served at the canonical `url`. Never raises; what can't be read is left out."""
    body = _inflated(body)
    text = decode(body, detect_charset(body, ""))
    if "<" not in text[:1024]:
        return Sitemap(urls=tuple(_distinct(_plain(text))))
    text = _HIDDEN.sub("", text)
    entries = _feed_entries(text, url) if _FEED.search(text[:4096]) else _entries(text, url)
    if _INDEX.search(text[:4096]):
        return Sitemap(sitemaps=tuple(entry.loc for entry in _distinct(entries)))
    return Sitemap(urls=tuple(_distinct(entries)))


def _inflated(body: bytes) -> bytes:
    """The body without gzip, to the bound; of a torn stream what was whole."""
    for _ in range(2):  # some servers compress what is compressed
        if body[:2] != b"\x1f\x8b":
            break
        try:
            body = zlib.decompressobj(wbits=31).decompress(body, INFLATED_BYTES_MAX)
        except zlib.error:
            return b""
    return body[:INFLATED_BYTES_MAX]


def _distinct(entries: Iterator[SitemapUrl]) -> Iterator[SitemapUrl]:
    seen: set[str] = set()
    for entry in entries:
        if entry.loc not in seen:
            seen.add(entry.loc)
            yield entry
            if len(seen) >= URLS_MAX:
                return


def _plain(text: str) -> Iterator[SitemapUrl]:
    for line in text.split("\n"):
        try:
            yield SitemapUrl(loc=canonicalize(line.strip()))
        except InvalidUrl:
            continue


def _entries(text: str, base: str) -> Iterator[SitemapUrl]:
    """One for each <url> or <sitemap>; a <loc> outside of any counts too."""
    for block in _blocks(text):
        values: dict[str, str] = {}
        for name, value in _VALUE.findall(block):
            values.setdefault(name.lower(), html.unescape(value.strip()))
        loc = join(base, values["loc"]) if values.get("loc") else None
        if loc:
            yield SitemapUrl(loc=loc, lastmod=values.get("lastmod", ""), priority=_priority(values.get("priority")))


def _feed_entries(text: str, base: str) -> Iterator[SitemapUrl]:
    for block in _blocks(text):
        values: dict[str, str] = {}
        for name, value in _VALUE.findall(block):
            values.setdefault(name.lower(), html.unescape(value.strip()))
        href = values.get("link") or next(_atom_hrefs(block), "")
        loc = join(base, href) if href else None
        if loc:
            yield SitemapUrl(loc=loc, lastmod=values.get("updated") or values.get("pubdate") or "")


def _atom_hrefs(block: str) -> Iterator[str]:
    for attributes in _ATOM_LINK.findall(block):
        href = _HREF.search(attributes)
        if href and not _OTHER_REL.search(attributes):
            yield html.unescape(href[1])


def _blocks(text: str) -> Iterator[str]:
    """The text between one entry's start and the next one's."""
    start = None
    for match in _ENTRY.finditer(text):
        if start is not None:
            yield text[start : match.start()]
        start = match.end()
    if start is not None:
        yield text[start:]


_REDUCED = re.compile(r"\d{4}(-\d\d)?")  # W3C-DTF goes down to the year, fromisoformat to the day


def _date(text: str) -> float | None:
    """W3C-DTF as sitemaps and Atom have it, or the dates of RSS; without a zone it is UTC."""
    text = text.strip()
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
