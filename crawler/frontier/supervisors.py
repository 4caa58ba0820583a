"""Records of supervisors in the engine, and requests to change their number of instances.

A supervisor writes its own record once a second; anyone may request another number. A record is not a lock: if it is
removed while its supervisor lives, it is back a second later.
"""

import msgspec

from crawler.engine.client import Engine
from crawler.frontier.codec import pairs_of
from crawler.frontier.keys import Keys
from crawler.frontier.members import encoded


class SupervisorChild(msgspec.Struct, frozen=True, kw_only=True):
    """One instance of a supervisor. `for_s`: how long it has been in its state."""

    node: str
    state: str
    pid: int = 0
    restarts: int = 0
    for_s: float = 0.0
    due_s: float = 0.0  # until it is restarted
    last_words: str = ""


class SupervisorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One supervisor as it describes itself. `lock` (a file) proves whether it lives, on the same host only."""

    session: str
    host: str  # machine and boot
    pid: int
    folder: str
    lock: str
    wanted: int
    state: str = "running"  # running | stopping
    obeyed: str = ""  # the session that requested its current number
    counter: int = 0  # grows with each write
    age_s: float = 0.0
    children: tuple[SupervisorChild, ...] = ()


class ScaleRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a number of instances; `by` is the session that requests it, to tell requests apart."""

    wanted: int
    by: str


_supervisor_decoder = msgspec.json.Decoder(SupervisorRecord)
_request_decoder = msgspec.json.Decoder(ScaleRequest)


class SupervisorRecords:
    """The supervisors of one crawl: crawl-wide keys, in one slot."""

    def __init__(self, engine: Engine, keys: Keys) -> None:
        self._engine = engine
        self._keys = keys

    async def read(self) -> dict[str, SupervisorRecord]:
        """All records, by session."""
        raw = await self._engine.command("HGETALL", self._keys.supervisors)
        return {key.decode(): _supervisor_decoder.decode(blob) for key, blob in pairs_of(raw)}

    async def write(self, record: SupervisorRecord) -> None:
        """Write a supervisor's own record."""
        await self._engine.command("HSET", self._keys.supervisors, record.session, encoded(record))

    async def remove(self, session: str) -> None:
        """Remove a supervisor's record and the request to it."""
        await self._engine.commands([("HDEL", key, session) for key in (self._keys.supervisors, self._keys.wanted)])

    async def ask(self, session: str, request: ScaleRequest) -> None:
        """Request a number of instances from a supervisor, which reads this once a second."""
        await self._engine.command("HSET", self._keys.wanted, session, encoded(request))

    async def asked(self, session: str) -> ScaleRequest | None:
        """The last request to a supervisor; None when there was none."""
        raw = await self._engine.command("HGET", self._keys.wanted, session)
        return None if raw is None else _request_decoder.decode(raw)
