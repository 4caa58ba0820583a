"""What a session writes of itself with each heartbeat."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from crawler.crawl.runs import JobRunner
from crawler.frontier.members import Awaited
from crawler.hosts.robots_reader import RobotsReader
from crawler.instance.retelling import Retelling
from crawler.instance.vitals import Vitals
from crawler.membership.heartbeat import SessionLiveness
from crawler.membership.ownership import Ownership
from crawler.membership.peers import Peers
from crawler.runtime.clocks import monotonic_ms
from crawler.worker.fetch import FetchStage
from crawler.worker.waits import ProgressWatch, awaited
from crawler.worker.work import Work


@dataclass(slots=True, kw_only=True)
class Description:
    """What a session writes of itself with each heartbeat; names as in `Member`."""

    work: Work
    peers: Peers
    liveness: SessionLiveness
    ownership: Ownership
    fetching: FetchStage
    reader: RobotsReader
    vitals: Vitals
    jobs: JobRunner
    retelling: Retelling
    looks: Callable[[], int]
    _progress: ProgressWatch = field(init=False)

    def __post_init__(self) -> None:
        counters = self.work.counters
        self._progress = ProgressWatch(lambda: counters.done, self._awaited)

    def __call__(self) -> dict[str, Any]:
        return {
            "awaited": self._progress.look(monotonic_ms()),
            "partitions": len(self.work.held), "done": self.work.counters.done,
            "in_flight": len(self.fetching.in_turn), "ring": self.peers.digest,
            "engine": self.retelling.digest, "looks": self.looks(),
            "lease_losses": self.liveness.lease_losses, "taken_over": self.ownership.taken_over,
            "margin_s": self.fetching.margin.seconds, **self.vitals.description(),
            **self.work.counters.description(), **self.jobs.description(),
        }  # fmt: skip

    def _awaited(self, now_ms: int) -> Awaited | None:
        return awaited(
            requested=[claim.url for claim in self.work.requests.claims], robots=self.reader.under_way(),
            in_turn=[claim.url for claim in self.fetching.in_turn], slots=self.work.scheduler.slots(),
            due_ms=self.work.due.later(), now_ms=now_ms,
        )  # fmt: skip
