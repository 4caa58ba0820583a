"""Calls at the start of an instance are repeated while the engine does not answer."""

import asyncio

from crawler.errors import EngineDown
from crawler.runtime.tasks import StopSignal, retry_until_stopped
from tests.support.patience import PATIENCE_S


async def test_a_starting_instance_waits_for_the_engine() -> None:
    left = [EngineDown("cut off"), EngineDown("cut off")]

    async def step() -> None:
        if left:
            raise left.pop()

    await asyncio.wait_for(
        retry_until_stopped(step, StopSignal(drain_timeout_s=1), event="begin.engine_error"), PATIENCE_S
    )
    assert left == []


async def test_a_stopped_instance_does_not_wait_for_the_engine() -> None:
    stop = StopSignal(drain_timeout_s=1)

    async def step() -> None:
        stop.set("signal")
        raise EngineDown("gone")

    await asyncio.wait_for(retry_until_stopped(step, stop, event="begin.engine_error"), PATIENCE_S)
