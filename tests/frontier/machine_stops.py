"""Steps in which queues are stopped, started, boosted and emptied, by anybody, at any time."""

from hypothesis import strategies as st
from hypothesis.stateful import rule

from crawler.frontier.deferred import BLOCKED, PAUSED, ChangeKind, DeferredUrls, QueueChange
from crawler.frontier.operator import Purge
from crawler.frontier.states import State
from tests.frontier.machine import HOSTS, PATHS, Disk, partitions, sessions
from tests.frontier.machine_dead_letters import LetterSteps

reasons = st.sampled_from((PAUSED, BLOCKED, "pages"))
hosts = st.integers(0, len(HOSTS) - 1)
paths = st.integers(0, PATHS - 1)


class StopSteps(LetterSteps):
    """An operator's hand."""

    @rule(partition=partitions, host=hosts, session=sessions, reason=reasons)
    def stop(self, partition: int, host: int, session: str, reason: str) -> None:
        self._change_queues(partition, host, session, QueueChange(HOSTS[host][0], ChangeKind.STOP, reason))
        self._models[partition].change_queues(HOSTS[host][0], reason)

    @rule(partition=partitions, host=hosts, session=sessions, is_right=st.sampled_from((True, True, False)))
    def start(self, partition: int, host: int, session: str, *, is_right: bool) -> None:
        """For the reason that it is stopped for, or for none that holds."""
        stop = self._models[partition].queue(HOSTS[host][0]).stop
        self._change_queues(
            partition,
            host,
            session,
            QueueChange(HOSTS[host][0], ChangeKind.START, stop if is_right and stop else "none"),
        )
        if is_right:
            self._models[partition].change_queues(HOSTS[host][0], "")

    @rule(partition=partitions, host=hosts, session=sessions, n=st.sampled_from((5, 2, 0, 0, -3)))
    def boost(self, partition: int, host: int, session: str, n: int) -> None:
        self._change_queues(partition, host, session, QueueChange(HOSTS[host][0], ChangeKind.BOOST, "", n))
        self._models[partition].queue(HOSTS[host][0]).boost = n

    def _change_queues(self, partition: int, host: int, session: str, order: QueueChange) -> None:
        model = self._models[partition]
        n = len(model.of_queue(HOSTS[host][0], State.QUEUED))
        (told,) = self._do(DeferredUrls(self._frontiers[session], len(self._models)).change_queues(partition, [order]))
        assert told == (0 if order.reason == "none" else n)

    @rule(partition=partitions, host=hosts, session=sessions)
    def purge(self, partition: int, host: int, session: str) -> None:
        frontier = self._frontiers[session]
        purge = Purge(frontier, DeferredUrls(frontier, len(self._models)), Disk(self._disk))
        dropped = self._do(purge.purge(partition, HOSTS[host][0]))
        assert dropped == self._models[partition].purge(HOSTS[host][0])

    @rule(partition=partitions, session=sessions, path=paths, is_dry=st.sampled_from((False, False, True)))
    def purge_matching(self, partition: int, session: str, path: int, *, is_dry: bool) -> None:
        """Of all queues, wherever in their blocks; in the middle of each walk nothing else happens."""
        frontier, model = self._frontiers[session], self._models[partition]
        purge = Purge(frontier, DeferredUrls(frontier, len(self._models)), Disk(self._disk))
        claimed = sum(model.urls[f].candidate.url.endswith(f"/{path}") for f in model.in_state(State.CLAIMED))
        found = self._do(purge.matching(partition, lambda url: url.url.endswith(f"/{path}"), is_dry=is_dry))
        waiting = 0 if is_dry else sum(model.purge(queue, lambda url: url.endswith(f"/{path}")) for queue, _ in HOSTS)
        if is_dry:
            kept = [*model.urls.values()]
            ends = {State.QUEUED, State.RETRYING, State.SCHEDULED, State.DEFERRED, State.ASIDE}
            wanted = [u for u in kept if u.state in ends and u.candidate.url.endswith(f"/{path}")]
            claimed += len(wanted)
        assert found == (waiting, claimed)
