"""Workers and the claims that they have in turn."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from crawler.frontier.overrides import Orders
from crawler.model import Claim
from crawler.pipeline.fetch import FetchStage
from crawler.pipeline.schedule import Workbench
from crawler.pipeline.trap_memory import TrapMemory
from crawler.settings import Settings, load
from tests.pipeline.test_schedule import batch
from tests.pipeline.turn_lab import doors_with, mark


async def never(claim: Claim) -> None:
    raise AssertionError(claim)


def stage_of(
    settings: Settings, bench: Workbench, turn_away: Callable[[Claim], Awaitable[None]] = never, **parts: Any
) -> FetchStage:
    """With traps, and marks that nobody reads; of all else, only these parts."""
    known = {"bench": bench, "inflight_log": SimpleNamespace(mark=mark), "traps": TrapMemory(settings.traps)}
    return FetchStage(doors_with(**known, **parts), settings, deliver=lambda _: None, turn_away=turn_away)


async def test_a_claim_that_goes_from_worker_to_worker_while_the_heartbeat_is_late_ends_none_of_them() -> None:
    """Each worker puts the claim back and rests; the next one takes it. When they have rested, its lease is gone."""
    settings: Settings = load(environment={}, options={"fetch.concurrency": 3})
    bench, held_until = Workbench(concurrency_per_queue=1), time.monotonic() + 0.1
    late: Any = SimpleNamespace(may_start=lambda: False)
    ownership: Any = SimpleNamespace(holds=lambda _: time.monotonic() < held_until)
    flow: Any = SimpleNamespace(ended=lambda _: None, orders=Orders())
    stage = stage_of(settings, bench, ownership=ownership, heartbeat=late, flow=flow)
    bench.put(batch(1))
    stage.start()
    await asyncio.sleep(0.5)
    ended = [worker for worker in stage.workers if worker.done()]
    await stage.close()
    assert ended == []


@pytest.mark.parametrize("is_sent", [True, False])
async def test_a_request_that_is_cut_off_is_late_only_if_it_was_sent(is_sent: bool) -> None:
    """One that still connects when it must stop has met no new owner's request."""
    settings: Settings = load(environment={}, options={"robots.obey": False, "fetch.concurrency": 1})
    bench, begun = Workbench(concurrency_per_queue=1), asyncio.Event()

    async def fetch(url: str, *, cookies: Any, before_send: Callable[[], None], working: Any) -> None:
        if is_sent:
            before_send()
        begun.set()
        await asyncio.sleep(60)

    heartbeat: Any = SimpleNamespace(may_start=lambda: True, must_abort=begun.is_set)
    fetcher: Any = SimpleNamespace(fetch=fetch, known_address_of=lambda _: "127.0.0.1")
    ownership: Any = SimpleNamespace(holds=lambda _: True, fence_of=lambda _: None)
    flow: Any = SimpleNamespace(late=0, ended=lambda _: None, orders=Orders())
    noted: list[str] = []
    history: Any = SimpleNamespace(cut_off=lambda claim, started_at: noted.append(claim.url))
    stage = stage_of(
        settings, bench, ownership=ownership, heartbeat=heartbeat, fetcher=fetcher, flow=flow, history=history
    )
    bench.put(batch(1))
    stage.start()
    aborting = asyncio.create_task(stage.abort_when_silent())
    await asyncio.wait_for(begun.wait(), 5.0)
    await asyncio.sleep(0.5)
    aborting.cancel()
    await stage.close()
    assert flow.late == int(is_sent)
    assert noted == ["http://a.test/1"]


async def test_a_page_is_not_asked_for_when_its_lease_ended_while_the_request_was_prepared() -> None:
    """The delay was being stored, a name looked up, a connection opened: meanwhile its partition went elsewhere."""
    settings: Settings = load(environment={}, options={"robots.obey": False, "fetch.concurrency": 1})
    bench, held, sent, ended = Workbench(concurrency_per_queue=1), [True], list[str](), [0]

    async def fetch(url: str, *, cookies: Any, before_send: Callable[[], None], working: Any) -> None:
        held[0] = False
        before_send()
        sent.append(url)

    fetcher: Any = SimpleNamespace(fetch=fetch, known_address_of=lambda _: "127.0.0.1")
    ownership: Any = SimpleNamespace(holds=lambda _: held[0], fence_of=lambda _: None)
    flow: Any = SimpleNamespace(late=0, ended=lambda _: ended.__setitem__(0, ended[0] + 1), orders=Orders())
    heartbeat: Any = SimpleNamespace(may_start=lambda: True)
    stage = stage_of(settings, bench, ownership=ownership, heartbeat=heartbeat, fetcher=fetcher, flow=flow)
    bench.put(batch(1))
    stage.start()
    await asyncio.sleep(0.2)
    await stage.close()
    assert (sent, ended, flow.late) == ([], [1], 0)


@pytest.mark.parametrize("orders", [Orders(blocked=frozenset({"a.test"})), Orders(paused=frozenset({"*"}))])
async def test_a_claim_of_a_stopped_domain_is_turned_away_and_nothing_is_asked(orders: Orders) -> None:
    settings: Settings = load(environment={}, options={"fetch.concurrency": 2})
    bench, away = Workbench(concurrency_per_queue=1), list[str]()
    heartbeat: Any = SimpleNamespace(may_start=lambda: True)
    ownership: Any = SimpleNamespace(holds=lambda _: True)
    flow: Any = SimpleNamespace(orders=orders, ended=lambda _: None)

    async def turn_away(claim: Claim) -> None:
        away.append(claim.fingerprint)

    stage = stage_of(settings, bench, turn_away, ownership=ownership, heartbeat=heartbeat, flow=flow)
    bench.put(batch(1, 2))
    stage.start()
    await asyncio.sleep(0.1)
    assert [worker for worker in stage.workers if worker.done()] == []
    await stage.close()
    assert (away, bench.active) == (["1", "2"], 0)
