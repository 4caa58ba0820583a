"""What supervisors tell of themselves in the engine, and how many instances each of them was asked to have.

A supervisor writes its own record once a second; anybody may ask it for another number. A record is no lock and guards
nothing: one that was removed while its supervisor lives is there again a second later.
"""

import msgspec

from crawler.engine.client import Engine
from crawler.frontier.codec import pairs_of
from crawler.frontier.keys import Keys


class SupervisorChild(msgspec.Struct, frozen=True, kw_only=True):
    """One instance of a supervisor. `for_s` is how long it has been in its state."""

    node: str
    state: str
    pid: int = 0
    restarts: int = 0
    for_s: float = 0.0
    due_s: float = 0.0  # until it is started again
    last_words: str = ""


class SupervisorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One supervisor as it describes itself. `lock` (a file) proves on the same host alone whether it lives."""

    session: str
    host: str  # machine and boot
    pid: int
    folder: str
    lock: str
    wanted: int
    state: str = "running"  # running | stopping
    obeyed: str = ""  # who asked for the number that it has now
    counter: int = 0  # grows with each write
    age_s: float = 0.0
    children: tuple[SupervisorChild, ...] = ()


class ScaleRequest(msgspec.Struct, frozen=True, kw_only=True):
    """So many instances are wanted; `by` is the session of who asks, to tell one request from the next."""

    wanted: int
    by: str


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(SupervisorRecord)
_request_decoder = msgspec.json.Decoder(ScaleRequest)


class SupervisorRecords:
    """Crawl-wide, in one slot."""

    def __init__(self, engine: Engine, keys: Keys) -> None:
        self._engine = engine
        self._keys = keys

    async def read(self) -> dict[str, SupervisorRecord]:
        """All supervisors that wrote a record and did not take it away, by session."""
        raw = await self._engine.command("HGETALL", self._keys.supervisors)
        return {key.decode(): _decoder.decode(blob) for key, blob in pairs_of(raw)}

    async def write(self, record: SupervisorRecord) -> None:
        """Put down how things are."""
        await self._engine.command("HSET", self._keys.supervisors, record.session, _encode(record))

    async def remove(self, session: str) -> None:
        """Take a supervisor's record away, and what it was asked."""
        await self._engine.commands([("HDEL", key, session) for key in (self._keys.supervisors, self._keys.wanted)])

    async def ask(self, session: str, request: ScaleRequest) -> None:
        """Ask a supervisor for so many instances: it looks once a second."""
        await self._engine.command("HSET", self._keys.wanted, session, _encode(request))

    async def asked(self, session: str) -> ScaleRequest | None:
        """What a supervisor was last asked for; None when nobody asked."""
        raw = await self._engine.command("HGET", self._keys.wanted, session)
        return None if raw is None else _request_decoder.decode(raw)
