"""Names are looked up, and doubtful origins connected to, without a worker; their queue goes on after a while."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from crawler.errors import UsageError
from crawler.model import Claim, Failure, FailureKind
from crawler.rules.urls import host_of, origin_of
from crawler.worker import reaching as reaching_module
from crawler.worker.open_claims import OpenClaims
from crawler.worker.reaching import LATE, LATE_KEPT_MS, Reached, Reaching
from crawler.worker.schedule import Scheduler
from crawler.worker.turn import AwaitReach, Requeue, Turn, TurnEnd
from tests.support.patience import PATIENCE_S, others_run
from tests.worker.test_schedule import batch, claim
from tests.worker.turn_lab import runner_of, turn_of

ADDRESS = "192.0.2.1"
REFUSED = Failure(kind=FailureKind.CONNECT, detail="refused")


class FakeFetcher:
    """Looks up and connects to what it is told to when it is told to; remembers an answer only if told so."""

    def __init__(self, *, remembers: bool = True) -> None:
        loop = asyncio.get_running_loop()
        self.names: defaultdict[str, asyncio.Future[str | Failure]] = defaultdict(loop.create_future)
        self.origins: defaultdict[str, asyncio.Future[Failure | None]] = defaultdict(loop.create_future)
        self.asked: list[str] = []
        self._remembers = remembers

    def known_address_of(self, url: str) -> str | Failure | None:
        answer = self.names[host_of(url)]
        return answer.result() if self._remembers and answer.done() and not answer.exception() else None

    async def address_of(self, url: str) -> str | Failure:
        self.asked.append(host_of(url))
        return await asyncio.shield(self.names[host_of(url)])

    async def reach(self, url: str) -> Failure | None:
        self.asked.append(origin_of(url))
        return await asyncio.shield(self.origins[origin_of(url)])


class ReachLab:
    """A scheduler and claims that wait for names; a claim in a turn that has an answer goes to `reached`."""

    def __init__(self, *claims: Claim, remembers: bool = True, claims_max: int = 100, connects_max: int = 2) -> None:
        self.fetcher = FakeFetcher(remembers=remembers)
        self.reaching = Reaching(self.fetcher, claims_max=claims_max, connects_max=connects_max)  # type: ignore[arg-type]
        self.scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
        self.scheduler.put(replace(batch(1), claims=claims))
        self.reached: list[tuple[str, Reached]] = []

    async def turn(self, *, connects: bool = False) -> Claim:
        """A turn of a worker; it waits for nothing."""
        async with asyncio.timeout(PATIENCE_S):
            slot, claim = await self.scheduler.next()

        async def work(turn: Turn) -> TurnEnd:
            found = self.reaching.of(turn.claim)
            if connects and isinstance(found, Reached) and not found.is_connected and not found.failure:
                found = self.reaching.connect(turn.claim, found)
            if isinstance(found, AwaitReach):
                return found
            self.reached.append((turn.claim.fingerprint, found))
            return Requeue(at_tail=True)

        await runner_of(self.scheduler).run(turn_of(self.scheduler, slot, claim), work)
        return claim

    async def turns(self, n: int) -> list[str]:
        return [(await self.turn()).fingerprint for _ in range(n)]


Labs = Callable[..., ReachLab]


@pytest.fixture
async def labs() -> AsyncIterator[Labs]:
    """Creates labs, and closes them."""
    created: list[ReachLab] = []

    def create(*claims: Claim, **options: Any) -> ReachLab:
        created.append(ReachLab(*claims, **options))
        return created[-1]

    yield create
    for lab in created:
        await lab.reaching.close()


def at(host: str, n: int) -> Claim:
    return replace(claim(n), url=f"http://{host}/{n}")


@pytest.fixture
def late_s(monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(reaching_module, "LATE_S", 0.02)
    return 0.02


@pytest.mark.parametrize("remembers", [True, False], ids=["a lasting answer", "an answer of no time to live"])
async def test_a_claim_has_its_address_in_the_turn_after_the_look_up(labs: Labs, remembers: bool) -> None:
    lab = labs(claim(1), remembers=remembers)
    await lab.turn()
    assert lab.reached == []
    lab.fetcher.names["a.test"].set_result(ADDRESS)
    await lab.turn()
    assert lab.reached == [("1", Reached(ADDRESS))]
    assert lab.fetcher.asked == ["a.test"]


@pytest.mark.parametrize("kind", [FailureKind.DNS_NOT_FOUND, FailureKind.DNS_ERROR, FailureKind.ADDRESS_REFUSED])
@pytest.mark.parametrize("remembers", [True, False])
async def test_a_name_that_can_not_be_resolved_is_told_in_the_turn(
    labs: Labs, remembers: bool, kind: FailureKind
) -> None:
    lab, why = labs(claim(1), remembers=remembers), Failure(kind=kind, detail="")
    await lab.turn()
    lab.fetcher.names["a.test"].set_result(why)
    await lab.turn()
    assert lab.reached == [("1", Reached(failure=why))]


async def test_names_of_one_queue_are_looked_up_side_by_side(labs: Labs) -> None:
    lab = labs(at("a.test", 1), at("b.a.test", 2), at("c.a.test", 3))
    assert await lab.turns(3) == ["1", "2", "3"]
    await asyncio.sleep(0)
    assert lab.fetcher.asked == ["a.test", "b.a.test", "c.a.test"]
    lab.fetcher.names["c.a.test"].set_result(ADDRESS)
    await lab.turn()
    assert [one for one, _ in lab.reached] == ["3"], "it waits for no other name"


async def test_claims_of_one_host_wait_for_one_look_up_and_keep_their_order(labs: Labs) -> None:
    lab = labs(*(claim(n) for n in range(5)))
    assert await lab.turns(5) == list("01234")
    lab.fetcher.names["a.test"].set_result(ADDRESS)
    await others_run()
    assert await lab.turns(5) == list("01234")
    assert lab.fetcher.asked == ["a.test"]
    assert [one for one, _ in lab.reached] == list("01234")


async def test_a_claim_waits_for_a_name_only_for_a_while(labs: Labs, late_s: float) -> None:
    lab = labs(claim(1), claim(2))
    await lab.turns(2)
    await asyncio.sleep(2 * late_s)
    await lab.turns(2)
    assert lab.reached == [("1", LATE), ("2", LATE)]
    assert not lab.fetcher.names["a.test"].cancelled(), "the look-up goes on"


@pytest.mark.parametrize("answer", [ADDRESS, Failure(kind=FailureKind.DNS_ERROR, detail="no answer")])
async def test_what_comes_late_counts_for_those_that_come_again(
    labs: Labs, answer: str | Failure, late_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it may not be kept: each try would be late again."""
    lab = labs(claim(1), remembers=False)
    await lab.turn()
    await asyncio.sleep(2 * late_s)
    await lab.turn()
    lab.fetcher.names["a.test"].set_result(answer)
    await others_run()
    await lab.turn()
    wanted = Reached(answer) if isinstance(answer, str) else Reached(failure=answer)
    assert lab.reached == [("1", LATE), ("1", wanted)]
    assert lab.fetcher.asked == ["a.test"]
    later_ms = reaching_module.monotonic_ms() + LATE_KEPT_MS
    monkeypatch.setattr(reaching_module, "monotonic_ms", lambda: later_ms)
    await lab.turn()
    await asyncio.sleep(0)
    assert lab.fetcher.asked == ["a.test", "a.test"], "but not forever"


