"""The operator log: who changed what in a crawl and when, the newest 1,000 entries or so.

An entry is written before its command acts, so that no change goes unlogged. A command that fails is logged, too.
Users share the room: whoever has most entries loses the oldest. A command that is repeated is one entry.
"""

import enum
import secrets
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from crawler.engine.client import Call, Engine
from crawler.errors import EngineError
from crawler.frontier.arguments import LogArgs
from crawler.frontier.codec import pairs_of
from crawler.frontier.keys import Keys
from crawler.rules.shares import beyond_shares

ENTRIES_MAX = 1_000  # some 250 bytes each
DROPPED_AT_ONCE = 100  # more than are needed, so that not every command reads all
LOOKED_AT = 50  # of the newest, for the same command
TEXT_MAX = 200  # characters of each text: a URL may have thousands
ID_MAX = 2**63
FIELD = b"e"


class Via(enum.StrEnum):
    """Which program gave a command."""

    CLI = "cli"
    API = "api"
    TOP = "top"
    INSTANCE = "instance"  # by itself


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """Who gives a command, and by which program."""

    who: str  # a user of the operating system, or of the API
    via: Via


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A command as it was given. Texts are cut to 200 characters."""

    id: int  # grows by one with each command
    at: float  # wall clock of the one who gave it, s
    who: str
    via: Via
    action: str  # like "pause" or "dead retry"
    target: str  # a domain, a URL, a node; "" for the whole crawl
    detail: str  # what else was given, like "delay 5 s"
    times: int = 1  # given in a row: the last `at`, the first `first_at`
    first_at: float

    @property
    def told(self) -> str:
        """Its detail, and how often it was given, for people."""
        return ", ".join([self.detail] * bool(self.detail) + [f"{self.times:,} times"] * (self.times > 1))


class _Stored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    at: float
    who: str
    via: Via
    action: str
    target: str = ""
    detail: str = ""
    times: int = 1
    first_at: float = 0.0  # 0: `at`
    request: str = ""  # the same when the call is repeated


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Stored).decode


class OperatorLog:
    """The operator log of one crawl. All calls raise EngineError."""

    def __init__(self, engine: Engine, keys: Keys) -> None:
        self._engine = engine
        self._key = keys.operator_log

    async def add(self, actor: Actor, action: str, target: str = "", detail: str = "") -> int:
        """Write an entry; its id. It works while the engine is full."""
        who, target, detail = (_shortened(text) for text in (actor.who, target, detail))
        entry = _Stored(
            at=time.time(), who=who, via=actor.via, action=action, target=target, detail=detail,
            request=secrets.token_hex(4),
        )  # fmt: skip
        (reply,) = await self._engine.run_repeatable(
            [Call("log_command", (self._key,), LogArgs(_encode(entry), LOOKED_AT))]
        )
        if isinstance(reply, EngineError):
            raise reply
        number, length = reply
        if int(length) > ENTRIES_MAX:
            await self._drop_old()
        return int(number)

    async def _drop_old(self) -> None:
        found = await self._engine.command("XRANGE", self._key, "-", "+", "COUNT", 2 * ENTRIES_MAX)
        entries = _entries(found)
        gone = beyond_shares([(one.who, one.via) for one in entries], ENTRIES_MAX - DROPPED_AT_ONCE)
        await self._engine.command("XDEL", self._key, *(found[place][0] for place in gone))

    async def newest(self, limit: int = ENTRIES_MAX) -> list[LogEntry]:
        """The newest entries, oldest first."""
        found = await self._engine.command("XREVRANGE", self._key, "+", "-", "COUNT", limit)
        return _entries(found[::-1])

    async def read(self, after_id: int = 0, limit: int = ENTRIES_MAX) -> list[LogEntry]:
        """Entries that came after one, oldest first; `after_id` may be any number."""
        after = f"(0-{min(max(after_id, 0), ID_MAX)}"
        return _entries(await self._engine.command("XRANGE", self._key, after, "+", "COUNT", limit))


def _entries(found: Sequence[Any]) -> list[LogEntry]:
    return [_entry(int(name.partition(b"-")[2]), dict(pairs_of(fields))[FIELD]) for name, fields in found]


def _entry(number: int, packed: bytes) -> LogEntry:
    one = _decode(packed)
    return LogEntry(
        id=number, at=one.at, who=one.who, via=one.via, action=one.action, target=one.target, detail=one.detail,
        times=one.times, first_at=one.first_at or one.at,
    )  # fmt: skip


def _shortened(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 3]}..."
