"""kill -9 of the instance that triggers, before and after each engine call that it makes for a run: one run."""

import signal
import time
from pathlib import Path

import pytest

from tests.jobs.process_lab import Lab, job_lab
from tests.support.engine import Engine
from tests.support.processes import ROOT

pytestmark = pytest.mark.processes

KILLER = Path(__file__).with_name("kill_steps")
# In the order in which a run comes by them.
STEPS = (
    "find:HVALS",
    "find:SMEMBERS",
    "_ask:TIME",
    "_read_dues:ZRANGE",
    "look:ZRANGEBYSCORE",
    "look:HGET",
    "_decide:change_job",
    "_add:touch_run",
    "_add:add",
    "_read_again:HMGET",
    "look:SMEMBERS",
    "look:read_queues",
    "_end:HGET",
    "_end:change_job",
    "_close_runs:SMEMBERS",
    "_close_runs:close_run",
    "_close_runs:DEL",
)


MANY_SEEDS = ("_seeds:LINDEX",)  # which the engine keeps beside the job
PAGES = 12  # of each host, so that all of them are many


def killed(step: str, end: str) -> dict[str, str]:
    return {"PYTHONPATH": f"{KILLER}:{ROOT}", "JOB_STEP": step, "JOB_STEP_END": end}


def assert_one_complete_run(lab: Lab) -> None:
    lab.until(lambda: any(row.get("outcome") == "finished" for row in lab.history("once")), "the run to finish")
    lab.until(lambda: not lab.left(), "the run to be closed")
    (row,) = lab.history("once")
    assert (row["state"], row["outcome"], row["attempts"]) == ("started", "finished", 1)
    assert row["pages"] == sum(lab.expected.values())
    assert lab.exported(row["run"]) == {row["run"]: lab.expected}
    lab.audit()


@pytest.mark.slow
@pytest.mark.parametrize("end", ["before", "after"])
@pytest.mark.parametrize("step", [*STEPS, *MANY_SEEDS])
def test_an_instance_killed_at_a_step_leaves_one_complete_run(
    tmp_path: Path, engine: Engine, capsys: pytest.CaptureFixture[str], step: str, end: str
) -> None:
    with job_lab(tmp_path, engine, capsys, pages=PAGES if step in MANY_SEEDS else 4) as lab:
        lab.add_soon("once", seeds=list(lab.expected) if step in MANY_SEEDS else ())
        first = lab.instance(0, **killed(step, end))
        assert first.wait() == -signal.SIGKILL, first.err
        lab.keep(0 if end == "before" else 1)  # itself again, or another one takes over
        assert_one_complete_run(lab)
        lab.stop()


@pytest.mark.slow(ci=True)
def test_a_run_comes_by_these_steps_alone(tmp_path: Path, engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    """So that the list above is complete."""
    notes = tmp_path / "steps"
    with job_lab(tmp_path, engine, capsys) as lab:
        lab.add_soon("once")
        lab.instance(0, PYTHONPATH=f"{KILLER}:{ROOT}", JOB_STEPS=str(notes))
        assert_one_complete_run(lab)
        time.sleep(0.1)
    assert set(notes.read_text().split()) == set(STEPS)
