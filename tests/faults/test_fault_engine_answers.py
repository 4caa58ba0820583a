"""The engine answers, but not as wished: its scripts are gone, it is full, read-only, or busy with another script."""

import asyncio
import contextlib
import threading
import time
from pathlib import Path

from crawler.frontier.frontier import AddReply
from crawler.instance.instance import Instance
from crawler.model import AddOutcome
from tests.faults.engine_lab import committed, counted, is_crawling, lab
from tests.frontier.door import Door, found
from tests.support.engine import Engine

FLUSH_EVERY_S = 0.05


async def test_scripts_flushed_all_the_time_are_loaded_again_and_every_effect_happens_once(
    tmp_path: Path, engine: Engine
) -> None:
    with contextlib.closing(engine.client()) as client:

        async def flush(instances: list[Instance]) -> None:
            await committed(instances, 1)
            while is_crawling(instances):
                client.script_flush()
                await asyncio.sleep(FLUSH_EVERY_S)

        async with lab(tmp_path, seed=34) as here:
            done = await here.crawl(engine.url, meanwhile=flush, instances=2)
            totals = await counted(engine.url)
            here.check_counts(totals)
        refusals = client.info("errorstats")
    assert refusals["errorstat_NOSCRIPT"]["count"] >= 100
    assert sum(i.flow.committed for i in done.instances) == totals.fetched


async def test_scripts_that_vanish_in_the_middle_of_a_pipeline_run_once(engine: Engine) -> None:
    door = Door(engine.url, [engine])
    await door.open()
    stop, unknown = threading.Event(), []

    def flush() -> None:
        with contextlib.closing(engine.client()) as client:
            while not stop.is_set():
                client.script_flush()
                time.sleep(0.004)

    flushing = threading.Thread(target=flush)
    flushing.start()
    try:
        for n in range(2):
            wanted = {p: [found(n, host=f"h{p}.test", score=0.0)] for p in range(400)}
            while wanted:  # a reply may also say that the script was gone again before its second call
                replies = await door.frontier.add(wanted)
                assert {r.outcomes for r in replies.values() if isinstance(r, AddReply)} <= {(AddOutcome.NEW,)}
                wanted = {p: wanted[p] for p, r in replies.items() if not isinstance(r, AddReply)}
                unknown.append(len(wanted))
    finally:
        stop.set()
        await asyncio.to_thread(flushing.join)
        await door.close()
    with contextlib.closing(engine.client()) as client:
        added = [int(client.hget(door.keys.meta(p), "added") or 0) for p in range(400)]
    assert added == [2] * 400
    assert any(0 < n < 400 for n in unknown), "no pipeline was hit in its middle"
