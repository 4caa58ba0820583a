"""Less than a minute of `scripts/chaos`: real instances and a real engine are killed, stopped and cut off."""

import pytest

from tests.chaos.chaos import Plan, run

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300), pytest.mark.slow(seconds=60)]


def test_a_crawl_under_faults_loses_nothing_and_commits_nothing_twice() -> None:
    plan = Plan(
        seed="ci",
        seconds=30,
        pace_s=(0.3, 2.0),
        fault_s_max=12.0,
        domains=(10, 10),
        pages=(20, 20),
        delay_s=(0.15, 0.15),
    )
    found = run(plan)
    assert found.violations == []
    assert found.pages > 500
    assert found.items > 400
    assert found.faults.total() >= 5, found.faults
