"""Outputs in tests look for what is new many times a second."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.outputs import follow
from tests.outputs.growing import Crawl


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "EVERY_S", 0.02)
    monkeypatch.setattr(follow, "LOCK_TIMEOUT_S", 0.1)


@pytest.fixture
def crawl(tmp_path: Path) -> Iterator[Crawl]:
    made = Crawl(tmp_path)
    yield made
    made.index.close()
