"""Claims that end deferred, and what people release again, as steps of the frontier's state machine."""

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from msgspec.structs import replace

from crawler.frontier.deferred import BLOCKED, CRAWL_URLS, DeferredUrls
from crawler.frontier.deferred import HOSTS as HOSTS_REASON
from crawler.frontier.messages import AddBudget, FetchBudget
from crawler.frontier.spilling import is_row
from crawler.frontier.states import State
from crawler.instance.raised_budgets import RaisedBudgets
from crawler.model import AckOutcome
from tests.frontier.machine import (
    HOSTS,
    INTAKE,
    PATHS,
    TRAP,
    Disk,
    candidate,
    deliveries,
    moments,
    partitions,
    sessions,
    some,
)
from tests.frontier.machine_dead_letters import LetterSteps
from tests.frontier.model import PartitionModel
from tests.frontier.model_urls import HOSTS_MAX
from tests.frontier.raw import RawPartition

paths = st.integers(0, PATHS)
reasons = st.sampled_from((TRAP, "depth:4", "depth:5", "hosts", CRAWL_URLS))


class ParkingSteps(LetterSteps):
    """Owners park what they have claimed; people release it, at any time and by anybody."""

    @precondition(lambda self: self._deliveries)
    @rule(index=some, off=moments, which=deliveries)
    def defer(self, index: int, off: int, which: str) -> None:
        model, claim, fence, counts = self._pick(index, off, which)
        frontier = self._frontiers[fence.session]
        (outcome,) = self._do(frontier.end([frontier.defer(fence, claim, TRAP)]))
        if self._untouched:
            assert outcome is AckOutcome.FENCED
        elif not counts:
            assert outcome is AckOutcome.GONE
        else:
            is_deferred = model.defer(claim.fingerprint, reason=TRAP)
            assert outcome is (AckOutcome.COMMITTED if is_deferred else AckOutcome.RELEASED)

    @rule(partition=partitions, host=st.integers(0, 2), session=sessions, reason=reasons, n=st.sampled_from((1, 3, 8)))
    def people_release(self, partition: int, host: int, session: str, reason: str, n: int) -> None:
        self._release(partition, HOSTS[host][0], session, reason, n)

    @precondition(lambda self: any(is_row(name) for _, name in self._spilled))
    @rule(index=some, session=sessions, n=st.sampled_from((1, 3, 8)))
    def people_release_what_was_in_files(self, index: int, session: str, n: int) -> None:
        rows = sorted((p, name) for p, name in self._spilled if is_row(name))
        partition, row = rows[index % len(rows)]
        self._release(partition, row.partition("|")[0], session, TRAP, n)

    def _release(self, partition: int, name: str, session: str, reason: str, n: int) -> None:
        model = self._models[partition]
        deferred_urls = DeferredUrls(self._frontiers[session], len(self._models), Disk(self._disk))
        before = set(self._raw_of(self._dump(), partition).deferred())
        released = self._do(deferred_urls.release(partition, name, reason, n))
        gone = before - set(self._raw_of(self._dump(), partition).deferred())
        deferred = model.deferred_for(name, reason)
        if (partition, f"{name}|{reason}") in self._spilled:
            self._spilled.add((partition, name))  # its blocks may have come as they were
            assert gone <= {*deferred}
            assert len(gone) == min(n, len(deferred))
        else:
            assert gone == {*deferred[:n]}, "the best ones"
        assert released == model.release_deferred(name, gone, reason=reason)

    @rule(partition=partitions, host=st.integers(0, 2), session=sessions, first=paths, n=st.integers(1, 9))
    def add_what_is_deferred_at_once(self, partition: int, host: int, session: str, first: int, n: int) -> None:
        found = self._of_users([replace(candidate(partition, host, first + i, 1), deferred=TRAP) for i in range(n)])
        reply = self._do(self._frontiers[session].add({partition: found}))[partition]
        assert "".join(str(int(o)) for o in reply.outcomes) == self._models[partition].add(found)
        assert reply.woken == 0

    @rule(partition=partitions, session=sessions, most=st.integers(HOSTS_MAX, HOSTS_MAX + 3))
    def hosts_are_raised(self, partition: int, session: str, most: int) -> None:
        frontier, model = self._frontiers[session], self._models[partition]
        deferred_urls = DeferredUrls(frontier, len(self._models))
        frontier.add_budget = AddBudget(hosts=most)
        free = [p for p in self._do(deferred_urls.of_partition(partition)) if model.queue(p.queue).stop != BLOCKED]
        rows = {p.queue: p for p in free if p.reason == HOSTS_REASON}
        admitted = self._do(RaisedBudgets(frontier, deferred_urls, FetchBudget())._release_by_hosts(partition, rows))
        frontier.add_budget = INTAKE
        assert admitted == model.raise_hosts(most)

    def _check_states(self, model: PartitionModel, raw: RawPartition) -> None:
        """Also: what is deferred lies in its row as it would in its queue, and is counted there."""
        super()._check_states(model, raw)
        rows = {
            f: (f"{model.urls[f].candidate.queue}|{model.urls[f].deferred}", model.urls[f].score)
            for f in model.in_state(State.DEFERRED)
        }
        assert raw.deferred() == rows
        by_row = Counter(name for name, _ in rows.values())
        assert {name: raw.record(name)["n"] for name in raw.under("w:") if is_row(name)} == by_row
        by_row += Counter(
            {
                f"{name}|{queue.stop}": model._deferred(name)
                for name, queue in model.queues.items()
                if model._deferred(name)
            }
        )
        stored = {name: int(n) for name, n in raw.hash("deferred").items()}
        assert stored == by_row, f"{stored} in the engine, {dict(by_row)} in the model"
