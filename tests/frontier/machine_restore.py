"""What a rebuild does, as steps of the frontier's state machine: URLs with commits on disk become seen and done."""

from collections import defaultdict

from hypothesis import strategies as st
from hypothesis.stateful import rule

from crawler.frontier.pending import Found
from crawler.frontier.restore import DoneUrl, Restoring
from crawler.frontier.spilling import ID_LENGTH, Spilling, Stub
from crawler.frontier.states import PENDING, State
from crawler.model import COUNTED_AS, Candidate
from tests.frontier.door import HASH_KEY
from tests.frontier.machine import Disk, FrontierSteps, candidates, partitions, some
from tests.frontier.model_urls import DEFAULT_DELAY_MS

statuses = st.sampled_from((200, 301))


def done_url(c: Candidate, status: int) -> DoneUrl:
    return DoneUrl(
        fingerprint=c.fingerprint, partition=c.partition, domain=c.domain, queue=c.queue,
        status=COUNTED_AS.get(c.label, status),
        body_bytes=100, fetch_ms=7, run=c.run,
    )  # fmt: skip


class RestoreSteps(FrontierSteps):
    """The product does this only when no session works; the scripts allow it at any time."""

    @rule(data=st.data(), partition=partitions, index=some, status=statuses)
    def restore(self, data: st.DataObject, partition: int, index: int, status: int) -> None:
        """Any URLs, and one whose commit the log still has."""
        model, found = self._models[partition], data.draw(candidates(partition, 3))
        if logged := sorted(model.log):
            found.append(model.urls[logged[index % len(logged)].partition(":")[0]].candidate)
        was_logged = any(f"{c.fingerprint}:1" in model.log for c in found)
        unknown = self._do(self._restoring().restore([done_url(c, status) for c in found]))
        assert unknown == model.restore(found, status=status, body_bytes=100, fetch_ms=7)
        self._untouched = not unknown and not was_logged

    @rule(partition=partitions, index=some, status=statuses)
    def withdraw(self, partition: int, index: int, status: int) -> None:
        """A URL wherever it is pending, and again; not the last of a block, which would stay in its index, empty."""
        model = self._models[partition]
        pending = defaultdict[tuple[State, bool], list[str]](list)  # so that each kind of place is as likely
        for fp in sorted(model.in_state(*PENDING)):
            pending[model.urls[fp].state, model.urls[fp].candidate.run != ""].append(fp)
        if not pending:
            return
        kinds = sorted(pending)
        pool = pending[kinds[index % len(kinds)]]
        fingerprint = pool[index // len(kinds) % len(pool)]
        found, url = self._do(self._place(partition, fingerprint)), model.urls[fingerprint]
        if found is None:
            assert url.state is State.QUEUED
            assert model.queue(url.candidate.queue).defers(url.candidate.user), (
                "only queues that are stopped are not read"
            )
            return
        if stub := Stub.of(found.block):
            back = (partition, found.row, stub, self._disk[stub.place[0]])
            self._do(Spilling(self._engine, self._keys, default_delay_ms=DEFAULT_DELAY_MS).unspill([back]))
        block = f"b:{found.row}:{found.block[:ID_LENGTH]}"
        if len(self._raw_of(self._dump(), partition).zset(block)) == 1:
            return
        done = done_url(url.candidate, status)
        assert [self._do(self._restoring().withdraw([(found, done)])) for _ in range(2)] == [1, 0]
        model.withdraw(fingerprint, status=status, body_bytes=100, fetch_ms=7)

    def _restoring(self) -> Restoring:
        return Restoring(self._engine, self._keys, hash_key=HASH_KEY, files=Disk(self._disk))

    async def _place(self, partition: int, fingerprint: str) -> Found | None:
        pending = [pair async for some in self._restoring().all_pending(partition) for pair in some]
        return next((found for fp, found in pending if fp == fingerprint), None)
