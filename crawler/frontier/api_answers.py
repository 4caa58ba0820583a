"""Answers of the HTTP API to requests with an Idempotency-Key: what a repeated request is answered with.

Kept for a day, a thousand or so. Users share the room: whoever has most loses the oldest. Nothing in the engine
expires by itself: whoever stores an answer drops old ones.
"""

import msgspec

from crawler.engine.client import Engine
from crawler.frontier.api_tokens import encoded
from crawler.frontier.codec import pairs_of
from crawler.frontier.keys import Keys
from crawler.rules.shares import beyond_shares

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
        running = encoded(StoredAnswer(at=now_s))
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
        await self._engine.command("HSET", self._hash, key, encoded(answer))

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
