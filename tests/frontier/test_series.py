"""Samples of the totals of a crawl: which samples are kept, and the rates that all viewers compute from them."""

import pytest

from crawler.frontier.lookup import Progress
from crawler.frontier.series import COARSE, FINE, Rates, Sample, Samples, Series
from tests.frontier.door import Door

T = 1_800_000_000.0  # the beginning of a slot of both resolutions


def sample(at_s: float, pages: int = 0, **more: int) -> Sample:
    return Sample(at_s, pages=pages, **more)


def taken(now: Sample, *fine: Sample) -> Samples:
    return Samples(now, fine, ())


def pages_per_s(now: Sample, *fine: Sample) -> float:
    rates = taken(now, *fine).rates
    assert rates is not None
    return rates.pages


def test_rates_are_those_of_the_last_two_whole_slots() -> None:
    samples = [sample(T + 5 * n + 0.3, pages=100 * n, bytes=1000 * n, failures=n) for n in range(6)]
    rates = taken(sample(T + 28, pages=900), *samples).rates
    assert rates == Rates(10.0, pages=20.0, bytes=200.0, failures=0.2)


def test_a_slot_without_a_sample_makes_the_time_longer_not_the_rate_wrong() -> None:
    samples = [sample(T, pages=0), sample(T + 10.9, pages=109), sample(T + 20.9, pages=209)]
    assert pages_per_s(sample(T + 22, pages=300), *samples) == 10.0


def test_the_first_seconds_count_from_the_first_sample() -> None:
    assert pages_per_s(sample(T + 4, pages=40), sample(T + 1, pages=10)) == 10.0
    assert pages_per_s(sample(T + 8, pages=90), sample(T + 4, pages=10), sample(T + 5, pages=11)) == 20.0


@pytest.mark.parametrize("now_s", [T - 1, T, T + 2.9])
def test_less_than_three_seconds_tell_no_rate(now_s: float) -> None:
    assert taken(sample(now_s, pages=9), sample(T)).rates is None
    assert taken(sample(now_s, pages=9)).rates is None


def test_what_was_before_a_death_tells_nothing_of_the_rate_now() -> None:
    samples = [sample(T, pages=0), sample(T + 5, pages=50), sample(T + 12, pages=50), sample(T + 15, pages=80)]
    before = taken(sample(T + 19, pages=120), *samples)
    assert before.rates == Rates(10.0, pages=3.0)
    assert before.since(T + 11).rates == Rates(3.0, pages=10.0)
    assert before.since(T + 19).rates is None


def test_a_crawl_that_nobody_samples_any_more_has_no_rate() -> None:
    samples = [sample(T + 5 * n, pages=100 * n) for n in range(6)]
    assert pages_per_s(sample(T + 39, pages=500), *samples) == 20.0
    assert taken(sample(T + 40, pages=500), *samples).rates is None


def test_totals_that_an_engine_lost_are_not_a_negative_rate() -> None:
    assert Rates.between(sample(T, pages=9, bytes=5), sample(T + 2, pages=7, bytes=9)) == Rates(2.0, 0.0, 2.0)


def test_a_sample_has_the_totals_of_the_progress() -> None:
    progress = Progress(
        added=9, done=7, fetched=6, redirected=1, client_errors=2, server_errors=1, bytes=70, retries=3, dead=1
    )
    one = Sample.of(T, progress)
    assert one == Sample(T, added=9, done=7, pages=6, bytes=70, client_errors=2, server_errors=1, failures=4, dead=1)
    assert one.pending == 2


@pytest.fixture
def series(door: Door) -> Series:
    return Series(door.engine, door.keys)


async def test_each_slot_wants_one_sample(series: Series) -> None:
    assert await series.is_wanted(T + 1)
    await series.write(sample(T + 1, pages=1))
    assert not await series.is_wanted(T + 4.9)
    assert await series.is_wanted(T + 5)


async def test_a_clock_that_was_set_back_starts_again_and_one_that_lags_does_not(series: Series) -> None:
    await series.write(sample(T + 3600))
    assert not await series.is_wanted(T + 3600 - 30)
    assert await series.is_wanted(T)
    await series.write(sample(T))
    assert not await series.is_wanted(T + 4)


async def test_samples_come_back_by_resolution_the_oldest_first(series: Series) -> None:
    for n in (0, 1, 59, 60, 61):
        await series.write(sample(T + 5 * n, pages=n, bytes=2**40))
    found = await series.read(sample(T + 5 * 62))
    assert [one.pages for one in found.fine] == [0, 1, 59, 60, 61]
    assert [one.pages for one in found.coarse] == [0, 60], "the first of each five minutes"
    assert found.fine[-1] == sample(T + 305, pages=61, bytes=2**40)


async def test_old_samples_are_replaced_and_not_shown(series: Series, door: Door) -> None:
    for n in (0, 1, FINE.slots, FINE.slots + 5):
        await series.write(sample(T + 5 * n, pages=n))
    found = await series.read(sample(T + 5 * (FINE.slots + 5)))
    assert [one.pages for one in found.fine] == [FINE.slots, FINE.slots + 5]
    await series.write(sample(T + COARSE.slot_s * COARSE.slots, pages=7))
    found = await series.read(sample(T + COARSE.slot_s * COARSE.slots))
    assert [one.pages for one in found.coarse][-1] == 7
    assert 0 not in [one.pages for one in found.coarse], "a day ago"
    assert await door.engine.command("HLEN", door.keys.series) <= FINE.slots + COARSE.slots + 1
