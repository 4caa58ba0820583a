"""Which URLs go first and how many: priorities, turns of users, quotas, links to other domains. Pure."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from math import exp2, log2

import msgspec

from crawler.expressions import Expressions
from crawler.rules.urls import found_in_url
from crawler.settings import OrderSettings

QUANTA = 4096  # of one unit of score
QUANTISED_MIN, QUANTISED_MAX = -(2**31), 2**31 - 1  # what a signed 32-bit integer holds


class Signals(msgspec.Struct, frozen=True, kw_only=True):
    """What else is known about a URL when it is found.

    `links`: number of distinct links on the page that led to it, 0 for a seed. `sitemap_priority`: 0 to 1, None when no
    sitemap gave one. `changed_at`: the date that a sitemap or feed gave, wall clock, s.
    """

    links: int = 0
    sitemap_priority: float | None = None
    changed_at: float | None = None


NO_SIGNALS = Signals()


class Ordering(msgspec.Struct, frozen=True, kw_only=True):
    """The order of one crawl. Build with `of`; dates are wall clock, s."""

    settings: OrderSettings
    begun_at: float
    rules: Expressions

    @classmethod
    def of(cls, settings: OrderSettings, begun_at: float) -> "Ordering":
        """The settings are valid: `load` has compiled every pattern once."""
        return cls(settings=settings, begun_at=begun_at, rules=Expressions(rule.match for rule in settings.rules))

    def score(
        self,
        url: str,
        *,
        depth: int,
        found_at: float,
        signals: Signals = NO_SIGNALS,
        given: float | None = None,
        boost: float = 0.0,
    ) -> float:
        """Score of a canonical URL. A priority `given` with a seed replaces all terms; `boost`, that of its domain, is
        added.
        """
        priority = self.priority(url, depth=depth, found_at=found_at, signals=signals) if given is None else given
        at = found_at
        if self.settings.order == "freshness" and signals.changed_at is not None:
            at = min(found_at, signals.changed_at)  # no page is from the future
        waited = (at - self.begun_at) / self.settings.half_life_s
        return priority + boost + (waited if self.settings.order == "freshness" else -waited)

    def priority(self, url: str, *, depth: int, found_at: float, signals: Signals = NO_SIGNALS) -> float:
        """The sum of all terms: depth, matching rules, the page's number of links, the sitemap's priority and date."""
        s = self.settings
        if s.order == "breadth":
            return -float(depth)
        value = -s.depth_weight * depth
        if self.rules:
            value += sum(s.rules[number].add for number in sorted(found_in_url(self.rules, url)))
        if signals.links > 1:
            value -= s.links_weight * log2(signals.links)
        if signals.sitemap_priority is not None:
            value += s.sitemap_weight * (2 * signals.sitemap_priority - 1)  # 0.5 is the protocol's default: nothing
        if signals.changed_at is not None and s.order == "priority":
            value += s.sitemap_weight * exp2(-max(0.0, found_at - signals.changed_at) / s.half_life_s)
        return value


def quantise(score: float) -> int:
    """The score as the engine stores it: a signed 32-bit integer, 4,096 to the unit, clamped at +-524,288 units.

    A quantum is half_life / 4,096: 21 s at the default half-life of a day. URLs of equal priority that were found less
    than that apart may leave in either order. Otherwise the order is kept.
    """
    return round(min(max(score * QUANTA, QUANTISED_MIN), QUANTISED_MAX))


# Turns of users by weight: start-time fair queueing (docs/internals/decisions/fair-sharing.md). Pure.
#
# The same as lua/_turns.lua. A user is a name, or "" for the crawl itself.


class FairTurns:
    """Start tags of users, relative to virtual time; those that it has passed are not kept."""

    def __init__(self, weight_of: Callable[[str], float]) -> None:
        self._weight_of = weight_of
        self._tags: dict[str, float] = {}

    def next_of(self, users: Iterable[str]) -> str:
        """Whose turn it is among some users; of equals the first."""
        return min(users, key=lambda user: self._tags.get(user, 0.0))

    def advance(self, user: str) -> None:
        """It is this user's turn: virtual time moves to its tag."""
        now = self._tags.get(user)
        if now:
            self._tags = {other: tag - now for other, tag in self._tags.items() if tag > now}

    def charge(self, user: str, n: float) -> None:
        """A user got so much."""
        self._tags[user] = self._tags.get(user, 0.0) + n / self._weight_of(user)

    def copy(self) -> "FairTurns":
        """Turns that can be tried out."""
        turns = FairTurns(self._weight_of)
        turns._tags = dict(self._tags)
        return turns


