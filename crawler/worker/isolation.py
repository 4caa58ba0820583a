"""A lock for pages that may crash the process: many turns together, or a suspect alone."""

import asyncio


class Isolation:
    """A shared-exclusive lock: many turns together, or one alone, which goes before those that come later."""

    def __init__(self) -> None:
        self._inside = 0
        self._is_alone = False
        self._alone_waiting = 0
        self._waiters: list[asyncio.Future[None]] = []

    async def enter(self, *, alone: bool) -> None:
        """Wait to enter with others, or `alone`; `leave` must follow."""
        if not self._may_enter(alone=alone):
            await self._wait(alone=alone)
        self._inside += 1
        self._is_alone = alone

    def leave(self) -> None:
        """End what `enter` began."""
        self._inside -= 1
        self._is_alone = False
        self._wake()

    def _may_enter(self, *, alone: bool) -> bool:
        if alone:
            return not self._inside
        return not self._is_alone and not self._alone_waiting

    async def _wait(self, *, alone: bool) -> None:
        self._alone_waiting += alone
        entered = False
        try:
            while not self._may_enter(alone=alone):
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiters.append(waiter)
                await waiter
            entered = True
        finally:
            self._alone_waiting -= alone
            if not entered:
                self._wake()  # those that waited behind us may enter

    def _wake(self) -> None:
        if not self._waiters:
            return
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
