"""Reads robots.txt of origins, one request per turn, and follows redirects.

A request on the claim's own queue is sent in its turn. One on another queue needs a borrowed slot: no worker waits,
the claim is requeued and tries again. A redirect target that is already known needs no request.
"""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

import msgspec

from crawler.content.html import redirect_target
from crawler.hosts.borrowed_slots import POLL_MS_MAX, BorrowedSlot, SlotBorrower
from crawler.hosts.robots_cache import RobotsCache, RobotsEntry
from crawler.model import OURS, REDIRECTS, Failure, FetchResult
from crawler.rules.site_rights import NOTHING_SAID, TDMREP_PATH, PathRule, read_tdmrep
from crawler.rules.urls import origin_of
from crawler.runtime.clocks import monotonic_ms
from crawler.web.connection import IDLE
from crawler.web.fetcher import Fetcher

BODY_BYTES_MAX = 512_000  # the rest of a robots.txt is ignored; RFC 9309 asks for no less
REDIRECTS_MAX = 5  # to reach a robots.txt: RFC 9309, too
PATIENCE_MS = 600_000  # to wait for a slot on another queue
ABANDONED_MS = 2 * PATIENCE_MS  # without a turn for this long: the lease was lost meanwhile
FETCHES_MAX = 10_000  # a redirect target may have 8 KiB

Working = AbstractContextManager[None]  # entered while received bytes are processed


class RobotsFetch(msgspec.Struct):
    """The state of reading an origin's robots.txt. `is_under_way`: a worker has its turn now. `was_stale`: the last
    request met a connection that its server had closed.
    """

    url: str
    hops: int = 0
    slot: BorrowedSlot | None = None
    since_ms: int = msgspec.field(default_factory=monotonic_ms)  # when it reached this URL
    is_under_way: bool = False
    was_stale: bool = False


class RobotsResult(NamedTuple):
    """The result of a turn: an entry and the blob to share (b"": none), or None and how long to wait (ms) before the
    next turn. `is_requested`: a request was sent on the claim's own queue, and took `fetch_ms`. `ours`: a proxy or our
    own network failed, so nothing is known of the site.
    """

    entry: RobotsEntry | None
    blob: bytes = b""
    wait_ms: int = 0
    is_requested: bool = False
    fetch_ms: int = 0
    ours: Failure | None = None


