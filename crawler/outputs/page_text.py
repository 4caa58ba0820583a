"""Text and links of an archived page, for exports: read from its WARC record.

How content codings are undone is handed in: that knowledge sits behind the door to the web. Must not know
formats of exports.
"""

from collections.abc import Callable

import msgspec

from crawler.archive.folder import CrawlFolder
from crawler.archive.warc_reader import read_content
from crawler.content.html import extract_text, main_text, parse_page
from crawler.content.sniff import decode as decode_charset
from crawler.content.sniff import detect_charset
from crawler.media_type import declared_type, is_html, is_text, media_type
from crawler.model import CommitEntry
from crawler.redaction import bears_login
from crawler.rules.urls import BYTES_MAX, JoinCache

_WITH_TEXT = frozenset({"application/xhtml+xml", "application/xml"})
_LINKS_MAX = 100_000


class PageContent(msgspec.Struct, frozen=True, kw_only=True):
    """What people may ask for beyond the index."""

    text: str = ""
    links: tuple[str, ...] = ()


def page_content(
    folder: CrawlFolder,
    entry: CommitEntry,
    decode: Callable[[bytes, str], bytes],
    *,
    text: str,
    links: bool,
    joins: JoinCache,
    link_rules: int,
) -> PageContent:
    """The page's text ("visible", "main" or "": none) and links. Raises ArchiveError when its record can't be read."""
    kind = entry.content_type
    if entry.content is None or not (
        entry.is_withheld or "/" not in kind or kind.startswith("text/") or kind in _WITH_TEXT
    ):
        return PageContent()
    record = read_content(folder, entry)
    if record.is_withheld:
        return PageContent(links=record.links if links else ())
    body = decode(record.payload, record.listed("content-encoding"))
    content_type = declared_type(record)
    charset = detect_charset(body, content_type)
    if not is_html(content_type, body):
        is_shown = media_type(content_type).startswith("text/") or (not media_type(content_type) and is_text(body))
        return PageContent(text=decode_charset(body, charset) if text and is_shown else "")
    found: tuple[str, ...] = ()
    if links:
        found = parse_page(
            entry.url,
            content_type,
            "",
            body,
            links_max=_LINKS_MAX,
            obey_nofollow=False,
            bytes_max=BYTES_MAX,
            agent="",
            refresh=record.header("refresh"),
            joins=joins,
            link_rules=link_rules,
        ).links
        found = tuple([url for url in found if not bears_login(url)])
    extract = {"visible": extract_text, "main": main_text}.get(text)
    return PageContent(text=extract(body, charset) if extract else "", links=found)
