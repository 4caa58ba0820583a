"""Handles an engine that restarted or lost recent writes: the session forgets what it believes the engine has."""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from crawler.engine.client import Engine
from crawler.errors import EngineError
from crawler.membership.held_partitions import HeldPartitions

log = logging.getLogger(__name__)


class EngineRestarts:
    """Drops all leases when the engine restarts; they are acquired again under its new run id."""

    def __init__(self, engine: Engine, held: HeldPartitions, *, forget: Callable[[], None]) -> None:
        """`forget`: clears what this session assumes to be in the engine."""
        self._engine = engine
        self._held = held
        self._forget = forget
        self._restarted = asyncio.Event()

    def noticed(self) -> None:
        """The engine restarted or fell back: drop everything before another call reaches it."""
        log.warning("engine.restarted")
        self._forget()
        self._held.lose_all()
        self._restarted.set()

    def listening(self) -> contextlib.AbstractContextManager[None]:
        """In this context, a restart that a new connection reveals calls `noticed`."""
        return self._engine.restarts.listen(self.noticed)

    async def run(self) -> None:
        """Learn the engine's new run id after each restart, until cancelled."""
        while True:
            await self._restarted.wait()
            self._restarted.clear()
            with contextlib.suppress(EngineError):
                await self._engine.refresh_run_id()
