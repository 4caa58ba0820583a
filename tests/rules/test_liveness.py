"""Who is alive, by observed silence: a table of readings."""

from typing import Any

import pytest

from crawler.rules.membership import (
    DeclaredState,
    HeartbeatReading,
    IllegalStepError,
    Liveness,
    Observer,
    Times,
    declared,
    quarantine_ms,
    step,
    takers,
    time_scale_of,
)

TIMES = Times(suspect_ms=3000, dead_ms=7000, gap_ms=2500)


def watch(*readings: tuple[int, int | None], **more: Any) -> Observer:
    """(ms, counter of session s, or None when it is not on the list) one after the other."""
    observer = Observer(TIMES, {})
    for at, counter in readings:
        listed = [] if counter is None else [HeartbeatReading("s", counter, **more)]
        observer = observer.read(listed, at)
    return observer


def steady(until: int, counter: int = 1, step: int = 500) -> list[tuple[int, int]]:
    return [(at, counter) for at in range(0, until + 1, step)]


def test_an_unchanged_counter_is_alive_then_suspect_then_dead() -> None:
    observer = watch(*steady(7000))
    table = {
        0: Liveness.ALIVE,
        2999: Liveness.ALIVE,
        3000: Liveness.SUSPECT,
        6999: Liveness.SUSPECT,
        7000: Liveness.DEAD,
    }
    assert {at: observer.state_of("s", at) for at in table} == table


def test_a_beat_starts_the_window_afresh() -> None:
    observer = watch(*steady(6500), (6900, 2))
    assert observer.state_of("s", 9899) is Liveness.ALIVE
    assert observer.state_of("s", 9900) is Liveness.SUSPECT


def test_a_counter_that_goes_back_is_a_change_too() -> None:
    assert watch((0, 5), (2000, 4)).state_of("s", 4999) is Liveness.ALIVE


def test_an_observer_that_was_paused_learns_nothing_from_the_gap() -> None:
    paused = watch((0, 1), (60_000, 1))
    assert paused.state_of("s", 60_000) is Liveness.ALIVE
    assert paused.state_of("s", 66_999) is Liveness.SUSPECT
    assert paused.state_of("s", 67_000) is Liveness.DEAD


def test_reads_just_close_enough_count() -> None:
    assert watch((0, 1), (2500, 1), (5000, 1), (7000, 1)).state_of("s", 7000) is Liveness.DEAD
    assert watch((0, 1), (2500, 1), (5001, 1), (7000, 1)).state_of("s", 7000) is Liveness.ALIVE


def test_a_free_lock_proves_death_at_once() -> None:
    assert watch((0, 1), proven_dead=True).state_of("s", 0) is Liveness.DEAD


def test_a_leaver_is_shown_as_leaving_until_its_silence_is_death() -> None:
    observer = watch(*steady(7000), declared=DeclaredState.LEAVING)
    assert observer.state_of("s", 6999) is Liveness.LEAVING
    assert observer.state_of("s", 7000) is Liveness.DEAD


def test_a_session_that_is_not_listed_is_dead() -> None:
    assert watch((0, 1), (500, None)).state_of("s", 500) is Liveness.DEAD
    assert watch().state_of("s", 0) is Liveness.DEAD


HEARD, SUSPICIOUS, DEADLY = 0, 3000, 7000
SAYS = {
    DeclaredState.JOINING: (Liveness.JOINING, Liveness.SUSPECT, Liveness.DEAD),
    DeclaredState.ALIVE: (Liveness.ALIVE, Liveness.SUSPECT, Liveness.DEAD),
    DeclaredState.QUARANTINED: (Liveness.QUARANTINED, Liveness.QUARANTINED, Liveness.DEAD),
    DeclaredState.LEAVING: (Liveness.LEAVING, Liveness.LEAVING, Liveness.DEAD),
    DeclaredState.SEEDING: (Liveness.ALIVE, Liveness.SUSPECT, Liveness.DEAD),
    DeclaredState.PAUSING: (Liveness.ALIVE, Liveness.SUSPECT, Liveness.DEAD),
}


@pytest.mark.parametrize("says", list(DeclaredState))
def test_a_state_follows_from_declaration_and_silence(says: DeclaredState) -> None:
    observer = watch(*steady(7000), declared=says)
    assert tuple(observer.state_of("s", at) for at in (HEARD, SUSPICIOUS, DEADLY)) == SAYS[says]


def test_a_session_is_judged_by_its_own_time_scale() -> None:
    observer = watch(*steady(21_000), time_scale=3)
    table = {8_999: Liveness.ALIVE, 9_000: Liveness.SUSPECT, 20_999: Liveness.SUSPECT, 21_000: Liveness.DEAD}
    assert {at: observer.state_of("s", at) for at in table} == table


def test_an_observer_with_a_time_scale_does_not_see_a_pause() -> None:
    observer = Observer(TIMES, {})
    for at in range(0, 70_001, 5_000):
        observer = observer.read([HeartbeatReading("s", 1, time_scale=10)], at, 10)
    assert observer.state_of("s", 69_999) is Liveness.SUSPECT
    assert observer.state_of("s", 70_000) is Liveness.DEAD


@pytest.mark.parametrize(("members", "time_scale"), [(0, 1), (1, 1), (100, 1), (101, 2), (1000, 10), (1001, 11)])
def test_the_time_scale_grows_with_the_list(members: int, time_scale: int) -> None:
    assert time_scale_of(members, 100) == time_scale


def test_a_session_takes_only_legal_steps() -> None:
    assert step(DeclaredState.JOINING, DeclaredState.QUARANTINED) is DeclaredState.QUARANTINED
    assert step(DeclaredState.QUARANTINED, DeclaredState.ALIVE) is DeclaredState.ALIVE
    assert step(DeclaredState.ALIVE, DeclaredState.QUARANTINED) is DeclaredState.QUARANTINED, "its disk is full"
    for now, then in ((DeclaredState.LEAVING, DeclaredState.ALIVE), (DeclaredState.PAUSING, DeclaredState.ALIVE)):
        with pytest.raises(IllegalStepError, match=f"{now} -> {then}"):
            step(now, then)


def test_quarantined_sessions_take_a_share_only_when_there_are_no_others() -> None:
    alone = {
        "a": DeclaredState.QUARANTINED,
        "b": DeclaredState.JOINING,
        "c": DeclaredState.SEEDING,
        "p": DeclaredState.PAUSING,
    }
    assert takers(alone) == {"a"}
    assert takers(alone | {"e": DeclaredState.ALIVE}) == {"e"}
    assert takers({}) == frozenset()


@pytest.mark.parametrize(("returns", "hold_ms"), [(1, 0), (3, 0), (4, 5), (5, 10), (6, 20), (9, 100), (500, 100)])
def test_the_hold_of_a_flapping_node_doubles_up_to_a_bound(returns: int, hold_ms: int) -> None:
    assert quarantine_ms(returns, free=3, hold_ms=5, hold_max_ms=100) == hold_ms


def test_a_word_of_a_newer_release_takes_no_share() -> None:
    assert [declared(state.value) for state in DeclaredState] == list(DeclaredState)
    assert declared("unheard of") is DeclaredState.JOINING
