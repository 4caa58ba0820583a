"""What can be found in the body of a page besides its links: each column by itself, computed only if asked for. Pure.

A column that can't be found is an error of that column alone. The libraries of a column are imported with its first
page.
"""

import json
from functools import cached_property
from typing import Any

import msgspec
from selectolax.lexbor import LexborHTMLParser

from crawler.content.html import NO_EVENTS, extract_text, parse_page, query_charset_of
from crawler.content.main_text import UnreadableTextError
from crawler.content.page_head import declared_language_of, description_of, meta_of
from crawler.content.sniff import decode, detect_charset
from crawler.media_type import is_html, is_text, media_type
from crawler.redaction import bears_login
from crawler.rules.json_depth import is_nested_too_deep
from crawler.rules.urls import BYTES_MAX, JoinCache

LINKS_MAX = 100_000
INT_DIGITS = 19  # of numbers beyond 64 bits


class PageBody(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A body without its content coding, and what was said of it."""

    url: str
    content_type: str  # as `declared_type` has it
    body: bytes
    refresh: str = ""  # headers, "" when absent
    content_language: str = ""
    link_rules: int = 0


class Found(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The columns that were asked for; in `failed`, why one is missing."""

    columns: dict[str, Any]
    failed: dict[str, str]


def columns_of(page: PageBody, names: tuple[str, ...], joins: JoinCache) -> Found:
    """Those columns of a page. Raises MemoryError when one takes too much."""
    reader = _Reader(page, joins)
    columns: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for name in names:
        try:
            columns[name] = reader.value(name)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - what a library makes of a page is that column's failure
            columns[name] = None
            failed[name] = reason_of(error)
    return Found(columns=columns, failed=failed)


def reason_of(error: Exception) -> str:
    """A reason that can be counted: short, and the same for pages with the same problem."""
    return str(error) if isinstance(error, UnreadableTextError) else type(error).__name__


class _Reader:
    def __init__(self, page: PageBody, joins: JoinCache) -> None:
        self._page = page
        self._joins = joins
        self._is_html = is_html(page.content_type, page.body)

    def value(self, name: str) -> Any:
        """The value of a column; null where a body of that type has none."""
        if not self._is_html:
            if name == "fingerprint" and self._is_shown:
                from crawler.content.fingerprint import fingerprint_of

                return fingerprint_of(self._text_of_body) or None
            if name in ("text", "main_text", "markdown", "main_markdown"):
                return self._text_of_body if self._is_shown and name in ("text", "main_text") else None
            if name == "language" and self._is_shown:
                return self._language_of(self._text_of_body)
            return [] if name == "links" else None
        return extract_text(self._page.body, self._charset) if name == "text" else getattr(self, f"_{name}")()

    @cached_property
    def _charset(self) -> str:
        return detect_charset(self._page.body, self._page.content_type)

    @cached_property
    def _text_of_body(self) -> str:
        return decode(self._page.body, self._charset)

    @cached_property
    def _tree(self) -> LexborHTMLParser:
        return LexborHTMLParser(self._text_of_body, options=NO_EVENTS)

    @property
    def _is_shown(self) -> bool:
        kind = media_type(self._page.content_type)
        return kind.startswith("text/") or (not kind and is_text(self._page.body))

    @cached_property
    def _parsed(self) -> Any:
        page = self._page
        return parse_page(
            page.url, page.content_type, "", page.body, links_max=LINKS_MAX, obey_nofollow=False, bytes_max=BYTES_MAX,
            agent="", refresh=page.refresh, joins=self._joins, link_rules=page.link_rules,
        )  # fmt: skip

    @property
    def _query_charset(self) -> str:
        return query_charset_of(self._charset, self._page.link_rules)

    @cached_property
    def _main(self) -> str:
        from crawler.content.main_text import main_text

        return main_text(self._page.body, self._charset, self._tree)

    @cached_property
    def _all_meta(self) -> dict[str, Any]:
        return meta_of(self._tree)

    def _language_of(self, text: str) -> str | None:
        from crawler.content.main_text import language_of

        return language_of(text) or None

    def _links(self) -> list[str]:
        return [url for url in self._parsed.links if not bears_login(url)]

    def _canonical(self) -> str | None:
        found = self._parsed.canonical
        return found if found and not bears_login(found) else None

    def _main_text(self) -> str:
        return self._main

    def _fingerprint(self) -> int | None:
        from crawler.content.fingerprint import fingerprint_of

        return fingerprint_of(self._main) or None

    def _language(self) -> str | None:
        return self._language_of(self._main)

    def _declared_language(self) -> str | None:
        return declared_language_of(self._tree, self._page.content_language) or None

    def _description(self) -> str | None:
        return description_of(self._all_meta) or None

    def _metadata(self) -> dict[str, Any]:
        return self._all_meta

    def _jsonld(self) -> list[dict[str, Any]]:
        from crawler.content.json_text import jsonld_of

        return _storable(jsonld_of(self._tree)[0])

    def _markdown(self) -> str:
        from crawler.content.markdown import markdown

        return markdown(self._tree, self._page.url, self._query_charset)

    def _main_markdown(self) -> str:
        from crawler.content.markdown import markdown

        return markdown(self._tree, self._page.url, self._query_charset, main=self._main)


def _storable(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As every output takes them: no half characters, no numbers beyond 64 bits, not nested too deep."""
    text = json.dumps(objects, ensure_ascii=False).encode("utf-8", "replace")
    found: list[dict[str, Any]] = json.loads(text, parse_int=lambda one: int(one) if len(one) < INT_DIGITS else one)
    if is_nested_too_deep(text, found):
        raise UnreadableTextError("nested too deep")
    return found
