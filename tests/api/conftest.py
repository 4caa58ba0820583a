"""A served crawl for each test that asks for one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.api_lab import Served, served_crawl
from tests.support.engine import Engine


@pytest.fixture
async def api(tmp_path: Path, engine: Engine) -> AsyncIterator[Served]:
    async with served_crawl(tmp_path, engine) as server:
        yield server
