"""Deferred URLs far beyond the engine's memory: they are in files, and come back when released."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crawl.overflow_lab import FRONTIER_BYTES, LINKS, LISTS, OverflowLab, overflow_lab
from tests.faults.instance_lab import EngineView, wait_until
from tests.support.engine import Engine

pytestmark = [pytest.mark.processes, pytest.mark.slow(seconds=70)]

TENFOLD = 10
KILLED = -9
TAKEN_IN = 60  # URLs of the domain: the home page, those with the links, some of what they lead to
ALL = 1 + LISTS + LISTS * LINKS


@pytest.fixture
def lab(tmp_path: Path, engine: Engine) -> Iterator[OverflowLab]:
    with overflow_lab(tmp_path, engine) as opened:
        yield opened


def deferred_on_disk(view: EngineView) -> tuple[int, int]:
    deferred, released, spilled = view.totals("deferrals", "released", "spilled_deferred")
    return deferred - released, spilled


def test_deferred_urls_beyond_memory_come_back_with_a_larger_budget(
    lab: OverflowLab,
) -> None:
    """One owner dies with a file unknown to the engine, one after telling it, one while a budget releases URLs."""
    idle = lab.idle_bytes()
    budget = idle + FRONTIER_BYTES // TENFOLD
    small = {"CRAWLER_BUDGET_URLS": str(TAKEN_IN), "CRAWLER_POLITENESS_DELAY_S": "0.1"}
    first = lab.start(budget, SHARDCRAWL_CRASH_POINT="spill.written=kill", **small)
    first.wait_for("waits for work")
    lab.seed()
    assert first.wait() == KILLED
    assert lab.start(budget, SHARDCRAWL_CRASH_POINT="spill.told=kill", **small).wait() == KILLED
    third = lab.start(budget, **small)
    with lab.view() as view:
        assert not view.is_done()
        wait_until(view.is_done, "the end of what the budget takes in")
        deferred, on_disk = deferred_on_disk(view)
        assert deferred == ALL - TAKEN_IN
        assert on_disk > 0.8 * deferred
        wait_until(lambda: lab.used_bytes() < budget, "room in the engine", timeout_s=5)
        third.kill()
        fourth = lab.start(budget, CRAWLER_BUDGET_URLS="3000")
        before = view.totals("done")[0]
        wait_until(lambda: view.totals("done")[0] > before + 500, "work on what a larger budget takes in")
        assert deferred_on_disk(view)[0] == ALL - 3000
        fourth.kill()
        used: list[int] = []
        last = lab.start(budget, CRAWLER_BUDGET_URLS="0")
        wait_until(lambda: used.append(lab.used_bytes()) or view.is_done(), "the end", every_s=0.2)
        assert view.totals("spilled", "spilled_deferred") == [0, 0]
    assert max(used) < idle + 2 * FRONTIER_BYTES // TENFOLD
    last.terminate()
    last.wait()
    assert lab.statuses() == lab.expected()
