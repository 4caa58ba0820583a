"""Who reacts when a server restarted, lost recent writes or is another one now, and in which order.

A change is noticed by a new connection (another run id, another primary), or by the answer to a claim that is older
than what this session knows (`noticed_in`). In a cluster it is about the partitions of one shard, or of slots that
moved; of one server, about all. Then, before any other call reaches the server:

1. `tell_again`: links that were sent to other owners' partitions there are noted, to be sent again once it serves.
   First, as what follows drops what tells which these are.
2. Where writes may be lost: `forget_links`, so that a link that was routed lately is routed again; `forget_runs`, so
   that partitions are noted again in the homes of runs; `repeat_recalls`, so that what an origin's end meant for its
   waiting URLs is told again when the partition is acquired.
3. `look_for_the_crawl`: where the record of the crawl was there, all that others changed is read again.
4. The leases there are lost: claims of these partitions are dropped from memory, what they would have written is
   fenced, and clocks of queues are kept until they are saved (`Dependent` of held.py). They are acquired again under
   the new run id, with a hold, so that no queue is asked too early by a clock that was set back. Where writes may be
   lost, only those that this session had last are acquired at once: of the others, a lease that is free, or in our
   name again, may have been another's, who goes on until it notices, too. These wait for as long as a takeover does.

Whoever has noticed nothing yet is stopped by the engine: its epoch or run id does not fit, and its calls do nothing.
"""

import contextlib
import logging
from collections.abc import Callable

from crawler.engine.client import Engine
from crawler.engine.server import Change
from crawler.frontier.keys import Keys
from crawler.membership.held import HeldPartitions

log = logging.getLogger(__name__)


class Failover:
    """Calls them, in this order."""

    def __init__(
        self,
        engine: Engine,
        keys: Keys,
        held: HeldPartitions,
        *,
        tell_again: Callable[[Change], None],
        forget_links: Callable[[], None],
        forget_runs: Callable[[], None],
        repeat_recalls: Callable[[], None],
        look_for_the_crawl: Callable[[Change], None],
    ) -> None:
        self._engine = engine
        self._keys = keys
        self._held = held
        self._tell_again = tell_again
        self._of_lost_writes = (forget_links, forget_runs, repeat_recalls)
        self._look_for_the_crawl = look_for_the_crawl

    def noticed(self, change: Change) -> None:
        """A server fell back or is another one: drop what it has, before another call reaches it."""
        self._tell_again(change)
        if change.may_have_lost:
            for forget in self._of_lost_writes:
                forget()
        self._look_for_the_crawl(change)
        lose = self._held.fall_back if change.may_have_lost else self._held.lose_all
        lost = lose(lambda partition: change.affects(self._keys.meta(partition)))
        log.warning("engine.changed", extra={"partitions": lost})

    def noticed_in(self, partition: int) -> None:
        """The engine has lost writes to this partition that this session knows of."""
        self.noticed(self._engine.change_at(self._keys.meta(partition)))

    def listening(self) -> contextlib.AbstractContextManager[None]:
        """In this context, a restart that a new connection reveals calls `noticed`."""
        return self._engine.restarts.listen(self.noticed)
