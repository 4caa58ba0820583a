"""Compares this machine's wall clock with the engine's: an instance whose clock is wrong triggers nothing."""

import contextlib
import logging

from crawler.engine.client import Engine
from crawler.errors import EngineError
from crawler.runtime.clock import wall_s

log = logging.getLogger(__name__)


class ClockCheck:
    """The difference between both clocks, as last measured.

    The engine's clock decides nothing. All instances compare with the same one, so those that disagree with it are not
    those that trigger. If it is the one that is wrong, nobody triggers, and all report it.
    """

    def __init__(self, engine: Engine, bound_s: float) -> None:
        self._engine = engine
        self._bound_s = bound_s
        self._was_right = True
        self.offset_s = 0.0  # the engine's clock minus ours
        self.is_known = False

    @property
    def is_right(self) -> bool:
        """May this instance trigger? Not before the first measurement."""
        return self.is_known and abs(self.offset_s) <= self._bound_s

    async def measure(self) -> None:
        """Ask the engine for its time. Without an answer the last measurement holds."""
        with contextlib.suppress(EngineError):
            before = wall_s()
            seconds, micros = await self._engine.command("TIME")
            after = wall_s()
            self.offset_s = int(seconds) + int(micros) / 1e6 - (before + after) / 2
            self.is_known = True
        if self.is_known and self.is_right != self._was_right:
            self._was_right = self.is_right
            event = "jobs.clock_right" if self.is_right else "jobs.clock_wrong"
            log.warning(event, extra={"offset_s": round(self.offset_s, 3), "bound_s": self._bound_s})
