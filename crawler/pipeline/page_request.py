"""What is kept of a request for a page while it runs, and of its answer."""

import asyncio
from typing import Any

import msgspec

from crawler.frontier.frontier import Settlement
from crawler.model import Claim, FetchResult, Response
from crawler.pipeline.schedule import QueueSlot


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What a claim asks for next at a cookie wall (see cookie_walls): with which cookies, and as which URL on the way
    (0: the page itself). `first`: the page's own redirect, its result when the way leads nowhere.
    """

    url: str
    cookies: dict[str, str]
    first: Response | None = None
    number: int = 0


class PageRequest(msgspec.Struct):
    """A request for a page, from connecting to the end of its answer. `started_at` is wall clock, s."""

    slot: QueueSlot
    claim: Claim
    started_at: float
    step: Step | None = None  # at a cookie wall
    is_sent: bool = False  # the last check was passed; started_at is its time from then on


class Answered(msgspec.Struct, frozen=True):
    """Its end: what came, what its queue does now, and when that was (wall clock, s)."""

    page_request: PageRequest
    result: FetchResult
    settled: Settlement
    finished_at: float


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
