"""The scripts on the real engine against a model in plain dicts, step by step, in any order that Hypothesis finds."""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test
from msgspec.structs import replace

from crawler.engine.client import Engine
from crawler.frontier.codec import DeadLetter
from crawler.frontier.leases import SlotRequest
from crawler.frontier.owner import Ack, ClaimRequest, Fence, Settlement
from crawler.frontier.scripts import library
from crawler.model import REQUISITE, AckOutcome, CommitEntry
from tests.frontier.door import CALL_S
from tests.frontier.machine import HOSTS, candidates, delays, deliveries, moments, partitions, sessions, some, waits
from tests.frontier.machine_aside import AsideSteps
from tests.frontier.machine_deferred import ParkingSteps
from tests.frontier.machine_restore import RestoreSteps
from tests.frontier.machine_run_steps import RunSteps
from tests.frontier.machine_stops import StopSteps
from tests.frontier.model_urls import (
    AHEAD_MS,
    DEFAULT_DELAY_MS,
    OUT_MAX,
    PER_QUEUE_MAX,
    USERS,
    VISIBILITY_MS,
)
from tests.frontier.raw import RawPartition
from tests.frontier.small_blocks import small_blocks
from tests.frontier.spilling_steps import SpillingSteps

EXAMPLES = {"default": 20, "all": 200, "cluster": 6, "deep": 3000, "quick": 5, "long": 800}
STEPS = 50
TIMEOUT_S = 600  # the slow ones take two minutes on a machine that has nothing else to do


