"""Budgets that the partition scripts take, and their replies in the form for callers of the frontier."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from crawler.errors import EngineError
from crawler.frontier.codec import DEPTH_MAX, order_of, pairs_of, parts_of, read_stamp, split_row
from crawler.model import AckOutcome, AddOutcome, Claim
from crawler.rules.places import Fingerprints


class QueueBatch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Claims of one user in one queue, best first.

    `delay_ms` is -1 until its robots.txt was read. `start_ms` is when its next request may start (on the partition
    clock), 0 for now. `waiting`: the users that have further URLs in the queue; empty where it has only the crawl's.
    `aside`: how many of its URLs are set aside.
    """

    queue: str
    delay_ms: int
    start_ms: int = 0
    claims: tuple[Claim, ...]
    waiting: tuple[str, ...] = ()
    aside: int = 0


class Probe(NamedTuple):
    """An origin to be probed; `since_ms`: how long it has been silent (on the partition clock), -1: not known to be."""

    queue: str
    origin: str
    since_ms: int


class ClaimReply(msgspec.Struct, frozen=True, kw_only=True):
    """`status` is OK, FENCED or RECOVER; `next_due_ms` on the partition clock, -1 when nothing waits. `next_fetch_ms`:
    the same of what is fetched, without the engine's own work.

    `short`: some of the queues and rows whose next block is in a file and should be brought back. `waits`: boost and
    user -> when the first of their queues is due, -1 for none; empty where there are neither boosts nor users.
    `probes`: origins that do not answer and whose URLs went back into their queues, one each as a probe.
    """

    status: str
    next_due_ms: int = -1
    next_fetch_ms: int = -1
    batches: tuple[QueueBatch, ...] = ()
    short: tuple[str, ...] = ()
    waits: Mapping[tuple[int, str], int] = msgspec.field(default_factory=dict)
    probes: tuple[Probe, ...] = ()


