"""What a rebuild sends to the frontier, in batches: URLs first, and then the commits of the pages that led to them.

In this order a rebuild that is killed anywhere has forgotten nothing: the next one finds the page still to be done.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from crawler.errors import EngineError
from crawler.frontier.jobs import Runs
from crawler.frontier.owner import Frontier
from crawler.frontier.restore import DoneUrl, Restoring
from crawler.model import Candidate
from crawler.worker.router import Router

BATCH = 4_000  # URLs and commits; a megabyte or two on the wire


class Refill:
    """Gathers and sends. Every call raises EngineError when the engine does not take it."""

    def __init__(
        self,
        frontier: Frontier,
        restoring: Restoring,
        router: Router,
        runs: Runs,
        *,
        is_committed: Callable[[str], bool],
    ) -> None:
        """`is_committed` tells of a fingerprint whether its page is in the index: it will become done, not pending."""
        self._frontier = frontier
        self._restoring = restoring
        self._router = router
        self._runs = runs
        self._is_committed = is_committed
        self._urls: dict[str, Candidate] = {}
        self._again: dict[str, tuple[Candidate, DoneUrl | None]] = {}
        self._done: list[DoneUrl] = []
        self.restored = 0

    async def add(self, candidates: Iterable[Candidate], done: DoneUrl | None = None) -> None:
        """Take in URLs and the commit of the page that led to them."""
        for candidate in candidates:
            known = self._urls.get(candidate.fingerprint)
            if known is None:
                self._urls[candidate.fingerprint] = candidate
            elif candidate.depth < known.depth:
                self._urls[candidate.fingerprint] = replace(candidate, visible_at=known.visible_at)
        if done is not None:
            self._done.append(done)
        if len(self._urls) + len(self._done) >= BATCH:
            await self.flush()

    async def again(self, candidate: Candidate, done: DoneUrl | None) -> None:
        """Take in a URL that is to be fetched although it was committed: by what the engine may know as `done`, or None
        if it is to be fetched only if the engine does not know it.
        """
        self._again[candidate.fingerprint] = candidate, done
        if len(self._again) >= BATCH:
            await self.flush()

    async def flush(self) -> None:
        """Send what was taken in."""
        urls = {fp: c for fp, c in self._urls.items() if not self._is_committed(fp)}
        urls |= {fp: candidate for fp, (candidate, _) in self._again.items()}
        reopened = [done for _, done in self._again.values() if done is not None]
        done, self._done = self._done, []
        self._urls, self._again = {}, {}
        by_partition: dict[int, list[Candidate]] = {}
        for candidate in urls.values():
            by_partition.setdefault(candidate.partition, []).append(candidate)
        await self._touch([*urls.values(), *done])
        await self.reopen(reopened)
        for reply in (await self._frontier.add(by_partition)).values():
            if isinstance(reply, EngineError):
                raise reply
        for candidate in urls.values():
            if not candidate.run:
                self._router.recent.add(candidate.url, candidate.depth)
        self.restored += await self._restoring.restore(done)

    async def reopen(self, urls: Sequence[DoneUrl]) -> None:
        """Let the engine forget those of these URLs that it knows as done."""
        by_partition: dict[int, list[str]] = {}
        for one in urls:
            by_partition.setdefault(one.partition, []).append(one.fingerprint)
        pending = await self._restoring.pending(by_partition)
        await self._restoring.reopen(one for one in urls if one.fingerprint not in pending)

    async def _touch(self, found: Iterable[Candidate | DoneUrl]) -> None:
        """Note where there are going to be URLs of runs."""
        partitions: defaultdict[str, set[int]] = defaultdict(set)
        for one in found:
            if one.run:
                partitions[one.run].add(one.partition)
        if partitions:
            await self._runs.touch_all(partitions)
