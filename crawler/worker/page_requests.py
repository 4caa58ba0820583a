"""Requests for pages: the state of one while it runs, its answer, and how open requests are cut off.

A request has no task of its own: to cut it off, its worker is cancelled, learns that only the request was meant, and
goes on with its next turn.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from crawler.archive.earlier_pages import EarlierPage
from crawler.frontier.owner import Settlement
from crawler.hosts.sessions import Session
from crawler.model import Claim, FetchResult, Response
from crawler.rules.cookies import Jar
from crawler.runtime.clocks import monotonic_ms
from crawler.worker.schedule import QueueSlot


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The next request of a claim at a cookie wall (see cookie_walls). `number`: place of the URL in the chain (0: the
    page itself). `first`: the page's own redirect, its result when the chain leads nowhere.
    """

    url: str
    jar: Jar
    first: Response | None = None
    number: int = 0


class PageRequest(msgspec.Struct):
    """A request for a page, from connecting to the end of its answer. `started_at` is wall clock, s."""

    slot: QueueSlot
    claim: Claim
    started_at: float
    step: Step | None = None  # at a cookie wall
    earlier: EarlierPage | None = None  # it asks whether this has changed
    is_sent: bool = False  # the last check has passed; `started_at` is the time of it then
    session: Session | None = None  # whose cookies went along
    login: int = 0  # of that session


class Answered(msgspec.Struct, frozen=True):
    """The end of a page request: its result, the settlement of its queue, and the time (wall clock, s)."""

    page_request: PageRequest
    result: FetchResult
    settled: Settlement
    finished_at: float


Worker = asyncio.Task[Any]
MET_STALE_MAX = 10_000  # URLs


class StaleRequests:
    """URLs whose last request met a connection that its server had closed. The claims of some never come back."""

    def __init__(self) -> None:
        self._urls: OrderedDict[str, None] = OrderedDict()  # by fingerprint

    def is_first(self, claim: Claim, result: FetchResult) -> bool:
        """Was a reused connection found closed? The first time for a URL, that does not count as an attempt."""
        was_stale = claim.fingerprint in self._urls
        self._urls.pop(claim.fingerprint, None)
        if was_stale or not result.stale_connection:
            return False
        self._urls[claim.fingerprint] = None
        if len(self._urls) > MET_STALE_MAX:
            self._urls.popitem(last=False)
        return True


class OpenRequests:
    """The open requests of one instance, by the worker that waits for the answer."""

    def __init__(self) -> None:
        self._claims: dict[Worker, Claim] = {}
        self._began_ms: dict[Worker, int] = {}  # of those that are expected to end quickly, oldest first
        self._places: dict[Worker, tuple[str, int]] = {}  # with an address: since when
        self._cut_off: set[Worker] = set()
        self._made_way: set[Worker] = set()

    @property
    def claims(self) -> list[Claim]:
        """Claims with an open request."""
        return list(self._claims.values())

    def add(self, claim: Claim, *, is_quick: bool, address: str = "") -> Worker:
        """The running task waits for an answer from here until `remove`. `is_quick`: a quick one is expected.
        `address`: where it may have to make way for others.
        """
        worker = asyncio.current_task()
        assert worker is not None
        self._claims[worker] = claim
        if is_quick:
            self._began_ms[worker] = monotonic_ms()
        if address:
            self._places[worker] = address, monotonic_ms()
        return worker

    def remove(self, worker: Worker) -> None:
        """The worker has its answer, or gave up."""
        del self._claims[worker]
        self._began_ms.pop(worker, None)
        self._places.pop(worker, None)

    def slow_at(self, addresses: Collection[str], patience_ms: Callable[[str], int]) -> dict[str, list[Worker]]:
        """By address, those that have been open for longer than patience lasts there, the oldest first."""
        now_ms, found = monotonic_ms(), dict[str, list[Worker]]()
        for worker, (address, began_ms) in self._places.items():
            is_there = address in addresses and worker not in self._cut_off
            if is_there and now_ms - began_ms >= patience_ms(address):
                found.setdefault(address, []).append(worker)
        return found

    def slow(self, age_ms: int) -> list[Worker]:
        """Those that were expected to end quickly and have been open for longer, the oldest first."""
        before_ms = monotonic_ms() - age_ms
        return [w for w, began_ms in self._began_ms.items() if began_ms <= before_ms and w not in self._cut_off]

    def make_way(self, workers: Sequence[Worker]) -> None:
        """Cut these off, so that their workers are free for others."""
        for worker in workers:
            self._cut_off.add(worker)
            self._made_way.add(worker)
            worker.cancel()

    def has_made_way(self, worker: Worker) -> bool:
        """Was it cut off for that? Asked once."""
        found = worker in self._made_way
        self._made_way.discard(worker)
        return found

    def cut_off_all(self) -> None:
        """Cut off every open request; CancelledError is raised in each of the workers."""
        for worker in self._claims.keys() - self._cut_off:
            self._cut_off.add(worker)
            worker.cancel()

    def is_only_cut_off(self, worker: Worker) -> bool:
        """On a CancelledError: was only the request cut off? Then the cancellation is cleared."""
        if worker not in self._cut_off:
            return False
        self._cut_off.discard(worker)
        return worker.uncancel() == 0
