"""What the stages of one instance share: counts, open claims, the stop flag."""

import asyncio
import sys
from collections.abc import Callable

import msgspec

from crawler.frontier.operator import Overrides
from crawler.model import FailureKind
from crawler.rules.shapes import ShapeWatch
from crawler.runtime.clocks import monotonic_ms, wall_s
from crawler.terminal.words import failure_reason
from crawler.worker.open_claims import OpenClaims

ANY_NUMBER = sys.maxsize
ERROR_MAX = 120  # characters
ERROR_SHOWN_S = 60.0  # and what an engine lost


class LastError(msgspec.Struct, frozen=True):
    """The last attempt that failed; `at_s` is wall clock."""

    kind: str
    detail: str
    url: str
    at_s: float

    @property
    def text(self) -> str:
        """Like "connection refused: docs.example": the reason in few words, and the host with its port."""
        host = self.url.split("/", 3)[2]
        room = ERROR_MAX - min(len(host), ERROR_MAX // 2) - 2
        return f"{failure_reason(self.kind, self.detail)[:room]}: {host[: ERROR_MAX // 2]}"


class Counters(msgspec.Struct):
    """Counts of one instance, and what its stages need to know of each other. `own`: not of runs of jobs."""

    open_claims: OpenClaims
    pages_max: int = 0
    own_pages_max: int = 0
    pages_room: int = 0  # at the last count: what nobody in the crawl had fetched or claimed
    claimed_before: int = 0  # `ever` at that count
    counted_s: float = 0.0  # when that began; wall clock
    counted_ms: int = 0  # when it ended; monotonic
    counted_for: frozenset[str] = frozenset()  # the sessions that shared it then
    committed: int = 0
    own_committed: int = 0  # without those of runs
    committed_before: int = 0  # by the whole crawl at the last count, without what we committed
    own_committed_before: int = 0
    bytes_max: int = 0
    own_bytes: int = 0  # of bodies that this instance committed, without those of runs
    own_bytes_before: int = 0
    errors: int = 0
    last_error: LastError | None = None
    committed_at_error: int = 0  # by then
    fenced: int = 0  # results that came too late: another session had the lease by then
    set_back_pages: int = 0  # that the engine lost in the last minute, as it was set back
    set_back_at_s: float = 0.0
    shapes: ShapeWatch = msgspec.field(default_factory=ShapeWatch)
    late: int = 0  # requests that were open when the lease was lost: nothing can fence a web server
    is_stopping: bool = False
    is_standing_still: bool = False  # a command pauses the crawl
    still_for: tuple[str, ...] = ()  # as in `Member`
    held_pages: int = 0  # fetched, and not acked because links of theirs wait
    held_links: int = 0  # of these
    is_engine_full: bool = False  # few claims at a time: to end them frees memory
    can_spill: bool = False  # do URLs in long queues leave the engine when it is full?
    # What is wrong with proxies, or our own network, through which nothing comes.
    trouble: dict[FailureKind, str] = msgspec.field(default_factory=dict)
    is_disk_full: bool = False  # no more claims until there is room for the records of those in flight
    overrides: Overrides = msgspec.field(default_factory=Overrides)  # by an operator, as last read
    # While this lock is held, `committed` equals the engine's count.
    acking: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)

    def weight_of(self, user: str) -> float:
        """The weight of a user among others."""
        return self.overrides.weights.get(user, 1.0)

    @property
    def done(self) -> int:
        """Attempts that have ended."""
        return self.committed + self.errors

    @property
    def waits_for(self) -> str:
        """Why no URLs are claimed although some may be due, or few ("memory"); same values as `Member.waits_for`."""
        if self.is_standing_still:
            return "backup"
        if self.is_disk_full:
            return "disk"
        if self.overrides.is_paused:
            return "paused"
        if self.is_engine_full:
            return "memory"
        return next((kind.value for kind, trouble in self.trouble.items() if trouble), "")

    def description(self) -> dict[str, int | str | float | tuple[str, ...]]:
        """Fields of `Member` by name."""
        last, text, at_s = self.last_error, "", 0.0
        # As long as nothing else was done, it is still why.
        if last and (self.committed == self.committed_at_error or wall_s() - last.at_s < ERROR_SHOWN_S):
            text, at_s = last.text, round(last.at_s, 1)
        return {
            "fenced": self.fenced, "late": self.late, "waits_for": self.waits_for, "still_for": self.still_for,
            "held_pages": self.held_pages, "held_links": self.held_links,
            "last_error": text, "last_error_at": at_s, "set_back_pages": self._set_back_now,
            "one_shape": self.shapes.hint(monotonic_ms()),
        }  # fmt: skip

    def note_error(self, error: LastError) -> None:
        """An attempt failed, or the look before one did."""
        self.last_error, self.committed_at_error = error, self.committed

    def set_back(self, pages: int) -> None:
        """The engine has lost its last writes, with this many pages of ours."""
        self.set_back_pages, self.set_back_at_s = self._set_back_now + pages, wall_s()

    @property
    def _set_back_now(self) -> int:
        return self.set_back_pages if wall_s() - self.set_back_at_s < ERROR_SHOWN_S else 0

    def pages_left(self, share_of: Callable[[int, float], int | None] = lambda *_: None) -> int | None:
        """How many more pages may be claimed under the limits, that are not of runs; None without a limit.

        `share_of`: our part of a room that was counted at a time (wall clock, s), as others claim from it, too, until
        they count again. None: nobody else does.
        """
        if self.is_out_of_bytes:
            return 0
        if not (self.pages_max or self.own_pages_max):
            return None
        share, unclaimed = share_of(self.pages_room, self.counted_s), self._unclaimed
        if share is not None:
            unclaimed = min(unclaimed, share - (self.ever - self.claimed_before))
        return max(0, unclaimed)

    @property
    def _unclaimed(self) -> int:
        """What is left if no other instance has open claims."""
        return min(
            self.pages_max - self.committed_before - self.committed - self.open_claims.total
            if self.pages_max
            else ANY_NUMBER,
            self.own_pages_max - self.own_committed_before - self.own_committed - self.open_claims.own
            if self.own_pages_max
            else ANY_NUMBER,
        )

    @property
    def ever(self) -> int:
        """How many claims were opened that count for the limits."""
        return self.open_claims.ever if self.pages_max else self.open_claims.own_ever

    @property
    def is_limit_near(self) -> bool:
        """Is a limit reached as far as this instance knows? Only the engine's totals decide."""
        claims = self.open_claims.total if self.pages_max else self.open_claims.own
        return self.is_out_of_bytes or (self._unclaimed <= 0 and not claims)

    @property
    def is_out_of_bytes(self) -> bool:
        return bool(self.bytes_max) and self.own_bytes_before + self.own_bytes >= self.bytes_max
