"""The requests that wait for their answer, by the worker that waits, and how they are cut off without it.

No task is made for a request: to end one, its worker is cancelled, learns that it was for the request alone, and goes
on with its next turn.
"""

import asyncio
from typing import Any

from crawler.model import Claim

Worker = asyncio.Task[Any]


class OpenRequests:
    """Those of one instance."""

    def __init__(self) -> None:
        self._claims: dict[Worker, Claim] = {}
        self._cut_off: set[Worker] = set()

    @property
    def claims(self) -> list[Claim]:
        """Whose answers are waited for."""
        return list(self._claims.values())

    def add(self, claim: Claim) -> Worker:
        """The running task will wait for an answer, until `ended`."""
        worker = asyncio.current_task()
        assert worker is not None
        self._claims[worker] = claim
        return worker

    def remove(self, worker: Worker) -> None:
        """It has one, or gave up."""
        del self._claims[worker]

    def cut_off_all(self) -> None:
        """End every request that is open; each of the workers meets a CancelledError."""
        for worker in self._claims.keys() - self._cut_off:
            self._cut_off.add(worker)
            worker.cancel()

    def is_only_cut_off(self, worker: Worker) -> bool:
        """In a CancelledError: was it for the request alone? Then it counts as dealt with."""
        if worker not in self._cut_off:
            return False
        self._cut_off.discard(worker)
        return worker.uncancel() == 0
