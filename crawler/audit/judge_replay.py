"""How much of a crawl's pages its archive shows: a sample of them, opened in Chromium on the archive alone.

The sample is of all domains in equal parts, as far as they have pages, and the same each time for one crawl.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from heapq import heappop, heappush
from pathlib import Path

import msgspec

from crawler.archive.folder import CrawlFolder, archive_error
from crawler.archive.index_reader import IndexReader, index_bytes
from crawler.archive.method_query import is_by_url
from crawler.audit.chromium import BrowserGone, Refusals, chromium
from crawler.audit.replay_archive import ReplayArchive
from crawler.audit.replay_page import PageReplay, Sampled, replay_page
from crawler.errors import UsageError
from crawler.model import CommitEntry
from crawler.outputs.markdown_files import path_of
from crawler.rules.places import registrable_domain
from crawler.rules.progress import Meter
from crawler.rules.urls import host_of

AT_ONCE = 3  # windows
OPENED = (200, 304)
PAGE_TYPES = frozenset(("text/html", "application/xhtml+xml"))
PULSE = 64


class DomainReplay(msgspec.Struct, kw_only=True):
    """The pages of a domain, together."""

    domain: str
    pages: int = 0
    failed: int = 0
    requests: int = 0
    answered: int = 0


class ReplayReport(msgspec.Struct, kw_only=True):
    """What was found. `refused`: what the browser tried to send, of which nothing left this machine, by host."""

    pages: list[PageReplay]
    of_pages: int  # how many there are in the archive
    refused: int = 0
    refused_hosts: dict[str, int] = {}

    @property
    def failed(self) -> list[PageReplay]:
        return [one for one in self.pages if one.failed]

    @property
    def requests(self) -> int:
        return sum(one.requests for one in self.pages)

    @property
    def answered(self) -> int:
        return sum(one.answered for one in self.pages)

    @property
    def kinds(self) -> dict[str, int]:
        """Missing requests by kind, the most first."""
        return dict(sum((Counter(one.kinds) for one in self.pages), Counter[str]()).most_common())

    @property
    def domains(self) -> list[DomainReplay]:
        """The one with the most missing requests first."""
        found: dict[str, DomainReplay] = {}
        for one in self.pages:
            of = found.setdefault(one.domain, DomainReplay(domain=one.domain))
            of.pages += 1
            of.failed += bool(one.failed)
            of.requests += one.requests
            of.answered += one.answered
        return sorted(found.values(), key=lambda of: (of.answered - of.requests, -of.failed, of.domain))


async def judge_replay(
    folders: Sequence[CrawlFolder], count: int, program: str, pictures: Path | None, meter: Meter
) -> ReplayReport:
    """Raises UsageError when there is no page, or the browser does not start; ArchiveError."""
    sample, of_pages = await asyncio.to_thread(sampled, folders, count, meter)
    if not sample:
        raise UsageError(f"there is no HTML page in the archive of {', '.join(str(one.root) for one in folders)}")
    if pictures is not None:
        _make(pictures)
    meter.begin("replaying", "page", len(sample))
    async with Refusals().listening() as refusals:
        windows = _Windows(ReplayArchive(folders), program, refusals.port, pictures, meter)
        pages = await windows.replay(sample)
    hosts = dict(refusals.hosts.most_common())
    return ReplayReport(pages=pages, of_pages=of_pages, refused=refusals.count, refused_hosts=hosts)


def _make(pictures: Path) -> None:
    try:
        pictures.mkdir(exist_ok=True)
    except OSError as error:
        raise archive_error("make the folder", pictures, error) from None


class _Windows:
    """Opens pages, some at once. What ends the browser fails one page."""

    def __init__(
        self, archive: ReplayArchive, program: str, proxy_port: int, pictures: Path | None, meter: Meter
    ) -> None:
        self._archive, self._program, self._proxy_port = archive, program, proxy_port
        self._pictures, self._meter = pictures, meter
        self._found: dict[str, PageReplay] = {}

    async def replay(self, sample: Sequence[Sampled]) -> list[PageReplay]:
        """In the order of the sample."""
        waiting, open_then = deque(sample), list[Sampled]()
        while waiting:
            open_then += await self._round(waiting, AT_ONCE)
        for page in open_then:  # one of those that were open at that time, each by itself now
            for one in await self._round(deque([page]), 1):
                self._found[one.url] = PageReplay(url=one.url, domain=one.domain, failed="it ended Chromium")
        return [self._found[page.url] for page in sample]

    async def _round(self, waiting: deque[Sampled], windows: int) -> list[Sampled]:
        """As far as the browser lives; the pages that were open when it ended."""
        open_then = list[Sampled]()
        async with chromium(self._program, self._proxy_port) as browser:

            async def work() -> None:
                while waiting and not browser.is_gone:
                    page = waiting.popleft()
                    try:
                        self._found[page.url] = await replay_page(browser, self._archive, page, self._picture(page))
                    except BrowserGone:
                        open_then.append(page)
                    self._meter.reached(len(self._found), len(self._found))

            for end in await asyncio.gather(*[work() for _ in range(windows)], return_exceptions=True):
                if end is not None:
                    raise end
        return open_then

    def _picture(self, page: Sampled) -> Path | None:
        if self._pictures is None:
            return None
        host, name = path_of(page.url, page.fingerprint, page.visit)
        return self._pictures / f"{host}-{name.removesuffix('.md')}.png"


class Sample:
    """`count` pages, the same number of each domain, as far as it has them. Memory: so many pages.

    Of a domain those whose rank is the lowest. While there is one too many, one of the domain with the most goes: its
    share only ever gets less.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._kept: dict[str, list[tuple[int, Sampled]]] = {}  # heaps, the worst of each first
        self._total = self._most = 0

    def offer(self, domain: str, rank: int, page: Callable[[], Sampled]) -> None:
        """`rank`: of its URL, as good as random."""
        pages = self._kept.get(domain, [])
        is_full = self._total >= self._count
        if is_full and pages and len(pages) >= self._most - 1 and rank >= -pages[0][0]:
            return
        if any(-rank == one for one, _ in pages):
            return  # another visit
        heappush(pages, (-rank, page()))
        self._kept[domain] = pages
        self._total += 1
        if is_full:
            most = max(self._kept, key=lambda one: (len(self._kept[one]), -self._kept[one][0][0]))
            heappop(self._kept[most])
            self._total -= 1
            if not self._kept[most]:
                del self._kept[most]
        self._most = max(map(len, self._kept.values()), default=0)

    @property
    def pages(self) -> list[Sampled]:
        """By domain and URL."""
        return sorted(
            (page for pages in self._kept.values() for _, page in pages), key=lambda one: (one.domain, one.url)
        )


