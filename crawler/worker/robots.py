"""The robots gate: robots.txt of an origin, cached, shared or read, and requests on queues of other instances."""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import msgspec

from crawler.content.html import redirect_target
from crawler.errors import EngineError
from crawler.frontier.leases import SlotQueue, SlotRequest
from crawler.frontier.operator import Overrides
from crawler.frontier.owner import Frontier, Settlement
from crawler.membership.ownership import HeldPartitions
from crawler.model import NOT_ALLOWED, OURS, REDIRECTS, Claim, Failure, FailureKind, FetchResult
from crawler.rules.health import delay_ms
from crawler.rules.robots import ALLOW_ALL, RobotsRules, SharedRobots, is_cut_at_limit, policy_of
from crawler.rules.scope import of_queues
from crawler.rules.urls import join, origin_of
from crawler.runtime.process import monotonic_ms, wall_s
from crawler.settings import PolitenessSettings, Settings, SiteSettings
from crawler.web.connection import IDLE
from crawler.web.fetcher import Fetcher

# Cached robots.txt of origins: read here, or shared through the frontier.
#
# An origin whose robots.txt can't be read is not crawled: its URLs are retried until the retry rules give them up.

CACHED_ORIGINS_MAX = 50_000
# Of rules and their names, estimated; rules that origins share count for each of them.
CACHED_BYTES_MAX = 64 * 1024 * 1024
LONG_BYTES = 32 * 1024  # takes up to 15 ms to parse; 500 KB take up to 0.25 s


class RobotsEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Valid for an origin until `expires_ms` (monotonic) or `expires_at` (wall), whichever comes first."""

    rules: RobotsRules | None  # None: could not be read, nothing is allowed
    failure: FailureKind | None = None
    detail: str = ""
    retry_after_ms: int = 0
    expires_ms: int
    expires_at: float

    @property
    def crawl_delay_s(self) -> float | None:
        return self.rules.crawl_delay_s if self.rules else None

    @property
    def memory_bytes(self) -> int:
        return self.rules.memory_bytes if self.rules else 0


class RobotsCache:
    """Entries by origin. A redirect target that is not itself an origin's robots.txt is kept by URL."""

    def __init__(self, frontier: Frontier, settings: Settings) -> None:
        self._frontier = frontier
        self._settings = settings
        self._entries: OrderedDict[str, RobotsEntry] = OrderedDict()
        self._bytes = 0
        self._long = asyncio.Lock()  # one at a time: others wait, and the event loop keeps half of its core at least

    def known(self, origin: str) -> RobotsEntry | None:
        """The entry of an origin if it is still valid."""
        entry = self._entries.get(origin)
        if entry is None:
            return None
        if monotonic_ms() >= entry.expires_ms or wall_s() >= entry.expires_at:
            self._forget(origin)
            return None
        return entry

    def _forget(self, origin: str) -> None:
        self._bytes -= len(origin) + self._entries.pop(origin).memory_bytes

    async def shared(self, partition: int, origin: str) -> RobotsEntry | None:
        """The entry that another session shared; it is cached here from then on."""
        blob = await self._frontier.robots(partition, origin)
        if blob is None:
            return None
        if len(blob) <= LONG_BYTES:
            stored = SharedRobots.unpack(blob)
        else:
            async with self._long:
                known = self.known(origin)  # by now, for another claim of it
                if known is not None:
                    return known
                stored = await asyncio.to_thread(_long_unpacked, blob)
        if stored is None:
            return None
        age_s = max(0.0, wall_s() - stored.read_at)
        if age_s >= self._settings.robots.ttl_s:
            return None
        return self.keep(origin, self._entry(stored.rules, ttl_s=self._settings.robots.ttl_s - age_s))

    def keep(self, origin: str, entry: RobotsEntry) -> RobotsEntry:
        """Cache an entry for this place too; it may have been read elsewhere."""
        if origin in self._entries:
            self._forget(origin)
        self._entries[origin] = entry
        self._bytes += len(origin) + entry.memory_bytes  # a redirect target may have 8 KiB
        while len(self._entries) > CACHED_ORIGINS_MAX or (self._bytes > CACHED_BYTES_MAX and len(self._entries) > 1):
            self._forget(next(iter(self._entries)))
        return entry

    def blob_of(self, entry: RobotsEntry) -> bytes:
        """What sessions share of an entry that has rules."""
        assert entry.rules is not None
        return SharedRobots(int(entry.expires_at - self._settings.robots.ttl_s), entry.rules).pack()

    def allow_all(self, origin: str) -> tuple[RobotsEntry, bytes]:
        """RFC 9309 2.3.1.2: after too many redirects robots.txt is unavailable, and everything is allowed."""
        return self._share(origin, ALLOW_ALL)

    def unreachable(self, origin: str, detail: str) -> tuple[RobotsEntry, bytes]:
        """It can't be read now; nothing is shared."""
        return self._unreachable(origin, FailureKind.ROBOTS_UNREACHABLE, detail), b""

    async def judge(self, origin: str, result: FetchResult) -> tuple[RobotsEntry, bytes]:
        """What a response means for an origin: the entry, and the blob to share (b"": none)."""
        if result.response is None:
            failure = result.failure
            kind = failure.kind if failure else FailureKind.ROBOTS_UNREACHABLE
            detail = f"{failure.kind}: {failure.detail}" if failure else ""
            if failure and kind in NOT_ALLOWED:
                detail = failure.detail
            return self._unreachable(origin, kind, detail), b""
        policy, detail = policy_of(result.response, result.challenge)
        if policy == "disallow_all":
            kind = FailureKind.ROBOTS_UNREACHABLE
            return self._unreachable(origin, kind, detail, retry_after_ms=result.retry_after_ms), b""
        body, is_cut = result.response.body if policy == "parse" else b"", is_cut_at_limit(result.response)
        if len(body) <= LONG_BYTES:
            rules = RobotsRules.parse(body, self._settings.robots.agent, is_cut=is_cut) if body else ALLOW_ALL
        else:
            async with self._long:
                rules = await asyncio.to_thread(_long_parsed, body, self._settings.robots.agent, is_cut=is_cut)
        return self._share(origin, rules)

    def _share(self, origin: str, rules: RobotsRules) -> tuple[RobotsEntry, bytes]:
        blob = SharedRobots(int(wall_s()), rules).pack()
        return self.keep(origin, self._entry(rules, ttl_s=self._settings.robots.ttl_s)), blob

    def _unreachable(self, origin: str, kind: FailureKind, detail: str, retry_after_ms: int = 0) -> RobotsEntry:
        ttl_s = max(self._settings.retry.backoff_s, retry_after_ms / 1000)  # its queue waits at least as long
        entry = RobotsEntry(
            rules=None,
            failure=kind,
            detail=detail,
            retry_after_ms=retry_after_ms,
            expires_ms=monotonic_ms() + int(ttl_s * 1000),
            expires_at=wall_s() + ttl_s,
        )
        return self.keep(origin, entry)

    def _entry(self, rules: RobotsRules, *, ttl_s: float) -> RobotsEntry:
        return RobotsEntry(rules=rules, expires_ms=monotonic_ms() + int(ttl_s * 1000), expires_at=wall_s() + ttl_s)


def _long_parsed(body: bytes, agent: str, *, is_cut: bool) -> RobotsRules:
    rules = RobotsRules.parse(body, agent, is_cut=is_cut)
    rules.prepare()
    return rules


def _long_unpacked(blob: bytes) -> SharedRobots | None:
    stored = SharedRobots.unpack(blob)
    if stored is not None:
        stored.rules.prepare()
    return stored


# Request slots borrowed on queues of other owners: for a robots.txt that redirects to another domain, for sitemaps.
#
# A borrower leaves a mark that the owner sees. Only the owner writes the partition's clock.

COMMAND_PATIENCE_MS = 30_000  # of commands, for a slot on the clock of a host
POLL_MS_MAX = 1_000  # an owner reserves a queue for 2.5 s for the waiter


