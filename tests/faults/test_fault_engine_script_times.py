"""Our own scripts never make an engine BUSY: their work is bounded, and does not grow with what is stored."""

import contextlib
from collections import defaultdict
from collections.abc import Awaitable
from typing import NamedTuple, TypeVar

import pytest
import redis

from crawler.model import Candidate
from tests.frontier.door import Door, found
from tests.support.engine import running_engine

KEYS = 1_000_000
QUEUES, FEW, MANY = 300, 2, 128  # of the one partition that is worked on; URLs in each
# URLs in one call, each of another queue: the dearest kind of call. The bound is half for claims and their return.
USUAL, LARGEST, LARGEST_CLAIM = 64, 128, 128
COMMANDS_PER_URL_MAX = 10  # 7, for URLs that are returned
# CPU of the engine: with a million keys and many times the URLs, for which its caches are small; for twice the URLs.
STORED_RATIO_MAX, SIZE_RATIO_MAX = 10.0, 6.0
ROUNDS = 10
AT_ONCE = 50_000

Answer = TypeVar("Answer")


class Cost(NamedTuple):
    """Of one call: commands of the engine, and its CPU time."""

    commands: float
    cpu_ms: float


Costs = dict[tuple[str, int], Cost]


@pytest.mark.slow(ci=True)
async def test_scripts_cost_no_more_with_a_million_keys_stored() -> None:
    """The least of some calls of the usual and of the largest size. `pytest -s` shows the figures."""
    few, many = await costs_with(keys=0, per_queue=FEW), await costs_with(keys=KEYS, per_queue=MANY)
    for (name, size), cost in many.items():
        print(f"{name:13} of {size:3} URLs: {few[name, size]}, {cost} with a million keys")
    assert max(cost.commands / size for (_, size), cost in many.items()) < COMMANDS_PER_URL_MAX
    assert max(cost.cpu_ms / few[call].cpu_ms for call, cost in many.items()) < STORED_RATIO_MAX
    assert max(many[name, LARGEST].cpu_ms / many[name, USUAL].cpu_ms for name, _ in many) < SIZE_RATIO_MAX


async def costs_with(*, keys: int, per_queue: int) -> Costs:
    with running_engine("--enable-debug-command", "yes") as engine, contextlib.closing(engine.client()) as client:
        for first in range(0, keys, AT_ONCE):  # all at once take seconds
            client.execute_command("DEBUG", "POPULATE", AT_ONCE, f"unrelated{first}", 16)
        door = Door(engine.url, [engine])
        await door.open()
        try:
            for queue in range(QUEUES):
                await door.add(*(found(n, host=f"q{queue}.test") for n in range(per_queue)))
            costs = await Meter(client).costs(door)
        finally:
            await door.close()
        assert client.dbsize() >= keys
    return costs


class Meter:
    """What single calls cost the engine."""

    def __init__(self, client: "redis.Redis[bytes]") -> None:
        self._client = client
        self._spent: defaultdict[tuple[str, int], list[Cost]] = defaultdict(list)

    def _so_far(self) -> Cost:
        commands = sum(
            stats["calls"] for name, stats in self._client.info("commandstats").items() if "info" not in name
        )
        cpu = self._client.info("cpu")
        return Cost(commands, 1000 * (cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"]))

    async def _metered(self, name: str, size: int, call: Awaitable[Answer]) -> Answer:
        before = self._so_far()
        answer = await call
        after = self._so_far()
        self._spent[name, size].append(Cost(after.commands - before.commands, after.cpu_ms - before.cpu_ms))
        return answer

    async def costs(self, door: Door) -> Costs:
        """The least by script and number of URLs in the call."""
        for round_ in range(ROUNDS):
            for size in (USUAL, LARGEST):
                door.now += 10_000
                most = min(size, LARGEST_CLAIM)
                claims = await self._metered("claim", most, door.claim(urls_max=most, out_max=most))
                await self._metered("ack", size, door.ack(claims[0], *fresh("a", round_, size), delay_ms=1000))
                await self._metered("add", size, door.add(*fresh("b", round_, size)))
                await self._metered("return_claims", most, door.return_claims(*claims[1:]))
        return {
            call: Cost(min(cost.commands for cost in costs), min(cost.cpu_ms for cost in costs))
            for call, costs in self._spent.items()
        }


def fresh(prefix: str, round_: int, n: int) -> list[Candidate]:
    return [found(f"{prefix}/{round_}/{n}/{i}", host=f"q{(round_ + i) % QUEUES}.test") for i in range(n)]
