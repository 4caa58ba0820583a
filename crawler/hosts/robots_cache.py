"""Cached robots.txt of origins: read here, or shared through the frontier.

An origin whose robots.txt can't be read is not crawled: its URLs are retried until the retry rules give them up.
"""

import asyncio
from collections import OrderedDict

import msgspec

from crawler.frontier.owner import Frontier
from crawler.model import NOT_ALLOWED, FailureKind, FetchResult
from crawler.rules.robots import ALLOW_ALL, RobotsRules, SharedRobots, is_cut_at_limit, policy_of
from crawler.runtime.clocks import monotonic_ms, wall_s
from crawler.settings import Settings

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
