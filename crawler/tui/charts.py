"""Small charts of rates over time, made of text: one column for an equal part of the time. Pure."""

from collections.abc import Sequence

from crawler.views.snapshot import Point

_EIGHTHS = " ▁▂▃▄▅▆▇█"


def columns_of(
    points: Sequence[Point], values: Sequence[float], *, until: float, seconds: float, count: int
) -> list[float]:
    """The mean of a rate in each of `count` equal parts of the last `seconds`; 0 where nothing is known."""
    part_s = seconds / count
    sums = [0.0] * count
    for point, value in zip(points, values, strict=True):
        begin = point.at - (until - seconds)
        end = min(begin + point.rates.seconds, seconds)
        for n in range(max(0, int(begin // part_s)), min(count, int(end // part_s) + 1)):
            sums[n] += value * max(0.0, min(end, (n + 1) * part_s) - max(begin, n * part_s))
    return [total / part_s for total in sums]


def bars(values: Sequence[float], height: int) -> list[str]:
    """Lines from the top, each value as a bar; the highest one fills them. What is more than 0 can be seen."""
    most = max(values, default=0.0)
    eighths = [max(1, round(8 * height * value / most)) if value > 0 else 0 for value in values]
    return ["".join(_EIGHTHS[max(0, min(8, n - 8 * row))] for n in eighths).rstrip() for row in reversed(range(height))]
