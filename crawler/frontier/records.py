"""What stands in the engine: a pending URL's record, a dead letter, a commit entry, as JSON; arguments as msgpack.

Stored values travel inside msgpack arguments as text: the engine's cmsgpack knows no binary type.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from crawler.errors import EngineUnfit
from crawler.model import Candidate, CommitEntry

_pack = msgspec.msgpack.Encoder().encode
_json = msgspec.json.Encoder().encode


class DeadLetter(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A URL given up: why, after how many attempts, when (wall clock, s), with what was known of it."""

    url: str
    queue: str
    domain: str
    depth: int
    reason: str
    detail: str
    attempts: int
    failed_at: float
    seed: bool = False


class UrlRecord(msgspec.Struct, array_like=True, frozen=True):
    """Record of a pending URL; the order of the fields is known to lua/_record.lua."""

    depth: int
    queue: str
    domain: str
    url: str
    redirects: int
    seed: int
    attempts: int
    deliveries: int
    visit: int
    score: float
    deaths: int = 0  # processes that died while it was under way
    died_with: str = ""  # the last of their sessions


_record_decoder = msgspec.json.Decoder(UrlRecord, strict=False)
_letter_decoder = msgspec.json.Decoder(DeadLetter)
_entry_decoder = msgspec.json.Decoder(CommitEntry)


def pairs_of(raw: Any) -> list[tuple[bytes, bytes]]:
    """The pairs of a hash as the client hands it over: a mapping, or name and value in turn."""
    return list(raw.items()) if isinstance(raw, Mapping) else list(zip(raw[::2], raw[1::2], strict=True))


def pack(value: Any) -> bytes:
    """Msgpack of plain values, for the scripts' arguments."""
    return _pack(value)


def pack_record(candidate: Candidate, *, attempts: int = 0, deliveries: int = 0, visit: int = 1) -> str:
    """The record of a URL that becomes pending."""
    c = candidate
    fields = (c.depth, c.queue, c.domain, c.url, c.redirects, int(c.seed), attempts, deliveries, visit, c.score)
    return _json(fields).decode()


def unpack_record(packed: bytes) -> UrlRecord:
    """Raises EngineUnfit for bytes that no record of this layout is."""
    try:
        return _record_decoder.decode(packed)
    except msgspec.MsgspecError as error:
        raise EngineUnfit(f"unreadable record in the engine: {error}") from None


def item_of(candidate: Candidate) -> tuple[str, str, str, str, int, str]:
    """What `add` and `ack` take for one URL (see lua/_add.lua). The score is text: the engine reads it once."""
    c = candidate
    return (c.fingerprint, c.queue, c.domain, repr(c.score), c.depth, pack_record(c))


def pack_letter(letter: DeadLetter) -> str:
    return _json(letter).decode()


def unpack_letter(packed: bytes) -> DeadLetter:
    return _letter_decoder.decode(packed)


def pack_entry(entry: CommitEntry) -> str:
    return _json(entry).decode()


def unpack_log(stored: bytes) -> tuple[str, CommitEntry]:
    """A log value is 'token sequence entry': the token and the entry with its sequence."""
    token, sequence, packed = stored.split(b" ", 2)
    return token.decode(), replace(_entry_decoder.decode(packed), sequence=int(sequence))
