"""Row 25: very many instances join at once. Here 300 virtual ones, on the real engine; `python -m
tests.faults.joining_lab` does it with 1,000, which takes a core for a minute.
"""

import pytest

from tests.faults.joining_lab import join_at_once
from tests.support.engine import Engine

pytestmark = pytest.mark.slow

SETTLED_S = 60.0


async def test_hundreds_that_join_at_once_settle_within_a_minute_and_move_little(engine: Engine) -> None:
    """Ten instances own everything when 300 more come in one moment."""
    result = await join_at_once(engine.url, first=10, more=300, partitions=4096, timeout_s=SETTLED_S)
    assert result.needed > 4096 * 0.9, "nearly all has to move: 10 of 310 are a thirtieth"
    assert result.moved <= 1.05 * result.needed, result
    assert result.unowned_s <= result.silence_s, result
    assert result.deaths == 0, "all beat, however late"
