"""Whether and when to try again."""

import pytest

from crawler.model import FailureKind
from crawler.rules.retry import PERMANENT, decide, failure_of_status
from crawler.settings import RetrySettings

SETTINGS = RetrySettings(attempts=4, backoff_s=2.0, backoff_factor=4.0, backoff_max_s=20.0)


def test_waits_grow_by_the_factor_up_to_the_cap_and_then_end() -> None:
    decisions = [decide(FailureKind.TIMEOUT, attempts=n, settings=SETTINGS) for n in (1, 2, 3, 4)]
    assert [(d.again, d.wait_ms) for d in decisions] == [(True, 2000), (True, 8000), (True, 20_000), (False, 0)]


def test_a_longer_retry_after_wins_and_a_shorter_one_does_not() -> None:
    for asked, wait in ((60_000, 60_000), (10, 2000)):
        decision = decide(FailureKind.SERVER_BUSY, attempts=1, settings=SETTINGS, retry_after_ms=asked)
        assert decision.wait_ms == wait


@pytest.mark.parametrize("kind", sorted(PERMANENT))
def test_what_no_second_attempt_can_change_gets_none(kind: FailureKind) -> None:
    assert not decide(kind, attempts=1, settings=SETTINGS).again


def test_server_errors_are_failures_and_everything_else_is_a_result() -> None:
    table = {200: None, 301: None, 404: None, 410: None, 429: "server_busy", 499: None, 500: "server_error"}
    table |= {503: "server_busy", 599: "server_error"}
    assert {status: failure_of_status(status) for status in table} == table
