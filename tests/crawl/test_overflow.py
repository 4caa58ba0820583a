"""A frontier far larger than its memory: the rest is in files, also when instances die."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crawl.overflow_lab import FRONTIER_BYTES, OverflowLab, overflow_lab
from tests.faults.instance_lab import EngineView, wait_until
from tests.support.engine import Engine

pytestmark = pytest.mark.processes

TENFOLD = 10
KILLED = -9
SLOWLY = {"CRAWLER_POLITENESS_DELAY_S": "0.002"}  # or a quick machine is done with all of it before the last one dies


@pytest.fixture
def lab(tmp_path: Path, engine: Engine) -> Iterator[OverflowLab]:
    with overflow_lab(tmp_path, engine) as opened:
        yield opened


def spilled_share(view: EngineView) -> float:
    """Of all pending URLs."""
    added, done, spilled = view.totals("added", "done", "spilled")
    return spilled / max(1, added - done)


@pytest.mark.slow
def test_a_frontier_ten_times_its_memory_is_crawled_despite_crashes(lab: OverflowLab) -> None:
    """Owners die with a file unknown to the engine, after telling it, after bringing blocks back, and at random."""
    idle = lab.idle_bytes()
    budget = idle + FRONTIER_BYTES // TENFOLD
    first = lab.start(budget, **SLOWLY, SHARDCRAWL_CRASH_POINT="spill.written=kill")
    first.wait_for("waits for work")
    lab.seed()
    assert first.wait() == KILLED
    assert lab.start(budget, **SLOWLY, SHARDCRAWL_CRASH_POINT="spill.told=kill").wait() == KILLED
    third = lab.start(budget, **SLOWLY, SHARDCRAWL_CRASH_POINT="unspill.answered#4=kill")
    with lab.view() as view:
        wait_until(lambda: spilled_share(view) > 0.8, "the frontier to lie on disk")
        wait_until(lambda: lab.used_bytes() < budget, "room in the engine", timeout_s=5)
        assert third.wait() == KILLED
        fourth = lab.start(budget, **SLOWLY)
        before = view.totals("done")[0]
        wait_until(lambda: view.totals("done")[0] > before + 500, "work of its own")
        fourth.kill()
        assert spilled_share(view) > 0
        used: list[int] = []
        last = lab.start(budget)
        wait_until(lambda: used.append(lab.used_bytes()) or view.is_done(), "the end", every_s=0.2)
        assert view.totals("spilled") == [0]
    assert max(used) < idle + 2 * FRONTIER_BYTES // TENFOLD  # the queue, claims, and commits to be indexed
    last.terminate()
    last.wait()
    assert lab.statuses() == lab.expected()


@pytest.mark.slow
def test_without_a_folder_it_goes_slowly_within_the_budget_and_loses_nothing(lab: OverflowLab) -> None:
    """Pages with new links wait; those without are acked, until there is room again."""
    budget = lab.idle_bytes() + FRONTIER_BYTES // 3
    first = lab.start(budget, spill=False)
    first.wait_for("waits for work")
    lab.seed()
    with lab.view() as view:
        first.wait_for(r"/s, .*; slowed by lack of room in the engine's memory")
        wait_until(lambda: lab.used_bytes() < budget, "room in the engine")
        wait_until(view.is_done, "the end")
        assert view.totals("spilled") == [0]
    lab.started[-1].terminate()
    lab.started[-1].wait()
    assert lab.statuses() == lab.expected()
