"""What the log of a web server says of a crawl's pace: computed by hand, and by tests/support/pace.py."""

from dataclasses import dataclass

import pytest

from tests.support.pace import overdue_at, periods_of, share_of_bound, too_early, turns_of


@dataclass
class Logged:
    """A request that took a tenth of a second."""

    host: str
    start: float

    @property
    def end(self) -> float:
        return self.start + 0.1


LOG = [Logged("a", 0.0), Logged("b", 0.5), Logged("a", 1.1), Logged("b", 2.6), Logged("a", 3.2)]  # the last: 1 s late


def test_a_site_is_due_from_the_begin_on_and_then_its_delay_after_each_answer() -> None:
    turns = turns_of(LOG, delay_s=1.0)
    assert [round(turn.late, 3) for turn in turns["a"]] == [0.0, 0.0, 1.0]
    assert [round(turn.late, 3) for turn in turns["b"]] == [0.5, 1.0]


def test_the_share_of_what_was_allowed_leaves_out_the_waiting_for_nothing() -> None:
    turns = turns_of(LOG, delay_s=1.0)
    assert share_of_bound([turns["a"]]) == pytest.approx(2.2 / 3.2)
    assert share_of_bound([turns["b"]]) == pytest.approx(1.1 / 2.1)
    assert share_of_bound([turns_of(LOG, delay_s=0.99)["a"][:1]]) == 1.0


def test_requests_before_their_time_are_counted() -> None:
    assert [too_early(turns_of(LOG, delay_s=delay)["a"]) for delay in (1.0, 1.05)] == [0, 1]


def test_sites_that_wait_for_nothing_are_counted_at_any_moment() -> None:
    turns = [turn for mine in turns_of(LOG, delay_s=1.0).values() for turn in mine]
    assert overdue_at(turns, [0.1, 0.3, 1.0, 2.0, 2.5, 3.0], by_s=0.2) == [0, 1, 0, 1, 2, 1]


def test_a_period_knows_how_many_sites_are_left_and_what_they_would_allow() -> None:
    (period,) = periods_of(list(turns_of(LOG, delay_s=1.0).values()), delay_s=1.0, length_s=3.2)
    assert period.sites == pytest.approx((3.2 + 2.6) / 3.2)
    assert period.bound == pytest.approx(period.sites / 1.1)
    assert period.rate == pytest.approx(4 / 3.2)  # the last one starts when it ends
    assert period.overdue == pytest.approx((1.0 + 1.5) / (3.2 + 2.6))
