"""Heartbeats: silence stops requests, and a reply that comes too late loses the leases."""

import pytest
from msgspec.structs import replace

from crawler.errors import ConflictError, EngineDown
from crawler.frontier.members import BeatAnswer, Member, NameTakenError
from crawler.membership.heartbeat import BeatCalls, Heartbeat, SessionLiveness
from crawler.settings import MembershipSettings


class FakeMembers:
    """Answers beats after a delay on the test's clock, or not at all."""

    def __init__(self, clock: "Clock") -> None:
        self.clock, self.delay_ms, self.down, self.answer = clock, 0, False, BeatAnswer.COMMITTED
        self.beats: list[int] = []
        self.states: list[tuple[str, int]] = []
        self.joins = self.steady = 0
        self.returns = 1
        self.taken = False

    async def heartbeat(self, member: Member) -> BeatAnswer:
        self.clock.now_ms += self.delay_ms
        if self.down:
            raise EngineDown("no answer")
        self.beats.append(member.counter)
        self.states.append((member.state, member.time_scale))
        return self.answer

    async def join(self, member: Member) -> int:
        if self.taken:
            raise NameTakenError("taken")
        self.joins += 1
        return self.returns

    async def is_steady(self, node: str) -> None:
        self.steady += 1


class Clock:
    now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


def heartbeat() -> tuple[Heartbeat, FakeMembers, Clock, list[int]]:
    clock, lease_losses = Clock(), []
    members = FakeMembers(clock)
    member = Member(session="s", node="n", counter=0)
    beat = Heartbeat(
        members,  # type: ignore[arg-type]
        member,
        MembershipSettings(),
        liveness=SessionLiveness(MembershipSettings(), clock_ms=clock),
        calls=BeatCalls(on_lease_loss=lambda: lease_losses.append(clock.now_ms)),
        clock_ms=clock,
    )
    return beat, members, clock, lease_losses


def joined(returns: int = 1) -> tuple[Heartbeat, FakeMembers, Clock, list[int]]:
    beat, members, clock, lease_losses = heartbeat()
    beat.joined(clock.now_ms, returns)
    return beat, members, clock, lease_losses


async def test_nothing_may_start_before_the_first_answered_beat() -> None:
    beat, _, clock, _ = heartbeat()
    assert not beat._liveness.may_start()
    beat.joined(clock.now_ms, 1)
    assert beat._liveness.may_start()


async def test_silence_stops_requests_after_five_seconds_and_aborts_them_after_seven() -> None:
    beat, members, clock, lease_losses = joined()
    await beat.beat()
    members.down = True
    clock.now_ms += 4_999
    await beat.beat()
    assert beat._liveness.may_start()
    assert beat.is_unanswered
    clock.now_ms += 1
    assert not beat._liveness.may_start()
    assert not beat._liveness.must_abort()
    clock.now_ms += 2_000
    assert beat._liveness.must_abort()
    assert lease_losses == []


async def test_the_time_counts_from_sending_not_from_the_answer() -> None:
    beat, members, clock, _ = joined()
    members.delay_ms = 1_500
    await beat.beat()
    clock.now_ms += 3_500
    assert not beat._liveness.may_start()


async def test_a_beat_answered_after_the_deadline_loses_the_leases() -> None:
    beat, members, _, lease_losses = joined()
    await beat.beat()
    members.delay_ms = 6_000
    await beat.beat()
    assert len(lease_losses) == 1
    members.delay_ms = 0
    await beat.beat()
    assert beat._liveness.may_start()


async def test_a_pause_longer_than_the_deadline_loses_the_leases() -> None:
    beat, _, clock, lease_losses = joined()
    await beat.beat()
    clock.now_ms += 30_000
    await beat.beat()
    assert len(lease_losses) == 1


async def test_a_removed_session_joins_again_without_leases() -> None:
    beat, members, _, lease_losses = joined()
    await beat.beat()
    members.answer = BeatAnswer.GONE
    await beat.beat()
    assert members.joins == 1
    assert len(lease_losses) == 1


@pytest.mark.parametrize("returns", [1, 9])
async def test_a_session_whose_join_was_not_answered_joins_once_more(returns: int) -> None:
    """Found by the simulation: in the list, but off the ring for ever, while all partitions waited for it."""
    beat, members, _, lease_losses = joined()
    members.answer, members.returns, join = BeatAnswer.GONE, returns, members.join

    async def reply_lost(member: Member) -> int:
        await join(member)
        raise EngineDown("connection lost")

    members.join = reply_lost  # type: ignore[method-assign]
    await beat.beat()
    assert beat.member.state == "joining"
    members.join = join  # type: ignore[method-assign]
    members.answer = BeatAnswer.COMMITTED
    await beat.beat()
    assert beat.member.state == ("alive" if returns == 1 else "quarantined")
    assert len(lease_losses) == 1
    await beat.beat()
    assert members.joins == 2


async def test_the_counter_grows_even_without_answers() -> None:
    beat, members, _, _ = joined()
    await beat.beat()
    members.down = True
    await beat.beat()
    members.down = False
    await beat.beat()
    assert members.beats == [1, 3]


async def test_a_node_that_returns_too_often_is_quarantined_for_longer() -> None:
    for returns, hold_ms in ((3, 0), (4, 5_000), (5, 10_000), (40, 300_000)):
        beat, members, clock, _ = joined(returns)
        await beat.beat()
        assert members.states[-1][0] == ("quarantined" if hold_ms else "alive"), returns
        clock.now_ms += hold_ms - 1
        await beat.beat()
        assert members.states[-1][0] == ("quarantined" if hold_ms else "alive")
        clock.now_ms += 1
        await beat.beat()
        assert members.states[-1][0] == "alive"


