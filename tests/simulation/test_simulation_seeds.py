"""Seeds 0 to 49. `scripts/simulate --seeds 1000` runs more; see docs/simulation.md."""

import pytest

from tests.simulation.seeds import nothing_is_broken_by
from tests.simulation.wire import RealEngine


@pytest.mark.parametrize("first", [0, 25])
def test_seeded_crawls_under_faults_end_exact_polite_and_owned(first: int, real: RealEngine) -> None:
    nothing_is_broken_by(range(first, first + 25), real)
