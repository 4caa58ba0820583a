"""How long to wait."""

from crawler.rules.pace import delay_ms, wait_ms


def test_the_longer_of_our_delay_and_theirs_holds_up_to_a_cap() -> None:
    table = {None: 1000, 0.2: 1000, 5: 5000, 60: 60_000, 86_400: 60_000}
    for asked, expected in table.items():
        assert delay_ms(min_delay_ms=1000, crawl_delay_s=asked, delay_max_ms=60_000) == expected


def test_no_delay_is_possible_when_nobody_asks_for_one() -> None:
    assert delay_ms(min_delay_ms=0, crawl_delay_s=None, delay_max_ms=60_000) == 0


def test_after_a_request_the_longest_of_all_reasons_to_wait_counts() -> None:
    """And a tick more: clocks count whole milliseconds."""
    assert wait_ms(delay_ms=1000, factor=0, fetch_ms=9000) == 1001
    assert wait_ms(delay_ms=1000, factor=0.5, fetch_ms=9000) == 4501
    assert wait_ms(delay_ms=1000, factor=0.5, fetch_ms=9000, retry_after_ms=120_000) == 120_001
    assert wait_ms(delay_ms=1000, factor=0, fetch_ms=1, retry_after_ms=5, backoff_ms=2000) == 2001
    assert wait_ms(delay_ms=0, factor=0, fetch_ms=9000) == 0
