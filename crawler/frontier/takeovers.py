"""What is kept of takeovers, for people and audits: whose partitions went to whom, after how long a silence."""

import msgspec

from crawler.engine.client import Engine
from crawler.frontier.keys import Keys

KEPT_MAX = 1000

_encode = msgspec.json.Encoder().encode


class Takeover(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions of one dead session that one other took at a time.

    `silent_ms`: since its last heartbeat was seen, on the taker's clock; -1 when the taker never saw one. `at`: wall
    clock, s.
    """

    node: str
    session: str
    by_node: str
    by_session: str
    partitions: int
    silent_ms: int
    at: float


_decoder = msgspec.json.Decoder(Takeover)


class Takeovers:
    """The last takeovers of one crawl."""

    def __init__(self, engine: Engine, keys: Keys) -> None:
        self._engine = engine
        self._key = keys.takeovers

    async def note(self, takeover: Takeover) -> None:
        """Add one; the oldest goes. Guards nothing: one that is lost is missing in the statistics. EngineError."""
        await self._engine.commands([("RPUSH", self._key, _encode(takeover)), ("LTRIM", self._key, -KEPT_MAX, -1)])

    async def read(self) -> list[Takeover]:
        """All that are kept, oldest first."""
        return [_decoder.decode(blob) for blob in await self._engine.command("LRANGE", self._key, 0, -1)]
