"""The scripts with blocks of queues that are full with a few URLs, for tests that can't add hundreds at each step."""

import contextlib
from collections.abc import Iterator

import pytest

from crawler.frontier import scripts
from tests.frontier.model_urls import BLOCK


@contextlib.contextmanager
def small_blocks() -> Iterator[None]:
    """The scripts with blocks that are full with a few URLs."""

    def read(name: str) -> str:
        source = whole(name)
        assert ("local BLOCK = 128" in source) == (name == "_block")
        return source.replace("local BLOCK = 128", f"local BLOCK = {BLOCK}")

    whole = scripts._read
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scripts, "_read", read)
        scripts.script.cache_clear()
        yield
    scripts.script.cache_clear()
