"""Workers and the claims that they have in turn."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from crawler.frontier.messages import QueueBatch
from crawler.frontier.operator import Overrides
from crawler.model import Claim
from crawler.settings import Settings, load
from crawler.worker.counters import Counters
from crawler.worker.fetch import FetchStage
from crawler.worker.schedule import Scheduler
from tests.support.patience import PATIENCE_S, until
from tests.worker.test_schedule import batch
from tests.worker.turn_lab import claims_open, fetcher_of, held_with, stage_with

AWAKE: Any = SimpleNamespace(may_start=lambda: True, must_abort=lambda: False)


@contextlib.asynccontextmanager
async def working(stage: FetchStage) -> AsyncIterator[None]:
    """Its workers run, and none of them has ended by the end."""
    running = asyncio.create_task(stage.run())
    try:
        yield
        assert not running.done(), running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def never(claim: Claim) -> None:
    raise AssertionError(claim)


def stage_of(
    settings: Settings,
    scheduler: Scheduler,
    counters: Counters,
    return_stopped: Callable[[Claim], Awaitable[None]] = never,
    **parts: Any,
) -> FetchStage:
    """A fetch stage with these parts."""
    callbacks = {"return_claim": return_stopped, "open_claims": counters.open_claims}
    return stage_with(scheduler, settings, callbacks, counters=counters, **parts)


def scheduled(claims: QueueBatch) -> tuple[Scheduler, Counters]:
    """A scheduler with these claims, and counters that know them."""
    open_claims = claims_open(claims.claims)
    scheduler = Scheduler(open_claims, concurrency_per_queue=1)
    scheduler.put(claims)
    return scheduler, Counters(open_claims)


async def test_a_claim_requeued_while_the_heartbeat_is_late_ends_no_worker() -> None:
    """Each worker puts the claim back and rests; the next one takes it. When they have rested, its lease is gone."""
    settings: Settings = load(environment={}, options={"fetch.concurrency": 3})
    (scheduler, counters), held_until = scheduled(batch(1)), time.monotonic() + 0.1
    late: Any = SimpleNamespace(may_start=lambda: False, must_abort=lambda: False)
    held: Any = SimpleNamespace(holds=lambda _: time.monotonic() < held_until)
    async with working(stage_of(settings, scheduler, counters, held=held, liveness=late)):
        await until(lambda: counters.open_claims.total == 0)


@pytest.mark.parametrize("is_sent", [True, False])
async def test_a_cut_off_request_is_late_only_if_it_was_sent(is_sent: bool) -> None:
    """One that still connects when it must stop has met no new owner's request."""
    settings: Settings = load(environment={}, options={"robots.obey": False, "fetch.concurrency": 1})
    (scheduler, counters), begun = scheduled(batch(1)), asyncio.Event()

    async def fetch(url: str, *, before_send: Callable[[], None], **_: Any) -> None:
        if is_sent:
            before_send()
        begun.set()
        await asyncio.sleep(60)

    liveness: Any = SimpleNamespace(may_start=lambda: True, must_abort=begun.is_set)
    fetcher = fetcher_of(fetch=fetch, known_address_of=lambda _: "127.0.0.1")
    noted: list[str] = []
    notes: Any = SimpleNamespace(cut_off=lambda claim, started_at: noted.append(claim.url))
    gate: Any = SimpleNamespace(delay_of=lambda *_: 0, min_delay_ms=0)
    stage = stage_of(
        settings, scheduler, counters, held=held_with(1), liveness=liveness, fetcher=fetcher, notes=notes, gate=gate
    )
    async with working(stage):
        await asyncio.wait_for(begun.wait(), PATIENCE_S)
        await until(lambda: noted)
    assert counters.late == int(is_sent)
    assert noted == ["http://a.test/1"]


async def test_no_page_is_requested_when_its_lease_ended_during_preparation() -> None:
    """The delay was being stored, a name looked up, a connection opened: meanwhile its partition went elsewhere."""
    settings: Settings = load(environment={}, options={"robots.obey": False, "fetch.concurrency": 1})
    (scheduler, counters), is_held, sent = scheduled(batch(1)), [True], list[str]()

    async def fetch(url: str, *, before_send: Callable[[], None], **_: Any) -> None:
        is_held[0] = False
        before_send()
        sent.append(url)

    fetcher = fetcher_of(fetch=fetch, known_address_of=lambda _: "127.0.0.1")
    held: Any = SimpleNamespace(holds=lambda _: is_held[0], fence_of=lambda _: None)
    gate: Any = SimpleNamespace(delay_of=lambda *_: 0, min_delay_ms=0)
    async with working(stage_of(settings, scheduler, counters, held=held, liveness=AWAKE, fetcher=fetcher, gate=gate)):
        await until(lambda: counters.open_claims.total == 0)
    assert (sent, counters.late) == ([], 0)


@pytest.mark.parametrize("overrides", [Overrides(blocked=frozenset({"a.test"})), Overrides(paused=frozenset({"*"}))])
async def test_a_claim_of_a_stopped_domain_is_returned_without_a_request(overrides: Overrides) -> None:
    settings: Settings = load(environment={}, options={"fetch.concurrency": 2})
    (scheduler, counters), away = scheduled(batch(1, 2)), list[str]()
    counters.overrides = overrides

    async def return_stopped(claim: Claim) -> None:
        away.append(claim.fingerprint)

    async with working(stage_of(settings, scheduler, counters, return_stopped, held=held_with(1), liveness=AWAKE)):
        await until(lambda: len(away) == 2 and not scheduler.active)
    assert away == ["1", "2"]