class BorrowedSlot:
    """One request on a queue that others own: polled until granted, ended when the request is over.

    Each reply carries the owner's clock, a lower bound from then on for as long as the owner is the same.
    """

    def __init__(self, slot_queue: SlotQueue, partition: int, queue: str, waiter: str) -> None:
        self._slot_queue = slot_queue
        self._place = partition, queue
        self._waiter = waiter
        self._began_ms = monotonic_ms()
        self._epoch = -1
        self._clock_ms = 0  # lower bound of the owner's time when this slot was created
        self._mark = ""
        self._since_ms = 0  # when that mark was first seen

    async def ask(self) -> int:
        """How long to wait before asking again, ms; 0: the request may be made now. Raises EngineError."""
        elapsed_ms = monotonic_ms() - self._began_ms
        asked = SlotRequest(
            waiter=self._waiter, now_ms=self._clock_ms + elapsed_ms, epoch=self._epoch, mark=self._mark,
            seen_ms=elapsed_ms - self._since_ms,
        )  # fmt: skip
        reply = await self._slot_queue.borrow(*self._place, asked)
        answered_ms = monotonic_ms() - self._began_ms
        if reply.mark != self._mark:
            self._mark, self._since_ms = reply.mark, answered_ms
        known_ms = reply.clock_ms - answered_ms
        self._clock_ms = max(self._clock_ms, known_ms) if reply.epoch == self._epoch else known_ms
        self._epoch = reply.epoch
        return min(reply.wait_ms, POLL_MS_MAX)

    async def end(self) -> None:
        """The request is over, or will never be sent."""
        with contextlib.suppress(EngineError):  # the mark expires by itself
            await self._slot_queue.release(*self._place, self._waiter)


class SlotBorrower:
    """Borrows slots on the queues of URLs, whichever session owns them."""

    def __init__(self, frontier: Frontier, place: Callable[[str], tuple[str, str, int]]) -> None:
        """`place`: (domain, queue, partition) of a URL."""
        self._session = frontier.session
        self._slot_queue = SlotQueue(frontier.engine, frontier.keys, default_delay_ms=frontier.default_delay_ms)
        self._place = place
        self._serial = 0

    def place(self, url: str) -> tuple[str, int]:
        """(queue, partition) of a URL."""
        _, queue, partition = self._place(url)
        return queue, partition

    def slot(self, url: str) -> BorrowedSlot:
        """A slot on the queue of `url`, not requested yet."""
        self._serial += 1
        queue, partition = self.place(url)
        return BorrowedSlot(self._slot_queue, partition, queue, f"{self._session}-{self._serial}")

    @contextlib.asynccontextmanager
    async def borrow(self, url: str, *, patience_ms: int) -> AsyncIterator[bool]:
        """Hold a slot while in this context; yields False when none was granted in time."""
        slot, began_ms = self.slot(url), monotonic_ms()
        wait_ms = await slot.ask()
        while wait_ms and monotonic_ms() - began_ms < patience_ms:
            await asyncio.sleep(wait_ms / 1000)
            wait_ms = await slot.ask()
        if wait_ms:
            yield False
            return
        try:
            yield True
        finally:
            await slot.end()


# Reads robots.txt of origins, one request per turn, and follows redirects.
#
# A request on the claim's own queue is sent in its turn. One on another queue needs a borrowed slot: no worker waits,
# the claim is requeued and tries again. A redirect target that is already known needs no request.


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
    ) -> None:
        self._cache = cache
        self._fetcher = fetcher
        self._slot_borrower = slot_borrower
        self._patience_ms = patience_ms
        self._fetches: OrderedDict[str, RobotsFetch] = OrderedDict()

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
        if result.stale_connection and not robots_fetch.was_stale:
            robots_fetch.was_stale = True
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
        return RobotsResult(None, is_requested=True, fetch_ms=result.fetch_ms)


def _place_of(url: str) -> str:
    """The cache key of a URL: its origin if it is the origin's robots.txt, else the URL."""
    origin = origin_of(url)
    return origin if url == f"{origin}/robots.txt" else url


def _redirected(result: FetchResult) -> str | None:
    if result.response is None or result.response.status not in REDIRECTS:
        return None
    return redirect_target(result.url, result.response.header("location"))


# The robots gate: whether a URL may be fetched, and with which delay between requests of its queue.


log = logging.getLogger(__name__)
ANNOUNCED_MAX = 10_000  # origins; what is forgotten is announced again, and known to the engine


