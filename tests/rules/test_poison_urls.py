"""When a URL is isolated, and when it is given up."""

import pytest

from crawler.rules.poison import CrashAction, crash_action_of


@pytest.mark.parametrize(
    ("deaths", "deliveries", "fate"),
    [
        (0, 0, CrashAction.NORMAL),
        (0, 2, CrashAction.NORMAL),
        (1, 1, CrashAction.GUARDED),
        (0, 3, CrashAction.GUARDED),
        (2, 2, CrashAction.ALONE),
        (0, 99, CrashAction.GUARDED),
        (3, 3, CrashAction.GIVEN_UP),
        (9, 9, CrashAction.GIVEN_UP),
    ],
)
def test_a_url_is_judged_by_noted_deaths_and_never_given_up_for_vanished_deliveries(
    deaths: int, deliveries: int, fate: CrashAction
) -> None:
    assert crash_action_of(deaths, deliveries) is fate