async def test_a_session_without_room_is_quarantined_until_it_has() -> None:
    beat, members, clock, _ = joined()
    has_room, found = True, list[tuple[str, bool]]()
    beat._calls = replace(beat._calls, has_room=lambda: has_room)
    for has_room in (True, False, False, True):  # noqa: B007 - read by the calls
        clock.now_ms += 1_000
        await beat.beat()
        found.append((members.states[-1][0], beat.member.lacks_room))
    assert found == [("alive", False), ("quarantined", True), ("quarantined", True), ("alive", False)]


async def test_a_session_that_begins_or_joins_again_without_room_takes_no_share() -> None:
    beat, members, _, _ = heartbeat()
    beat._calls = replace(beat._calls, has_room=lambda: False)
    beat.joined(1_000, 1)
    assert beat.member.state == "quarantined"
    members.answer = BeatAnswer.GONE
    await beat.beat()
    members.answer = BeatAnswer.COMMITTED
    await beat.beat()
    assert members.states[-1][0] == "quarantined"
    await beat.leaving()
    assert members.states[-1][0] == "leaving"


async def test_room_does_not_end_the_wait_of_a_node_that_returns_too_often() -> None:
    beat, members, clock, _ = joined(4)
    beat._calls = replace(beat._calls, has_room=lambda: True)
    clock.now_ms += 4_999
    await beat.beat()
    assert members.states[-1][0] == "quarantined"
    clock.now_ms += 1
    beat._calls = replace(beat._calls, has_room=lambda: False)
    await beat.beat()
    assert members.states[-1][0] == "quarantined"


async def test_a_steady_life_ends_the_count_of_returns_once() -> None:
    beat, members, clock, _ = joined()
    clock.now_ms += 59_999
    await beat.beat()
    assert members.steady == 0
    for _ in range(2):
        clock.now_ms += 1
        await beat.beat()
    assert members.steady == 1


async def test_a_removed_session_counts_as_returning() -> None:
    beat, members, _, _ = joined()
    members.answer, members.returns = BeatAnswer.GONE, 4
    await beat.beat()
    members.answer = BeatAnswer.COMMITTED
    await beat.beat()
    assert members.states[-1][0] == "quarantined"


async def test_longer_times_apply_when_answered_and_shorter_ones_when_sent() -> None:
    """Others judge us by what they read: the longer time before they can have read it would be ours alone."""
    beat, members, clock, _ = joined()
    time_scale = 3
    beat._calls = replace(beat._calls, time_scale=lambda: time_scale)
    members.down = True
    await beat.beat()
    clock.now_ms += 5_000
    assert not beat._liveness.may_start()
    members.down = False
    await beat.beat()
    clock.now_ms += 14_999
    assert beat._liveness.may_start()
    clock.now_ms += 1
    assert not beat._liveness.may_start()
    await beat.beat()
    time_scale, members.down = 1, True
    await beat.beat()
    clock.now_ms += 5_000
    assert not beat._liveness.may_start()


async def test_an_evicted_session_starts_nothing_and_beats_no_more() -> None:
    beat, members, _, lease_losses = joined()
    told: list[int] = []
    beat._calls = replace(beat._calls, on_evicted=lambda: told.append(1))
    members.answer = BeatAnswer.EVICTED
    await beat.run()
    assert told == [1]
    assert not beat._liveness.may_start()
    assert lease_losses == []


async def test_a_leaving_session_that_is_removed_does_not_rejoin() -> None:
    beat, members, _, lease_losses = joined()
    await beat.leaving()
    members.answer = BeatAnswer.GONE
    await beat.beat()
    assert members.joins == 0
    assert len(lease_losses) == 1


@pytest.mark.parametrize("when", ["check", "join"])
async def test_a_session_may_begin_to_leave_while_it_joins_again(when: str) -> None:
    """Found by the simulation: it declared to be alive after it had declared to leave, which ended the process."""
    beat, members, _, lease_losses = joined()
    join = members.join

    async def leaving_meanwhile(*member: Member) -> int:
        await beat.leaving()
        return await join(*member) if member else 0

    if when == "check":
        beat._calls = replace(beat._calls, check_crawl=leaving_meanwhile)  # type: ignore[arg-type]
    else:
        members.join = leaving_meanwhile  # type: ignore[method-assign]
    members.answer = BeatAnswer.GONE
    await beat.beat()
    assert beat.member.state == "leaving"
    assert members.joins == (when == "join")
    assert len(lease_losses) == 1


async def test_a_session_does_not_join_again_when_its_crawl_is_gone() -> None:
    """The list is empty because the engine was wiped: nothing may be acquired there."""
    beat, members, _, lease_losses = joined()

    async def gone() -> None:
        raise ConflictError("the engine lost the crawl")

    beat._calls = replace(beat._calls, check_crawl=gone)
    members.answer = BeatAnswer.GONE
    with pytest.raises(ConflictError):
        await beat.beat()
    assert (members.joins, lease_losses) == (0, [])


async def test_a_removed_session_waits_while_a_dead_one_has_its_name() -> None:
    """An engine that fell back has a former session of the node on its list again; the others strike it off."""
    beat, members, clock, lease_losses = joined()
    members.answer, members.taken = BeatAnswer.GONE, True
    await beat.beat()
    clock.now_ms += 13_999
    await beat.beat()
    assert not beat._liveness.may_start()
    assert len(lease_losses) == 1
    members.taken = False
    await beat.beat()
    assert members.joins == 1
    assert beat._liveness.may_start()


async def test_a_session_ends_when_a_living_one_has_its_name() -> None:
    beat, members, clock, _ = joined()
    members.answer, members.taken = BeatAnswer.GONE, True
    await beat.beat()
    clock.now_ms += 14_000
    with pytest.raises(NameTakenError, match="started elsewhere"):
        await beat.beat()