class RobotsGate:
    """Reads, caches and shares robots.txt; stores the delays of queues."""

    def __init__(
        self,
        frontier: Frontier,
        held: HeldPartitions,
        cache: RobotsCache,
        reader: RobotsReader,
        settings: PolitenessSettings,
        *,
        overrides: Callable[[], Overrides],
        sites: Sequence[SiteSettings] = (),
        reads_sitemaps: bool = False,
    ) -> None:
        """`reads_sitemaps`: are those that robots.txt names a part of the crawl?"""
        self._frontier = frontier
        self._held = held
        self._cache = cache
        self._reader = reader
        self._overrides = overrides
        self.min_delay_ms = int(settings.delay_s * 1000)
        self._own_delay_s = of_queues(sites, "delay_s")
        self._delay_max_ms = int(settings.delay_max_s * 1000)
        self._reads_sitemaps = reads_sitemaps
        self._announced: OrderedDict[str, None] = OrderedDict()  # origins whose sitemaps are in the frontier

    async def known(self, claim: Claim, *, is_delay_known: bool) -> RobotsEntry | None:
        """The valid entry of the claim's origin, read here or by another session. Raises EngineError.

        `is_delay_known`: is the queue's delay known? It is stored with the queue's first robots.txt; without it, there
        is nothing to look up.
        """
        origin = origin_of(claim.url)
        found = self._cache.known(origin)
        if found is None and is_delay_known:
            found = await self._cache.shared(claim.partition, origin)
        return found

    def allows(self, url: str) -> bool:
        """Does the cached robots.txt allow this URL? False when none is cached."""
        entry = self._cache.known(origin_of(url))
        return entry is not None and entry.rules is not None and entry.rules.allows(url)

    def sitemaps(self, claim: Claim) -> list[str]:
        """What the robots.txt of the claim's origin names, until a page has brought it into the frontier. Not for runs,
        which would fetch the whole site each time: a job says which sitemap it reads.
        """
        origin = origin_of(claim.url)
        if not self._reads_sitemaps or claim.run or origin in self._announced:
            return []
        entry = self._cache.known(origin)
        if entry is None or entry.rules is None or not entry.rules.sitemaps:
            return []
        named = (join(f"{origin}/", value) for value in entry.rules.sitemaps)
        return list(dict.fromkeys(url for url in named if url))

    def announced(self, claim: Claim) -> None:
        """The claim's page was committed with the sitemaps of its origin."""
        self._announced[origin_of(claim.url)] = None
        if len(self._announced) > ANNOUNCED_MAX:
            self._announced.popitem(last=False)

    async def read(self, claim: Claim, before_send: Callable[[], None], *, working: Working) -> RobotsResult:
        """Use a turn of the claim's queue to read robots.txt of its origin. Raises EngineError, and what `before_send`
        raises just before a request.
        """
        return await self._reader.read(claim.queue, origin_of(claim.url), before_send, working=working)

    async def share(self, claim: Claim, result: RobotsResult, *, wait_ms: int, delay_ms: int) -> bool:
        """Move the queue's clock after the request, and share its result; False when the engine did not answer.

        `delay_ms`: -1 when it is not known yet.
        """
        fence = self._held.fence_of(claim.partition)
        if fence is None or not self._held.holds(claim):
            return True
        origin = origin_of(claim.url)
        settlement = Settlement(next_fetch_ms=fence.now_ms + wait_ms, delay_ms=delay_ms)
        try:
            shared = origin if result.blob else ""
            await self._frontier.book_request(fence, claim.queue, settlement, origin=shared, robots=result.blob)
        except EngineError as error:
            log.warning("robots.not_shared", extra={"origin": origin, "error": str(error)})
            return False
        return True

    def delay_of(self, claim: Claim, entry: RobotsEntry | None) -> int:
        """The delay of a claim's queue under this entry, ms: the maximum of the general setting, the site's setting and
        the Crawl-delay. An operator's override replaces all three.
        """
        ordered_ms = self._overrides().delays_ms.get(claim.domain)
        if ordered_ms is not None:
            return ordered_ms
        return delay_ms(
            min_delay_ms=max(self.min_delay_ms, int((self._own_delay_s(claim.queue) or 0) * 1000)),
            crawl_delay_s=entry.crawl_delay_s if entry else None,
            delay_max_ms=self._delay_max_ms,
        )

    async def store_delay(self, claim: Claim, delay_ms: int, *, wait_ms: int) -> None:
        """Store a queue's delay for its next owner; the queue waits `wait_ms` from now. Raises EngineError."""
        fence = self._held.fence_of(claim.partition)
        if fence is not None:
            next_ms = fence.now_ms + wait_ms if wait_ms else 0
            await self._frontier.book_request(fence, claim.queue, Settlement(next_fetch_ms=next_ms, delay_ms=delay_ms))
