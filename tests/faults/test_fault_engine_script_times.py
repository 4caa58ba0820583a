"""Our own scripts never make an engine BUSY: their work is bounded, and does not grow with what is stored."""

import contextlib
from collections import defaultdict
from collections.abc import Awaitable
from statistics import median
from typing import TypeVar

import redis

from crawler.model import Candidate
from tests.frontier.door import Door, found
from tests.support.engine import running_engine

KEYS = 1_000_000
QUEUES, PER_QUEUE = 300, 128  # of the one partition that is worked on
# URLs in one call, each of another queue: the dearest kind of call. The bound is half for claims and their return.
USUAL, LARGEST, LARGEST_CLAIM = 64, 128, 128
USUAL_MS, LARGEST_MS = 5.0, 10.0  # the largest stay under 5 ms, too, on a machine that is not slow and busy
ROUNDS = 10

Answer = TypeVar("Answer")
Times = dict[tuple[str, int], float]


async def test_scripts_take_under_five_milliseconds_with_a_million_keys() -> None:
    """CPU time of the engine, median of calls of the usual and of the largest size; elapsed time is the machine's.

    `pytest -s` shows the figures.
    """
    with running_engine("--enable-debug-command", "yes") as engine, contextlib.closing(engine.client()) as client:
        client.execute_command("DEBUG", "POPULATE", KEYS, "unrelated", 16)
        door = Door(engine.url, [engine])
        await door.open()
        try:
            for queue in range(QUEUES):
                await door.add(*(found(n, host=f"q{queue}.test") for n in range(PER_QUEUE)))
            times = await Stopwatch(client).times(door)
        finally:
            await door.close()
        assert client.dbsize() >= KEYS
    for (name, size), ms in times.items():
        print(f"{name:10} of {size:3} URLs: {ms:.2f} ms")
    assert max(ms for (_, size), ms in times.items() if size == USUAL) < USUAL_MS
    assert max(times.values()) < LARGEST_MS


class Stopwatch:
    """The engine's own CPU time for single calls."""

    def __init__(self, client: "redis.Redis[bytes]") -> None:
        self._client = client
        self._spent: defaultdict[tuple[str, int], list[float]] = defaultdict(list)

    def _cpu_ms(self) -> float:
        cpu = self._client.info("cpu")
        return 1000 * (float(cpu["used_cpu_user_main_thread"]) + float(cpu["used_cpu_sys_main_thread"]))

    async def _timed(self, name: str, size: int, call: Awaitable[Answer]) -> Answer:
        before = self._cpu_ms()
        answer = await call
        self._spent[name, size].append(self._cpu_ms() - before)
        return answer

    async def times(self, door: Door) -> Times:
        """Median ms by script and number of URLs in the call."""
        for round_ in range(ROUNDS):
            for size in (USUAL, LARGEST):
                door.now += 10_000
                most = min(size, LARGEST_CLAIM)
                claims = await self._timed("claim", most, door.claim(urls_max=most, out_max=most))
                await self._timed("ack", size, door.ack(claims[0], *fresh("a", round_, size), delay_ms=1000))
                await self._timed("add", size, door.add(*fresh("b", round_, size)))
                await self._timed("return_claims", most, door.return_claims(*claims[1:]))
        return {call: median(ms) for call, ms in self._spent.items()}


def fresh(prefix: str, round_: int, n: int) -> list[Candidate]:
    return [found(f"{prefix}/{round_}/{n}/{i}", host=f"q{(round_ + i) % QUEUES}.test") for i in range(n)]
