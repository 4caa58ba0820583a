"""Stage zero: URLs that people give enter the crawl, each counted as new, seen, out of scope or invalid."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from crawler.errors import EngineError, InvalidUrl
from crawler.frontier.crawls import Crawls
from crawler.frontier.frontier import Frontier
from crawler.instance.routing import Router
from crawler.model import AddOutcome, Candidate
from crawler.rules.urls import canonicalize

BATCH = 2_000
INVALID_SHOWN_MAX = 1_000


@dataclass(frozen=True, slots=True)
class GivenUrl:
    """A URL as given: where it stood ("line 7", "argument 1"), and its text."""

    where: str
    text: str


@dataclass(slots=True, kw_only=True)
class SeedReport:
    """What became of the given URLs. `invalid` holds (where, text, reason), the first thousand of them."""

    new: int = 0
    seen: int = 0
    out_of_scope: int = 0
    invalid_count: int = 0
    invalid: list[tuple[str, str, str]] = field(default_factory=list)
    out_of_scope_rules: list[tuple[str, str]] = field(default_factory=list)  # (URL, the rule that decided)

    @property
    def total(self) -> int:
        return self.new + self.seen + self.out_of_scope + self.invalid_count


class Seeder:
    """Adds seeds. With `opens_scope`, each seed's domain (host, prefix) joins the crawl's scope."""

    def __init__(
        self,
        frontier: Frontier,
        crawls: Crawls,
        router: Router,
        *,
        opens_scope: bool = True,
        depth: int = 0,
        priority: float | None = None,
        url_bytes_max: int = 8192,
    ) -> None:
        self._frontier = frontier
        self._crawls = crawls
        self._router = router
        self._opens_scope = opens_scope
        self._depth = depth
        self._priority = priority
        self._bytes_max = url_bytes_max
        self.report = SeedReport()

    async def add_all(self, given: Iterable[GivenUrl]) -> SeedReport:
        """Add in batches; raises EngineError when the engine does not take them (repeating is safe)."""
        batch: list[tuple[GivenUrl, str]] = []
        for one in given:
            url = self._canonical(one)
            if url is not None:
                batch.append((one, url))
            if len(batch) >= BATCH:
                await self._add(batch)
                batch = []
        await self._add(batch)
        return self.report

    def _canonical(self, given: GivenUrl) -> str | None:
        try:
            return canonicalize(given.text.strip(), bytes_max=self._bytes_max)
        except InvalidUrl as error:
            self.report.invalid_count += 1
            if len(self.report.invalid) < INVALID_SHOWN_MAX:
                self.report.invalid.append((given.where, given.text.strip(), error.reason))
            return None

    async def _add(self, batch: list[tuple[GivenUrl, str]]) -> None:
        if self._opens_scope and batch:
            roots = {self._router.scope.root_of(url) for _, url in batch}
            await self._crawls.add_roots(roots)
            self._router.scope = self._router.scope.with_roots(roots)
        by_partition: dict[int, list[Candidate]] = {}
        for _, url in batch:
            verdict = self._router.scope.verdict(url, self._depth)
            if not verdict.allowed:
                self.report.out_of_scope += 1
                if len(self.report.out_of_scope_rules) < INVALID_SHOWN_MAX:
                    self.report.out_of_scope_rules.append((url, verdict.rule))
                continue
            candidate = self._router.candidate(url, depth=self._depth, seed=True, priority=self._priority)
            by_partition.setdefault(candidate.partition, []).append(candidate)
        await self._send(by_partition)

    async def _send(self, by_partition: dict[int, list[Candidate]]) -> None:
        replies = await self._frontier.add(by_partition)
        for reply in replies.values():
            if isinstance(reply, EngineError):
                raise reply
            new = sum(outcome is AddOutcome.NEW for outcome in reply.outcomes)
            self.report.new += new
            self.report.seen += len(reply.outcomes) - new
