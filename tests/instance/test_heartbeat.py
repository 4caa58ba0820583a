"""What a heartbeat entitles to: silence stops requests, and a reply that came too late is a lapse."""

from crawler.errors import EngineDown
from crawler.frontier.members import Member
from crawler.instance.heartbeat import Heartbeat
from crawler.settings import MembershipSettings


class FakeMembers:
    """Answers beats after a delay on the test's clock, or not at all."""

    def __init__(self, clock: "Clock") -> None:
        self.clock, self.delay_ms, self.down, self.known = clock, 0, False, True
        self.beats: list[int] = []
        self.joins = 0

    async def beat(self, member: Member) -> bool:
        self.clock.now_ms += self.delay_ms
        if self.down:
            raise EngineDown("no answer")
        self.beats.append(member.counter)
        return self.known

    async def join(self, member: Member) -> None:
        self.joins += 1


class Clock:
    now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


def heartbeat() -> tuple[Heartbeat, FakeMembers, Clock, list[int]]:
    clock, lapses = Clock(), []
    members = FakeMembers(clock)
    member = Member(session="s", node="n", counter=0)
    beat = Heartbeat(
        members,  # type: ignore[arg-type]
        member,
        MembershipSettings(),
        on_lapse=lambda: lapses.append(clock.now_ms),
        clock_ms=clock,
    )
    return beat, members, clock, lapses


async def test_nothing_may_start_before_the_first_answered_beat() -> None:
    beat, _, _, _ = heartbeat()
    assert not beat.may_start()
    await beat.beat()
    assert beat.may_start()


async def test_silence_stops_requests_after_five_seconds_and_aborts_them_after_seven() -> None:
    beat, members, clock, lapses = heartbeat()
    await beat.beat()
    members.down = True
    clock.now_ms += 4_999
    await beat.beat()
    assert beat.may_start()
    assert beat.is_unanswered
    clock.now_ms += 1
    assert not beat.may_start()
    assert not beat.must_abort()
    clock.now_ms += 2_000
    assert beat.must_abort()
    assert lapses == []


async def test_the_time_counts_from_sending_not_from_the_answer() -> None:
    beat, members, clock, _ = heartbeat()
    members.delay_ms = 1_500
    await beat.beat()
    clock.now_ms += 3_500
    assert not beat.may_start()


async def test_a_beat_answered_after_the_deadline_is_a_lapse() -> None:
    beat, members, _, lapses = heartbeat()
    await beat.beat()
    members.delay_ms = 6_000
    await beat.beat()
    assert len(lapses) == 1
    members.delay_ms = 0
    await beat.beat()
    assert beat.may_start()


async def test_a_pause_longer_than_the_deadline_is_a_lapse() -> None:
    beat, _, clock, lapses = heartbeat()
    await beat.beat()
    clock.now_ms += 30_000
    await beat.beat()
    assert len(lapses) == 1


async def test_a_session_that_was_struck_off_joins_again_and_has_lapsed() -> None:
    beat, members, _, lapses = heartbeat()
    await beat.beat()
    members.known = False
    await beat.beat()
    assert members.joins == 1
    assert len(lapses) == 1


async def test_the_counter_is_absolute_and_grows_even_when_nobody_answers() -> None:
    beat, members, _, _ = heartbeat()
    await beat.beat()
    members.down = True
    await beat.beat()
    members.down = False
    await beat.beat()
    assert members.beats == [1, 3]
