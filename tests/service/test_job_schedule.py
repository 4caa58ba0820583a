"""What a change of a job's schedule keeps, and what it replaces."""

from typing import Any

import pytest

from crawler.errors import UsageError
from crawler.rules.schedules import Schedule
from crawler.service.job_schedule import changed_schedule

T0 = 1_800_000_000
HOURLY = Schedule(every_s=3600, anchor_s=T0 - 1800)
DAILY = Schedule(cron="30 2 * * *", timezone="Europe/Paris", jitter_s=60.0)
ONCE = Schedule(at_s=T0 + 500, timezone="Europe/Paris")


@pytest.mark.parametrize(
    ("earlier", "given", "found"),
    [
        (None, {"every": "1h"}, Schedule(every_s=3600, anchor_s=T0)),
        (None, {"every": "1h", "is_once": True}, Schedule(at_s=T0 + 3600)),
        (HOURLY, {}, HOURLY),
        (HOURLY, {"every": "PT1H"}, HOURLY),  # the same interval keeps its times
        (HOURLY, {"every": "2h"}, Schedule(every_s=7200, anchor_s=T0)),
        (HOURLY, {"jitter_s": 5}, Schedule(every_s=3600, anchor_s=T0 - 1800, jitter_s=5.0)),
        (HOURLY, {"every": "1h", "is_once": True}, Schedule(at_s=T0 + 3600)),
        (DAILY, {"timezone": "UTC"}, Schedule(cron="30 2 * * *", jitter_s=60.0)),
        (DAILY, {"cron": "0 3 * * *"}, Schedule(cron="0 3 * * *", timezone="Europe/Paris", jitter_s=60.0)),
        (DAILY, {"jitter_s": 0}, Schedule(cron="30 2 * * *", timezone="Europe/Paris")),
        (ONCE, {"timezone": "UTC"}, Schedule(at_s=T0 + 500)),  # the same moment, by other clocks
        (ONCE, {"cron": "0 3 * * *"}, Schedule(cron="0 3 * * *", timezone="Europe/Paris")),
    ],
)
def test_what_is_given_replaces_and_the_rest_stays(
    earlier: Schedule | None, given: dict[str, Any], found: Schedule
) -> None:
    assert changed_schedule(earlier, now_s=T0, **given) == found


def test_a_schedule_that_is_not_valid_is_refused() -> None:
    for earlier, given in ((None, {}), (None, {"every": "1h", "cron": "0 3 * * *"}), (DAILY, {"jitter_s": 86_400})):
        with pytest.raises(UsageError):
            changed_schedule(earlier, now_s=T0, **given)
