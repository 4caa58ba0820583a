"""The charts of `crawler top`: what happened when, as columns."""

import pytest

from crawler.frontier.series import Rates
from crawler.tui.charts import bars, columns_of
from crawler.views.snapshot import Point


def point(at: float, seconds: float = 5.0) -> Point:
    return Point(at=at, rates=Rates(seconds))


def test_a_column_is_the_mean_of_its_part_of_the_time() -> None:
    points = [point(1000), point(1005), point(1010)]
    assert columns_of(points, [2.0, 4.0, 8.0], until=1020, seconds=20, count=4) == [2, 4, 8, 0]
    assert columns_of(points, [2.0, 4.0, 8.0], until=1020, seconds=20, count=2) == [3, 4]
    assert columns_of(points, [2.0, 4.0, 8.0], until=1020, seconds=20, count=8) == [2, 2, 4, 4, 8, 8, 0, 0]


def test_what_is_older_or_of_the_future_does_not_count() -> None:
    points = [point(900), point(998), point(1018, 10)]
    assert columns_of(points, [9.0, 5.0, 1.0], until=1020, seconds=20, count=4) == pytest.approx([3, 0, 0, 0.4])


def test_bars_fill_the_height_and_hide_nothing() -> None:
    assert bars([0, 1, 4, 8], 1) == [" ▁▄█"]
    assert bars([8, 4, 0.001], 2) == ["█", "██▁"]
    assert bars([0, 0], 2) == ["", ""]
    assert bars([], 1) == [""]
