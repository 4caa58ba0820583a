"""A job of every two seconds on three instances that are killed, stopped and restarted at random, as is their engine.

JOBS_FLEET_S=600 makes it ten minutes; JOBS_FLEET_SEED repeats one.
"""

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.engine_lab import DurableEngine, durable_engine
from tests.jobs.process_lab import Lab, assert_no_gap_and_no_double, job_lab

SECONDS = float(os.environ.get("JOBS_FLEET_S", "40"))
SEED = os.environ.get("JOBS_FLEET_SEED", "")
EVERY_S = 2
PAUSE_S = (1.0, 4.0)  # between two faults
INSTANCES = 3
ENGINE_SHARE = 0.1  # of the faults
STOP_S = (0.5, 12.0)  # also longer than a takeover takes

pytestmark = [pytest.mark.processes, pytest.mark.slow(seconds=60), pytest.mark.timeout(180 + 3 * SECONDS)]


def harm(lab: Lab, engine: DurableEngine, dice: random.Random) -> str:
    """One fault: the engine is killed, or an instance is killed, stopped or ended. Which one, to whom."""
    if dice.random() < ENGINE_SHARE:
        engine.kill()
        time.sleep(dice.uniform(0.0, 3.0))
        engine.start()
        return "engine"
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
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = SEED or str(random.randrange(10**6))
    dice, faults = random.Random(seed), list[str]()
    with durable_engine() as engine, job_lab(tmp_path, engine, capsys, hosts=2, pages=3) as lab:  # type: ignore[arg-type]
        lab.add("often", "--every", str(EVERY_S))
        for n in range(INSTANCES):
            lab.keep(n)
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            time.sleep(dice.uniform(*PAUSE_S))
            faults.append(harm(lab, engine, dice))
        lab.jobs("pause", "often")
        lab.until(lambda: not lab.jobs("show", "often")["running"], "the runs to end", timeout_s=90)
        lab.jobs("resume", "often")
        lab.until(lambda: lab.history("often")[-1]["state"] != "paused", "a run after the pause")
        lab.jobs("pause", "often")
        lab.until(lambda: not lab.jobs("show", "often")["running"], "the last run to end")
        lab.until(lambda: not lab.left(), "all runs to be closed")
        rows = lab.history("often")
        finished = [row for row in rows if row["state"] == "started"]
        states: Counter[str] = Counter()
        for row in rows:
            states[row["state"]] += row.get("count", 1)
        engine_kills = faults.count("engine")
        with capsys.disabled():
            print(f"\nseed {seed}: {len(faults)} faults, {engine_kills} of the engine; times by state: {dict(states)}")
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
