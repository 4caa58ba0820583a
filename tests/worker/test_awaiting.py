"""What an instance reports that it waits for."""

from collections import deque

from crawler.frontier.members import Awaited, Awaits
from crawler.worker.schedule import QueueSlot
from crawler.worker.waits import AFTER_MS, ProgressWatch, awaited
from tests.worker.test_schedule import claim

PAGE, ROBOTS = "http://a.test:81/x", "http://b.test/robots.txt"


def found(
    *urls: str, robots: tuple[str, ...] = (), slots: tuple[QueueSlot, ...] = (), due_ms: dict[int, int] | None = None
) -> Awaited | None:
    return awaited(
        requested=urls, robots=robots, in_turn=(*urls, *robots), slots=slots, due_ms=due_ms or {}, now_ms=1000
    )


def slot(queue: str, partition: int, next_ms: int, *, waiting: bool = True) -> QueueSlot:
    return QueueSlot(queue, partition=partition, next_ms=next_ms, waiting=deque([claim(1)] if waiting else []))


def test_open_requests_are_told_before_all_else() -> None:
    assert found(PAGE, PAGE, robots=(ROBOTS,)) == Awaited(what=Awaits.ANSWER, count=2, host="a.test:81")
    assert found(robots=(ROBOTS,)) == Awaited(what=Awaits.ROBOTS, count=1, host="b.test")
    handled = awaited(requested=(), robots=(), in_turn=[PAGE], slots=(), due_ms={}, now_ms=0)
    assert handled == Awaited(what=Awaits.PAGE, count=1, host="a.test:81")


def test_hosts_that_are_not_due_are_counted_with_the_first_of_them() -> None:
    slots = (slot("a.test", 1, 31_000), slot("b.test", 2, 13_000), slot("now.test", 3, 900))
    assert found(slots=slots) == Awaited(what=Awaits.NEXT, count=2, host="b.test", in_s=12.0)


def test_claims_that_went_back_to_the_engine_count_by_their_partition() -> None:
    slots = (slot("a.test", 1, 31_000), slot("back.test", 2, 0, waiting=False))
    due = {1: 5_000, 2: 9_000, 7: 50_000}  # that of 1 is for its next claim
    assert found(slots=slots, due_ms=due) == Awaited(what=Awaits.NEXT, count=3, host="back.test", in_s=8.0)
    assert found() is None


def test_nothing_is_looked_up_while_work_is_done() -> None:
    done, looks = 0, []
    watch = ProgressWatch(lambda: done, looks.append)
    watch.look(0)
    watch.look(AFTER_MS - 1)
    done = 1
    watch.look(AFTER_MS)
    watch.look(2 * AFTER_MS - 1)
    assert not looks
    watch.look(2 * AFTER_MS)
    assert looks == [2 * AFTER_MS]
