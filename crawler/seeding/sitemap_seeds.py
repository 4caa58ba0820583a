"""Reads sitemaps that people name, on the clock of their host: an index leads to further ones, two levels deep."""

import contextlib
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from crawler.content.html import redirect_target
from crawler.content.sitemap import Sitemap, SitemapUrl, parse_sitemap
from crawler.errors import InvalidUrl, NothingFetchedError, UsageError
from crawler.model import REDIRECTS, FetchResult
from crawler.robots.borrowed_slot import COMMAND_PATIENCE_MS, SlotBorrower
from crawler.rules.urls import host_of
from crawler.seeding.url_input import url_of
from crawler.terminal.wording import failure_text
from crawler.web.fetcher import Fetcher

DEPTH_MAX = 2  # an index of indexes; the protocol knows one level, sites have two
SITEMAPS_MAX = 10_000  # of one index, each a request on its host's clock: nearly three hours at one a second
REDIRECTS_MAX = 5
ROOTS = (b"urlset", b"sitemapindex", b"<rss", b"<feed", b"rdf")
BODY_BYTES_MAX = 50 * 1024 * 1024  # the protocol's own limit


@dataclass(frozen=True, slots=True)
class FoundUrls:
    """The URLs of one sitemap, and which one it was."""

    where: str
    urls: list[SitemapUrl]


class SitemapReader:
    """`foreign` counts URLs of other hosts: no sitemap speaks for those;
    `left_out` the sitemaps beyond SITEMAPS_MAX.
    """

    def __init__(self, fetcher: Fetcher, slot_borrower: SlotBorrower) -> None:
        self._fetcher = fetcher
        self._slot_borrower = slot_borrower
        self.foreign = 0
        self.left_out = 0

    async def read(self, url: str) -> AsyncIterator[FoundUrls]:
        """The sitemap at `url` and those that it names. Raises UsageError, NothingFetchedError for the first only."""
        try:
            first = url_of(url)
        except InvalidUrl as error:
            raise UsageError(f"--sitemap: {error}") from None
        host, waiting, known = host_of(first), deque([(first, 0)]), {first}
        while waiting:
            current, level = waiting.popleft()
            sitemap = await self._fetched(current, is_first=current == first)
            yield FoundUrls(f"sitemap {current}", self._own_entries(sitemap.urls, host))
            further = self._own(sitemap.sitemaps, host) if level < DEPTH_MAX else []
            for loc in further:
                if loc in known:
                    continue
                if len(known) > SITEMAPS_MAX:
                    self.left_out += 1
                    continue
                known.add(loc)
                waiting.append((loc, level + 1))

    def complaint(self, url: str) -> str:
        """One line when sitemaps were left out, else ""."""
        if not self.left_out:
            return ""
        return (
            f"{self.left_out} sitemaps named by {url} were not read: only {SITEMAPS_MAX} are read of one index; "
            "give the others with --sitemap"
        )

    def _own_entries(self, entries: Sequence[SitemapUrl], host: str) -> list[SitemapUrl]:
        own = set(self._own([entry.loc for entry in entries], host))
        return [entry for entry in entries if entry.loc in own]

    def _own(self, urls: Sequence[str], host: str) -> list[str]:
        own = [url for url in urls if host_of(url) == host]
        self.foreign += len(urls) - len(own)
        return own

    async def _fetched(self, url: str, *, is_first: bool) -> Sitemap:
        """What a URL leads to, after redirects; an empty one for a further sitemap that can't be had."""
        target = url
        for _ in range(REDIRECTS_MAX + 1):
            result = await self._polite(target)
            response = result.response
            if response is not None and response.status in REDIRECTS:
                with contextlib.suppress(InvalidUrl):
                    target = redirect_target(target, response.header("location")) or ""
                if target:
                    continue
            if response is not None and response.status == 200:
                sitemap = parse_sitemap(response.body, target)
                if is_first and not _is_sitemap(sitemap, response.body):
                    raise UsageError(f"{url} is not a sitemap; seeds need no option: crawler seed {url}")
                return sitemap
            break
        if is_first:
            raise NothingFetchedError(f"can't fetch the sitemap {url}: {_reason(result)}")
        return Sitemap()

    async def _polite(self, url: str) -> FetchResult:
        async with self._slot_borrower.borrow(url, patience_ms=COMMAND_PATIENCE_MS) as granted:
            if not granted:
                raise NothingFetchedError(f"no turn at {host_of(url)} within 30 s: its domain is busy, try again")
            return await self._fetcher.fetch(url, body_bytes_max=BODY_BYTES_MAX)


def _is_sitemap(found: Sitemap, body: bytes) -> bool:
    """Is it one, if only an empty one? What is compressed and empty is taken for one."""
    head = body[:4096].lower()
    return bool(found.urls or found.sitemaps) or head[:2] == b"\x1f\x8b" or any(root in head for root in ROOTS)


def _reason(result: FetchResult) -> str:
    if result.response is not None:
        return f"status {result.response.status}"
    assert result.failure is not None
    return failure_text(result.failure.kind, result.failure.detail)
