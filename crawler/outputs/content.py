"""Text and links of an archived page, for exports: read from its WARC record.

How content codings are undone is handed in: that knowledge sits behind the door to the web. Must not know
formats of exports.
"""

from collections.abc import Callable

import msgspec

from crawler.archive.crawl_folder import CrawlFolder
from crawler.archive.warc_reader import read_record
from crawler.content.html import extract_text, main_text, parse_page
from crawler.content.sniff import decode as decode_charset
from crawler.content.sniff import detect_charset
from crawler.model import CommitEntry
from crawler.rules.urls import JoinCache

_HTML = frozenset({"text/html", "application/xhtml+xml", ""})
_LINKS_MAX = 100_000
_URL_BYTES_MAX = 8192


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
    if entry.warc is None or not (entry.content_type in _HTML or entry.content_type.startswith("text/")):
        return PageContent()
    record = read_record(folder, entry.warc)
    body = decode(record.payload, record.listed("content-encoding"))
    content_type = record.header("content-type")
    charset = detect_charset(body, content_type)
    if entry.content_type not in _HTML:
        return PageContent(text=decode_charset(body, charset) if text else "")
    found: tuple[str, ...] = ()
    if links:
        found = parse_page(
            entry.url,
            content_type,
            "",
            body,
            links_max=_LINKS_MAX,
            obey_nofollow=False,
            bytes_max=_URL_BYTES_MAX,
            agent="",
            refresh=record.header("refresh"),
            joins=joins,
            link_rules=link_rules,
        ).links
    extract = {"visible": extract_text, "main": main_text}.get(text)
    return PageContent(text=extract(body, charset) if extract else "", links=found)