class FrontierMachine(SpillingSteps, ParkingSteps, StopSteps, RunSteps, AsideSteps, RestoreSteps):
    """Sessions that follow no rule but the scripts' own."""

    # Steps

    @rule(ms=st.sampled_from((1, 400, 1000, 2600, VISIBILITY_MS + 1, 60_000)))
    def time_passes(self, ms: int) -> None:
        self._now += ms
        self._wall += ms

    @rule(ms=st.sampled_from((-3_600_000, -500, 500, 3_600_000)))
    def wall_clock_steps(self, ms: int) -> None:
        self._wall += ms

    @rule(data=st.data(), partition=partitions, session=sessions)
    def add(self, data: st.DataObject, partition: int, session: str) -> None:
        found = self._of_users(data.draw(candidates(partition, 6)))
        reply = self._do(self._frontiers[session].add({partition: found}))[partition]
        model = self._models[partition]
        waiting = {(c.queue, user): len(model.of_row(c.queue, user)) for c in found for user in self.users}
        asleep = {one for one in waiting if one not in self._ready(partition)}
        expected = model.add(found)
        assert "".join(str(int(o)) for o in reply.outcomes) == expected
        fresh = {n for n, user in waiting if len(model.of_row(n, user)) > waiting[n, user]}
        woken = {
            (n, user) for n, user in asleep if n in fresh and model.is_claimable_by(n, user) and model.of_row(n, user)
        }
        assert reply.woken == len(woken)

    @rule(
        data=st.data(), partition=partitions, session=sessions,
        after=st.sampled_from((-1, 1, 400, 2600, 60_000, 3_000_000)),
    )  # fmt: skip
    def add_scheduled(self, data: st.DataObject, partition: int, session: str, after: int) -> None:
        drawn = data.draw(candidates(partition, 6, run=""))
        found = [replace(c, visible_at=(self._wall + after) / 1000) for c in drawn if c.label != REQUISITE]
        if not found:
            return
        reply = self._do(self._frontiers[session].add({partition: found}))[partition]
        assert "".join(str(int(o)) for o in reply.outcomes) == self._models[partition].add(found)
        assert reply.woken == 0

    def _ready(self, partition: int) -> set[tuple[str, str]]:
        return set(RawPartition.of(self._before, self._keys, partition).ready())

    @rule(partition=partitions, session=sessions, floor=st.integers(0, 6), stale=st.sampled_from((0, 0, 0, 1)))
    def acquire(self, partition: int, session: str, floor: int, stale: int) -> None:
        self._acquire(partition, session, floor, stale=bool(stale))

    @rule(partition=partitions, session=sessions, off=moments)
    def release(self, partition: int, session: str, off: int) -> None:
        """By any session that believes to own it."""
        fence = self._fence(session, partition, self._epochs.get((session, partition), 0), off)
        self._do(self._leases.release([fence]))
        if self._is_held(fence):
            self._models[partition].release()

    @rule(partition=partitions, urls_max=st.integers(1, 8), off=moments, lead=st.sampled_from((0, 300, 1500)))
    def claim(self, partition: int, urls_max: int, off: int, lead: int) -> None:
        self._serial += 1
        session = self._models[partition].session or "ann"
        request = ClaimRequest(
            request_id=f"{session}-{self._serial}", urls_max=urls_max, per_queue_max=PER_QUEUE_MAX, ahead_ms=AHEAD_MS,
            visibility_ms=VISIBILITY_MS, default_delay_ms=DEFAULT_DELAY_MS, out_max=OUT_MAX, lead_ms=lead,
            at_s=self._wall / 1000,
        )  # fmt: skip
        self._claim(self._owner(partition, off), request)

    @rule(partition=partitions, off=moments)
    def claim_again_because_the_reply_was_lost(self, partition: int, off: int) -> None:
        fence = self._owner(partition, off)
        request = self._requests.get((fence.session, partition))
        if request:
            self._claim(fence, request)

    @rule(partition=partitions, session=sessions, off=moments)
    def claim_under_an_old_lease(self, partition: int, session: str, off: int) -> None:
        model, epoch = self._models[partition], self._epochs.get((session, partition), 0)
        if (session, epoch) == (model.session, model.epoch):
            epoch -= 1
        request = ClaimRequest(
            request_id="old",
            urls_max=9,
            per_queue_max=9,
            ahead_ms=AHEAD_MS,
            visibility_ms=1,
            default_delay_ms=0,
            out_max=9,
        )
        fence = self._fence(session, partition, epoch, off)
        assert not self._is_held(fence)
        (reply,) = self._do(self._frontiers[session].claim([(fence, request)]))
        assert reply.status == "FENCED"

    # Ends of claims: of any delivery ever made, under the fence it was made under or under today's.

    @precondition(lambda self: self._deliveries)
    @rule(
        data=st.data(), index=some, off=moments, which=deliveries, after=waits, delay=delays,
        status=st.sampled_from((200, 301, 404)), refused=st.sampled_from(({}, {"scope": 2}, {"scope": 1, "depth": 3})),
    )  # fmt: skip
    def ack(
        self, data: st.DataObject, index: int, off: int, which: str, after: int, delay: int, status: int, refused: dict
    ) -> None:
        model, claim, fence, counts = self._pick(index, off, which)
        children = data.draw(st.one_of(st.just([]), candidates(claim.partition, 4, claim.run)))
        children = [replace(c, user=claim.user) for c in children]
        entry = CommitEntry(
            url=claim.url, fingerprint=claim.fingerprint, mime="unk", visit=1, status_text=str(status), fetched_at=1.0,
            body_bytes=100, fetch_ms=7, label=claim.label,
        )  # fmt: skip
        settlement = Settlement(next_fetch_ms=self._now + after, delay_ms=delay)
        ack = Ack(claim=claim, fence=fence, entry=entry, items=children, settlement=settlement, refused=refused)
        (reply,) = self._do(self._frontiers[fence.session].ack([ack]))
        if self._untouched:
            assert reply.outcome is AckOutcome.FENCED
        elif counts:
            model.add(children)
            sequence = model.commit(claim.fingerprint, status=status, body_bytes=100, fetch_ms=7)
            model.refused_links(claim.fingerprint, refused)
            self._settled(model, claim, after, delay)
            assert (reply.outcome, reply.sequence) == (AckOutcome.COMMITTED, sequence)
        elif model.log.get(f"{claim.fingerprint}:1") == claim.token:
            assert reply.outcome is AckOutcome.ALREADY_YOURS
        else:
            assert reply.outcome is AckOutcome.GONE

    @precondition(lambda self: self._deliveries)
    @rule(index=some, off=moments, which=deliveries, after=waits, delay=delays, due=waits)
    def retry(self, index: int, off: int, which: str, after: int, delay: int, due: int) -> None:
        model, claim, fence, counts = self._pick(index, off, which)
        due_ms = fence.now_ms + due
        settlement = Settlement(next_fetch_ms=self._now + after, delay_ms=delay)
        call = self._frontiers[fence.session].retry(fence, claim, settlement, due_ms=due_ms, kind="timeout")
        if self._ended(fence, call, counts):
            model.retry(claim.fingerprint, due_ms=due_ms, kind="timeout")
            self._settled(model, claim, after, delay)

    @precondition(lambda self: self._deliveries)
    @rule(index=some, off=moments, which=deliveries, after=waits, delay=delays, is_attempt=st.booleans())
    def dead(self, index: int, off: int, which: str, after: int, delay: int, is_attempt: bool) -> None:
        model, claim, fence, counts = self._pick(index, off, which)
        letter = DeadLetter(
            url=claim.url, queue=claim.queue, domain=claim.domain, depth=claim.depth, reason="dns_error", detail="",
            attempts=claim.attempts + is_attempt, failed_at=1.0, score=claim.score, run=claim.run,
            request=claim.request,
        )  # fmt: skip
        settlement = Settlement(next_fetch_ms=self._now + after, delay_ms=delay)
        call = self._frontiers[fence.session].dead_letter(fence, claim, settlement, letter, is_attempt=is_attempt)
        if self._ended(fence, call, counts):
            model.bury(claim.fingerprint, kind="dns_error", is_attempt=is_attempt)
            self._settled(model, claim, after, delay)

    @precondition(lambda self: self._deliveries)
    @rule(index=some, off=moments, which=deliveries)
    def refuse(self, index: int, off: int, which: str) -> None:
        model, claim, fence, counts = self._pick(index, off, which)
        if self._ended(fence, self._frontiers[fence.session].refuse(fence, claim, "robots"), counts):
            model.refuse(claim.fingerprint, reason="robots")

    def _ended(self, fence: Fence, call: Any, counts: bool) -> bool:
        (outcome,) = self._do(self._frontiers[fence.session].end([call]))
        if self._untouched:
            assert outcome is AckOutcome.FENCED
        else:
            assert outcome is (AckOutcome.COMMITTED if counts else AckOutcome.GONE)
        return counts

    @precondition(lambda self: self._deliveries)
    @rule(index=some, off=moments, which=deliveries, started=st.sampled_from((None, 0, 1500)))
    def give_back(self, index: int, off: int, which: str, started: int | None) -> None:
        model, claim, fence, counts = self._pick(index, off, which)
        at = 0 if started is None else self._now + started
        frontier = self._frontiers[fence.session]
        (outcome,) = self._do(frontier.end([frontier.return_claims(fence, [(claim, at)])]))
        assert outcome is (AckOutcome.FENCED if self._untouched else AckOutcome.COMMITTED)
        if counts:
            model.give_back(claim.fingerprint)
            model.settle(claim.queue, at, -1)

    @precondition(lambda self: self._deliveries)
    @rule(index=some, off=moments, which=deliveries)
    def extend(self, index: int, off: int, which: str) -> None:
        """A claim that is still worked on; never an earlier deadline than it had."""
        model, claim, fence, counts = self._pick(index, off, which)
        self._do(self._frontiers[fence.session].extend_claims({0: (fence, [claim])}, visibility_ms=VISIBILITY_MS))
        if counts:
            model.extend(claim.fingerprint, fence.now_ms + VISIBILITY_MS)

    # The rest of what owners and others do

    @precondition(lambda self: any(d.claim.request for d in self._deliveries))
    @rule(index=some, off=moments, which=deliveries)
    def note_sent(self, index: int, off: int, which: str) -> None:
        model, claim, fence, counts = self._pick(index, off, which, has_request=True)
        outcome = self._do(self._frontiers[fence.session].note_sent(fence, claim))
        if counts:
            model.note_sent(claim.fingerprint)
        assert (outcome is AckOutcome.COMMITTED) == counts

    @precondition(lambda self: self._deliveries)
    @rule(index=some, session=sessions, teller=sessions)
    def record_crash(self, index: int, session: str, teller: str) -> None:
        """A session's process died with a URL under way, as anybody may tell, and tell again."""
        claim = self._deliveries[index % len(self._deliveries)].claim
        model = self._models[claim.partition]
        noted = self._do(self._frontiers[teller].record_crash(session, {claim.partition: [claim.fingerprint]}))
        assert noted == model.record_crash(claim.fingerprint, session)
        self._untouched = not noted

    @rule(partition=partitions, host=st.integers(0, 2), off=moments, after=waits, delay=delays, old=st.booleans())
    def pace(self, partition: int, host: int, off: int, after: int, delay: int, old: bool) -> None:
        fence, queue = self._owner(partition, off), HOSTS[host][0]
        if old:
            fence = replace(fence, epoch=fence.epoch - 1)
        settlement = Settlement(next_fetch_ms=self._now + after, delay_ms=delay)
        if not fence.session:
            return
        outcome = self._do(self._frontiers[fence.session].book_request(fence, queue, settlement))
        held = self._is_held(fence)
        assert outcome is (AckOutcome.COMMITTED if held else AckOutcome.FENCED)
        if held:
            self._models[partition].settle(queue, settlement.next_fetch_ms, delay)

    @rule(partition=partitions, host=st.integers(0, 2), session=sessions, off=moments, seen=waits, again=st.booleans())
    def borrow(self, partition: int, host: int, session: str, off: int, seen: int, again: bool) -> None:
        """A borrower asks for a turn: a new one, or the last one of its session, which may have it already."""
        model, name = self._models[partition], HOSTS[host][0]
        queue = model.queue(name)
        self._waiters += not again
        waiter, mark, now_ms = f"{session}-{self._waiters}", queue.borrower, max(0, self._now + off)
        epoch = model.epoch - (seen == 1)  # sometimes what the borrower knew of an earlier owner's time
        asked = SlotRequest(waiter=waiter, now_ms=now_ms, epoch=epoch, mark=mark, seen_ms=seen)
        reply = self._do(self._slot_queue.borrow(partition, name, asked))
        clock = max(model.clock, now_ms) if epoch == model.epoch else model.clock
        assert (reply.clock_ms, reply.epoch) == (clock, model.epoch)
        granted = model.borrow(name, waiter, seen, clock)
        assert (reply.wait_ms == 0) == granted, (reply, queue)
        is_marked = not granted and queue.patience_ms and not model.out(name)
        assert reply.mark == (queue.borrower if is_marked else "")

    @rule(partition=partitions, host=st.integers(0, 2), session=sessions)
    def release_slot(self, partition: int, host: int, session: str) -> None:
        """Some borrower's request has ended: of the one who has the turn, or of one that was given up."""
        model, name = self._models[partition], HOSTS[host][0]
        waiter = f"{session}-{self._waiters}"
        self._do(self._slot_queue.release(partition, name, waiter))
        queue = model.queue(name)
        if queue.borrower in ("", waiter):
            queue.borrower, queue.borrower_seen = f"done:{waiter}", None

    @rule(partition=partitions, session=sessions, off=moments)
    def drain(self, partition: int, session: str, off: int) -> None:
        """What any session read of the log, by any session that believes to own the partition."""
        fence = self._fence(session, partition, self._epochs.get((session, partition), 1), off)
        entries = self._do(self._frontiers[session].undrained(partition))
        model = self._models[partition]
        assert {f"{e.fingerprint}:{e.visit}" for e in entries} == set(model.log)
        if entries:
            self._do(self._frontiers[session].drain_log([(fence, entries)]))
            if self._is_held(fence):
                model.log.clear()


