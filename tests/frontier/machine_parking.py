"""Claims that end parked, and what people release again, as steps of the frontier's state machine."""

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from crawler.frontier.parking import Parking
from crawler.model import AckOutcome
from tests.frontier.machine import HOSTS, deliveries, moments, partitions, sessions, some
from tests.frontier.machine_letters import LetterSteps
from tests.frontier.model import PartitionModel
from tests.frontier.model_urls import State
from tests.frontier.raw import RawPartition

REASON = "trap:path"
reasons = st.sampled_from((REASON, "depth:4", "depth:5"))


class ParkingSteps(LetterSteps):
    """Owners park what they have claimed; people release it, at any time and by anybody."""

    @precondition(lambda self: self._deliveries)
    @rule(index=some, off=moments, which=deliveries)
    def park(self, index: int, off: int, which: str) -> None:
        model, claim, fence, counts = self._pick(index, off, which)
        frontier = self._frontiers[fence.session]
        (outcome,) = self._do(frontier.end([frontier.park(fence, claim, REASON)]))
        if self._untouched:
            assert outcome is AckOutcome.FENCED
        elif not counts:
            assert outcome is AckOutcome.GONE
        else:
            is_parked = model.park(claim.fingerprint, reason=REASON)
            assert outcome is (AckOutcome.COMMITTED if is_parked else AckOutcome.RELEASED)

    @rule(partition=partitions, host=st.integers(0, 2), session=sessions, reason=reasons, n=st.integers(1, 3))
    def people_release(self, partition: int, host: int, session: str, reason: str, n: int) -> None:
        name, parking = HOSTS[host][0], Parking(self._frontiers[session], len(self._models))
        released = self._do(parking.release(partition, name, reason, n))
        assert released == self._models[partition].release_parked(name, reason=reason, n=n)

    def _check_states(self, model: PartitionModel, raw: RawPartition) -> None:
        """Also: what is parked lies in its row as it would in its queue, and is counted there."""
        super()._check_states(model, raw)
        rows = {
            f: (f"{model.urls[f].candidate.queue}|{model.urls[f].parked}", model.urls[f].score)
            for f in model.in_state(State.PARKED)
        }
        assert raw.parked() == rows
        parks = Counter(name for name, _ in rows.values())
        parks += Counter(
            {
                f"{name}|{queue.stop}": len(model.of_queue(name, State.QUEUED))
                for name, queue in model.queues.items()
                if queue.is_parked
            }
        )
        assert {name: int(n) for name, n in raw.hash("parks").items()} == parks
