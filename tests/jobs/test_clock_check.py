"""The comparison of clocks: once a second with the engine's, and at once when our own steps."""

from typing import Any

import pytest

from crawler.errors import ConflictError, EngineDown
from crawler.jobs import clock_check
from crawler.jobs.clock_check import OFFSET_MAX_S, ClockCheck

T0 = 1_800_000_000.0


class Clocks:
    """Ours, the monotonic one and the engine's; an engine that tells its time, or does not answer."""

    def __init__(self) -> None:
        self.wall_s = self.engine_s = T0
        self.monotonic_s = 50.0
        self.answers = True
        self.wait_s = 0.0  # until it answers

    def pass_s(self, seconds: float) -> None:
        self.wall_s += seconds
        self.engine_s += seconds
        self.monotonic_s += seconds

    async def command(self, *words: Any) -> tuple[int, int]:
        assert words == ("TIME",)
        if not self.answers:
            raise EngineDown("no answer")
        self.pass_s(self.wait_s)
        return int(self.engine_s), round(self.engine_s % 1 * 1e6)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    clocks = Clocks()
    monkeypatch.setattr(clock_check, "wall_s", lambda: clocks.wall_s)
    monkeypatch.setattr(clock_check, "monotonic_ms", lambda: int(clocks.monotonic_s * 1000))
    return clocks


async def test_nothing_is_triggered_before_the_first_comparison(clocks: Clocks) -> None:
    check = ClockCheck(clocks)  # type: ignore[arg-type]
    assert (check.is_right, check.offset_s, check.engine_s()) == (False, 0.0, T0)
    clocks.answers = False
    await check.measure()
    assert not check.is_right
    clocks.answers = True
    await check.measure()
    assert check.is_right


@pytest.mark.parametrize("step", [3600.0, -3600.0, 5.5])
async def test_a_step_of_our_clock_counts_before_the_next_comparison(clocks: Clocks, step: float) -> None:
    check = ClockCheck(clocks)  # type: ignore[arg-type]
    await check.measure()
    clocks.pass_s(0.5)
    clocks.wall_s += step
    assert not check.is_right
    assert check.offset_s == pytest.approx(-step)
    assert check.engine_s() == pytest.approx(T0 + 0.5)
    clocks.wall_s -= step
    assert check.is_right


async def test_a_step_of_the_engines_clock_counts_from_the_next_comparison_on(clocks: Clocks) -> None:
    check = ClockCheck(clocks)  # type: ignore[arg-type]
    await check.measure()
    clocks.engine_s += 3600
    clocks.pass_s(1.0)
    await check.measure()
    assert (check.is_right, check.offset_s) == (False, pytest.approx(3600))
    clocks.answers = False
    clocks.pass_s(100.0)
    await check.measure()
    assert check.offset_s == pytest.approx(3600), "without an answer the last comparison holds"


async def test_an_offset_within_the_bound_is_right(clocks: Clocks) -> None:
    check = ClockCheck(clocks)  # type: ignore[arg-type]
    clocks.engine_s += 4.9
    await check.measure()
    assert check.is_right


async def test_who_stores_a_time_is_refused_with_a_wrong_clock_and_with_an_unknown_one(clocks: Clocks) -> None:
    assert await ClockCheck(clocks).checked_s() == T0  # type: ignore[arg-type]
    clocks.wall_s -= 90
    with pytest.raises(ConflictError, match=r"this machine's clock is 1 m 30 s behind the engine's, so nothing was"):
        await ClockCheck(clocks).checked_s()  # type: ignore[arg-type]
    clocks.wait_s = OFFSET_MAX_S + 1
    with pytest.raises(EngineDown, match=r"the engine took longer than 5 s to tell its time: try again"):
        await ClockCheck(clocks).checked_s()  # type: ignore[arg-type]
    clocks.answers = False
    with pytest.raises(EngineDown, match="no answer"):
        await ClockCheck(clocks).checked_s()  # type: ignore[arg-type]
