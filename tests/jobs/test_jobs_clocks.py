"""The clock of an instance, or of the engine, is set by an hour: nothing is triggered until both agree again."""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.engine_lab import durable_engine
from tests.jobs.process_lab import Json, Lab, assert_no_gap_and_no_double, job_lab, nominal_of

pytestmark = pytest.mark.processes

LIBRARIES = [*Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), *Path("/usr/lib").glob("faketime/libfaketimeMT*")]
HOUR_S = 3600
EVERY_S = 2
QUIET_S = 5.0  # in which two times come


@contextlib.contextmanager
def lab_with_clock(folder: Path, capsys: pytest.CaptureFixture[str], whose: str) -> Iterator[tuple[Lab, Path]]:
    """A lab with an instance; what is written into the file moves the clock of one of them."""
    clock = folder / "clock"
    clock.write_text("+0\n")
    fake = {
        "LD_PRELOAD": str(LIBRARIES[0]),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    is_ours = whose == "instance"
    with (
        durable_engine(environment={} if is_ours else fake) as engine,
        job_lab(folder, engine, capsys, hosts=2, pages=2) as lab,  # type: ignore[arg-type]
    ):
        lab.add("often", "--every", str(EVERY_S))
        lab.keep(0, **(fake if is_ours else {}))
        yield lab, clock


def runs(lab: Lab) -> list[Json]:
    return [row for row in lab.history("often") if row["state"] == "started"]


def times_until(lab: Lab) -> float:
    """The last nominal time that was decided."""
    return max((nominal_of({"nominal": row.get("to") or row["nominal"]}) for row in lab.history("often")), default=0)


@pytest.mark.slow
@pytest.mark.skipif(not LIBRARIES, reason="libfaketime is not installed (Debian: faketime)")
@pytest.mark.parametrize("whose", ["instance", "engine"])
def test_clocks_that_disagree_trigger_nothing_and_each_time_has_one_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], whose: str
) -> None:
    began = time.time()
    with lab_with_clock(tmp_path, capsys, whose) as (lab, clock):
        lab.until(lambda: len(runs(lab)) >= 2, "two runs")
        for step in (HOUR_S, -HOUR_S):
            clock.write_text(f"{step:+d}\n")
            lab.until(lambda: "triggers no jobs" in lab.command("stats")[1], "the wrong clock to be told", timeout_s=20)
            decided, known = times_until(lab), len(runs(lab))
            time.sleep(QUIET_S)
            assert times_until(lab) == decided, "a time was decided by a wrong clock"
            which = ("ahead of" if step > 0 else "behind") if whose == "instance" else (
                "behind" if step > 0 else "ahead of")  # fmt: skip
            assert f"its clock is 1 h 00 m {which} the engine's" in lab.command("stats")[1]
            clock.write_text("+0\n")
            lab.until(lambda known=known: len(runs(lab)) >= known + 2, "runs with a right clock")  # type: ignore[misc]
        lab.until(lambda: "triggers no jobs" not in lab.command("stats")[1], "the right clock to be told")
        lab.jobs("pause", "often")
        lab.until(lambda: not lab.jobs("show", "often")["running"] and not lab.left(), "the runs to end")
        rows = [row for row in lab.history("often") if row["state"] != "paused"]
        assert_no_gap_and_no_double(rows, EVERY_S)
        assert all(began < nominal_of(row) <= time.time() for row in rows if "nominal" in row)
        for row in runs(lab):
            assert (row["outcome"], lab.exported()[row["run"]]) == ("finished", lab.expected)
        lab.audit()
        lab.stop()
    log = (tmp_path / "c" / "log" / "node-0.log").read_text().splitlines()
    events = [json.loads(line)["event"] for line in log]
    assert [event for event in events if event.startswith("jobs.clock")] == ["jobs.clock_wrong", "jobs.clock_right"] * 2
