"""Lets one turn run while no other does: what is suspected of ending the process is fetched alone."""

import asyncio


class Isolation:
    """Many may be inside together, or one alone. Who wants to be alone goes before those who come later."""

    def __init__(self) -> None:
        self._inside = 0
        self._is_alone = False
        self._alone_waiting = 0
        self._waiters: list[asyncio.Future[None]] = []

    async def enter(self, *, alone: bool) -> None:
        """Inside with others, or `alone`, until `leave`; waits for that."""
        if not self._may_enter(alone=alone):
            await self._wait(alone=alone)
        self._inside += 1
        self._is_alone = alone

    def leave(self) -> None:
        """Outside again."""
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
                self._wake()  # who waited for us to be alone need not any more

    def _wake(self) -> None:
        if not self._waiters:
            return
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