# What remains of quotas: of a domain's after they were raised, of a crawl's for each instance. Pure; 0: no limit.

TURN_S = 1.0  # an instance counts twice in it
LINK_PLACES = 224  # as in lua/_admission.lua


def is_left(used: int, budget: int) -> bool:
    """Does a quota of pages or bytes allow more?"""
    return budget == 0 or used < budget


def is_within(depth: int, budget: int) -> bool:
    """Is a URL at this depth within the limit?"""
    return budget == 0 or depth <= budget


def room_of(*, met: int, deferred: int, budget: int) -> int:
    """How many deferred URLs a quota of URLs would admit now; `met`: the number of all URLs ever found.

    URLs that an operator released count as admitted.
    """
    return deferred if budget == 0 else max(0, min(deferred, budget - (met - deferred)))


def link_place(domain: str, hash_key: bytes) -> int:
    """The bit of a linking domain in the record of the queue that it links to; 0 to LINK_PLACES - 1.

    Because of the crawl's key, nobody can choose domains with different bits or with the same one.
    """
    digest = blake2b(domain.encode(), digest_size=8, person=b"link", salt=hash_key).digest()
    return int.from_bytes(digest, "big") % LINK_PLACES


def grown(budget: int, per_linking_domain: int, links: str) -> int:
    """A quota of URLs plus what linking domains add to it; `links`: their bits, seven to a character."""
    return budget and budget + per_linking_domain * sum(ord(bits).bit_count() for bits in links)


def share_of(room: int, sharers: AbstractSet[str], me: str, *, counted_s: float, now_s: float) -> int:
    """The part of a limit's room that one of some sessions may claim until it counts again. The parts add up.

    Where the room can't be divided, the rest is each session's in turn, because one may have nothing to fetch: of who
    has counted in that turn, so that what the last one claimed is known. Times are wall clock.
    """
    if me not in sharers:
        return 0
    turn = int(now_s / TURN_S)
    has_rest = turn == int(counted_s / TURN_S) and sorted(sharers)[turn % len(sharers)] == me
    return room // len(sharers) + (room % len(sharers) if has_rest else 0)


# How much the pages of one domain may introduce: URLs of other queues, which cost the engine memory. Pure.
#
# A token bucket for each linking domain: BURST_BYTES at once, then BYTES_PER_S. Its owner waits for the rest.

BURST_BYTES = 4 << 20  # some 7,000 ordinary links to new domains, or 480 of 8 KB
BYTES_PER_S = 128 << 10  # some 220 ordinary links to new domains a second
FULL_BYTES = 64 << 10  # of the burst, while the engine has no room: some 110 ordinary links
QUEUE_BYTES = 512  # what a new queue costs the engine, next to its URL
DOMAINS_MAX = 20_000  # whose bucket is not full: more than an instance gets new ones in the 32 s that fill a bucket


def cost(url: str) -> int:
    """What introducing this URL takes, bytes."""
    return len(url) + QUEUE_BYTES


class Introductions:
    """The buckets of linking domains. A full one needs no entry; of too many, the least recently used is forgotten."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()  # bytes, as of a time in ms

    def __len__(self) -> int:
        return len(self._buckets)

    def room(self, domain: str, now_ms: int, *, is_full: bool = False) -> float:
        """How many bytes a domain may introduce now. Not above 0: none. `is_full`: has the engine no room?"""
        left, at_ms = self._buckets.get(domain, (BURST_BYTES, now_ms))
        room = min(BURST_BYTES, left + (now_ms - at_ms) * BYTES_PER_S / 1000)
        return room - max(0, BURST_BYTES - FULL_BYTES) if is_full else room

    def spend(self, domain: str, spent_bytes: int, now_ms: int) -> None:
        """A domain has introduced this much; negative for a refund."""
        left = self.room(domain, now_ms) - spent_bytes
        if left >= BURST_BYTES:
            self._buckets.pop(domain, None)
            return
        self._buckets[domain] = left, now_ms
        self._buckets.move_to_end(domain)
        if len(self._buckets) > DOMAINS_MAX:
            self._buckets.popitem(last=False)

    def wait_ms(self, domain: str, wanted_bytes: int, now_ms: int) -> int:
        """How long it takes until a domain may have introduced this much more."""
        return max(0, int((wanted_bytes - self.room(domain, now_ms)) * 1000 / BYTES_PER_S))
