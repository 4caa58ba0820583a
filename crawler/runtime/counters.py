"""What the stages of one running instance share: counts, the stop flag, the recent-URL cache."""

import asyncio
from collections import Counter
from collections.abc import Callable

import msgspec

from crawler.frontier.overrides import Orders


class RecentUrls:
    """URLs whose add has succeeded lately, with the depth they had: repeats are dropped before any call.

    Two generations: the older one is forgotten when the younger is full, so memory is bounded and no per-hit work
    is needed. Emptied when the engine was restarted or fell back.
    """

    def __init__(self, capacity: int) -> None:
        self._half = max(1, capacity // 2)
        self._young: dict[str, int] = {}
        self._old: dict[str, int] = {}

    def knows(self, url: str, depth: int) -> bool:
        """Was this URL added lately at this depth or a smaller one?"""
        known = self._young.get(url)
        if known is None:
            known = self._old.get(url)
            if known is None:
                return False
            self._young[url] = known
        return known <= depth

    def add(self, url: str, depth: int) -> None:
        self._young[url] = depth
        if len(self._young) >= self._half:
            self._old, self._young = self._young, {}

    def clear(self) -> None:
        self._young, self._old = {}, {}


class Flow(msgspec.Struct):
    """Counts of one instance. `outstanding` claims are those neither acked nor given back."""

    recent: RecentUrls
    pages_max: int = 0
    outstanding: int = 0
    outstanding_of: Counter[int] = msgspec.field(default_factory=Counter)
    committed: int = 0
    committed_before: int = 0  # by the whole crawl when last asked, without our own since then
    bytes_max: int = 0
    bytes: int = 0  # of bodies that this instance committed
    bytes_before: int = 0
    errors: int = 0
    fenced: int = 0  # results that came too late: the lease was somebody else's by then
    late: int = 0  # requests open when the lease was lost: nothing can fence a web server
    dropped: int = 0  # claims let go unfetched because their lease was lost
    is_stopping: bool = False
    is_engine_full: bool = False  # no more claims until there is room for the links of those in flight
    orders: Orders = msgspec.field(default_factory=Orders)  # of an operator, as they were read last
    on_recover: Callable[[], None] = lambda: None
    # While it is held, `committed` is what the engine has.
    acking: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)

    @property
    def waits_for(self) -> str:
        """Why no more URLs are claimed although some may be due: as in `Member`."""
        return "memory" if self.is_engine_full else "orders" if self.orders.is_paused else ""

    def description(self) -> dict[str, int | str]:
        """For the member list: fields of `Member` by name."""
        return {"fenced": self.fenced, "late": self.late, "waits_for": self.waits_for}

    def pages_left(self) -> int | None:
        """How many more pages may be claimed under the limits; None without one."""
        if self.is_out_of_bytes:
            return 0
        if not self.pages_max:
            return None
        return max(0, self.pages_max - self.committed_before - self.committed - self.outstanding)

    @property
    def is_limit_near(self) -> bool:
        """Is a limit reached, as far as this instance knows? The engine knows better, and says so when it is asked."""
        return self.is_out_of_bytes or (self.pages_left() == 0 and not self.outstanding)

    @property
    def is_out_of_bytes(self) -> bool:
        return bool(self.bytes_max) and self.bytes_before + self.bytes >= self.bytes_max

    def claimed(self, partition: int, n: int) -> None:
        self.outstanding += n
        self.outstanding_of[partition] += n

    def ended(self, partition: int, n: int = 1) -> None:
        self.outstanding -= n
        left = self.outstanding_of[partition] - n
        if left > 0:
            self.outstanding_of[partition] = left
        else:
            del self.outstanding_of[partition]

    def recover(self) -> None:
        """The engine was restarted or fell back: start over from what it has."""
        self.on_recover()
