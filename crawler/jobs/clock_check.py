"""Compares this machine's wall clock with the engine's: an instance whose clock is wrong triggers nothing."""

import contextlib
import logging

from crawler.engine.client import Engine
from crawler.errors import EngineError
from crawler.runtime.clock import monotonic_ms, wall_s

log = logging.getLogger(__name__)


class ClockCheck:
    """The difference between both clocks. Since the last comparison the engine's has gone on as our monotonic one has.

    So a clock of ours that is set is wrong at once, not at the next comparison. The engine's clock decides nothing. All
    instances compare with the same one, so those that disagree with it are not those that trigger. If it is the one
    that is wrong, nobody triggers, and all report it.
    """

    def __init__(self, engine: Engine, bound_s: float) -> None:
        self._engine = engine
        self._bound_s = bound_s
        self._was_right = True
        self._ahead_s: float | None = None  # the engine's clock minus our monotonic one

    @property
    def offset_s(self) -> float | None:
        """The engine's clock minus ours; None before the first comparison."""
        return None if self._ahead_s is None else self._ahead_s + monotonic_ms() / 1000 - wall_s()

    @property
    def is_right(self) -> bool:
        """May this instance trigger?"""
        offset_s = self.offset_s
        return offset_s is not None and abs(offset_s) <= self._bound_s

    async def measure(self) -> None:
        """Ask the engine for its time. Without an answer the last comparison holds."""
        with contextlib.suppress(EngineError):
            before = monotonic_ms()
            seconds, micros = await self._engine.command("TIME")
            after = monotonic_ms()
            if after - before <= self._bound_s * 1000:  # else it tells nothing
                self._ahead_s = int(seconds) + int(micros) / 1e6 - (before + after) / 2000
        offset_s = self.offset_s
        if offset_s is not None and self.is_right != self._was_right:
            self._was_right = self.is_right
            event = "jobs.clock_right" if self._was_right else "jobs.clock_wrong"
            log.warning(event, extra={"offset_s": round(offset_s, 3), "bound_s": self._bound_s})
