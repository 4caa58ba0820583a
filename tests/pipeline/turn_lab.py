"""Turns for tests, without an instance around them."""

import mmap
from types import SimpleNamespace
from typing import Any

from crawler.archive.inflight_log import Mark
from crawler.model import Claim
from crawler.pipeline.doors import Doors
from crawler.pipeline.internal_errors import ContentSteps
from crawler.pipeline.schedule import Lane, Workbench
from crawler.pipeline.turn import Turn, TurnRunner


def mark() -> Mark:
    """One that nobody reads."""
    return Mark(mmap.mmap(-1, mmap.PAGESIZE), 0)


def turn_of(bench: Workbench, lane: Lane, claim: Claim) -> Turn:
    return Turn(bench, lane, claim, mark())


def runner_of(bench: Workbench, **places: Any) -> TurnRunner:
    """Fails where a turn ends in another way than with the places given."""
    return TurnRunner(
        bench, **{"deliver": _never, "return_claim": _never, "dropped": _never, "failed": _raised} | places
    )


def doors_with(**parts: Any) -> Doors:
    """All others are nobody, who fails when asked for anything."""
    return Doors(**{name: SimpleNamespace() for name in Doors.__struct_fields__} | parts)


def content_steps() -> ContentSteps:
    return ContentSteps(mark())


def _never(*_: object) -> Any:
    raise AssertionError


def _raised(turn: Turn, error: Exception) -> Any:
    raise error
