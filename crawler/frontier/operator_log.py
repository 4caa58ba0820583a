"""The operator log: who changed what in a crawl and when, the newest 1,000 entries.

An entry is written before its command acts, so that no change goes unlogged. A command that fails is logged, too.
"""

import enum
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from crawler.engine.client import Engine
from crawler.frontier.codec import pairs_of
from crawler.frontier.keys import Keys

ENTRIES_MAX = 1_000  # some 250 bytes each
TEXT_MAX = 200  # characters of each text: a URL may have thousands
ID_MAX = 2**63
FIELD = b"e"


class Via(enum.StrEnum):
    """Which program gave a command."""

    CLI = "cli"
    API = "api"
    TOP = "top"


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """Who gives a command, and by which program."""

    who: str  # a user of the operating system, or of the API
    via: Via


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A command as it was given. Texts are cut to 200 characters."""

    id: int  # grows by one with each entry
    at: float  # wall clock of the one who gave it, s
    who: str
    via: Via
    action: str  # like "pause" or "dead retry"
    target: str  # a domain, a URL, a node; "" for the whole crawl
    detail: str  # what else was given, like "delay 5 s"


class _Stored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    at: float
    who: str
    via: Via
    action: str
    target: str = ""
    detail: str = ""


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
        entry = _Stored(at=time.time(), who=who, via=actor.via, action=action, target=target, detail=detail)
        return int(await self._engine.run("log_command", (self._key,), ENTRIES_MAX, _encode(entry)))

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
        id=number, at=one.at, who=one.who, via=one.via, action=one.action, target=one.target, detail=one.detail
    )


def _shortened(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 3]}..."
