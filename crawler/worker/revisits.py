"""Pages that an earlier run of a job has archived: the site is asked whether they have changed since.

A server that says "no" (304) sends no body. The page is committed for this run all the same: its links are those of the
archived body, and its handler gets it. An answer that can't be used so is no answer: the page is requested again, as if
nobody had it.

Likewise what the crawl itself has archived of a URL as a requisite, for its page, and as a page, for the requisite:
nobody is asked, for the request was the same. What is archived elsewhere, or not whole, is requested.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial

from msgspec.structs import replace

from crawler.archive.earlier_pages import EarlierPage, EarlierPages, Twin
from crawler.archive.folder import CrawlFolder
from crawler.archive.warc import payload_digest, safe_uri
from crawler.archive.warc_reader import StoredResponse, read_record
from crawler.content.coding import RATIO_MAX, inflate
from crawler.content.said import NAMES
from crawler.errors import ArchiveError
from crawler.model import SITEMAP, Claim, CommitEntry, Decoded, Response
from crawler.routing.runs_known import RunBook
from crawler.rules.conditional import head_digest
from crawler.rules.places import twin_of
from crawler.settings import FetchSettings
from crawler.web.fetcher import Fetcher

PLAIN_MAX = 10_000  # URLs

Headers = tuple[tuple[bytes, bytes], ...]


class Revisits:
    """What one instance knows of archived pages, in the folder of its machine."""

    def __init__(
        self,
        folder: CrawlFolder,
        runs: RunBook,
        fetcher: Fetcher,
        settings: FetchSettings,
        *,
        logged: Callable[[int, str], Awaitable[CommitEntry | None]] | None = None,
    ) -> None:
        """`logged`: the commit of a partition that may not be in an index yet; None in crawls without requisites."""
        self._folder = folder
        self._pages = EarlierPages(folder, has_requisites=logged is not None)
        self._logged = logged
        self._runs = runs
        self._fetcher = fetcher
        self._settings = settings
        # Fingerprints of URLs about which an answer was of no use. One that is forgotten is asked about once more.
        self._plain: OrderedDict[str, None] = OrderedDict()

    async def page_of(self, claim: Claim) -> EarlierPage | None:
        """The page to ask about in a claim's request; None when all of it is requested.

        A repeated attempt asks for all: whoever wants one did not like what there was.
        """
        is_plain = claim.request is None and claim.label != SITEMAP and not claim.attempts
        if not (claim.run and is_plain and self._runs.asks_for_changes(claim.run)) or claim.fingerprint in self._plain:
            return None
        digest = head_digest(self._fetcher.kept_head(claim.url))
        return await asyncio.to_thread(self._pages.find, claim.url, claim.run, digest)

    async def unchanged(self, claim: Claim, earlier: EarlierPage, answer: Response) -> Response | None:
        """The archived page, for an answer that says it is unchanged; None when the answer can't be used."""
        if earlier.validators.confirmed_by(answer.listed("etag")):
            with contextlib.suppress(ArchiveError):
                read = partial(self._read, claim.url, earlier, answer)
                return await self._fetcher.taken(earlier.original.place.length, read)
        self._plain[claim.fingerprint] = None
        if len(self._plain) > PLAIN_MAX:
            self._plain.popitem(last=False)
        return None

    async def is_a_page_here(self, claim: Claim) -> bool:
        """Has this folder the URL of a requisite as a page? Raises EngineError."""
        return await self._twin(claim) is not None

    async def of_requisite(self, claim: Claim) -> tuple[EarlierPage, Response] | None:
        """What was archived of a page's URL as a requisite: its answer, which needs no other request. Raises
        EngineError.
        """
        if claim.attempts or (twin := await self._twin(claim)) is None:
            return None
        page, entry = twin
        try:
            found = await self._fetcher.taken(page.original.place.length, partial(self._whole, claim.url, page))
        except ArchiveError:
            return None
        return page, replace(found, started_at=entry.fetched_at)

    async def _twin(self, claim: Claim) -> Twin | None:
        if self._logged is None:
            return None
        logged = await self._logged(claim.partition, twin_of(claim.fingerprint))
        find = partial(self._pages.twin_of, claim.url, is_requisite=claim.is_requisite, logged=logged)
        return await asyncio.to_thread(find)

    def _read(self, url: str, earlier: EarlierPage, answer: Response) -> Response:
        """The page as it is archived, as if it had come with this answer. Raises ArchiveError."""
        found = self._whole(url, earlier)
        return replace(
            found, is_unchanged=True, headers=renewed(found.headers, answer.headers), remote_ip=answer.remote_ip,
            started_at=answer.started_at, fetch_ms=answer.fetch_ms,
        )  # fmt: skip

    def _whole(self, url: str, earlier: EarlierPage) -> Response:
        """The page as it is archived. Raises ArchiveError where it is not there, or not whole."""
        place = earlier.original.place
        stored = read_record(self._folder, place)
        if stored.uri != safe_uri(url) or payload_digest(stored.payload) != earlier.original.digest:
            raise ArchiveError(f"another page is in {place.file} at {place.offset}")
        found = response_of(url, stored, self._settings)
        if found.truncated or found.decoded is not Decoded.CLEAN or len(found.body) >= self._settings.body_bytes_max:
            raise ArchiveError(f"the page in {place.file} at {place.offset} is not whole by the settings of now")
        return found


def renewed(stored: Headers, of_304: Headers) -> Headers:
    """The headers of an archived page, with what a 304 says to robots and of rights in the place of that (RFC 9111
    3.2).
    """
    newer = tuple(one for one in of_304 if one[0].lower() in NAMES)
    renamed = {name.lower() for name, _ in newer}
    return (*(one for one in stored if one[0].lower() not in renamed), *newer)


def response_of(url: str, stored: StoredResponse, settings: FetchSettings, *, bytes_max: int = 0) -> Response:
    """The archived exchange as the parser takes it. `bytes_max`: of the decoded body, if not fetch.body_bytes_max."""
    coding, limit = stored.listed("content-encoding"), bytes_max or settings.body_bytes_max
    found = inflate(stored.payload, coding, limit=limit, ratio_max=RATIO_MAX).of_cut(stored.truncated)
    version, _, rest = stored.status_line.partition(" ")
    return Response(
        url=url,
        status=stored.status,
        reason=rest[4:].encode("latin-1").decode("utf-8", "surrogateescape"),
        http_version=version.removeprefix("HTTP/"),
        headers=tuple((k.encode("latin-1"), v.encode("latin-1")) for k, v in stored.headers),
        raw_body=stored.payload,
        body=found.body,
        truncated=stored.truncated,
        decode_error=found.error,
        decoded=found.decoded,
        request_head=b"",
        remote_ip="",
        started_at=0.0,
        fetch_ms=0,
    )
