"""Dead letters keep each attempt, are read in pieces, put back and thrown away, and every count stays right."""

import contextlib

import pytest
from msgspec.structs import replace as replaced

from crawler.audit.judge_frontier import Committed, disagreements
from crawler.errors import EngineError
from crawler.frontier.arguments import DeadLetterArgs
from crawler.frontier.bulk import BulkLookup
from crawler.frontier.codec import DETAIL_MAX, DeadLetter, FailedAttempt, pack, pack_letter
from crawler.frontier.dead_letters import DeadLetters, StoredLetter
from crawler.frontier.messages import AddBudget
from crawler.frontier.owner import Settlement
from crawler.frontier.stats import Stats
from crawler.model import AckOutcome, Candidate, Claim
from tests.frontier.door import Door, found

SETTLED = Settlement(next_fetch_ms=0)


def letter_of(claim: Claim, *, reason: str = "timeout", attempts: int = 1, at: float = 9.0) -> DeadLetter:
    return DeadLetter(
        url=claim.url, queue=claim.queue, domain=claim.domain, depth=claim.depth, reason=reason, detail="no answer",
        attempts=attempts, failed_at=at, seed=claim.seed, redirects=claim.redirects, score=claim.score,
        label=claim.label,
    )  # fmt: skip


async def fail(door: Door, claim: Claim, *, at: float, kind: str = "connect", detail: str = "refused") -> Claim:
    """A failed attempt, and the claim of the next one."""
    call = door.frontier.retry(door.fence, claim, SETTLED, due_ms=door.now, kind=kind, at_s=at, detail=detail)
    await door.frontier.end([call])
    door.now += 10_000
    claims = await door.claim()
    await door.return_claims(*[c for c in claims if c.url != claim.url])
    return next(c for c in claims if c.url == claim.url)


async def bury(door: Door, *candidates: Candidate, reason: str = "timeout", is_attempt: bool = True) -> list[Claim]:
    """Add them and give them up."""
    await door.add(*candidates)
    buried: list[Claim] = []
    while len(buried) < len(candidates):
        door.now += 10_000
        claims = await door.claim()
        await door.frontier.end(
            [
                door.frontier.dead_letter(door.fence, c, SETTLED, letter_of(c, reason=reason), is_attempt=is_attempt)
                for c in claims
            ]
        )
        buried += claims
    return buried


def letters_of(door: Door) -> DeadLetters:
    return DeadLetters(door.frontier, 1)


async def read(door: Door) -> list[StoredLetter]:
    return [one async for some in letters_of(door).read() for one in some]


async def sums(door: Door) -> tuple[int, int, int, int, list[str]]:
    """(added, done, letters, refused), and what does not add up."""
    t = await BulkLookup(door.engine, door.keys, 1).tally(0)
    return t.added, t.done, t.dead, t.refused, list(disagreements(t, Committed(), exactly=True))


async def test_a_dead_letter_has_every_attempt_of_all_owners(door: Door) -> None:
    await door.add(found("a\nb", seed=True, redirects=2))
    (claim,) = await door.claim()
    claim = await fail(door, claim, at=1.5, detail="x" * 1000)
    await door.acquire("bob")
    door.now += 60_000
    (claim,) = await door.claim()
    claim = await fail(door, claim, at=2.5, kind="tls", detail='say "no",\n[]')
    await door.frontier.end([door.frontier.dead_letter(door.fence, claim, SETTLED, letter_of(claim, attempts=3))])
    (stored,) = await read(door)
    attempts = (
        FailedAttempt(1.5, "connect", "x" * DETAIL_MAX),
        FailedAttempt(2.5, "tls", 'say "no",\n[]'),
        FailedAttempt(9.0, "timeout", "no answer"),
    )
    assert stored.letter == replaced(letter_of(claim, attempts=3), failures=attempts)
    assert await letters_of(door).find(0, claim.fingerprint) == stored
    assert await letters_of(door).find(0, "1") is None


async def test_a_url_given_up_without_an_attempt_has_only_the_earlier_ones(door: Door) -> None:
    await bury(door, found(1), is_attempt=False)
    assert [one.letter.failures for one in await read(door)] == [()]


async def test_attempts_are_forgotten_when_a_url_ends_well(door: Door) -> None:
    await door.add(found(1))
    (claim,) = await door.claim()
    await door.ack(await fail(door, claim, at=1.0))
    assert await door.engine.command("EXISTS", door.keys.of(0, "a")) == 0