class RobotsReader:
    """Reads what is not in the cache."""

    def __init__(
        self,
        cache: RobotsCache,
        fetcher: Fetcher,
        slot_borrower: SlotBorrower,
        *,
        patience_ms: int = PATIENCE_MS,
        note: Callable[[FetchResult], None] = lambda _: None,
        is_forgotten: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`note` is called with each answer, or failure; of what `is_forgotten` tells, nothing is requested."""
        self._is_forgotten = is_forgotten
        self._note = note
        self._cache = cache
        self._fetcher = fetcher
        self._slot_borrower = slot_borrower
        self._patience_ms = patience_ms
        self._fetches: OrderedDict[str, RobotsFetch] = OrderedDict()
        self._stale: dict[str, None] = {}  # origins of tdmrep.json whose request met a closed connection

    async def read(
        self, queue: str, origin: str, before_send: Callable[[], None] | None = None, *, working: Working = IDLE
    ) -> RobotsResult:
        """Use one turn of `queue` for it ("": of none). What `before_send` raises just before a request passes through.

        Raises EngineError.
        """
        robots_fetch = self._fetch_of(origin)
        if robots_fetch.is_under_way:
            return RobotsResult(None, wait_ms=POLL_MS_MAX)
        robots_fetch.is_under_way = True
        try:
            is_own = self._slot_borrower.place(robots_fetch.url)[0] == queue
            known = None if is_own and not robots_fetch.hops else await self._known_at(robots_fetch.url)
            if known is not None:
                result = RobotsResult(self._cache.keep(origin, known), self._cache.blob_of(known))
            elif is_own:
                result = await self._request(robots_fetch, origin, before_send, working)
            else:
                result = await self._in_borrowed_slot(robots_fetch, origin, before_send, working)
        finally:
            robots_fetch.is_under_way = False
        if result.entry is not None:
            self._fetches.pop(origin, None)
        return result

    async def read_tdmrep(
        self, origin: str, entry: RobotsEntry, before_send: Callable[[], None], *, working: Working = IDLE
    ) -> RobotsResult:
        """Use a turn of the origin's queue for its tdmrep.json: the entry and blob with what that says. One that can't
        be got, or that robots.txt forbids, says nothing. What `before_send` raises passes through.
        """
        assert entry.rules is not None
        url, tdm, cut, fetch_ms, has_answered = f"{origin}{TDMREP_PATH}", tuple[PathRule, ...](), 0, 0, False
        if entry.rules.allows(url):
            result = await self._fetcher.fetch(
                url, body_bytes_max=BODY_BYTES_MAX, before_send=before_send, working=working
            )
            self._note(result)
            fetch_ms, response = result.fetch_ms, result.response
            if result.wants_signature:
                return RobotsResult(None, is_requested=True, fetch_ms=fetch_ms)
            if result.stale_connection and origin not in self._stale:
                if len(self._stale) >= FETCHES_MAX:
                    self._stale.clear()
                self._stale[origin] = None
                return RobotsResult(None, is_requested=True, fetch_ms=fetch_ms)
            self._stale.pop(origin, None)
            if result.failure is not None and result.failure.kind in OURS:
                wait_ms = self._fetcher.own_wait_ms(url)
                return RobotsResult(None, wait_ms=wait_ms, fetch_ms=fetch_ms, ours=result.failure)
            has_answered = response is not None
            if response is not None and response.status == 200 and not (response.truncated or result.challenge):
                tdm, cut = read_tdmrep(response.body)
        said = (entry.rules.said or NOTHING_SAID).with_tdmrep(tdm, cut)
        kept = self._cache.keep(origin, msgspec.structs.replace(entry, rules=entry.rules.with_rights(said)))
        return RobotsResult(kept, self._cache.blob_of(kept), is_requested=has_answered, fetch_ms=fetch_ms)

    def under_way(self) -> list[str]:
        """The URLs of robots.txt files that a worker requests now."""
        return [one.url for one in self._fetches.values() if one.is_under_way]

    def _fetch_of(self, origin: str) -> RobotsFetch:
        robots_fetch = self._fetches.get(origin)
        if robots_fetch is None or monotonic_ms() - robots_fetch.since_ms > ABANDONED_MS:
            robots_fetch = self._fetches[origin] = RobotsFetch(f"{origin}/robots.txt")
            if len(self._fetches) > FETCHES_MAX:
                self._fetches.popitem(last=False)
        return robots_fetch

    async def _in_borrowed_slot(
        self, robots_fetch: RobotsFetch, origin: str, before_send: Callable[[], None] | None, working: Working
    ) -> RobotsResult:
        slot = robots_fetch.slot = robots_fetch.slot or self._slot_borrower.slot(robots_fetch.url)
        wait_ms = await slot.ask()
        if wait_ms and monotonic_ms() - robots_fetch.since_ms > self._patience_ms:
            return RobotsResult(*self._cache.unreachable(origin, f"no request slot for {robots_fetch.url}"))
        if wait_ms:
            return RobotsResult(None, wait_ms=wait_ms)
        try:
            result = await self._request(robots_fetch, origin, before_send, working)
        finally:
            robots_fetch.slot = None
            await slot.end()
        return result._replace(is_requested=False, fetch_ms=0)

    async def _known_at(self, url: str) -> RobotsEntry | None:
        place = _place_of(url)
        known = self._cache.known(place)
        if known is None and place != url:
            known = await self._cache.shared(self._slot_borrower.place(url)[1], place)
        return known if known is not None and known.rules is not None else None

    async def _request(
        self, robots_fetch: RobotsFetch, origin: str, before_send: Callable[[], None] | None, working: Working
    ) -> RobotsResult:
        url = robots_fetch.url
        limit = BODY_BYTES_MAX
        result = await self._fetcher.fetch(url, body_bytes_max=limit, before_send=before_send, working=working)
        self._note(result)
        if result.wants_signature or (result.stale_connection and not robots_fetch.was_stale):
            robots_fetch.was_stale = result.stale_connection
            return RobotsResult(None, is_requested=True, fetch_ms=result.fetch_ms)
        robots_fetch.was_stale = False
        if result.failure is not None and result.failure.kind in OURS:
            wait_ms = self._fetcher.own_wait_ms(url)
            return RobotsResult(None, wait_ms=wait_ms, fetch_ms=result.fetch_ms, ours=result.failure)
        target = _redirected(result)
        if target is None:
            entry, blob = await self._cache.judge(origin, result)
            if robots_fetch.hops and entry.rules is not None:
                self._cache.keep(_place_of(url), entry)
            return RobotsResult(entry, blob, is_requested=True, fetch_ms=result.fetch_ms)
        robots_fetch.url, robots_fetch.hops, robots_fetch.since_ms = target, robots_fetch.hops + 1, monotonic_ms()
        if robots_fetch.hops > REDIRECTS_MAX:
            return RobotsResult(*self._cache.allow_all(origin), is_requested=True, fetch_ms=result.fetch_ms)
        if self._is_forgotten(target):
            unread = self._cache.unreachable(origin, "it redirects to a domain that this crawl has forgotten")
            return RobotsResult(*unread, is_requested=True, fetch_ms=result.fetch_ms)
        return RobotsResult(None, is_requested=True, fetch_ms=result.fetch_ms)


def _place_of(url: str) -> str:
    """The cache key of a URL: its origin if it is the origin's robots.txt, else the URL."""
    origin = origin_of(url)
    return origin if url == f"{origin}/robots.txt" else url


def _redirected(result: FetchResult) -> str | None:
    if result.response is None or result.response.status not in REDIRECTS:
        return None
    return redirect_target(result.url, result.response.header("location"))
