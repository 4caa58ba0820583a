"""The bench of crawls that wait, and what it has to find: real processes beside a real engine."""

import sys

import pytest

from scripts.bench_lib.waiting import Case, Figures, line_of, links_of, measured

FIGURES = Figures(cpu=0.4, engine_cpu=0.21, wakeups=4.04, commands=11.2, pages=0.0)
# case, pages/s -> the last columns
LINES = (
    (Case(name="at rest"), 0.0, "| 0.0 |  |"),
    (Case(name="page a second", pages=9), 1.0, "| 1.0 | 4.00 |"),
    (Case(name="page a second", pages=9), 0.0, "| 0.0 | 0.00 |"),  # none came: no division by it
)


@pytest.mark.parametrize(("case", "pages", "end"), LINES)
def test_a_line_has_the_figures_of_a_case(case: Case, pages: float, end: str) -> None:
    found = Figures(**{name: getattr(FIGURES, name) for name in FIGURES.__dataclass_fields__} | {"pages": pages})
    line = line_of(case, found)
    assert line.startswith(f"| {case.name} | 1,024 | 1 | 0.40 | 4.0 | 0.21 | 11 |")
    assert line.endswith(end)


def test_a_page_leads_to_all_others_of_its_domain() -> None:
    assert links_of(3, 3).count("<a href=") == 2


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.slow(seconds=60)
def test_an_instance_whose_queues_wait_wakes_seldom_and_asks_little() -> None:
    """Before, 40 wake-ups and 2,200 commands a second. Load adds no tick, but may split what is done at one."""
    found = measured(Case(name="delays", domains=64), 10)
    assert found.commands < 600
    assert found.wakeups < 25