async def test_a_letter_that_cant_be_read_leaves_its_url_where_it_is(door: Door) -> None:
    """A script that fails rolls nothing back: it reads before it deletes."""
    await door.add(found(1), found(2, host="b.test"))
    claim, other = sorted(await door.claim(), key=lambda c: c.url)
    fields = dict.fromkeys(DeadLetterArgs._fields, 0) | {"letter": "no JSON", "attempt": "", "kind": "tls"}
    args = pack(DeadLetterArgs(**fields)._replace(fingerprint=claim.fingerprint, token=claim.token))
    with pytest.raises(EngineError, match="invalid token"):
        await door.engine.run("dead_letter", (door.keys.meta(0),), door.session, door.epoch, door.now, args)
    assert (await door.ack(claim)).outcome is AckOutcome.COMMITTED
    await door.frontier.end([door.frontier.dead_letter(door.fence, other, SETTLED, letter_of(other))])
    with contextlib.closing(door.node) as node:
        (fp,) = node.hkeys(door.keys.of(0, "dead"))
        node.hset(door.keys.of(0, "dead"), fp, "no JSON\n")
    (letter,) = [StoredLetter(partition=0, fingerprint=other.fingerprint, letter=letter_of(other))]
    with pytest.raises(EngineError):
        await letters_of(door).discard([letter], "purged")
    with contextlib.closing(door.node) as node:
        assert node.hkeys(door.keys.of(0, "dead")) == [fp]


async def test_a_revived_url_is_as_it_was_before_its_first_attempt_and_every_count_adds_up(door: Door) -> None:
    await door.add(first := found(1, seed=True, redirects=3, depth=2, score=7.25), found(2, host="b.test"))
    (claim, other) = sorted(await door.claim(), key=lambda c: c.url)
    await door.return_claims(other)
    again = await fail(door, claim, at=1.0)
    await door.frontier.end([door.frontier.dead_letter(door.fence, again, SETTLED, letter_of(again, attempts=2))])
    assert await sums(door) == (2, 1, 1, 0, [])
    (letter,) = await read(door)
    assert await letters_of(door).requeue([letter]) == 1
    assert await sums(door) == (3, 1, 0, 0, [])
    (domain,) = await Stats(door.engine, door.keys, 1).domains([("a.test", 0)])
    assert (domain.dead, domain.pending, domain.queued) == (0, 1, 1)
    door.now += 10_000
    back = next(c for c in await door.claim() if c.url == first.url)
    assert back == replaced(claim, token=back.token, queued_at=back.queued_at)
    assert await door.add(first) == [0], "it was forgotten that it had been seen"


async def test_reviving_twice_or_at_once_with_discarding_happens_once(door: Door) -> None:
    await bury(door, found(1), found(2, host="b.test"))
    all_letters = await read(door)
    assert await letters_of(door).requeue([*all_letters, all_letters[0]]) == 2
    assert await letters_of(door).requeue(all_letters) == 0
    assert await letters_of(door).discard(all_letters, "purged") == 0
    assert await sums(door) == (4, 2, 0, 0, [])


async def test_a_requeued_url_counts_once_for_the_budget_of_its_queue(door: Door) -> None:
    door.frontier.add_budget = AddBudget(urls=2)
    await bury(door, found(1))
    assert await letters_of(door).requeue(await read(door)) == 1
    await door.add(found(2))
    assert (await BulkLookup(door.engine, door.keys, 1).tally(0)).deferred == 0
    await door.add(found(3))
    assert (await BulkLookup(door.engine, door.keys, 1).tally(0)).deferred == 1


async def test_a_requeued_url_starts_with_no_attempts_and_may_die_again(door: Door) -> None:
    await bury(door, found(1))
    await letters_of(door).requeue(await read(door))
    door.now += 10_000
    (claim,) = await door.claim()
    await door.frontier.end([door.frontier.dead_letter(door.fence, claim, SETTLED, letter_of(claim, at=20.0))])
    assert [one.letter.failures for one in await read(door)] == [(FailedAttempt(20.0, "timeout", "no answer"),)]
    assert await sums(door) == (2, 2, 1, 0, [])


async def test_a_revived_url_of_a_host_keeps_its_domain_and_its_origin(door: Door) -> None:
    """Its queue is named by a host, its origin is in no list but that of the queue."""
    odd = found("x", host="www.b.test", domain="b.test", url="http://www.b.test:8080/x")
    (claim,) = await bury(door, odd)
    await letters_of(door).requeue(await read(door))
    door.now += 10_000
    (back,) = await door.claim()
    assert (back.url, back.queue, back.domain) == (claim.url, "www.b.test", "b.test")


