"""The scripts with blocks of queues that are full with a few URLs, for tests that can't add hundreds at each step."""

import contextlib
from collections.abc import Iterator

import pytest

from crawler.frontier import scripts
from tests.frontier.model_urls import BLOCK, IDLE_MS, NAMES_MAX, PER_STORE, QUICK_MAX, TOP_MAX

SMALLER = (  # file, line, what stands there instead
    ("_block", "local BLOCK = 128", f"local BLOCK = {BLOCK}"),
    ("_partition", "local MOVES_MAX = 1000", "local MOVES_MAX = 3"),
    ("_queue", "local IDLE_MS = 60000", f"local IDLE_MS = {IDLE_MS}"),
    ("_queue", "local QUICK_MAX = 64", f"local QUICK_MAX = {QUICK_MAX}"),
    ("_compact", "local PER_STORE = 64", f"local PER_STORE = {PER_STORE}"),
    ("_compact", "local COMPACT_MOVES_MAX = 256", "local COMPACT_MOVES_MAX = 2"),
    ("_seen", "local SEEN_PER_BUCKET = 200", "local SEEN_PER_BUCKET = 5"),
    ("_names", "local NAMES_MAX = 128", f"local NAMES_MAX = {NAMES_MAX}"),
    ("close_run", "local BUCKETS_MAX = 50", "local BUCKETS_MAX = 1"),
    ("close_run", "local KEPT_MS, NOTES_MAX = 600000, 100", "local KEPT_MS, NOTES_MAX = 1e12, 100"),
    ("_stats", "local TOP_MAX = 128", f"local TOP_MAX = {TOP_MAX}"),
)


@contextlib.contextmanager
def small_blocks() -> Iterator[None]:
    """The scripts with blocks that are full with a few URLs."""

    def read(name: str) -> str:
        source = whole(name)
        for file, wanted, instead in SMALLER:
            assert (wanted in source) == (name == file)
            source = source.replace(wanted, instead)
        return source

    whole = scripts._read
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scripts, "_read", read)
        scripts.forget()
        try:
            yield
        finally:
            patch.undo()
            scripts.forget()
