"""What other crawlers know: URLs that they have fetched, and requests that wait in their queues.

    URL lists      as `url_files` reads them: a URL a line, CSV, JSON a line
    CDX            the index of web archives; its header names the columns (` CDX N b a m s ...`)
    CDXJ           a key, a time, and JSON with `url` and `status`
    JSON Lines     with `url`, like what exports of most crawlers have
    scrapy-redis   a sorted set, list or set of requests, pickled, in JSON, or as URLs

A pickle may name any function, and a queue may hold what somebody else has put there: what names one is not read.
"""

import re
from collections.abc import AsyncIterable, Callable
from typing import NamedTuple

import msgspec

from crawler.crawl.url_files import ListRow
from crawler.crawl.url_input import COMPLAINTS_MAX, shown_url
from crawler.errors import InvalidUrl
from crawler.frontier.placement import Placement
from crawler.frontier.restore import Restoring, SeenUrl
from crawler.model import RefusalReason
from crawler.rules.forgotten import Forgotten
from crawler.rules.places import Fingerprints
from crawler.rules.sites import SECRET_HEADERS
from crawler.rules.url_list import listed
from crawler.rules.urls import canonicalize
from crawler.settings.site_checks import OWN_HEADERS

BATCH = 4096
REQUESTS_AT_ONCE = 500
CDX_URL, CDX_STATUS = "a", "s"  # names of columns
META_MAX = 8192  # characters, before it is refused as longer than may travel
# Of a request of Scrapy: what the crawler sets itself, what would be stored in the clear, and what each has there.
LEFT_OUT = SECRET_HEADERS | OWN_HEADERS.keys() | {"referer", "user-agent"}
SCRAPY_DEFAULTS = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "accept-language": "en"}
_FINGERPRINT = re.compile(rb"[0-9a-f]{40}")  # SHA-1, in the set of a dupefilter
JSON_META = (str, int, float, bool, type(None), list, dict)


class KnownUrl(NamedTuple):
    """A URL that another crawler has, and its status where that is known: "" or digits. `flaw`: why it is of no use."""

    url: str
    status: str = ""
    flaw: str = ""


def known_in(line: str, columns: list[str]) -> KnownUrl | None:
    """What a line has; `columns` are those of CDX, which a header changes. None for an empty line or a header."""
    text = line.removeprefix("\ufeff")
    if text.startswith((" CDX ", "CDX ")):
        columns[:] = text.split()[1:]
        return None
    text = text.strip()
    if not text or text.startswith(("#", "!")):
        return None
    if text.startswith("{"):
        return _of_json(text)
    parts = text.split(None, 2)
    if len(parts) == 3 and parts[2].startswith("{"):
        return _of_json(parts[2])
    if columns:
        parts = text.split()
        at = {name: parts[i] for i, name in enumerate(columns) if i < len(parts)}
        return KnownUrl(at.get(CDX_URL, ""), at.get(CDX_STATUS, "").strip("-"))
    one = listed(text)
    return KnownUrl(one.url, flaw=one.flaw) if one is not None else None


def _of_json(text: str) -> KnownUrl:
    try:
        found = msgspec.json.decode(text)
        return KnownUrl(str(found["url"]), str(found.get("status") or ""))
    except (msgspec.MsgspecError, KeyError, AttributeError, TypeError, ValueError):
        return KnownUrl("")


class SeenReport(msgspec.Struct, kw_only=True):
    """What became of the lines of an import."""

    new: int = 0
    known: int = 0  # to this crawl
    forgotten: int = 0  # of domains that the crawl has forgotten: nothing of them is noted
    failed: int = 0  # server errors there: they are fetched here
    invalid: int = 0
    examples: list[str] = msgspec.field(default_factory=list)  # of invalid ones


class SeenImport:
    """Marks URLs as seen. Repeating is safe."""

    def __init__(
        self, restoring: Restoring, placement: Placement, fingerprints: Fingerprints, forgotten: Forgotten | None = None
    ) -> None:
        self._restoring = restoring
        self._forgotten = forgotten
        self._placement = placement
        self._fingerprints = fingerprints
        self.report = SeenReport()

    async def take(
        self, name: str, batches: AsyncIterable[list[ListRow]], reached: Callable[[int], None] = lambda _: None
    ) -> None:
        """All rows of the file `name`. `reached` is called with the number of a line. Raises EngineError."""
        batch, columns = list[SeenUrl](), list[str]()
        async for rows in batches:
            for row in rows:
                if (seen := self._judged(name, row, columns)) is not None:
                    batch.append(seen)
                if len(batch) >= BATCH:
                    await self._mark(batch)
                    batch = []
                    reached(row.number)
        await self._mark(batch)

    def _judged(self, name: str, row: ListRow, columns: list[str]) -> SeenUrl | None:
        """The URL of a row; None, and counted, if it has none that counts as seen."""
        known = KnownUrl(row.text, flaw=row.flaw) if row.flaw else known_in(row.text, columns)
        if known is None:
            return None
        if known.status.startswith("5"):
            self.report.failed += 1
            return None
        try:
            if known.flaw:
                raise InvalidUrl(known.url, known.flaw)
            url = canonicalize(known.url)
            if self._forgotten is not None and self._forgotten.has(url):
                self.report.forgotten += 1
                return None
            return self._seen(url)
        except InvalidUrl as error:
            self.report.invalid += 1
            if len(self.report.examples) < COMPLAINTS_MAX:
                self.report.examples.append(f"{name} line {row.number}: {shown_url(known.url)}: {error.reason}")
            return None

    def _seen(self, url: str) -> SeenUrl:
        domain, queue, partition = self._placement.of(url)
        return SeenUrl(self._fingerprints.of(url), partition, domain, queue)

    async def _mark(self, batch: list[SeenUrl]) -> None:
        new = await self._restoring.mark_seen(batch, RefusalReason.IMPORTED)
        self.report.new += new
        self.report.known += len(batch) - new