class AckReply(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`woken`: number of sleeping queues of the partition that the out-links of the whole call woke."""

    outcome: AckOutcome
    sequence: int = 0
    woken: int = 0


class AddReply(msgspec.Struct, frozen=True, kw_only=True):
    """Outcomes in the order of the candidates; `woken`: number of sleeping queues that woke."""

    outcomes: tuple[AddOutcome, ...]
    woken: int


def outcome_of(raw: Sequence[Any]) -> AckOutcome:
    """The first word of a reply."""
    return AckOutcome(raw[0].decode())


def joined(earlier: AddReply | EngineError | None, raw: Any) -> AddReply | EngineError:
    """The replies of two successive calls for the same partition as one."""
    if isinstance(earlier, EngineError):
        return earlier
    if isinstance(raw, EngineError):
        return raw
    outcomes = tuple(AddOutcome(digit - 48) for digit in raw[0])
    if earlier is None:
        return AddReply(outcomes=outcomes, woken=int(raw[1]))
    return AddReply(outcomes=earlier.outcomes + outcomes, woken=earlier.woken + int(raw[1]))


def merged(parts: Sequence[tuple[Sequence[int], AddReply | EngineError]]) -> AddReply | EngineError:
    """The replies for some URLs of a partition each, given by their places, as one; an error if there is one."""
    outcomes: dict[int, AddOutcome] = {}
    woken = 0
    for places, reply in parts:
        if isinstance(reply, EngineError):
            return reply
        outcomes.update(zip(places, reply.outcomes, strict=True))
        woken += reply.woken
    return AddReply(outcomes=tuple(outcomes[place] for place in range(len(outcomes))), woken=woken)


def ack_replies(raw: Any, n: int) -> list[AckReply | EngineError]:
    """The reply to a call with n commits, in their order."""
    if isinstance(raw, EngineError):
        return [raw] * n
    if raw[0] != b"OK":
        return [AckReply(outcome=outcome_of(raw))] * n
    return [_ack_reply(answer, int(raw[1])) for answer in raw[2:]]


def _ack_reply(answer: bytes, woken: int) -> AckReply:
    """'GONE', 'YOURS sequence' or 'COMMITTED sequence digits'."""
    words = answer.split(b" ", 2)
    if words[0] == b"COMMITTED":
        return AckReply(outcome=AckOutcome.COMMITTED, sequence=int(words[1]), woken=woken)
    if words[0] == b"YOURS":
        return AckReply(outcome=AckOutcome.ALREADY_YOURS, sequence=int(words[1]))
    return AckReply(outcome=AckOutcome.GONE)


def claim_reply(lease: tuple[int, int], raw: Sequence[Any], fingerprints: Fingerprints, at_s: float) -> ClaimReply:
    """The claims of one partition; `lease` is (partition, epoch), `at_s` their wall time."""
    status = raw[0].decode()
    if status != "OK":
        return ClaimReply(status=status)
    flat, position, batches = raw[2], 0, []
    deaths = {fp.decode(): int(noted.split(b" ")[0]) for fp, noted in pairs_of(raw[3])}
    while position < len(flat):
        queue, domain = flat[position].decode(), flat[position + 1].decode()
        user, waiting = "", tuple[str, ...]()
        if "|" in queue:
            queue, user, waiting = _shared(queue)
        delay, start, aside, n = map(int, flat[position + 2 : position + 6])
        position += 6
        end = position + 4 * n
        of_queue = (queue, domain, user)
        claims = [_claim(lease, of_queue, fingerprints, at_s, deaths, flat, i) for i in range(position, end, 4)]
        batches.append(
            QueueBatch(
                queue=queue, delay_ms=delay, start_ms=start, claims=tuple(claims), waiting=waiting, aside=aside
            )
        )  # fmt: skip
        position = end
    short = tuple(queue.decode() for queue in raw[4])
    due = raw[5]
    waits = {(int(due[i]), due[i + 1].decode()): int(due[i + 2]) for i in range(0, len(due), 3)}
    probes = tuple(Probe(q.decode(), o.decode(), int(at)) for q, o, at in zip(*[iter(raw[6])] * 3, strict=True))
    return ClaimReply(
        status=status,
        next_due_ms=int(raw[1]),
        batches=tuple(batches),
        short=short,
        waits=waits,
        probes=probes,
        next_fetch_ms=int(raw[7]),
    )


def _shared(row: str) -> tuple[str, str, tuple[str, ...]]:
    """(queue, user, users that have further URLs) of 'QUEUE|USERS' or 'QUEUE|@USER|USERS'."""
    name, _, users = row.rpartition("|")
    return *split_row(name), tuple(users.split(",")[:-1])


def _claim(
    lease: tuple[int, int],
    of_queue: tuple[str, str, str],
    fingerprints: Fingerprints,
    at_s: float,
    deaths: Mapping[str, int],
    flat: Sequence[bytes],
    at: int,
) -> Claim:
    """A claim from token, score, member and origin, which start at `at`; cheaper than `pending_url`."""
    queue, domain, user = of_queue
    score = int(flat[at + 1])
    url, stamp = parts_of(flat[at + 2].decode(), queue, flat[at + 3].decode())
    known = read_stamp(stamp, at_s)
    fp = (fingerprints.of_run(known.run) if known.run else fingerprints).of(url, known.request, known.label)
    return Claim(
        url=url, fingerprint=fp, visit=1, partition=lease[0], epoch=lease[1], token=flat[at].decode(),
        domain=domain, queue=queue, depth=DEPTH_MAX - (score >> 13 & 255), redirects=score >> 8 & 15,
        attempts=score >> 4 & 15, deliveries=score & 15, seed=bool(score >> 12 & 1), score=order_of(score),
        deaths=deaths.get(fp, 0) if deaths else 0, claimed_at=at_s, queued_at=known.queued_at,
        seed_number=known.seed_number, run=known.run, label=known.label, user=user, request=known.request,
    )  # fmt: skip


def with_depths(reply: ClaimReply, depths: Mapping[str, int]) -> ClaimReply:
    """The reply with other depths, by fingerprint."""
    batches = tuple(
        replace(batch, claims=tuple(replace(c, depth=depths.get(c.fingerprint, c.depth)) for c in batch.claims))
        for batch in reply.batches
    )
    return replace(reply, batches=batches)


def with_twins(reply: ClaimReply, twins: Collection[str]) -> ClaimReply:
    """The reply with those claims marked, by fingerprint."""
    batches = tuple(
        replace(batch, claims=tuple(replace(c, has_twin=c.fingerprint in twins) for c in batch.claims))
        for batch in reply.batches
    )
    return replace(reply, batches=batches)


class FetchBudget(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on what is fetched of a queue; 0 is no limit. URLs beyond them are deferred."""

    pages: int = 0
    bytes: int = 0
    depth: int = 0


class AddBudget(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on what is admitted when URLs are added; 0 is no limit. URLs beyond them are deferred.

    `urls` of a queue; `hosts` of a domain; `requisites` of a queue.
    """

    urls: int = 0
    hosts: int = 0
    requisites: int = 0


class BudgetReached(msgspec.Struct, frozen=True, kw_only=True):
    """A used-up budget of the whole crawl: no URL is handed out while this is stored in the engine.

    Instances follow it among themselves, because a script sees only one partition.
    """

    reason: str  # as of deferred URLs: "crawl:pages", "crawl:bytes"
    budget: int
