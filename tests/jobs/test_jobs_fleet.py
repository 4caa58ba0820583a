"""A job of every two seconds on three instances that are killed, stopped and restarted at random.

JOBS_FLEET_S=600 makes it ten minutes; JOBS_FLEET_SEED repeats one.
"""

import os
import random
import time
from pathlib import Path

import pytest

from tests.jobs.process_lab import Lab, assert_no_gap_and_no_double, job_lab
from tests.support.engine import Engine

SECONDS = float(os.environ.get("JOBS_FLEET_S", "40"))
SEED = os.environ.get("JOBS_FLEET_SEED", "")
EVERY_S = 2
PAUSE_S = (1.0, 4.0)  # between two faults
INSTANCES = 3
STOP_S = (0.5, 12.0)  # also longer than a takeover takes

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(180 + 3 * SECONDS)]


def harm(lab: Lab, dice: random.Random) -> str:
    """One fault: an instance is killed, stopped for a while, or ended and started again. Which one, to whom."""
    n = dice.randrange(INSTANCES)
    program = lab.kept.pop(n)
    kind = dice.choice(("kill", "stop", "end"))
    if kind == "kill":
        program.kill()
        time.sleep(dice.uniform(0.0, 3.0))
    elif kind == "stop":
        program.pause()
        time.sleep(dice.uniform(*STOP_S))
        program.resume()
        lab.kept[n] = program
        return f"{kind} {n}"
    else:
        program.terminate()
        program.wait(90)
    lab.keep(n)
    return f"{kind} {n}"


def test_a_job_of_every_two_seconds_has_a_whole_history_whatever_is_killed(
    tmp_path: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = SEED or str(random.randrange(10**6))
    dice, faults = random.Random(seed), list[str]()
    with job_lab(tmp_path, engine, capsys, hosts=2, pages=3) as lab:
        lab.add("often", "--every", str(EVERY_S))
        for n in range(INSTANCES):
            lab.keep(n)
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            time.sleep(dice.uniform(*PAUSE_S))
            faults.append(harm(lab, dice))
        lab.jobs("pause", "often")
        lab.until(lambda: not lab.jobs("show", "often")["running"], "the runs to end", timeout_s=90)
        lab.jobs("resume", "often")
        lab.until(lambda: lab.history("often")[-1]["state"] != "paused", "a run after the pause")
        lab.jobs("pause", "often")
        lab.until(lambda: not lab.jobs("show", "often")["running"], "the last run to end")
        lab.until(lambda: not lab.left(), "all runs to be closed")
        rows = lab.history("often")
        finished = [row for row in rows if row["state"] == "started"]
        with capsys.disabled():
            states = {state: sum(row.get("count", 1) for row in rows if row["state"] == state) for state in
                      sorted({row["state"] for row in rows})}  # fmt: skip
            print(f"\nseed {seed}: {len(faults)} faults, {len(finished)} runs, nominal times by state: {states}")
        assert_no_gap_and_no_double(rows, EVERY_S)
        assert {row["outcome"] for row in finished} == {"finished"}
        assert len({row["run"] for row in finished}) == len(finished)
        exported = lab.exported()
        assert set(exported) == {row["run"] for row in finished}
        for row in finished:
            assert exported[row["run"]] == lab.expected, row
            assert row["pages"] == sum(lab.expected.values()), row
        lab.audit()
        lab.stop()