async def test_a_claim_that_comes_again_waits_for_the_same_look_up(labs: Labs, late_s: float) -> None:
    lab = labs(claim(1), remembers=False)
    for _ in range(2):
        await lab.turn()
        await asyncio.sleep(2 * late_s)
        await lab.turn()
    assert [how for _, how in lab.reached] == [LATE, LATE]
    await lab.turn()
    lab.fetcher.names["a.test"].set_result(ADDRESS)
    await lab.turn()
    assert lab.reached[-1] == ("1", Reached(ADDRESS))
    assert lab.fetcher.asked == ["a.test"]


async def test_an_error_of_ours_is_met_once_in_the_turn(labs: Labs) -> None:
    """Then the claim is tried again: nothing that looks the name up for ever."""
    lab = labs(claim(1), remembers=False)
    await lab.turn()
    lab.fetcher.names["a.test"].set_exception(UsageError("dns.nameservers: not a list of IP addresses"))
    with pytest.raises(UsageError):
        await lab.turn()
    lab.fetcher.names["a.test"] = asyncio.get_running_loop().create_future()
    end = lab.reaching.of(claim(1))
    assert isinstance(end, AwaitReach)
    end.began(lambda: None)
    await asyncio.sleep(0)
    assert lab.fetcher.asked == ["a.test", "a.test"]


async def test_an_error_of_ours_that_comes_late_is_met_by_the_next(labs: Labs, late_s: float) -> None:
    lab = labs(claim(1), remembers=False)
    await lab.turn()
    await asyncio.sleep(2 * late_s)
    await lab.turn()
    lab.fetcher.names["a.test"].set_exception(UsageError("dns.nameservers: not a list of IP addresses"))
    await others_run()
    await lab.turn()
    with pytest.raises(UsageError):
        await lab.turn()


