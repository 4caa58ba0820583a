"""What an instance must know before it claims anything: it waits for an engine that is away for a moment."""

import asyncio

from crawler.errors import EngineDown
from crawler.pipeline.duties import until_done


async def test_an_engine_that_is_away_when_an_instance_begins_is_waited_for() -> None:
    left = [EngineDown("cut off"), EngineDown("cut off")]

    async def step() -> None:
        if left:
            raise left.pop()

    await asyncio.wait_for(until_done(step, asyncio.Event()), 30)
    assert left == []


async def test_who_is_stopped_meanwhile_waits_no_longer() -> None:
    stop = asyncio.Event()

    async def step() -> None:
        stop.set()
        raise EngineDown("gone for good")

    await asyncio.wait_for(until_done(step, stop), 30)
