"""The pytest plugin that comes with the crawler: fixtures for users' tests.

pytest imports this in every project of that environment, so it must not load anything of the crawler by itself.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from crawler.testing.web_server import ServedWeb


@pytest.fixture
def crawler_engine() -> Iterator[str]:
    """A new, empty embedded engine: the URL that `--redis` and `frontier.redis` take."""
    import tempfile

    from crawler.engine.embedded import EmbeddedEngine

    with tempfile.TemporaryDirectory(prefix="crawler-") as folder:  # pytest's own are too deep for a Unix socket
        engine = EmbeddedEngine(Path(folder))
        engine.ensure()
        try:
            yield engine.url
        finally:
            engine.stop()


@pytest.fixture
def crawler_web() -> "Iterator[ServedWeb]":
    """A generated web on loopback, the same in every test: `crawler_web.web` knows what a crawl of it must find."""
    from crawler.testing.generated_web import GeneratedWeb
    from crawler.testing.web_server import serve

    with serve(GeneratedWeb(domains=3, pages=6, slow_s=0.0)) as served:
        yield served