def sampled(folders: Sequence[CrawlFolder], count: int, meter: Meter) -> tuple[list[Sampled], int]:
    """The pages to open, and of how many."""
    sample, seen, salt = Sample(count), 0, folders[0].crawl.encode()[:16]
    for folder in folders:
        reader = IndexReader(folder)
        meter.begin("choosing pages", "page", index_bytes(folder))
        for entry in reader.entries():
            if not _is_page(entry):
                continue
            seen += 1
            if seen % PULSE == 0:
                meter.reached(seen, reader.bytes_read)
            domain = registrable_domain(host_of(entry.url))
            digest = blake2b(entry.url.encode(), digest_size=8, person=salt).digest()
            sample.offer(domain, int.from_bytes(digest, "big"), partial(_sampled, entry, domain))
    return sample.pages, seen


def _is_page(entry: CommitEntry) -> bool:
    """Is it an HTML page, and was its body kept?"""
    is_plain = entry.request is None or is_by_url(entry.request.method)
    is_there = not entry.is_withheld and entry.content is not None
    return is_plain and is_there and entry.is_page and entry.status in OPENED and entry.content_type in PAGE_TYPES


def _sampled(entry: CommitEntry, domain: str) -> Sampled:
    return Sampled(
        url=entry.url, fingerprint=int(entry.fingerprint), visit=entry.visit, fetched_at=entry.fetched_at, domain=domain
    )  # fmt: skip