class LongQueues(FrontierMachine):
    """With many URLs from the start, and only what puts them in, takes them out and moves them about."""

    known = 7
    retry = dead = refuse = extend = record_crash = pace = borrow = release_slot = drain = None  # type: ignore[assignment]


class SharedQueues(FrontierMachine):
    """With URLs of several users in each queue."""

    known, users = 5, ("", *USERS)
    record_crash = pace = release_slot = drain = None  # type: ignore[assignment]


class LongSharedQueues(LongQueues):
    """With many URLs of several users from the start."""

    known, users = 9, ("", *USERS)


class ParkedRows(LongQueues):
    """Only what defers URLs, moves them about, and puts them back."""

    add = ack = give_back = release = claim_again_because_the_reply_was_lost = None  # type: ignore[assignment]
    claim_under_an_old_lease = close_run = people_revive_or_discard = purge = time_passes = None  # type: ignore[assignment]


def profile() -> str:
    is_all = settings.get_current_profile_name() == "all"
    return os.environ.get("HYPOTHESIS_PROFILE", "all" if is_all else "default")


@contextlib.contextmanager
def connected(url: str) -> Iterator[tuple[asyncio.AbstractEventLoop, Engine]]:
    loop = asyncio.new_event_loop()
    engine = Engine(url, library(), call_timeout_s=CALL_S)
    try:
        loop.run_until_complete(engine.connect())
        yield loop, engine
    finally:
        loop.run_until_complete(engine.close())
        loop.close()


