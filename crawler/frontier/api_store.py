"""Tokens of the HTTP API: who may read or write. The engine has a digest of each, never the token itself."""

import hashlib
import hmac
import secrets
import time
from enum import StrEnum

import msgspec

from crawler.engine.client import Engine
from crawler.frontier.codec import pairs_of
from crawler.frontier.record import Keys
from crawler.rules.jobs import beyond_shares

PREFIX = "crawler"
SECRET_BYTES = 32


class Role(StrEnum):
    """What the bearer of a token may do."""

    READ = "read"
    WRITE = "write"  # and read


class ApiToken(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a token. `sha256`: of its whole text, hexadecimal."""

    id: str
    user: str
    role: Role
    sha256: str
    created_at: float  # s since 1970

    def is_of(self, text: str) -> bool:
        """Is this its text? Takes the same time for each wrong one."""
        return hmac.compare_digest(_digest(text), self.sha256)


NOBODY = ApiToken(id="", user="", role=Role.READ, sha256="0" * 64, created_at=0.0)  # no text has this digest

_encode = msgspec.json.Encoder().encode
_token_decoder = msgspec.json.Decoder(ApiToken)


class ApiTokens:
    """The tokens of one crawl. Every call raises EngineError."""

    def __init__(self, engine: Engine, keys: Keys) -> None:
        self._engine = engine
        self._key = keys.api_tokens

    async def add(self, user: str, role: Role) -> str:
        """Make a token; its text, which can't be had again."""
        number = secrets.token_hex(4)
        text = f"{PREFIX}_{number}_{secrets.token_urlsafe(SECRET_BYTES)}"
        token = ApiToken(id=number, user=user, role=role, sha256=_digest(text), created_at=time.time())
        await self._engine.command("HSET", self._key, number, _encode(token))
        return text

    async def read(self) -> dict[str, ApiToken]:
        """All tokens by their ids, oldest first."""
        raw = await self._engine.command("HGETALL", self._key)
        found = sorted((_token_decoder.decode(blob) for _, blob in pairs_of(raw)), key=lambda token: token.created_at)
        return {token.id: token for token in found}

    async def remove(self, number: str) -> bool:
        """Remove a token; False when there is none with this id."""
        return bool(await self._engine.command("HDEL", self._key, number))


def id_of(text: str) -> str:
    """The id in the text of a token; "" when it can't be one."""
    parts = text.split("_", 2)
    return parts[1] if len(parts) == 3 and parts[0] == PREFIX else ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


# Answers of the HTTP API to requests with an Idempotency-Key: what a repeated request is answered with.
#
# Kept for a day, a thousand or so. Users share the room: whoever has most loses the oldest. Nothing in the engine
# expires by itself: whoever stores an answer drops old ones.

KEPT_S = 24 * 3600.0
ANSWERS_MAX = 1_000
DROPPED_AT_ONCE = 100  # more than are needed, so that not every request reads all
BODY_MAX = 4_096  # bytes; of a longer answer only its status is kept


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request and its answer. Status 0: it runs, or its server ended before it was answered."""

    at: float  # when it came, s since 1970
    fingerprint: str = ""  # of method, path and body; "" while it runs
    status: int = 0
    body: str | None = ""  # None: it was too long


_answer_decoder = msgspec.json.Decoder(StoredAnswer)


class ApiAnswers:
    """The stored answers of one crawl, by key: "OWNER:..." of whose share it is. Every call raises EngineError."""

    def __init__(self, engine: Engine, keys: Keys) -> None:
        self._engine = engine
        self._hash = keys.api_answers

    async def begin(self, key: str, now_s: float) -> StoredAnswer | None:
        """Reserve a key for a request; None: it is reserved now. Otherwise what is stored under it."""
        running = _encode(StoredAnswer(at=now_s))
        if await self._engine.command("HSETNX", self._hash, key, running):
            await self._drop_old(now_s)
            return None
        blob = await self._engine.command("HGET", self._hash, key)
        stored = None if blob is None else _answer_decoder.decode(blob)
        if stored is not None and stored.at > now_s - KEPT_S:
            return stored
        await self._engine.command("HSET", self._hash, key, running)
        return None

    async def finish(self, key: str, answer: StoredAnswer) -> None:
        """Store the answer to the request that reserved the key."""
        await self._engine.command("HSET", self._hash, key, _encode(answer))

    async def forget(self, key: str) -> None:
        """The request failed: it may be sent again."""
        await self._engine.command("HDEL", self._hash, key)

    async def _drop_old(self, now_s: float) -> None:
        if int(await self._engine.command("HLEN", self._hash)) <= ANSWERS_MAX:
            return
        raw = await self._engine.command("HGETALL", self._hash)
        by_age = sorted((_answer_decoder.decode(blob).at, key) for key, blob in pairs_of(raw))
        old = [key for at, key in by_age if at <= now_s - KEPT_S]
        fresh = [key for at, key in by_age if at > now_s - KEPT_S]
        gone = beyond_shares([key.rpartition(b":")[0] for key in fresh], ANSWERS_MAX - DROPPED_AT_ONCE)
        await self._engine.command("HDEL", self._hash, *old, *(fresh[place] for place in gone))
