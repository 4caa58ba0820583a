"""What an instance counts of its queues: by slot, each count sent once, and only of the busiest."""

from typing import Any

import msgspec
import pytest

from crawler.frontier.arguments import ActivityHead, ActivityItem
from crawler.model import Claim
from crawler.worker import activity as module
from crawler.worker.activity import SEND_EVERY_MS, Activity

T = 1_800_000_000.0


class Time:
    """Both clocks, in seconds."""

    def __init__(self) -> None:
        self.s = T

    def wall_s(self) -> float:
        return self.s

    def monotonic_ms(self) -> int:
        return int(self.s * 1000)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(module, "wall_s", clock.wall_s)
    monkeypatch.setattr(module, "monotonic_ms", clock.monotonic_ms)
    return clock


def items(packed: bytes) -> tuple[ActivityHead, list[ActivityItem]]:
    values: list[Any] = msgspec.msgpack.decode(packed)
    head, width = len(ActivityHead._fields), len(ActivityItem._fields)
    return ActivityHead(*values[:head]), [ActivityItem(*values[i : i + width]) for i in range(head, len(values), width)]


def test_responses_and_failures_are_counted_by_queue_and_class(time: Time) -> None:
    activity = Activity(1024)
    for status, size in ((200, 10), (404, 5), (503, 1), (301, 0)):
        activity.response(7, "a.test", status, size)
    activity.failure(7, "a.test", "connection refused")
    activity.failure(8, "b.test", "x" * 99)
    time.s += 2
    sent = activity.take()
    slot = int(T // 5)
    assert items(sent[7]) == (
        ActivityHead(8, 2.0, 5),
        [ActivityItem(slot, "a.test", 4, 16, 1, 1, 1, 0, "connection refused")],
    )
    assert items(sent[8])[1] == [ActivityItem(slot, "b.test", 0, 0, 0, 0, 1, 0, "x" * 60)]
    assert activity.take() == {}, "once"


def test_it_is_due_after_two_seconds_and_after_the_end_of_a_slot(time: Time) -> None:
    activity = Activity(1)
    time.s += 60
    assert not activity.is_due, "nothing happened"
    activity.take()
    activity.response(0, "a.test", 200, 1)
    assert not activity.is_due
    time.s += SEND_EVERY_MS / 1000
    assert activity.is_due
    time.s = T + 64
    activity.take()
    time.s += 0.9
    activity.response(0, "a.test", 200, 1)
    assert not activity.is_due
    time.s = T + 65
    assert activity.is_due, "the slot is over"
    activity.response(0, "a.test", 200, 1)
    assert activity.is_due, "although another one has begun"
    assert [item.slot for item in items(activity.take()[0])[1]] == [int(T // 5) + 12, int(T // 5) + 13]
    activity.response(0, "a.test", 200, 1)
    activity.end()
    assert activity.is_due, "nothing more comes"


def test_only_the_busiest_of_a_slot_are_sent(time: Time) -> None:
    activity = Activity(4096)
    for number in range(20):
        for _ in range(number):
            activity.failure(0, f"{number}.test", "timeout")
    assert [item.queue for item in items(activity.take()[0])[1]] == [f"{n}.test" for n in range(19, 11, -1)]


def test_a_lost_partition_is_forgotten(time: Time) -> None:
    activity = Activity(1)
    activity.response(0, "a.test", 200, 1)
    activity.drop([0, 5])
    assert activity.take() == {}


def claim(queue: str, partition: int = 0) -> Claim:
    return Claim(
        url=f"http://{queue}/", fingerprint="f", visit=1, partition=partition, epoch=1, token="t", domain=queue,
        queue=queue, depth=0, redirects=0, attempts=0, deliveries=0, seed=False,
    )  # fmt: skip


def test_open_requests_are_sent_with_counts_and_alone_once_they_last(time: Time) -> None:
    open_requests: list[Claim] = []
    activity = Activity(1, lambda: open_requests)
    open_requests[:] = [claim("busy.test"), claim("busy.test"), claim("slow.test")]
    activity.response(0, "busy.test", 200, 1)
    time.s += 2
    slot = int(T // 5)
    assert items(activity.take()[0])[1] == [ActivityItem(slot, "busy.test", 1, 1, 0, 0, 0, 2)], "slow.test is new"
    assert not activity.is_due
    time.s += 2
    assert activity.is_due
    assert items(activity.take()[0])[1] == [ActivityItem(slot, "slow.test", 0, 0, 0, 0, 0, 1)]
    time.s += 2
    assert activity.take() == {}, "nothing has changed"
    open_requests.clear()
    time.s += 2
    ended = items(activity.take()[0])[1]
    assert {(item.queue, item.in_flight) for item in ended} == {("busy.test", 0), ("slow.test", 0)}
    time.s += 2
    assert not activity.is_due
    assert activity.take() == {}


def test_open_requests_of_a_lost_partition_are_told_again_when_it_is_back(time: Time) -> None:
    activity = Activity(1, lambda: [claim("slow.test", 3)])
    sent = []
    for lost in ((), (), (3,), ()):
        activity.drop(lost)
        sent.append(bool(activity.take()))
    assert sent == [False, True, True, False]
