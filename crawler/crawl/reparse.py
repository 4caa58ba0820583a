"""Archived pages read again: parsed as they were when they were crawled, to learn where they lead.

Must not know which of the links belong to the crawl.
"""

import asyncio
import contextlib
from collections.abc import Sequence

import msgspec

from crawler.archive.folder import CrawlFolder
from crawler.archive.index_reader import find_url
from crawler.archive.warc_reader import StoredResponse, read_content
from crawler.errors import ArchiveError
from crawler.frontier.record import CrawlRecord
from crawler.frontier.stats import OF_RIGHTS
from crawler.model import REDIRECTS, REQUISITE, SITEMAP, SITEMAP_BYTES_MAX, Decoded, ParsedPage
from crawler.parsing.parse import PageParser, ParseKilledError
from crawler.parsing.secret_urls import target_of
from crawler.settings import Settings
from crawler.worker.answers import is_shown, requested_as, shows_something
from crawler.worker.commit import lost_parts
from crawler.worker.revisits import response_of


class Reread(msgspec.Struct, frozen=True, kw_only=True):
    """Where a page leads: its links, the sitemaps that it names, its requisites, and its redirect's target ("": it has
    none).
    """

    links: tuple[str, ...]
    redirect_to: str
    sitemaps: tuple[str, ...] = ()
    requisites: tuple[str, ...] = ()  # URLs that it needs to be shown, where the crawl fetches them
    lost: dict[str, int] = msgspec.field(default_factory=dict)  # what is missing of it, by reason of LOST


class Rereader:
    """Parses archived responses by the settings and rules of the crawl. `close` ends its helper process."""

    def __init__(self, settings: Settings, record: CrawlRecord) -> None:
        settings = msgspec.structs.replace(settings, scope=record.scope)
        self._fetch = settings.fetch
        self._parser = PageParser(settings, link_rules=record.link_rules, reads_feeds=record.sitemaps)
        self._bytes_max = {SITEMAP: SITEMAP_BYTES_MAX, REQUISITE: settings.requisites.body_bytes_max}
        self._requisites_max = settings.requisites.page_max if settings.requisites.fetch else 0
        self._follows_links = settings.scope.follow == "links"

    async def close(self) -> None:
        await self._parser.close()

    async def read(self, url: str, stored: StoredResponse, *, label: str = "") -> Reread:
        """Parse the response that was stored for the canonical `url`, by the label that this has. Raises
        ParseKilledError when it can't be.
        """
        if stored.is_withheld:  # its links are those that were followed
            target = target_of(url, response_of(url, stored, self._fetch)) if stored.status in REDIRECTS else ""
            return Reread(links=stored.links, redirect_to=target, lost={OF_RIGHTS: 1})
        is_sitemap, bytes_max = label == SITEMAP, self._bytes_max.get(label, 0)
        response = response_of(url, stored, self._fetch, bytes_max=bytes_max)
        if response.decoded is Decoded.NOTHING or not shows_something(label, url, response):
            page = ParsedPage()
        else:
            most = self._requisites_max if is_shown(label, response) else 0
            page = await self._parser.parse(
                response, is_sitemap=is_sitemap, requisites_max=most, requested_as=requested_as(label, url)
            )
        target = target_of(url, response) if response.status in REDIRECTS else ""
        follows = self._follows_links or is_sitemap
        return Reread(
            links=page.links if follows and label != REQUISITE else (), redirect_to=target, sitemaps=page.sitemaps,
            requisites=tuple(one.url for one in page.requisites), lost=lost_parts(page, response),
        )  # fmt: skip


async def leads_to(
    folder: CrawlFolder, settings: Settings, record: CrawlRecord, url: str
) -> tuple[Sequence[str], str] | None:
    """The links of a committed page, and the target of its redirect; None if its record is not in this folder."""
    for entry in await asyncio.to_thread(find_url, folder, url):
        if entry.content is None or entry.run:
            continue
        rereader = Rereader(settings, record)
        with contextlib.suppress(ArchiveError, ParseKilledError):
            try:
                found = await rereader.read(url, await asyncio.to_thread(read_content, folder, entry))
                return found.links, found.redirect_to
            finally:
                await rereader.close()
    return None
