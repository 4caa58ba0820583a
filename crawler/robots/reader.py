"""Reads robots.txt of origins, one request a turn, wherever redirects lead.

A request on the claim's own queue is made in its turn. One on another queue is a guest's: no worker waits for that, the
claim comes back to ask again. What is known already of the place where a redirect leads needs no request at all.
"""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

import msgspec

from crawler.content.html import redirect_target
from crawler.model import REDIRECTS, Claim, FetchResult
from crawler.robots.cache import RobotsCache, RobotsEntry
from crawler.robots.reserver import POLL_MS_MAX, GuestTurn, Reserver
from crawler.rules.urls import origin_of
from crawler.runtime.clock import monotonic_ms
from crawler.settings import RobotsSettings
from crawler.web.connection import IDLE
from crawler.web.fetcher import Fetcher

PATIENCE_MS = 600_000  # for a turn on another queue
ABANDONED_MS = 2 * PATIENCE_MS  # nobody has taken a turn for so long: its lease was lost meanwhile
JOURNEYS_MAX = 50_000

Working = AbstractContextManager[None]  # entered while bytes that came are read


class Journey(msgspec.Struct):
    """How far the reading of an origin's robots.txt has come. `is_under_way`: some worker has its turn now;
    `met_stale`: the last request met a connection that its server had given up.
    """

    url: str
    hops: int = 0
    turn: GuestTurn | None = None
    since_ms: int = msgspec.field(default_factory=monotonic_ms)  # when it came to where it is
    is_under_way: bool = False
    met_stale: bool = False


class Reading(NamedTuple):
    """What a turn has brought: an entry and the blob to share (b"": none), or None and how long to wait (ms) before the
    next turn. `is_asked`: a request was made on the claim's own queue, which took `fetch_ms`.
    """

    entry: RobotsEntry | None
    blob: bytes = b""
    wait_ms: int = 0
    is_asked: bool = False
    fetch_ms: int = 0


class RobotsReader:
    """Reads what the cache does not know."""

    def __init__(
        self,
        cache: RobotsCache,
        fetcher: Fetcher,
        reserver: Reserver,
        settings: RobotsSettings,
        *,
        patience_ms: int = PATIENCE_MS,
    ) -> None:
        self._cache = cache
        self._fetcher = fetcher
        self._reserver = reserver
        self._settings = settings
        self._patience_ms = patience_ms
        self._journeys: OrderedDict[str, Journey] = OrderedDict()

    async def turn(
        self, claim: Claim, origin: str, before_send: Callable[[], None] | None = None, *, working: Working = IDLE
    ) -> Reading:
        """Spend a turn of the claim's queue on it. What `before_send` raises just before a request passes through.

        Raises EngineError.
        """
        journey = self._journey(origin)
        if journey.is_under_way:
            return Reading(None, wait_ms=POLL_MS_MAX)
        journey.is_under_way = True
        try:
            is_own = self._reserver.place(journey.url)[0] == claim.queue
            known = None if is_own and not journey.hops else await self._known_at(journey.url)
            if known is not None:
                reading = Reading(self._cache.keep(origin, known), self._cache.blob_of(known))
            elif is_own:
                reading = await self._request(journey, origin, before_send, working)
            else:
                reading = await self._as_guest(journey, origin, before_send, working)
        finally:
            journey.is_under_way = False
        if reading.entry is not None:
            self._journeys.pop(origin, None)
        return reading

    def _journey(self, origin: str) -> Journey:
        journey = self._journeys.get(origin)
        if journey is None or monotonic_ms() - journey.since_ms > ABANDONED_MS:
            journey = self._journeys[origin] = Journey(f"{origin}/robots.txt")
            if len(self._journeys) > JOURNEYS_MAX:
                self._journeys.popitem(last=False)
        return journey

    async def _as_guest(
        self, journey: Journey, origin: str, before_send: Callable[[], None] | None, working: Working
    ) -> Reading:
        turn = journey.turn = journey.turn or self._reserver.turn(journey.url)
        wait_ms = await turn.ask()
        if wait_ms and monotonic_ms() - journey.since_ms > self._patience_ms:
            return Reading(*self._cache.unreachable(origin, f"no turn at {journey.url}"))
        if wait_ms:
            return Reading(None, wait_ms=wait_ms)
        try:
            reading = await self._request(journey, origin, before_send, working)
        finally:
            journey.turn = None
            await turn.end()
        return reading._replace(is_asked=False, fetch_ms=0)

    async def _known_at(self, url: str) -> RobotsEntry | None:
        place = _place_of(url)
        known = self._cache.known(place)
        if known is None and place != url:
            known = await self._cache.shared(self._reserver.place(url)[1], place)
        return known if known is not None and known.rules is not None else None

    async def _request(
        self, journey: Journey, origin: str, before_send: Callable[[], None] | None, working: Working
    ) -> Reading:
        url = journey.url
        limit = self._settings.body_bytes_max
        result = await self._fetcher.fetch(url, body_bytes_max=limit, before_send=before_send, working=working)
        if result.stale_connection and not journey.met_stale:
            journey.met_stale = True
            return Reading(None, is_asked=True, fetch_ms=result.fetch_ms)
        journey.met_stale = False
        target = _redirected(result)
        if target is None:
            entry, blob = await self._cache.judge(origin, result)
            if journey.hops and entry.rules is not None:
                self._cache.keep(_place_of(url), entry)
            return Reading(entry, blob, is_asked=True, fetch_ms=result.fetch_ms)
        journey.url, journey.hops, journey.since_ms = target, journey.hops + 1, monotonic_ms()
        if journey.hops > self._settings.redirects_max:
            return Reading(*self._cache.allow_all(origin), is_asked=True, fetch_ms=result.fetch_ms)
        return Reading(None, is_asked=True, fetch_ms=result.fetch_ms)


def _place_of(url: str) -> str:
    """What entries of this URL are kept under: its origin, if it is that one's robots.txt."""
    origin = origin_of(url)
    return origin if url == f"{origin}/robots.txt" else url


def _redirected(result: FetchResult) -> str | None:
    if result.response is None or result.response.status not in REDIRECTS:
        return None
    return redirect_target(result.url, result.response.header("location"))
