"""Seeds 0 to 99, the first 25 of them fast; see docs/internals/simulation.md."""

import pytest

from tests.simulation.seeds import nothing_is_broken_by
from tests.simulation.wire import RealEngine


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (25, 50, 75))])
def test_seeded_crawls_under_faults_end_exact_polite_and_owned(first: int, real: RealEngine) -> None:
    nothing_is_broken_by(range(first, first + 25), real)
