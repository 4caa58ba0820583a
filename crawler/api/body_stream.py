"""A body that a handler reads piece by piece: bounded in size and in the time that each piece takes, and hashed."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from http import HTTPStatus

from aiohttp import web

from crawler.api.problem import Limits, ProblemError, bad_body, too_large, too_slow


class BodyStream:
    """Each piece comes once; `digest` reads what is left."""

    def __init__(self, http: web.Request, limits: Limits) -> None:
        self._http = http
        self._time_s = limits.body_s
        self._size_max = limits.seed_stream_bytes
        self._size = 0
        self._hash = hashlib.sha256()

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises ProblemError."""
        content = self._http.content
        while True:
            try:
                async with asyncio.timeout(self._time_s):
                    piece = await content.readany()
            except TimeoutError:
                raise too_slow(self._time_s) from None
            except web.RequestPayloadError:
                raise bad_body() from None
            if not piece:
                return
            self._size += len(piece)
            if self._size > self._size_max:
                raise too_large(self._size_max)
            self._hash.update(piece)
            yield piece

    async def whole(self, size_max: int) -> bytes:
        """All of it, if it has at most this many bytes. Raises ProblemError."""
        pieces = []
        async for piece in self.pieces():
            pieces.append(piece)
            if self._size > size_max:
                raise too_large(size_max)
        return b"".join(pieces)

    async def lines(self, length_max: int) -> AsyncIterator[tuple[int, bytes]]:
        """Its lines that are not empty, with their numbers. Raises ProblemError, also for one that is too long."""
        number, rest = 0, b""
        async for piece in self.pieces():
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                number += 1
                if stripped := _checked(line, number, length_max):
                    yield number, stripped
            _checked(rest, number + 1, length_max)
        if rest.strip():
            yield number + 1, rest.strip()

    async def digest(self) -> str:
        """The SHA-256 of all of it. Raises ProblemError."""
        async for _ in self.pieces():
            pass
        return self._hash.hexdigest()


def _checked(line: bytes, number: int, length_max: int) -> bytes:
    if len(line) > length_max:
        raise ProblemError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"line {number} has more than {length_max:,} bytes")
    return line.strip()
