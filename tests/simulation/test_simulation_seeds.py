"""Seeds 0 to 99, the first 4 of them fast; see docs/internals/simulation.md."""

import pytest

from tests.simulation.seeds import nothing_is_broken_by
from tests.simulation.wire import RealEngine

FAST, *SLOW = range(4), range(4, 40), range(40, 70), range(70, 100)


@pytest.mark.timeout(600)  # thirty seeds take 40 s on a quiet machine
@pytest.mark.parametrize(
    "seeds",
    [FAST, *(pytest.param(some, marks=pytest.mark.slow) for some in SLOW)],
    ids=lambda some: f"{some[0]} to {some[-1]}",
)
def test_seeded_crawls_under_faults_end_exact_polite_and_owned(seeds: range, real: RealEngine) -> None:
    nothing_is_broken_by(seeds, real)
