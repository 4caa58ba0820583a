"""robots.txt of origins: known here, shared through the frontier, or fetched politely on the clock of its queue.

An origin whose robots.txt can't be read is not crawled: its URLs are retried until the retry rules give them up.
"""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass

import msgspec

from crawler.content.page import redirect_target
from crawler.frontier.frontier import Frontier
from crawler.instance.clock import monotonic_ms, wall_s
from crawler.model import Claim, FailureKind, FetchResult
from crawler.rules.robots import RobotsRules, robots_policy
from crawler.settings import Settings
from crawler.web.fetcher import Fetcher

REDIRECTS = frozenset({301, 302, 303, 307, 308})
UNREACHABLE_TTL_S = 30.0  # how long a failure speaks for the other URLs of its origin
CACHED_ORIGINS_MAX = 50_000


class SharedRobots(msgspec.Struct, frozen=True, array_like=True):
    """What the frontier keeps for an origin: when it was read (wall clock, s), its policy, our agent's group."""

    fetched_at: float
    policy: str  # parse | allow_all
    group: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RobotsEntry:
    """What holds for an origin until `expires_ms` (monotonic) or `expires_at` (wall), whichever comes first."""

    rules: RobotsRules | None  # None: could not be read, nothing is allowed
    failure: FailureKind | None = None
    detail: str = ""
    retry_after_ms: int = 0
    expires_ms: int
    expires_at: float

    @property
    def crawl_delay_s(self) -> float | None:
        return self.rules.crawl_delay_s if self.rules else None


# A turn on the clock of the queue a URL belongs to, for as long as it is entered; False when it can't be had.
Turn = Callable[[str, Claim], AbstractAsyncContextManager[bool]]


class RobotsCache:
    """Entries by origin. One fetch per origin at a time."""

    def __init__(self, frontier: Frontier, fetcher: Fetcher, settings: Settings, *, turn: Turn) -> None:
        self._frontier = frontier
        self._fetcher = fetcher
        self._settings = settings
        self._turn = turn
        self._entries: OrderedDict[str, RobotsEntry] = OrderedDict()
        self._allow_all = RobotsRules.parse(b"", settings.robots.agent)

    def known(self, origin: str) -> RobotsEntry | None:
        """The entry of an origin if it is still good."""
        entry = self._entries.get(origin)
        if entry is None:
            return None
        if monotonic_ms() >= entry.expires_ms or wall_s() >= entry.expires_at:
            del self._entries[origin]
            return None
        return entry

    async def shared(self, claim: Claim, origin: str) -> RobotsEntry | None:
        """What another session has read and shared; then it is known here too."""
        blob = await self._frontier.robots(claim.partition, origin)
        if blob is None:
            return None
        stored = msgspec.msgpack.decode(blob, type=SharedRobots)
        age_s = max(0.0, wall_s() - stored.fetched_at)
        if age_s >= self._settings.robots.ttl_s:
            return None
        body = stored.group if stored.policy == "parse" else b""
        rules = RobotsRules.parse(body, self._settings.robots.agent)
        return self._keep(origin, self._entry(rules, ttl_s=self._settings.robots.ttl_s - age_s))

    async def fetch(
        self,
        claim: Claim,
        origin: str,
        before_send: Callable[[], None] | None = None,
        *,
        has_turn: bool = True,
    ) -> tuple[RobotsEntry, bytes, int]:
        """Ask the origin, following redirects politely: the entry, the blob to share (b"": none), fetch time in ms.

        `has_turn`: the first request is made in a turn of the claim's queue that the caller has.
        What `before_send` raises just before a request passes through.
        """
        url, fetch_ms = f"{origin}/robots.txt", 0
        for hop in range(self._settings.robots.redirects_max + 1):
            async with nullcontext(enter_result=True) if has_turn and not hop else self._turn(url, claim) as granted:
                if not granted:
                    return self._unreachable(origin, FailureKind.ROBOTS_UNREACHABLE, f"no turn at {url}"), b"", fetch_ms
                limit = self._settings.robots.body_bytes_max
                result = await self._fetcher.fetch(url, body_bytes_max=limit, before_send=before_send)
            fetch_ms += result.fetch_ms
            target = _redirected(result)
            if target is None:
                return (*self._judge(origin, result), fetch_ms)
            url = target
        return (*self._share(origin, "allow_all", b""), fetch_ms)  # RFC 9309 2.3.1.2: too many hops: unavailable

    def _judge(self, origin: str, result: FetchResult) -> tuple[RobotsEntry, bytes]:
        if result.response is None:
            failure = result.failure
            detail = f"{failure.kind}: {failure.detail}" if failure else ""
            kind = failure.kind if failure else FailureKind.ROBOTS_UNREACHABLE
            return self._unreachable(origin, kind, detail), b""
        status = result.response.status
        policy = robots_policy(status)
        if policy == "disallow_all":
            entry = self._unreachable(
                origin, FailureKind.ROBOTS_UNREACHABLE, f"status {status}", retry_after_ms=result.retry_after_ms
            )
            return entry, b""
        return self._share(origin, policy, result.response.body if policy == "parse" else b"")

    def _share(self, origin: str, policy: str, body: bytes) -> tuple[RobotsEntry, bytes]:
        rules = RobotsRules.parse(body, self._settings.robots.agent) if body else self._allow_all
        blob = msgspec.msgpack.encode(SharedRobots(wall_s(), policy, rules.our_group() if body else b""))
        return self._keep(origin, self._entry(rules, ttl_s=self._settings.robots.ttl_s)), blob

    def _unreachable(self, origin: str, kind: FailureKind, detail: str, retry_after_ms: int = 0) -> RobotsEntry:
        ttl_s = max(UNREACHABLE_TTL_S if retry_after_ms else self._settings.retry.backoff_s, retry_after_ms / 1000)
        entry = RobotsEntry(
            rules=None,
            failure=kind,
            detail=detail,
            retry_after_ms=retry_after_ms,
            expires_ms=monotonic_ms() + int(ttl_s * 1000),
            expires_at=wall_s() + ttl_s,
        )
        return self._keep(origin, entry)

    def _entry(self, rules: RobotsRules, *, ttl_s: float) -> RobotsEntry:
        return RobotsEntry(rules=rules, expires_ms=monotonic_ms() + int(ttl_s * 1000), expires_at=wall_s() + ttl_s)

    def _keep(self, origin: str, entry: RobotsEntry) -> RobotsEntry:
        self._entries[origin] = entry
        if len(self._entries) > CACHED_ORIGINS_MAX:
            self._entries.popitem(last=False)
        return entry


def _redirected(result: FetchResult) -> str | None:
    if result.response is None or result.response.status not in REDIRECTS:
        return None
    return redirect_target(result.url, result.response.header("location"))
