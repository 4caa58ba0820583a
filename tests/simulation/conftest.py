"""One engine for all simulations of a worker, with options of its own."""

from collections.abc import Iterator

import pytest

from tests.simulation.wire import RealEngine, real_engine


@pytest.fixture(scope="session")
def real() -> Iterator[RealEngine]:
    with real_engine() as engine:
        yield engine
