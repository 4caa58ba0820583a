"""A name that must be looked up holds its queue up and no worker."""

import asyncio

import pytest

from crawler.errors import UsageError
from crawler.model import Claim
from crawler.pipeline.address_limit import NameLookups
from crawler.pipeline.schedule import Scheduler
from crawler.pipeline.turn import AwaitAddress, Turn, TurnEnd
from crawler.runtime.counters import OpenClaims
from tests.pipeline.test_schedule import batch
from tests.pipeline.turn_lab import runner_of, turn_of


class FakeFetcher:
    """Looks up what it is told to when it is told to; remembers an answer only if told so."""

    def __init__(self, *, remembers: bool = True) -> None:
        self.asked = 0
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._remembers = remembers

    def known_address_of(self, url: str) -> str | None:
        return self.answer.result() if self._remembers and self.answer.done() else None

    async def address_of(self, url: str) -> str:
        self.asked += 1
        return await asyncio.shield(self.answer)


async def turn(scheduler: Scheduler, names: NameLookups) -> tuple[Claim, str | None]:
    """A turn of a worker; with the address it ends at once and waits for no answer."""
    async with asyncio.timeout(1):
        slot, claim = await scheduler.take()
    known: list[str] = []

    async def work(turn: Turn) -> TurnEnd:
        address = await names.address_of(turn.slot, turn.claim)
        if not isinstance(address, str):
            return address
        known.append(address)
        return AwaitAddress(address)

    await runner_of(scheduler).run(turn_of(scheduler, slot, claim), work)
    return claim, known[0] if known else None


@pytest.fixture
def scheduler() -> Scheduler:
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(batch(1, 2))
    return scheduler


@pytest.mark.parametrize("remembers", [True, False], ids=["a lasting answer", "an answer of no time to live"])
async def test_a_claim_returns_to_its_queues_head_after_the_look_up(scheduler: Scheduler, remembers: bool) -> None:
    fetcher = FakeFetcher(remembers=remembers)
    names = NameLookups(fetcher)  # type: ignore[arg-type]
    first, address = await turn(scheduler, names)
    assert address is None
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await scheduler.take()  # the queue stands still meanwhile
    fetcher.answer.set_result("192.0.2.1")
    again, address = await turn(scheduler, names)
    assert (again, address) == (first, "192.0.2.1")
    assert scheduler.active == 0
    assert fetcher.asked == (1 if remembers else 2)


async def test_an_error_of_ours_is_met_in_the_turn(scheduler: Scheduler) -> None:
    fetcher = FakeFetcher()
    names = NameLookups(fetcher)  # type: ignore[arg-type]
    fetcher.known_address_of = lambda url: None  # type: ignore[method-assign]
    await turn(scheduler, names)
    fetcher.answer.set_exception(UsageError("dns.nameservers: not a list of IP addresses"))
    with pytest.raises(UsageError):
        await turn(scheduler, names)


async def test_closing_waits_for_no_name_and_returns_what_waited(scheduler: Scheduler) -> None:
    fetcher = FakeFetcher()
    names = NameLookups(fetcher)  # type: ignore[arg-type]
    claim, _ = await turn(scheduler, names)
    assert await names.close() == [claim]
    assert len(scheduler.remove_all()) == 1  # the other one; the first is the caller's


async def test_a_claim_whose_name_was_just_found_is_not_returned_as_well(scheduler: Scheduler) -> None:
    """Its look-up has ended, but the callback that requeues it has not run: it would end twice."""
    fetcher = FakeFetcher()
    names = NameLookups(fetcher)  # type: ignore[arg-type]
    await turn(scheduler, names)
    (task,) = names._running
    fetcher.answer.set_result("192.0.2.1")
    while not task.done():
        await asyncio.sleep(0)
    assert names._running
    assert await names.close() == []
    assert len(scheduler.remove_all()) == 2
