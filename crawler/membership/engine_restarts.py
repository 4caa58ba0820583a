"""Handles a server that restarted, lost recent writes or is another one now: the session forgets what it believes that
the engine has. In a cluster this is about the partitions of one shard, or of slots that moved.
"""

import contextlib
import logging
from collections.abc import Callable

from crawler.engine.client import Engine
from crawler.engine.server import Change, everything
from crawler.frontier.record import Keys
from crawler.membership.held import HeldPartitions

log = logging.getLogger(__name__)


class EngineRestarts:
    """Drops the leases on a server that is another one than before; they are acquired again under its run id."""

    def __init__(self, engine: Engine, keys: Keys, held: HeldPartitions, forget: Callable[[Change], None]) -> None:
        """`forget` clears what this session assumes to be on that server, as do further `listeners`."""
        self._engine = engine
        self._keys = keys
        self._held = held
        self.listeners = [forget]

    def noticed(self, change: Change) -> None:
        """A server fell back or is another one: drop what it has, before another call reaches it."""
        for listener in self.listeners:
            listener(change)
        lost = self._held.lose_all(lambda partition: change.affects(self._keys.meta(partition)))
        if self._engine.is_cluster:
            log.warning("shard.changed", extra={"partitions": lost})
        else:
            log.warning("engine.restarted")

    def noticed_in(self, partition: int) -> None:
        """The engine has lost writes to this partition that this session knows of."""
        meta = self._keys.meta(partition)
        self.noticed(Change(meta.__eq__ if self._engine.is_cluster else everything))

    def listening(self) -> contextlib.AbstractContextManager[None]:
        """In this context, a restart that a new connection reveals calls `noticed`."""
        return self._engine.restarts.listen(self.noticed)
