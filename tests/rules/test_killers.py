"""When a URL is isolated, and when it is given up."""

import pytest

from crawler.rules.poison_urls import Fate, fate_of


@pytest.mark.parametrize(
    ("deaths", "deliveries", "fate"),
    [
        (0, 0, Fate.NORMAL),
        (0, 2, Fate.NORMAL),
        (1, 1, Fate.GUARDED),
        (0, 3, Fate.GUARDED),
        (2, 2, Fate.ALONE),
        (0, 99, Fate.GUARDED),
        (3, 3, Fate.GIVEN_UP),
        (9, 9, Fate.GIVEN_UP),
    ],
)
def test_a_url_is_judged_by_noted_deaths_and_never_given_up_for_vanished_deliveries(
    deaths: int, deliveries: int, fate: Fate
) -> None:
    assert fate_of(deaths, deliveries) is fate
