"""Workers and the claims that they have in turn."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

from crawler.instance.fetching import Doors, FetchStage
from crawler.instance.workbench import Workbench
from crawler.settings import Settings, load
from tests.instance.test_workbench import batch


async def test_a_claim_that_goes_from_worker_to_worker_while_the_heartbeat_is_late_ends_none_of_them() -> None:
    """Each worker puts the claim back and rests; the next one takes it. When they have rested, its lease is gone."""
    settings: Settings = load(environment={}, options={"fetch.concurrency": 3})
    bench, nobody, held_until = Workbench(concurrency_per_queue=1), SimpleNamespace(), time.monotonic() + 0.1
    late: Any = SimpleNamespace(may_start=lambda: False)
    ownership: Any = SimpleNamespace(holds=lambda _: time.monotonic() < held_until)
    flow: Any = SimpleNamespace(ended=lambda _: None)
    doors: Any = Doors(nobody, ownership, late, bench, nobody, nobody, nobody, nobody, flow, nobody)  # type: ignore[arg-type]
    stage = FetchStage(doors, settings, deliver=lambda _: None)
    bench.put(batch(1))
    stage.start()
    await asyncio.sleep(0.5)
    ended = [worker for worker in stage.workers if worker.done()]
    await stage.close()
    assert ended == []
