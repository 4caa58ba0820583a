"""Which URLs have a date, and which dates are far from all that a site lists."""

from datetime import date, timedelta
from itertools import pairwise

import pytest

from crawler.rules.trap_dates import anchors, date_of, year_of
from crawler.rules.trap_verdict import PASSED
from crawler.rules.traps import NOTHING_LEARNED, SPANS_MAX, with_years
from tests.rules.traps_lab import HOME, RULES, learned


@pytest.mark.parametrize(
    ("target", "year"),
    [
        ("/calendar/2031/05", 2031),
        ("/calendar/2031/5/7/", 2031),
        ("/events/2031-05", 2031),
        ("/events/2031-05-07.html", 2031),
        ("/20310507/", 2031),
        ("/calendar/9999/12/", 9999),
        ("/2031/05/07/a-title", 2031),
        ("/cal?date=2031-05-07", 2031),
        ("/cal?view=month&tribe-bar-date=2031-05", 2031),
        ("/cal?from=20310507", 2031),
        ("/cal?week=2031-W07", 2031),
        ("/cal?year=2031", 2031),
        ("/cal?m=5&y=2031&d=7", 2031),
        ("/cal?cal_year=2031&cal_month=5", 2031),
        ("/page/2031", None),
        ("/2031/13/", None),
        ("/product/7312/4", None),
        ("/list?start=200010", None),
        ("/map?x=1&y=2031", None),
        ("/cal?date=20311407", None),
        ("/20310507/title", None),
        ("/v2031-05x", None),
    ],
)
def test_dates_are_read_in_the_forms_that_calendars_use_and_in_no_number(target: str, year: int | None) -> None:
    date = date_of(f"http://a1.test{target}")
    assert (None if date is None else year_of(date)) == year


def test_dates_are_in_order() -> None:
    urls = ["/1999/12/31", "/2000/01", "/2000/01/02", "/2000/02/01", "/2000-12-31", "/20010101"]
    dates = [date_of(f"http://site.test{target}") for target in urls]
    assert dates == sorted(dates, key=lambda date: date or 0)
    assert len(set(dates)) == len(dates)


def test_only_years_that_archives_have_are_anchors() -> None:
    listed = (1399, 1400, 2199, 2200)
    assert anchors(HOME, [f"{HOME}calendar/{year}/05" for year in listed], first=False) == {1400, 2199}


@pytest.mark.parametrize(
    ("steps", "spans"),
    [
        ([{2026}, {2005}], ((2005, 2005), (2026, 2026))),
        ([{2026}, {2027}, {2025}], ((2025, 2027),)),
        ([{2020, 2026}, {2020, 2026}, {2021, 2025}], ((2020, 2021), (2025, 2026))),
        ([{2020, 2022}, {2021}], ((2020, 2022),)),
        (
            [set(range(1900, 1980, 10)), {1973, 1974}],  # one span too many: those three years apart are joined
            (*((year, year) for year in range(1900, 1970, 10)), (1970, 1974)),
        ),
    ],
)
def test_years_are_kept_as_few_spans(steps: list[set[int]], spans: tuple[tuple[int, int], ...]) -> None:
    state = NOTHING_LEARNED
    for years in steps:
        state = with_years(state, years)
    assert state.years == spans
    assert len(spans) <= SPANS_MAX


def test_no_date_is_suspect_before_the_site_listed_one_or_near_one_that_it_lists() -> None:
    url = f"{HOME}calendar/%d/05"
    assert RULES.judge(NOTHING_LEARNED, url % 2099) == PASSED
    state = learned([(HOME, [url % 2005, url % 2026])])
    suspect = {year for year in range(1900, 2100) if RULES.judge(state, url % year).rule == "calendar"}
    assert suspect == {*range(1900, 1965), *range(2029, 2100)}


@pytest.mark.slow(ci=True)
def test_an_archive_of_thirty_years_that_leads_from_each_day_to_the_one_before_is_never_suspect() -> None:
    days = [date(2026, 11, 21) - timedelta(days=n) for n in range(30 * 365)]
    urls = [f"{HOME}archive/{day:%Y/%m/%d}/" for day in days]
    state = learned([(HOME, urls[:1]), *((url, [before]) for url, before in pairwise(urls))])
    assert all(RULES.judge(state, url) == PASSED for url in urls)


def test_a_list_of_years_confirms_years_and_a_calendar_does_not() -> None:
    def month(year: int) -> str:
        return f"{HOME}calendar/{year}/01"

    seen = [(month(2026), [month(2027)]), (month(2027), [month(2026), month(2028)]), (month(2028), [month(2029)])]
    assert RULES.judge(learned(seen), month(2029)).rule == "calendar"
    seen.append((month(2028), [month(year) for year in range(2026, 2034)]))
    assert RULES.judge(learned(seen), month(2035)) == PASSED
