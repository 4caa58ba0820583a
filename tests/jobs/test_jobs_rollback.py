"""The engine falls back to a backup of some seconds ago, under a job of every two seconds: one run for each time.

What was forgotten is decided again, under the same names of runs: what ran may be skipped now, because the run before
it goes on again. What runs again is fetched again: its pages are in the archive twice, and exported once.
"""

import shutil
import time
from pathlib import Path

import pytest

from tests.faults.engine_lab import DurableEngine, durable_engine
from tests.jobs.process_lab import Json, Lab, assert_no_gap_and_no_double, job_lab

pytestmark = [pytest.mark.processes, pytest.mark.slow]

EVERY_S = 2
BETWEEN_S = 5.0  # of which all is forgotten


def set_back(engine: DurableEngine, lab: Lab, *, stops: bool = False) -> list[Json]:
    """Forget the last seconds; the rows of history that there were. `stops`: no instance runs when it comes back."""
    files, backup = engine.folder / "appendonlydir", engine.folder / "backup"
    time.sleep(1.5)  # the file has what the history has
    shutil.copytree(files, backup)
    time.sleep(BETWEEN_S)
    if stops:
        lab.stop()
        lab.kept.clear()
    rows = lab.history("often")
    engine.kill()
    shutil.rmtree(files)
    backup.rename(files)
    engine.start()
    return rows


def test_an_engine_that_falls_back_has_one_run_for_each_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with durable_engine() as engine, job_lab(tmp_path, engine, capsys, hosts=2, pages=3) as lab:  # type: ignore[arg-type]
        lab.add("often", "--every", str(EVERY_S))
        for n in range(2):
            lab.keep(n)
        lab.until(lambda: len(lab.history("often")) > 2, "some runs")
        before = set_back(engine, lab)
        assert len(lab.history("often")) < len(before), "nothing was forgotten: this test tests nothing"
        lab.until(lambda: len(lab.history("often")) > len(before) + 2, "runs after it")
        lab.jobs("pause", "often")
        lab.until(lambda: not lab.jobs("show", "often")["running"] and not lab.left(), "the runs to end")
        rows = [row for row in lab.history("often") if row["state"] != "paused"]
        assert_no_gap_and_no_double(rows, EVERY_S)
        runs = {row["run"]: row for row in rows if row["state"] == "started"}
        assert {row["outcome"] for row in runs.values()} == {"finished"}
        exported = lab.exported()
        for run in runs:
            assert exported[run] == lab.expected, run
        assert {n for pages in exported.values() for n in pages.values()} == {1}
        lab.stop()


def test_a_rebuild_after_an_older_backup_leaves_nothing_doubled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with durable_engine() as engine, job_lab(tmp_path, engine, capsys, hosts=2, pages=3) as lab:  # type: ignore[arg-type]
        lab.add("often", "--every", str(EVERY_S))
        lab.add("later", "--every", "1000")
        lab.keep(0)
        lab.until(lambda: len(lab.history("often")) > 2, "some runs")
        before = set_back(engine, lab, stops=True)
        known = lab.history("often")
        assert len(known) < len(before), "nothing was forgotten: this test tests nothing"
        pages = lab.exported()
        lab.until(lambda: lab.command("rebuild", "--dir", str(lab.folder))[0] == 0, "a rebuild")
        rows = {row.get("run"): row for row in lab.history("often")}
        forgotten = {row["run"] for row in before if row.get("run")} - {row.get("run") for row in known}
        assert forgotten
        for run in forgotten & pages.keys():
            assert (rows[run]["outcome"], rows[run]["pages"]) == ("unknown", pages[run].total())
        lab.keep(0)
        lab.until(lambda: len(lab.history("often")) > len(before) + 2, "runs after it")
        lab.jobs("pause", "often")
        lab.until(lambda: not lab.jobs("show", "often")["running"] and not lab.left(), "the runs to end")
        assert_no_gap_and_no_double([row for row in lab.history("often") if row["state"] != "paused"], EVERY_S)
        lab.stop()
        after = lab.exported()
        assert {run: after[run] for run in forgotten & pages.keys()} == {
            run: pages[run] for run in forgotten & pages.keys()
        }
        lab.audit()