async def test_it_is_full_when_as_many_claims_wait_as_may(labs: Labs, late_s: float) -> None:
    lab = labs(*(at(f"{n}.a.test", n) for n in range(3)), claims_max=3)
    for _ in range(3):
        assert not lab.reaching.is_full
        await lab.turn()
    assert lab.reaching.is_full
    await asyncio.sleep(2 * late_s)
    assert not lab.reaching.is_full, "those that are late wait here no longer"


async def test_a_connection_is_opened_once_for_all_claims_that_wait_for_it(labs: Labs) -> None:
    lab = labs(claim(1), claim(2))
    lab.fetcher.names["a.test"].set_result(ADDRESS)
    await lab.turn(connects=True)
    await lab.turn(connects=True)
    lab.fetcher.origins["http://a.test"].set_result(None)
    await lab.turn(connects=True)
    await lab.turn(connects=True)
    assert lab.reached == [(n, Reached(ADDRESS, is_connected=True)) for n in "12"]
    assert lab.fetcher.asked == ["http://a.test"]


async def test_why_there_is_no_connection_is_told_in_the_turn(labs: Labs) -> None:
    lab = labs(claim(1))
    lab.fetcher.names["a.test"].set_result(ADDRESS)
    await lab.turn(connects=True)
    lab.fetcher.origins["http://a.test"].set_result(REFUSED)
    await lab.turn(connects=True)
    assert lab.reached == [("1", Reached(ADDRESS, REFUSED))]


async def test_only_so_many_connections_are_tried_at_a_time(labs: Labs) -> None:
    lab = labs(at("a.test", 1), at("b.a.test", 2), connects_max=2)
    for host in ("a.test", "b.a.test"):
        lab.fetcher.names[host].set_result(ADDRESS)
        assert lab.reaching.may_connect
        await lab.turn(connects=True)
        await asyncio.sleep(0)
    assert not lab.reaching.may_connect
    lab.fetcher.origins["http://a.test"].set_result(REFUSED)
    await others_run()
    assert lab.reaching.may_connect


async def test_a_late_connection_counts_for_those_that_come_again(labs: Labs, late_s: float) -> None:
    lab = labs(claim(1))
    lab.fetcher.names["a.test"].set_result(ADDRESS)
    await lab.turn(connects=True)
    await asyncio.sleep(2 * late_s)
    assert lab.scheduler.waiting == 1
    lab.fetcher.origins["http://a.test"].set_result(REFUSED)
    await others_run()
    slot, one = await lab.scheduler.next()
    assert lab.reaching.of(one) == LATE
    assert lab.reaching.of(one) == Reached(ADDRESS, REFUSED)
    assert slot.active == 1


async def test_closing_waits_for_no_name_and_returns_what_waited(labs: Labs) -> None:
    lab = labs(claim(1), claim(2), at("b.a.test", 3), claim(4))
    waited = [await lab.turn() for _ in range(3)]
    assert await lab.reaching.close() == waited
    assert [one.fingerprint for one in lab.scheduler.remove_all()] == ["4"], "the caller has the others"


async def test_closing_does_not_return_what_was_released_as_late(labs: Labs, late_s: float) -> None:
    lab = labs(claim(1))
    await lab.turn()
    await asyncio.sleep(2 * late_s)
    assert await lab.reaching.close() == []
    assert len(lab.scheduler.remove_all()) == 1


async def test_a_claim_whose_name_was_just_found_is_not_returned_as_well(labs: Labs) -> None:
    """Its look-up has ended, but the callback that requeues it has not run: it would end twice."""
    lab = labs(claim(1), claim(2))
    await lab.turn()
    (attempt,) = lab.reaching._attempts.values()
    lab.fetcher.names["a.test"].set_result(ADDRESS)
    while not attempt.task.done():
        await asyncio.sleep(0)
    assert lab.reaching._attempts
    assert await lab.reaching.close() == []
    assert len(lab.scheduler.remove_all()) == 2


async def test_what_is_kept_for_claims_and_hosts_is_bounded(
    labs: Labs, late_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaching_module, "RESULTS_MAX", 3)
    lab = labs(*(at(f"{n}.a.test", n) for n in range(9)))
    await lab.turns(9)
    await asyncio.sleep(2 * late_s)
    for answer in list(lab.fetcher.names.values()):
        answer.set_result(ADDRESS)
    await others_run()
    assert (len(lab.reaching._results), len(lab.reaching._late), lab.reaching._attempts) == (3, 3, {})
