"""What an instance waits for while nothing comes of its work: told with its heartbeat, for people who watch."""

from collections.abc import Callable, Collection, Mapping, Sequence

from crawler.frontier.members import Awaited, Awaits
from crawler.worker.schedule import QueueSlot

AFTER_MS = 5_000


def awaited(
    *,
    requested: Sequence[str],
    robots: Sequence[str],
    in_turn: Sequence[str],
    slots: Collection[QueueSlot],
    due_ms: Mapping[int, int],
    now_ms: int,
) -> Awaited | None:
    """The most telling of what is waited for; None if nothing is known.

    `requested`, `robots` and `in_turn` are URLs: of pages and robots.txt files with an open request, and of all that is
    worked on. `due_ms`: when partitions are claimed from next, whose URLs are in the engine.
    """
    for what, urls in ((Awaits.ANSWER, requested), (Awaits.ROBOTS, robots), (Awaits.PAGE, in_turn)):
        if urls:
            return Awaited(what=what, count=len(urls), host=_host_of(urls[0]))
    here = {slot.partition: slot.queue for slot in slots}
    times = [(slot.next_ms, slot.queue) for slot in slots if slot.waiting and slot.next_ms > now_ms]
    mine = {slot.partition for slot in slots if slot.waiting}
    times += [(at_ms, here.get(partition, "")) for partition, at_ms in due_ms.items() if partition not in mine]
    if not times:
        return None
    first_ms, queue = min(times)
    return Awaited(what=Awaits.NEXT, count=len(times), host=queue, in_s=max(0, first_ms - now_ms) / 1000)


class ProgressWatch:
    """Calls `find` once the count of finished attempts has stood still for some seconds."""

    def __init__(self, done: Callable[[], int], find: Callable[[int], Awaited | None]) -> None:
        self._done = done
        self._find = find
        self._last = -1
        self._since_ms = 0

    def look(self, now_ms: int) -> Awaited | None:
        """At each heartbeat."""
        done = self._done()
        if done != self._last:
            self._last, self._since_ms = done, now_ms
        return self._find(now_ms) if now_ms - self._since_ms >= AFTER_MS else None


def _host_of(url: str) -> str:
    """With its port, if the URL has one."""
    return url.split("/", 3)[2]
