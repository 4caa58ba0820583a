"""A URL as a page and as a requisite: two states, whichever comes first. And requisites have a budget of their own."""

from typing import Any

import pytest

from crawler.frontier.bulk import BulkLookup
from crawler.frontier.codec import DeadLetter
from crawler.frontier.deferred import REQUISITES, DeferredUrls
from crawler.frontier.lookup import UrlLocation, UrlLookup
from crawler.frontier.messages import AddBudget, FetchBudget
from crawler.frontier.owner import Aside, Settlement
from crawler.frontier.states import State
from crawler.frontier.stats import Stats
from crawler.instance.raised_budgets import RaisedBudgets
from crawler.model import REQUISITE, AckOutcome, AddOutcome, Candidate, Claim
from crawler.rules.places import twin_of
from tests.frontier.door import Door, found

QUEUE, ORIGIN, TRAP = "a.test", "http://a.test", "trap:path"
SETTLED = Settlement(next_fetch_ms=0, delay_ms=0)
LATER_S = 3_000_000_000.0
FIRST_STATES = tuple(state for state in State if state is not State.UNSEEN)
LAST = -1e6


def page(**more: Any) -> Candidate:
    return found("it", **more)


def requisite(path: object = "it", **more: Any) -> Candidate:
    return found(path, label=REQUISITE, score=LAST, **more)


@pytest.fixture
def door(door: Door) -> Door:
    door.frontier.has_requisites = True
    return door


async def claimed(door: Door, one: Candidate) -> Claim:
    door.now += 100_000
    claims = {claim.fingerprint: claim for claim in await door.claim(at_s=0.0, probe_ms=10**9, visibility_ms=10**9)}
    await door.return_claims(*(claim for fp, claim in claims.items() if fp != one.fingerprint))
    return claims[one.fingerprint]


async def end(door: Door, call: Any) -> None:
    assert await door.frontier.end([call]) == [AckOutcome.COMMITTED]


async def bring(door: Door, one: Candidate, state: State) -> Claim | None:
    """Add a URL and bring it there; its claim, if it has one."""
    f = door.frontier
    await door.add(one)
    if state in (State.QUEUED, State.SCHEDULED):
        return None
    claim = await claimed(door, one)
    match state:
        case State.ASIDE:
            await end(door, f.return_claims(door.fence, [(claim, 0)], aside=Aside(ORIGIN, 10**9, 0)))
        case State.RETRYING:
            await end(door, f.retry(door.fence, claim, SETTLED, due_ms=10**12, kind="tls"))
        case State.DEFERRED:
            await end(door, f.defer(door.fence, claim, TRAP))
        case State.REFUSED:
            await end(door, f.refuse(door.fence, claim, "robots"))
        case State.COMMITTED:
            await door.ack(claim)
        case State.DEAD:
            letter = DeadLetter(
                url=one.url, queue=QUEUE, domain=QUEUE, depth=1, reason="tls", detail="", attempts=1, failed_at=1.0,
                label=one.label,
            )  # fmt: skip
            await end(door, f.dead_letter(door.fence, claim, SETTLED, letter))
        case _:
            return claim
    return None


def state_in(w: UrlLocation) -> State:
    known = {
        State.DEFERRED: w.deferred, State.CLAIMED: w.claim_deadline_ms is not None,
        State.RETRYING: w.retry_at_ms is not None, State.SCHEDULED: w.visible_at is not None,
        State.ASIDE: w.probe_ms is not None, State.QUEUED: w.record, State.DEAD: w.letter, State.COMMITTED: w.entry,
        State.REFUSED: w.seen,
    }  # fmt: skip
    return next((state for state, is_so in known.items() if is_so), State.UNSEEN)


async def state_of(door: Door, one: Candidate) -> State:
    return state_in(await UrlLookup(door.engine, door.keys, 1).locate(one))


