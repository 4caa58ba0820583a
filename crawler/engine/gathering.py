"""Single calls of many tasks, sent to the engine together: those made while others are under way wait for these.

A pipeline of one call costs its client as much as one of ten. Must not know what the calls do.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from crawler.engine.client import Call, Engine


class Gathering:
    """One pipeline at a time, of all that was asked for since the last one began."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: list[tuple[Call, asyncio.Future[Any]]] = []
        self._sender: asyncio.Task[None] | None = None

    async def run(self, call: Call) -> Any:
        """The reply to one call; raises EngineError. When its task is cancelled the call may be made all the same."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, answer))
        if self._sender is None:
            self._sender = asyncio.create_task(self._send(), name="gathered calls")
        return await answer

    async def _send(self) -> None:
        asked: list[tuple[Call, asyncio.Future[Any]]] = []
        try:
            while self._waiting:
                asked, self._waiting = self._waiting, []
                for (_, answer), reply in zip(asked, await self._replies([call for call, _ in asked]), strict=True):
                    _settle(answer, reply)
        finally:
            self._sender = None
            for _, answer in (*asked, *self._waiting):  # of those that are not settled: this task was ended
                answer.cancel()
            self._waiting = []

    async def _replies(self, calls: Sequence[Call]) -> Sequence[Any]:
        try:
            return await self._engine.run_many(calls)
        except Exception as error:  # noqa: BLE001 - whoever asked is to have it
            return [error] * len(calls)


def _settle(answer: asyncio.Future[Any], reply: Any) -> None:
    if answer.done():  # its task was cancelled
        return
    if isinstance(reply, Exception):
        answer.set_exception(reply)
    else:
        answer.set_result(reply)
