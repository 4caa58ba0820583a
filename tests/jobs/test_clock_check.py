"""An instance compares its wall clock with the engine's, and knows at once when its own was set."""

from typing import Any, cast

import pytest

from crawler.engine.client import Engine
from crawler.errors import EngineDown
from crawler.jobs import clock_check
from crawler.jobs.clock_check import ClockCheck


class Clocks:
    """All clocks of a test, s; and the engine that is asked for its own."""

    def __init__(self) -> None:
        self.engine, self.wall, self.monotonic, self.answers_after = 1000.0, 1000.0, 50.0, 0.0
        self.is_down = False

    def passes(self, seconds: float) -> None:
        self.engine += seconds
        self.wall += seconds
        self.monotonic += seconds

    async def command(self, *_: Any) -> list[bytes]:
        if self.is_down:
            raise EngineDown("no answer")
        self.passes(self.answers_after)
        return [b"%d" % int(self.engine), b"%d" % round(self.engine % 1 * 1e6)]


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    found = Clocks()
    monkeypatch.setattr(clock_check, "wall_s", lambda: found.wall)
    monkeypatch.setattr(clock_check, "monotonic_ms", lambda: int(found.monotonic * 1000))
    return found


@pytest.fixture
def check(clocks: Clocks) -> ClockCheck:
    return ClockCheck(cast("Engine", clocks), 5.0)


async def test_a_clock_is_right_once_it_was_compared(clocks: Clocks, check: ClockCheck) -> None:
    assert not check.is_right
    clocks.wall += 4
    await check.measure()
    assert check.is_right
    assert check.offset_s == pytest.approx(-4, abs=0.01)


@pytest.mark.parametrize("step_s", [-3600, 3600])
async def test_a_clock_that_is_set_is_wrong_at_once(step_s: float, clocks: Clocks, check: ClockCheck) -> None:
    await check.measure()
    clocks.passes(0.5)
    clocks.wall += step_s
    assert not check.is_right
    clocks.wall -= step_s
    assert check.is_right


async def test_an_engine_whose_clock_was_set_is_noticed_by_the_next_look(clocks: Clocks, check: ClockCheck) -> None:
    await check.measure()
    clocks.engine -= 3600
    await check.measure()
    assert not check.is_right


async def test_without_an_answer_the_last_comparison_holds(clocks: Clocks, check: ClockCheck) -> None:
    await check.measure()
    clocks.passes(100)
    clocks.is_down = True
    await check.measure()
    assert check.is_right


async def test_an_answer_that_took_too_long_tells_nothing(clocks: Clocks, check: ClockCheck) -> None:
    clocks.answers_after = 6
    await check.measure()
    assert not check.is_right
