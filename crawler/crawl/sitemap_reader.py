"""Reads sitemaps that people name to a command, on the clock of their host: an index leads to further ones, two levels
deep. Those that a robots.txt or a job names are URLs of the crawl.
"""

import contextlib
from collections import deque
from collections.abc import AsyncIterator, Sequence

import msgspec

from crawler.content.html import redirect_target
from crawler.content.sitemap import NO_SITEMAP, Sitemap, SitemapUrl, parse_sitemap
from crawler.crawl.url_input import url_of
from crawler.errors import InvalidUrl, NothingFetchedError, UsageError
from crawler.hosts.borrowed_slots import COMMAND_PATIENCE_MS, SlotBorrower
from crawler.model import REDIRECTS, FetchResult, Response
from crawler.rules.challenges import sentence_of
from crawler.rules.places import registrable_domain
from crawler.rules.urls import host_of
from crawler.terminal.words import counted, failure_text
from crawler.web.fetcher import Fetcher

DEPTH_MAX = 2  # an index of indexes; the protocol knows one level, sites have two
SITEMAPS_MAX = 10_000  # of one index, each a request on its host's clock: nearly three hours at one a second
REDIRECTS_MAX = 5
COMPLAINTS_MAX = 10
BODY_BYTES_MAX = 50 * 1024 * 1024  # the protocol's own limit


class FoundUrls(msgspec.Struct, frozen=True):
    """The URLs of one sitemap, and which one it was."""

    where: str
    urls: list[SitemapUrl]


class SitemapReader:
    """`foreign` counts URLs of other domains: no sitemap speaks for those. The domain is that of the URL given, or that
    it redirects to.
    """

    def __init__(self, fetcher: Fetcher, slot_borrower: SlotBorrower) -> None:
        self._fetcher = fetcher
        self._slot_borrower = slot_borrower
        self.foreign = 0
        self._left_out = 0  # sitemaps beyond SITEMAPS_MAX
        self._missing: list[str] = []
        self._odd: list[str] = []
        self._domains: set[str] = set()

    async def read(self, url: str) -> AsyncIterator[FoundUrls]:
        """The sitemap at `url` and those that it names. Raises UsageError, NothingFetchedError for the first only."""
        try:
            first = url_of(url)
        except InvalidUrl as error:
            raise UsageError(f"--sitemap: {error}") from None
        waiting, known = deque([(first, 0)]), {first}
        self._domains.add(registrable_domain(host_of(first)))
        while waiting:
            current, level = waiting.popleft()
            sitemap = await self._fetched(current, is_first=current == first)
            yield FoundUrls(f"sitemap {current}", self._own_entries(sitemap.urls))
            further = self._own(sitemap.sitemaps) if level < DEPTH_MAX else []
            for loc in further:
                if loc in known:
                    continue
                if len(known) > SITEMAPS_MAX:
                    self._left_out += 1
                    continue
                known.add(loc)
                waiting.append((loc, level + 1))

    def missing(self, url: str) -> list[str]:
        """Lines on what was not read, the first of them, and how many more there are."""
        said = _first(self._missing)
        if self._left_out:
            said.append(
                f"{self._left_out} sitemaps named by {url} were not read: only {SITEMAPS_MAX} are read of one index; "
                "give the others with --sitemap"
            )
        return said

    def oddities(self) -> list[str]:
        """Lines on sitemaps that were read leniently, the first of them, and how many more there are."""
        return _first(self._odd)

    def _own_entries(self, entries: Sequence[SitemapUrl]) -> list[SitemapUrl]:
        own = set(self._own([entry.loc for entry in entries]))
        return [entry for entry in entries if entry.loc in own]

    def _own(self, urls: Sequence[str]) -> list[str]:
        own = [url for url in urls if registrable_domain(host_of(url)) in self._domains]
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
            if response is not None and response.status == 200 and not result.challenge:
                sitemap = parse_sitemap(response.body, target)
                if is_first and sitemap.flaw == NO_SITEMAP:
                    raise UsageError(f"{url} is not a sitemap; seeds need no option: crawler seed {url}")
                if is_first:
                    self._domains.add(registrable_domain(host_of(target)))
                self._judge(url, sitemap, response)
                return sitemap
            break
        if is_first:
            raise NothingFetchedError(f"can't fetch the sitemap {url}: {_reason(result)}")
        self._missing.append(f"{url}: not read: {_reason(result)}")
        return Sitemap()

    def _judge(self, url: str, sitemap: Sitemap, response: Response) -> None:
        """Note what is wrong with a sitemap, or with how it came."""
        cut = f"its transfer was cut off ({response.truncated})" if response.truncated else response.decode_error
        read = counted(len(sitemap.urls) + len(sitemap.sitemaps), "URL was read", "URLs were read")
        if missing := cut or sitemap.flaw:
            self._missing.append(f"{url}: {missing}; {read}")
        if sitemap.oddity:
            self._odd.append(f"{url}: {sitemap.oddity}; {read}")
        if sitemap.left_out:
            left_out = counted(sitemap.left_out, "entry", "entries")
            self._odd.append(f"{url}: {left_out} without a usable URL left out; {read}")
        if sitemap.alternates:
            links = counted(sitemap.alternates, "link to another language", "links to other languages")
            self._odd.append(
                f"{url}: {links} (hreflang) not read: their own entries, or their pages, name them; {read}"
            )

    async def _polite(self, url: str) -> FetchResult:
        result = await self._once(url)
        return await self._once(url) if result.wants_signature else result

    async def _once(self, url: str) -> FetchResult:
        async with self._slot_borrower.borrow(url, patience_ms=COMMAND_PATIENCE_MS) as granted:
            if not granted:
                raise NothingFetchedError(f"no turn at {host_of(url)} within 30 s: its domain is busy, try again")
            return await self._fetcher.fetch(url, body_bytes_max=BODY_BYTES_MAX)


def _first(lines: Sequence[str]) -> list[str]:
    more = len(lines) - COMPLAINTS_MAX
    return [*lines[:COMPLAINTS_MAX], *([f"the same of {counted(more, 'more sitemap')}"] if more > 0 else [])]


def _reason(result: FetchResult) -> str:
    if result.challenge:
        return sentence_of(result.challenge)
    if result.response is not None:
        return f"status {result.response.status}"
    assert result.failure is not None
    return failure_text(result.failure.kind, result.failure.detail)
