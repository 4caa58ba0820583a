"""Turns on queues that others own: for a robots.txt that redirects to another domain, for sitemaps given by hand.

A guest leaves a mark that the owner sees; it never writes the partition's clock, which is the owner's.
"""

from typing import NamedTuple

import msgspec

from crawler.engine.client import Engine
from crawler.frontier.keys import Keys


class TurnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A guest's wish for a turn (see lua/reserve.lua). `guest` is an id of the turn; `now_ms` a lower bound of the
    owner's time while `epoch` lasts; `mark` is another guest's, seen for `seen_ms`.
    """

    guest: str
    now_ms: int = 0
    epoch: int = -1
    mark: str = ""
    seen_ms: int = 0


class TurnReply(NamedTuple):
    """Wait in ms (0 when granted); the partition's clock in ms and its epoch; the mark of a guest who has the turn."""

    wait_ms: int
    clock_ms: int
    epoch: int
    mark: str


class Guests:
    """Asks for turns, and says when they have ended."""

    def __init__(self, engine: Engine, keys: Keys, *, default_delay_ms: int) -> None:
        self._engine = engine
        self._keys = keys
        self._default_delay_ms = default_delay_ms

    async def reserve(self, partition: int, queue: str, asked: TurnRequest) -> TurnReply:
        """Ask for one request on a queue that others own. A repeated call is granted again; `visited` ends the turn."""
        a = asked
        args = (queue, a.now_ms, a.epoch, self._default_delay_ms, a.guest, a.mark, a.seen_ms)
        reply = await self._engine.run("reserve", (self._keys.meta(partition),), *args)
        return TurnReply(int(reply[0]), int(reply[1]), int(reply[2]), reply[3].decode())

    async def visited(self, partition: int, queue: str, guest: str) -> None:
        """The request that `reserve` granted has ended. Raises EngineError; the mark ends by itself then."""
        await self._engine.run("visited", (self._keys.meta(partition),), queue, guest)