@pytest.mark.parametrize("owner", ["same owner", "other owner"])
@pytest.mark.parametrize("is_page_first", [True, False], ids=["page first", "requisite first"])
@pytest.mark.parametrize("state", FIRST_STATES)
async def test_neither_moves_the_other_whatever_state_it_is_in(
    door: Door, state: State, owner: str, *, is_page_first: bool
) -> None:
    await door.frontier.book_request(door.fence, QUEUE, SETTLED)
    one, other = (page(), requisite()) if is_page_first else (requisite(), page())
    if state is State.SCHEDULED:
        one = page(visible_at=LATER_S) if is_page_first else requisite(visible_at=LATER_S)
    assert twin_of(one.fingerprint) == other.fingerprint
    first = await bring(door, one, state)
    if owner == "other owner":
        await door.acquire("bob")
        door.frontier.session = "bob"
        if state is State.CLAIMED:
            state, first = State.QUEUED, None  # it comes back with the next claim
    assert await door.add(other) == [AddOutcome.NEW]
    assert await door.add(other, one) == [AddOutcome.SEEN, AddOutcome.SEEN]
    claim = await claimed(door, other)
    assert (claim.url, claim.label, claim.has_twin) == (one.url, other.label, True)
    assert await state_of(door, one) is state
    assert (await door.ack(claim)).outcome is AckOutcome.COMMITTED
    assert (await state_of(door, one), await state_of(door, other)) == (state, State.COMMITTED)
    if state is State.QUEUED:
        first = await claimed(door, one)
    if first is not None:
        assert (await door.ack(first)).outcome is AckOutcome.COMMITTED
        assert await state_of(door, one) is State.COMMITTED
    tally = await BulkLookup(door.engine, door.keys, 1).tally(0)
    assert (tally.seen, tally.added - tally.revived - tally.released) == (2, 2)
    assert tally.done == tally.committed + tally.dead + tally.refused + tally.deferrals


async def test_a_claim_without_a_twin_says_so(door: Door) -> None:
    await door.add(page(), requisite("other"))
    assert [claim.has_twin for claim in await door.claim()] == [False]


async def test_a_requisite_is_not_claimed_ahead_of_its_turn(door: Door) -> None:
    """A page that is found meanwhile goes first: whoever names many pictures of a site does not slow its crawl."""
    await door.add(*(requisite(n) for n in range(5)))
    due = door.now + 300
    await door.frontier.book_request(door.fence, QUEUE, Settlement(next_fetch_ms=due, delay_ms=100))
    early = await door.claim_reply(lead_ms=300, ahead_ms=1000)
    assert (early.batches, early.next_due_ms) == ((), due)
    door.now = due
    (batch,) = (await door.claim_reply(lead_ms=300, ahead_ms=1000)).batches
    assert [claim.label for claim in batch.claims] == [REQUISITE]
    await door.ack(batch.claims[0], next_ms=due + 300, delay_ms=100)
    await door.add(found("later", score=-5e5))
    (batch,) = (await door.claim_reply(lead_ms=300, ahead_ms=1000)).batches
    assert "later" in batch.claims[0].url


async def test_without_a_delay_requisites_are_claimed_many_at_a_time(door: Door) -> None:
    await door.add(*(requisite(n) for n in range(5)))
    await door.frontier.book_request(door.fence, QUEUE, Settlement(next_fetch_ms=0, delay_ms=0))
    assert len(await door.claim(per_queue_max=4)) == 4


async def test_requisites_are_bounded_for_themselves_and_use_up_no_budget_of_pages(door: Door) -> None:
    door.frontier.add_budget = AddBudget(urls=3, hosts=1, requisites=2)
    await door.add(*(requisite(f"p{n}", url=f"http://h{n}.a.test/p") for n in range(5)))
    await door.add(*(found(n) for n in range(4)))
    deferred_urls = DeferredUrls(door.frontier, 1)
    rows = {row.reason: row.urls for row in await deferred_urls.deferred()}
    assert rows == {REQUISITES: 3, "urls": 1}
    totals = await Stats(door.engine, door.keys, 1).totals()
    assert (totals.requisites_met, totals.own_taken_in, totals.pending) == (5, 3, 5)
    assert not (await door.claim())[0].label, "pages first"


async def test_a_larger_budget_releases_requisites_unless_their_bytes_are_used_up(door: Door) -> None:
    await door.frontier.book_request(door.fence, QUEUE, SETTLED)
    door.frontier.add_budget = AddBudget(requisites=2)
    await door.add(*(requisite(n) for n in range(5)))
    for claim in await door.claim():
        await door.ack(claim, body_bytes=600)
    door.frontier.add_budget = AddBudget(requisites=4)
    deferred_urls = DeferredUrls(door.frontier, 1)
    for size, released in ((1200, 0), (1201, 2), (0, 0)):
        raised = RaisedBudgets(door.frontier, deferred_urls, FetchBudget(), requisite_bytes=size)
        assert await raised.release([0]) == released
    totals = await Stats(door.engine, door.keys, 1).totals()
    assert (totals.fetched, totals.bytes, totals.requisites, totals.requisite_bytes) == (0, 0, 2, 1200)
