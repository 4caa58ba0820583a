"""Compares this machine's wall clock with the engine's: an instance whose clock is wrong triggers nothing."""

import contextlib
import logging

from crawler.engine.client import Engine
from crawler.errors import ConflictError, EngineDown, EngineError
from crawler.runtime.clocks import monotonic_ms, wall_s
from crawler.terminal.words import duration

log = logging.getLogger(__name__)

OFFSET_MAX_S = 5.0  # an instance whose clock differs by more from the engine's triggers no job


class ClockCheck:
    """The difference between both clocks: measured once a second, and followed by the monotonic clock since then.

    So a step of our clock counts at once, not from the next measurement on.

    The engine's clock decides nothing. All instances compare with the same one, so those that disagree with it are not
    those that trigger. If it is the one that is wrong, nobody triggers, and all report it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._was_right = True
        self._ahead_s: float | None = None  # the engine's clock minus our monotonic clock

    @property
    def offset_s(self) -> float:
        """The engine's clock minus ours; 0 before the first measurement."""
        return 0.0 if self._ahead_s is None else self.engine_s() - wall_s()

    @property
    def is_right(self) -> bool:
        """May this instance trigger? Not before the first measurement."""
        return self.is_known and abs(self.offset_s) <= OFFSET_MAX_S

    @property
    def is_known(self) -> bool:
        """Was it measured?"""
        return self._ahead_s is not None

    def engine_s(self) -> float:
        """What time it is by the engine's clock, s; by ours before the first measurement."""
        return wall_s() if self._ahead_s is None else self._ahead_s + monotonic_ms() / 1000

    async def measure(self) -> None:
        """Ask the engine for its time. Without an answer the last measurement holds."""
        with contextlib.suppress(EngineError):
            await self._ask()
        if self.is_known and self.is_right != self._was_right:
            self._was_right = self.is_right
            event = "jobs.clock_right" if self.is_right else "jobs.clock_wrong"
            log.warning(event, extra={"offset_s": round(self.offset_s, 3), "bound_s": OFFSET_MAX_S})

    async def _ask(self) -> None:
        """Raises EngineError."""
        before_ms = monotonic_ms()
        seconds, micros = await self._engine.command("TIME")
        after_ms = monotonic_ms()
        if after_ms - before_ms <= 1000 * OFFSET_MAX_S:  # else it tells nothing
            self._ahead_s = int(seconds) + int(micros) / 1e6 - (before_ms + after_ms) / 2000

    async def checked_s(self) -> float:
        """What time it is, for somebody who stores it. Raises ConflictError if this clock is wrong, and EngineError."""
        await self._ask()
        if not self.is_known:
            raise EngineDown(f"the engine took longer than {duration(OFFSET_MAX_S)} to tell its time: try again")
        if not self.is_right:
            way = "behind" if self.offset_s > 0 else "ahead of"
            raise ConflictError(
                f"this machine's clock is {duration(abs(self.offset_s))} {way} the engine's, so nothing was changed: "
                "set the clock that is wrong, and try again"
            )
        return wall_s()
