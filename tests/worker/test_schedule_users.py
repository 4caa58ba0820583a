"""Who gets the next free worker where claims of several users wait."""

from msgspec.structs import replace

from crawler.frontier.messages import QueueBatch
from crawler.worker.open_claims import OpenClaims
from crawler.worker.schedule import Scheduler
from tests.worker.test_schedule import batch

ANN, BEN = "ann", "ben"


def of_user(user: str, number: int, queue: str, waiting: tuple[str, ...] = ()) -> QueueBatch:
    one = batch(number, queue=queue)
    return replace(one, delay_ms=0, claims=tuple(replace(claim, user=user) for claim in one.claims), waiting=waiting)


def scheduler(**weights: float) -> Scheduler:
    return Scheduler(OpenClaims(1000), concurrency_per_queue=1, weight_of=lambda user: weights.get(user, 1.0))


async def taken(one: Scheduler, n: int) -> list[str]:
    return [(await one.next())[1].user for _ in range(n)]


async def test_a_claim_is_not_behind_all_those_of_another_user() -> None:
    one = scheduler()
    for n in range(100):
        one.put(of_user(ANN, n, f"a{n}.test"))
    for n in range(3):
        one.put(of_user(BEN, 100 + n, f"b{n}.test"))
    assert (await taken(one, 7)).count(BEN) == 3


async def test_workers_are_shared_by_weight() -> None:
    one = scheduler(ann=3.0)
    for n in range(100):
        one.put(of_user(BEN, n, f"b{n}.test"))
        one.put(of_user(ANN, 200 + n, f"a{n}.test"))
    assert 29 <= (await taken(one, 40)).count(ANN) <= 31


async def test_a_claim_that_holds_up_another_user_goes_in_the_turn_of_that_one() -> None:
    one = scheduler()
    for n in range(50):
        one.put(of_user(ANN, n, f"a{n}.test"))
    await taken(one, 5)
    one.put(of_user(ANN, 77, "shared.test", (ANN, BEN)))
    queues = [(await one.next())[0].queue for _ in range(2)]
    assert "shared.test" in queues
    one.put(of_user(BEN, 78, "b.test"))
    assert BEN in await taken(one, 2), "it was not charged for what the other got"


async def test_a_boost_goes_before_turns() -> None:
    one = scheduler()
    one.set_boosts({"a0.test": 1, "a1.test": 1})
    one.put(of_user(BEN, 1, "b.test"))
    for n in range(2):
        one.put(of_user(ANN, 2 + n, f"a{n}.test"))
    assert await taken(one, 3) == [ANN, ANN, BEN]


async def test_an_address_takes_users_in_turn() -> None:
    one = scheduler()
    for n in range(4):
        one.put(of_user(ANN, n, f"a{n}.test"))
    one.put(of_user(BEN, 9, "b.test"))
    for _ in range(5):
        slot, claim = await one.next()
        one.finished(slot, wait_ms=0, started=False)
        one.wait_at("127.0.0.1", claim)
    for _ in range(2):
        one.wake_one("127.0.0.1")
    assert BEN in await taken(one, 2)
