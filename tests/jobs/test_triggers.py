"""When the instance looks for what is due; by fakes of what is stored."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import pytest

from crawler.frontier.jobs import Jobs, StoredJob
from crawler.jobs import clock_check, triggers
from crawler.jobs.triggers import Triggers
from crawler.membership.held import HeldPartition, HeldPartitions

NOW = 10_000.0


class Stored:
    """What the engine has."""

    def __init__(self) -> None:
        self.dues: dict[int, float] = {}
        self.asked: list[list[int]] = []

    async def first_due(self, partitions: Iterable[int]) -> dict[int, float]:
        self.asked.append(list(partitions))
        return {p: self.dues[p] for p in self.asked[-1] if p in self.dues}

    async def due(self, partitions: Sequence[int], now_s: float) -> list[StoredJob]:
        return []

    async def change_all(self, steps: Sequence[Any]) -> list[Any]:
        return []


class Lab:
    """Triggers of one partition, on a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stored, self.now_ms = Stored(), 0
        monkeypatch.setattr(clock_check, "wall_s", lambda: NOW + self.now_ms / 1000)
        monkeypatch.setattr(clock_check, "monotonic_ms", lambda: self.now_ms)
        monkeypatch.setattr(triggers, "monotonic_ms", lambda: self.now_ms)
        held = HeldPartitions("me", clock_ms=lambda: self.now_ms)
        held._held[3] = HeldPartition(epoch=1, clock_ms=0, anchor_ms=0)
        self.triggers = Triggers(
            cast("Jobs", self.stored), cast("HeldPartitions", held), on_plan=lambda _: None, on_unknown=lambda _: None,
            is_clock_right=lambda: True,
        )  # fmt: skip
        self.triggers.follow(1)


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(monkeypatch)


async def test_a_partition_is_read_once_until_jobs_are_changed(lab: Lab) -> None:
    for _ in range(3):
        await lab.triggers.look()
    assert lab.stored.asked == [[3]]
    lab.triggers.follow(2)
    await lab.triggers.look()
    assert lab.stored.asked == [[3], [3]]


async def test_a_job_is_found_although_nobody_was_told_that_it_was_added(lab: Lab) -> None:
    await lab.triggers.look()
    lab.stored.dues[3] = NOW + 5
    lab.now_ms += 11_000
    await lab.triggers.look()
    assert lab.stored.asked == [[3], [3], [3]]  # the last time because something was due
