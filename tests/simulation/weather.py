"""The network between instances and the engine: latency, lost messages, processes that are cut off.

Draws from a generator of its own, in the order of the messages: the same seed gives the same weather.
"""

import dataclasses
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.loop import Process


@dataclass(frozen=True, slots=True, kw_only=True)
class Climate:
    """Shares of messages that meet something, and how far the parts of a pipeline lie apart."""

    lost_requests: float = 0.0
    lost_replies: float = 0.0
    late_requests: float = 0.0  # carried out after the caller has given up, some of them
    late_replies: float = 0.0
    late_max_s: float = 6.0
    scattered: float = 0.0  # share of pipelines that are carried out in parts
    gap_max_s: float = 0.02
    latency_max_s: float = 0.001  # each way

    @property
    def is_calm(self) -> bool:
        """Is nothing lost or late?"""
        return dataclasses.replace(self, latency_max_s=CALM.latency_max_s) == CALM


CALM = Climate()


@dataclass(frozen=True, slots=True)
class Delivery:
    """How one request or one reply is delivered."""

    request_s: float = 0.0
    reply_s: float = 0.0
    request_lost: bool = False
    reply_lost: bool = False
    silent: bool = False  # lost without an error: only the caller's timeout ends it


@dataclass(slots=True)
class Cut:
    """A process that is cut off. Held requests arrive when the cut heals: TCP sends them again."""

    requests: bool
    replies: bool
    held: list[Callable[[], None]] = field(default_factory=list)


class Weather:
    """Random deliveries, and cuts on command."""

    def __init__(self, rng: random.Random, climate: Climate) -> None:
        self._rng = rng
        self.climate = climate
        self.cuts: dict[Process, Cut] = {}
        self.slow_beats: dict[Process, float] = {}  # the longest delay of replies to heartbeats
        self.on_mishap: Callable[[str, Process], None] = lambda *_: None

    def latency_s(self) -> float:
        return 0.0001 + (self.climate.latency_max_s - 0.0001) * self._rng.random()

    def is_written(self) -> bool:
        """Has the engine's disk caught up? Now and then an fsync is under way."""
        return self._rng.random() < 0.9

    def request_delivery(self, process: Process, names: Sequence[str]) -> Delivery:
        """Of a request."""
        c, rng, luck = self.climate, self._rng, self._rng.random()
        if luck < c.lost_requests:
            self.on_mishap("request lost", process)
            return Delivery(request_lost=True, silent=rng.random() < 0.5)
        luck -= c.lost_requests
        if luck < c.lost_replies:
            self.on_mishap("reply lost", process)
            return Delivery(request_s=self.latency_s(), reply_lost=True)
        luck -= c.lost_replies
        if luck < c.late_requests:
            self.on_mishap("request late", process)
            return Delivery(request_s=c.late_max_s * rng.random())
        return Delivery(request_s=self.latency_s())

    def reply_delivery(self, process: Process, calls: Sequence[Any]) -> Delivery:
        slow = self.slow_beats.get(process, 0.0)
        if slow and any(getattr(call, "name", "") == "heartbeat" for call in calls):
            self.on_mishap("beat answered late", process)
            return Delivery(reply_s=slow * self._rng.random())
        late = self.climate.late_replies > self._rng.random()
        if late:
            self.on_mishap("reply late", process)
        spread_s = self.climate.late_max_s if late else self.climate.latency_max_s
        return Delivery(reply_s=0.0001 + spread_s * self._rng.random(), silent=self._rng.random() < 0.5)

    def part_of(self, left: int) -> int:
        """How many calls of a pipeline are carried out at one moment."""
        if left > 1 and self._rng.random() < self.climate.scattered:
            return self._rng.randint(1, left)
        return left

    def gap_s(self) -> float:
        return self.climate.gap_max_s * self._rng.random() ** 3

    # --- cuts ---

    def cut(self, process: Process, *, requests: bool, replies: bool) -> None:
        self.cuts[process] = Cut(requests, replies)

    def heal(self, process: Process) -> None:
        """What was held arrives now, or never."""
        cut = self.cuts.pop(process, None)
        if cut is not None and self._rng.random() < 0.7:
            for arrive in cut.held:
                arrive()

    def hold(self, process: Process, arrive: Callable[[], None]) -> bool:
        """Is this request held up by a cut?"""
        cut = self.cuts.get(process)
        if cut is None or not cut.requests:
            return False
        cut.held.append(arrive)
        return True

    def is_deaf(self, process: Process) -> bool:
        cut = self.cuts.get(process)
        return cut is not None and cut.replies
