"""Answers that take long to make: one at a time, and shared by all who ask meanwhile and shortly after."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


KEPT_MAX = 100


class SharedAnswers(Generic[Answer]):
    """Keeps answers for `kept_s`, by what was asked."""

    def __init__(self, kept_s: float) -> None:
        self._kept_s = kept_s
        self._turn = asyncio.Lock()
        self._kept: dict[Hashable, tuple[float, Answer]] = {}

    async def get(self, asked: Hashable, make: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer that is kept, or a new one. Raises what `make` raises."""
        async with self._turn:
            now = time.monotonic()
            self._kept = {key: kept for key, kept in self._kept.items() if kept[0] > now - self._kept_s}
            if asked in self._kept:
                return self._kept[asked][1]
            answer = await make()
            if len(self._kept) < KEPT_MAX:
                self._kept[asked] = time.monotonic(), answer
            return answer

    def forget(self) -> None:
        """What is kept is no longer so."""
        self._kept.clear()