async def test_in_a_crawl_with_a_limit_of_depth_a_revived_url_can_be_found_by_a_shorter_path(door: Door) -> None:
    door.frontier.is_limited = True
    await bury(door, found(1, depth=5))
    await letters_of(door).requeue(await read(door))
    assert await door.add(found(1, depth=3)) == [2]


async def test_a_discarded_url_stays_seen_and_counts_as_refused(door: Door) -> None:
    await bury(door, found(1), found(2, host="b.test"))
    first, _ = sorted(await read(door), key=lambda one: one.letter.url)
    assert await letters_of(door).discard([first, first], "purged") == 1
    assert await sums(door) == (3, 3, 1, 1, [])
    assert await door.add(found(1)) == [0]
    (domain,) = await Stats(door.engine, door.keys, 1).domains([("a.test", 0)])
    assert (domain.dead, dict(domain.refused)) == (0, {"purged": 1})


async def test_thousands_of_dead_letters_are_read_and_requeued_in_bounded_calls(door: Door) -> None:
    n = 1200
    await bury(door, *(found(i, host=f"h{i % 50}.test") for i in range(n)), reason="server_error")
    pieces = [some async for some in letters_of(door).read()]
    assert len(pieces) > 1
    assert max(map(len, pieces)) < n
    everything = [one for some in pieces for one in some]
    assert len({one.fingerprint for one in everything}) == len(everything) == n
    assert await letters_of(door).requeue(everything) == n
    assert await sums(door) == (2 * n, n, 0, 0, [])
    await door.frontier.book_request(door.fence, "h1.test", SETTLED)
    assert len(await door.claim()) == 50


async def test_the_owner_hears_of_a_queue_that_a_revival_woke(door: Door) -> None:
    await bury(door, found(1))
    pubsub = door.node
    try:
        listener = pubsub.pubsub(ignore_subscribe_messages=True)
        listener.subscribe(f"{door.keys.hints}ann")
        listener.get_message(timeout=1.0)
        door.frontier.session = "an operator"
        await letters_of(door).requeue(await read(door))
        message = listener.get_message(timeout=2.0)
        assert message is not None
        assert message["data"] == door.keys.meta(0).encode()
        listener.close()
    finally:
        pubsub.close()


async def test_dead_letters_of_a_packed_idle_queue_are_requeued_and_discarded(door: Door) -> None:
    async def pass_an_idle_time() -> None:
        for _ in range(2):
            door.now += 200_000
            assert await door.claim() == []
        assert await door.engine.command("EXISTS", door.keys.of(0, "w:a.test")) == 0, "it is not packed"

    await bury(door, found(1), found(2))
    await pass_an_idle_time()
    thrown, back = await read(door)
    assert await letters_of(door).discard([thrown], "purged") == 1
    await pass_an_idle_time()
    (domain,) = await Stats(door.engine, door.keys, 1).domains([("a.test", 0)])
    assert (domain.dead, dict(domain.refused), domain.pending) == (1, {"purged": 1}, 0)
    assert await letters_of(door).requeue([back]) == 1
    (claim,) = await door.claim()
    assert claim.url == back.letter.url
    assert await sums(door) == (4, 3, 0, 1, [])


async def test_a_requeued_url_keeps_its_label_and_a_dead_letter_its_traceback(door: Door) -> None:
    await door.add(found("x", label="detail"))
    (claim,) = await door.claim()
    letter = replaced(letter_of(claim, reason="handler"), trace='File "shop.py", line 3\n    1 / 0\nZeroDivisionError')
    await door.frontier.end([door.frontier.dead_letter(door.fence, claim, SETTLED, letter)])
    (stored,) = await read(door)
    assert (stored.letter.label, stored.letter.trace) == ("detail", letter.trace)
    assert len(stored.letter.failures) == 1
    assert await letters_of(door).requeue([stored]) == 1
    door.now += 10_000
    (again,) = await door.claim()
    assert (again.url, again.label) == (claim.url, "detail")


def test_text_from_a_site_is_cut_in_a_dead_letter() -> None:
    letter = DeadLetter(
        url="http://a.test/", queue="a.test", domain="a.test", depth=1, reason="protocol", detail="x" * 100_000,
        attempts=1, failed_at=1.0,
    )  # fmt: skip
    assert len(pack_letter(letter)) < 2_000