def run_machine(url: str, raw: list[Any], examples: int, machine: type[FrontierMachine] = FrontierMachine) -> None:
    config = settings(
        max_examples=examples, stateful_step_count=STEPS, database=None, print_blob=False,
        derandomize=profile() in ("default", "all", "quick"), suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink] if profile() == "deep" else [Phase.generate],  # shrinking takes minutes
    )  # fmt: skip
    with small_blocks(), connected(url) as (loop, engine), contextlib.ExitStack() as stack:
        clients = [stack.enter_context(contextlib.closing(node.client())) for node in raw]
        run_state_machine_as_test(lambda: machine(loop, engine, clients), settings=config)


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S)
def test_the_scripts_do_what_a_plain_model_does(engine: Any) -> None:
    run_machine(engine.url, [engine], EXAMPLES[profile()])


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("share", [0.4, pytest.param(1, marks=pytest.mark.slow)])
def test_the_scripts_do_the_same_for_several_users(engine: Any, share: float) -> None:
    run_machine(engine.url, [engine], round(EXAMPLES[profile()] * share), SharedQueues)


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S)
def test_long_queues_of_several_users_move_into_files_and_back(engine: Any) -> None:
    run_machine(engine.url, [engine], EXAMPLES[profile()], LongSharedQueues)


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S)
def test_long_queues_move_into_files_and_back_at_any_moment(engine: Any) -> None:
    run_machine(engine.url, [engine], EXAMPLES[profile()], LongQueues)


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S)
def test_deferred_urls_move_into_files_and_back_at_any_moment(engine: Any) -> None:
    run_machine(engine.url, [engine], EXAMPLES[profile()] // 3, ParkedRows)


@pytest.mark.slow
@pytest.mark.cluster
def test_the_scripts_do_what_a_plain_model_does_on_a_cluster(cluster: Any) -> None:
    run_machine(cluster.url, cluster.nodes, EXAMPLES["cluster"])
