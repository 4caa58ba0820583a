"""Tokens of the HTTP API: who may read or write. The engine has a digest of each, never the token itself."""

import hashlib
import hmac
import secrets
import time
from enum import StrEnum

import msgspec

from crawler.engine.client import Engine
from crawler.frontier.codec import pairs_of
from crawler.frontier.keys import Keys

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

encoded = msgspec.json.Encoder().encode
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
        await self._engine.command("HSET", self._key, number, encoded(token))
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
