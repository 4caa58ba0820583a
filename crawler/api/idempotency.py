"""Idempotency-Key: a request that is sent again, because its answer was lost, is not carried out again.

As in draft-ietf-httpapi-idempotency-key-header: the same key with another request is an error, and so is one whose
first request has not been answered yet.
"""

import hashlib
import re
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from aiohttp import web

from crawler.api.access import Identity
from crawler.api.problem import ProblemError
from crawler.errors import EngineError
from crawler.frontier.api_answers import BODY_MAX, ApiAnswers, StoredAnswer

HEADER = "Idempotency-Key"


KEY_MAX = 255  # characters


KEY = re.compile(rf"[!-~]{{1,{KEY_MAX}}}")


REPLAYED = "Idempotent-Replayed"


class Idempotency:
    """Answers requests with a key once."""

    def __init__(self, answers: ApiAnswers) -> None:
        self._answers = answers

    async def run(
        self,
        http: web.Request,
        identity: Identity,
        fingerprint: Callable[[], Awaitable[str]],
        act: Callable[[], Awaitable[web.Response]],
    ) -> web.Response:
        """The answer of `act`, or the one that the client's request with this key had. `fingerprint`: of the body.

        It is awaited after `act`, or instead of it. Raises ProblemError and EngineError.
        """
        key = http.headers.get(HEADER)
        if key is None:
            return await act()
        if not KEY.fullmatch(key):
            raise ProblemError(HTTPStatus.BAD_REQUEST, f"{HEADER}: expected 1 to {KEY_MAX} visible ASCII characters")
        digest = hashlib.sha256(f"{identity.client}\n{key}".encode(errors="surrogateescape")).hexdigest()
        stored_under = f"{identity.owner}:{digest}"
        stored = await self._answers.begin(stored_under, time.time())
        if stored is not None:
            return _again(stored, await _of_request(http, fingerprint) if stored.status else "")
        try:
            response = await act()
            answer = _stored(response, await _of_request(http, fingerprint))
        except BaseException:
            await self._forget(stored_under)
            raise
        await self._answers.finish(stored_under, answer)
        return response

    async def _forget(self, key: str) -> None:
        try:
            await self._answers.forget(key)
        except EngineError:
            return  # it stays reserved: then nobody knows what became of it


async def _of_request(http: web.Request, fingerprint: Callable[[], Awaitable[str]]) -> str:
    text = f"{http.method} {http.path_qs}\n{await fingerprint()}"
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def _stored(response: web.Response, fingerprint: str) -> StoredAnswer:
    body = bytes(response.body) if isinstance(response.body, bytes) else b""
    return StoredAnswer(
        at=time.time(), fingerprint=fingerprint, status=response.status,
        body=body.decode() if len(body) <= BODY_MAX else None,
    )  # fmt: skip


def _again(stored: StoredAnswer, fingerprint: str) -> web.Response:
    if not stored.status:
        raise ProblemError(
            HTTPStatus.CONFLICT,
            f"the first request with this {HEADER} was not answered yet: wait, or check what it did and use a new key",
        )
    if stored.fingerprint != fingerprint:
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, f"this {HEADER} was used for another request")
    if stored.body is None:
        raise ProblemError(HTTPStatus.CONFLICT, "it was carried out before, but its answer was too long to be stored")
    return web.Response(
        status=stored.status, text=stored.body, content_type="application/json", headers={REPLAYED: "true"}
    )
