"""What Retry-After asks for, as RFC 9110 has it and as servers write it."""

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.rules.health import retry_after_ms

NOW_S = 784111777.0  # Sun, 06 Nov 1994 08:49:37 GMT


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, 0),
        ("", 0),
        ("120", 120),
        ("  7 ", 7),
        ("0", 0),
        ("-5", 0),
        ("+5", 0),
        ("1.5", 0),
        ("1e3", 0),
        ("٣", 0),
        ("soon", 0),
        ("999999999999999999999", 3600),
        ("Sun, 06 Nov 1994 08:50:37 GMT", 60),
        ("Sunday, 06-Nov-94 08:50:37 GMT", 60),
        ("Sun Nov  6 08:50:37 1994", 60),
        ("Sun, 06 Nov 1994 08:48:37 GMT", 0),
        ("Sun, 06 Nov 2094 08:48:37 GMT", 3600),
        ("Sun, 99 Nov 1994 08:50:37 GMT", 0),
        ("Sun, 06 Nov 1994 09:50:37 +0100", 60),
        ("Sun, 06 Nov 1994 08:50:37 -0000", 60),
        ("Sun, 06 Nov 1994", 0),
        ("1994-11-06T08:50:37Z", 0),
        ("120, 240", 0),
    ],
)
def test_both_forms_are_read_and_capped_and_nonsense_is_ignored(value: str | None, seconds: int) -> None:
    assert retry_after_ms(value, date=None, now_s=NOW_S, max_s=3600) == seconds * 1000


@pytest.mark.parametrize(("date", "seconds"), [(formatdate(NOW_S + 7200, usegmt=True), 60), ("nonsense", 3600)])
def test_a_date_is_measured_by_the_clock_of_the_server_that_sent_it(date: str, seconds: int) -> None:
    """Its clock is two hours ahead of ours; without its Date there is only ours."""
    until = formatdate(NOW_S + 7260, usegmt=True)
    assert retry_after_ms(until, date=date, now_s=NOW_S, max_s=3600) == seconds * 1000


@given(st.text(), st.none() | st.text(), st.floats(0, 1e10), st.floats(0, 1e6))
def test_whatever_a_server_sends_the_wait_is_between_none_and_the_cap(
    value: str, date: str | None, now_s: float, max_s: float
) -> None:
    assert 0 <= retry_after_ms(value, date=date, now_s=now_s, max_s=max_s) <= max_s * 1000
