"""Ends of runs, as steps of the frontier's state machine."""

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.frontier.machine import RUNS, FrontierSteps, partitions


class RunSteps(FrontierSteps):
    """Whoever closes a run does so at any time, one call after another, and again."""

    @rule(partition=partitions, run=st.sampled_from(RUNS), is_wanted=st.sampled_from((True, False, False)))
    def close_run(self, partition: int, run: str, *, is_wanted: bool) -> None:
        model = self._models[partition]
        if is_wanted or run in model.closed:
            self._do(self._engine.run("close_run", (self._keys.meta(partition),), run))
            model.closed.add(run)
