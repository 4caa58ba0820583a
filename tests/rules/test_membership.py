"""Who is alive, by observed silence: a table of readings."""

from crawler.rules.membership import Observer, Reading, State, Times

TIMES = Times(suspect_ms=3000, dead_ms=7000, gap_ms=2500)


def watch(*readings: tuple[int, int | None], **more: bool) -> Observer:
    """(ms, counter of session s, or None when it is not on the list) one after the other."""
    observer = Observer(TIMES, {})
    for at, counter in readings:
        listed = [] if counter is None else [Reading("s", counter, **more)]
        observer = observer.read(listed, at)
    return observer


def steady(until: int, counter: int = 1, step: int = 500) -> list[tuple[int, int]]:
    return [(at, counter) for at in range(0, until + 1, step)]


def test_an_unchanged_counter_is_alive_then_suspect_then_dead() -> None:
    observer = watch(*steady(7000))
    table = {0: State.ALIVE, 2999: State.ALIVE, 3000: State.SUSPECT, 6999: State.SUSPECT, 7000: State.DEAD}
    assert {at: observer.state_of("s", at) for at in table} == table


def test_a_beat_starts_the_window_afresh() -> None:
    observer = watch(*steady(6500), (6900, 2))
    assert observer.state_of("s", 9899) is State.ALIVE
    assert observer.state_of("s", 9900) is State.SUSPECT


def test_a_counter_that_goes_back_is_a_change_too() -> None:
    assert watch((0, 5), (2000, 4)).state_of("s", 4999) is State.ALIVE


def test_an_observer_that_was_paused_learns_nothing_from_the_gap() -> None:
    paused = watch((0, 1), (60_000, 1))
    assert paused.state_of("s", 60_000) is State.ALIVE
    assert paused.state_of("s", 66_999) is State.SUSPECT
    assert paused.state_of("s", 67_000) is State.DEAD


def test_reads_just_close_enough_count() -> None:
    assert watch((0, 1), (2500, 1), (5000, 1), (7000, 1)).state_of("s", 7000) is State.DEAD
    assert watch((0, 1), (2500, 1), (5001, 1), (7000, 1)).state_of("s", 7000) is State.ALIVE


def test_a_free_lock_proves_death_at_once() -> None:
    assert watch((0, 1), proven_dead=True).state_of("s", 0) is State.DEAD


def test_a_leaver_is_shown_as_leaving_until_its_silence_is_death() -> None:
    observer = watch(*steady(7000), leaving=True)
    assert observer.state_of("s", 6999) is State.LEAVING
    assert observer.state_of("s", 7000) is State.DEAD


def test_a_session_that_is_not_listed_is_dead() -> None:
    assert watch((0, 1), (500, None)).state_of("s", 500) is State.DEAD
    assert watch().state_of("s", 0) is State.DEAD
