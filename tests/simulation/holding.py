"""Runs in which a domain may introduce little, so that pages are held back; in some there is no room for these."""

import contextlib
import random
from collections.abc import Iterator

from crawler.rules import introductions
from crawler.worker import route

HOLDING = 0.3  # share of runs
BURSTS = (1, 1, 3000)  # bytes: one URL, or some five
BYTES_PER_S = 2000  # some three URLs
PAGES_MAX = (0, 1, 128, 128)  # of an instance
AGAIN_MS = 2000
HELD_MAX_S = 600.0  # by which such a run may end later: each page waits for its links, and its queue for the page

Limits = dict[str, int]
"""The constants of such a run, by name."""


def limits_of(rng: random.Random) -> Limits:
    """Drawn; empty for most runs."""
    drawn = {"BURST_BYTES": rng.choice(BURSTS), "BYTES_PER_S": BYTES_PER_S, "PAGES_MAX": rng.choice(PAGES_MAX)}
    return drawn | {"AGAIN_MS": AGAIN_MS} if rng.random() < HOLDING else {}


@contextlib.contextmanager
def holding(limits: Limits) -> Iterator[None]:
    """Instances have these limits."""
    places = [(module, name) for name in limits for module in (introductions, route) if hasattr(module, name)]
    assert {name for _, name in places} == limits.keys()
    before = [getattr(module, name) for module, name in places]
    for module, name in places:
        setattr(module, name, limits[name])
    try:
        yield
    finally:
        for (module, name), value in zip(places, before, strict=True):
            setattr(module, name, value)
