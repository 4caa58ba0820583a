"""Pages whose links wait: their domain has introduced too much, or the engine has no room for the links.

Such a page is archived and not acked; its claim stays open, and it joins later groups until nothing is left. So the
order of a commit holds by itself, no crawl or run ends before, and after a crash the page is fetched again.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from crawler.membership.ownership import HeldPartitions
from crawler.model import Claim
from crawler.pipeline.archive import Placed
from crawler.pipeline.outcome import Committable
from crawler.pipeline.schedule import Scheduler
from crawler.rules.order import Introductions, cost
from crawler.runtime.clock import monotonic_ms
from crawler.runtime.counters import Counters

log = logging.getLogger(__name__)

EVERY_MS = 1_000  # how often held pages go on
WAKE_S = 0.25  # how often the committer looks for that, and for an end that must be quick
BYTES_MAX = 64 << 20  # of all held pages, as estimated
PAGES_MAX = 128  # a quarter of the claims that an instance may hold, at least
LINK_BYTES = 600  # a candidate in memory, without its URL
QUEUE_WAIT_MS = 5_000  # its queue: longer than what is claimed ahead, so that waiting claims go back to the engine
AGAIN_MS = 30_000  # a page that had no room here is not fetched again before


class HeldPage(NamedTuple):
    """A page with links left, and where the archive has it. `bytes`: of memory, about."""

    outcome: Committable
    placed: Placed
    bytes: int


class HeldBack:
    """The held pages of one instance, oldest first. Their queues make no requests."""

    def __init__(
        self,
        introductions: Introductions,
        scheduler: Scheduler,
        held: HeldPartitions,
        counters: Counters,
        return_claims: Callable[[list[Claim]], Awaitable[None]],
    ) -> None:
        """`return_claims`: returns claims that were fetched, unacked; their queues wait as the scheduler knows."""
        self._introductions = introductions
        self._scheduler = scheduler
        self._held = held
        self._counters = counters
        self._return_claims = return_claims
        self._pages: dict[tuple[int, str], HeldPage] = {}
        self._domains: set[str] = set()
        self._next_ms = 0

    def __len__(self) -> int:
        return len(self._pages)

    @property
    def claims(self) -> list[Claim]:
        return [page.outcome.claim for page in self._pages.values()]

    def due(self) -> list[HeldPage]:
        """The pages that go on now. While the engine has no room they wait, unless they have to leave."""
        now_ms, leaving = monotonic_ms(), [page for page in self._pages.values() if not self._may_stay(page)]
        if now_ms < self._next_ms:
            return leaving
        self._next_ms = now_ms + EVERY_MS
        for page in self._pages.values():
            self._scheduler.postpone(page.outcome.claim.queue, QUEUE_WAIT_MS)
        return leaving if self._counters.is_engine_full else list(self._pages.values())

    def _may_stay(self, page: HeldPage) -> bool:
        claim = page.outcome.claim
        return not self._counters.is_stopping and self._held.holds(claim) and self._held.is_open(claim.partition)

    def keep(self, taken: Sequence[HeldPage], waiting: Sequence[tuple[Committable, Placed]]) -> list[Committable]:
        """`waiting` is what is left of `taken`, and further pages. Takes out and returns those that have no room here
        or have to leave.
        """
        known = {_key(page.outcome): page for page in taken}
        still = {_key(outcome): (outcome, placed) for outcome, placed in waiting}
        for key in known.keys() - still.keys():
            del self._pages[key]
        for key, (outcome, placed) in still.items():
            if key not in known:
                self._pages[key] = HeldPage(outcome, placed, _bytes_of(outcome))
                self._scheduler.postpone(outcome.claim.queue, QUEUE_WAIT_MS)
        given = [page.outcome for page in self._take_excess()]
        self._note()
        return given

    async def give_back(self, given: Sequence[Committable]) -> None:
        """Return the claims of pages that were taken out: they are fetched again when their domains may go on."""
        now_ms = monotonic_ms()
        for outcome in given:
            claim, left = outcome.claim, outcome.left or ()
            owed = sum(cost(candidate.url) for candidate in left if candidate.queue != claim.queue)
            wait_ms = self._introductions.wait_ms(claim.domain, owed, now_ms)
            self._scheduler.postpone(claim.queue, max(AGAIN_MS, wait_ms))
        await self._return_claims([outcome.claim for outcome in given])

    def _take_excess(self) -> list[HeldPage]:
        """Take out what has to leave, and the newest beyond the bounds."""
        total, kept, given = 0, dict[tuple[int, str], HeldPage](), list[HeldPage]()
        for key, page in self._pages.items():
            if self._may_stay(page) and total + page.bytes <= BYTES_MAX and len(kept) < PAGES_MAX:
                total += page.bytes
                kept[key] = page
            else:
                given.append(page)
        self._pages = kept
        return given

    def _note(self) -> None:
        """Count what waits, and log when it begins and ends for a domain."""
        pages = self._pages.values()
        links = sum(len(page.outcome.left or ()) for page in pages)
        self._counters.held_pages, self._counters.held_links = len(pages), links
        before, self._domains = self._domains, {page.outcome.claim.domain for page in pages}
        for domain in self._domains - before:
            log.warning("pages.held_back", extra={"domain": domain, "pages": len(pages), "links": links})
        for domain in before - self._domains:
            log.warning("pages.released", extra={"domain": domain, "pages": len(pages), "links": links})


def _key(outcome: Committable) -> tuple[int, str]:
    return outcome.claim.partition, outcome.claim.token


def _bytes_of(outcome: Committable) -> int:
    response, links = outcome.response, outcome.page.links
    candidates = len(outcome.own) + len(outcome.left or ())
    return len(response.body) + len(response.raw_body) + sum(map(len, links)) + candidates * LINK_BYTES
