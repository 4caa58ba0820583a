"""How much a domain may introduce in a time."""

import pytest

from crawler.rules import introductions
from crawler.rules.introductions import BURST_BYTES, BYTES_PER_S, FULL_BYTES, QUEUE_BYTES, Introductions, cost


def test_a_url_costs_its_bytes_and_its_queue() -> None:
    assert cost("http://a.test/") == 14 + QUEUE_BYTES


def test_a_domain_has_a_burst_and_then_the_rate_and_never_more_than_the_burst() -> None:
    rule = Introductions()
    assert rule.room("a.test", 5_000) == BURST_BYTES
    rule.spend("a.test", BURST_BYTES, 5_000)
    assert rule.room("a.test", 5_000) == 0
    assert rule.room("a.test", 6_000) == BYTES_PER_S
    assert rule.room("a.test", 10_000_000) == BURST_BYTES


def test_a_small_part_of_the_burst_is_left_while_engines_are_full() -> None:
    rule = Introductions()
    assert rule.room("a.test", 0, is_full=True) == FULL_BYTES
    rule.spend("a.test", FULL_BYTES, 0)
    assert rule.room("a.test", 0, is_full=True) == 0
    assert rule.room("a.test", 0) == BURST_BYTES - FULL_BYTES


def test_no_domain_spends_what_another_has() -> None:
    rule = Introductions()
    rule.spend("a.test", 2 * BURST_BYTES, 0)
    assert rule.room("a.test", 0) == -BURST_BYTES
    assert rule.room("b.test", 0) == BURST_BYTES


def test_a_refund_gives_back_what_was_spent_and_no_more() -> None:
    rule = Introductions()
    rule.spend("a.test", 1000, 0)
    rule.spend("a.test", -400, 0)
    assert rule.room("a.test", 0) == BURST_BYTES - 600
    rule.spend("a.test", -5000, 0)
    assert rule.room("a.test", 0) == BURST_BYTES


def test_the_wait_for_what_is_owed_is_at_the_rate() -> None:
    rule = Introductions()
    assert rule.wait_ms("a.test", BURST_BYTES, 0) == 0
    rule.spend("a.test", BURST_BYTES, 0)
    assert rule.wait_ms("a.test", 3 * BYTES_PER_S, 1_000) == 2_000


def test_full_buckets_take_no_memory_and_of_too_many_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(introductions, "DOMAINS_MAX", 3)
    rule = Introductions()
    rule.spend("full.test", 10, 0)
    rule.spend("full.test", -10, 0)
    assert len(rule) == 0
    for number in range(5):
        rule.spend(f"{number}.test", BURST_BYTES, 0)
    assert len(rule) == 3
    assert [rule.room(f"{number}.test", 0) > 0 for number in range(5)] == [True, True, False, False, False]
