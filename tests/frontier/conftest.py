"""The frontier's tests run on one server and on a cluster of three primaries: `door` is either."""

from collections.abc import AsyncIterator

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
