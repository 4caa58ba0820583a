"""The frontier's tests run on one server and on a cluster of three primaries: `door` is either."""

import gc
import warnings
from collections.abc import AsyncIterator, Iterator

import pytest

from crawler.frontier.operator import OperatorCommands
from tests.frontier.door import Door


@pytest.fixture(params=["standalone", pytest.param("cluster", marks=[pytest.mark.cluster, pytest.mark.slow])])
async def door(request: pytest.FixtureRequest) -> AsyncIterator[Door]:
    """One session with the lease of partition 0, on an empty engine."""
    found = request.getfixturevalue("engine" if request.param == "standalone" else "cluster")
    opened = Door(found.url, getattr(found, "nodes", [found]))
    try:
        await opened.open()
        yield opened
    finally:
        await opened.close()


@pytest.fixture
def operator(door: Door) -> OperatorCommands:
    return OperatorCommands(door.frontier, 1, queue_by="domain")


@pytest.fixture
def by_host(door: Door) -> OperatorCommands:
    return OperatorCommands(door.frontier, 1, queue_by="host")


@pytest.fixture(autouse=True, scope="module")
def _no_garbage_left() -> Iterator[None]:
    """A test that allocates much is not blamed for a socket that a test server of another module has left to the
    garbage collector.
    """
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
