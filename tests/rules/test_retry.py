"""Whether and when to try again."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.model import OURS, Decoded, FailureKind, Response
from crawler.rules.health import (
    JITTER,
    PERMANENT,
    decide,
    failure_of,
    failure_of_status,
    is_unreadable,
    jitter_of,
    policy_of,
)
from crawler.settings import RetryKind, RetrySettings

SETTINGS = RetrySettings(attempts=4, backoff_s=2.0, backoff_factor=4.0, backoff_max_s=20.0)
KINDS = sorted(FailureKind)
RETRIED = [kind for kind in KINDS if kind not in PERMANENT | OURS]  # which are no attempts
settings = st.builds(
    RetrySettings,
    attempts=st.integers(1, 50),
    backoff_s=st.floats(0, 1e4),
    backoff_factor=st.floats(1, 1e6),
    backoff_max_s=st.floats(0.001, 1e5),
    connect=st.builds(RetryKind, attempts=st.none() | st.integers(1, 50), backoff_s=st.none() | st.floats(0, 1e4)),
)


def test_waits_grow_by_the_factor_up_to_the_cap_and_then_end() -> None:
    decisions = [decide(FailureKind.SERVER_ERROR, attempts=n, settings=SETTINGS) for n in (1, 2, 3, 4)]
    assert [(d.again, d.wait_ms) for d in decisions] == [(True, 2000), (True, 8000), (True, 20_000), (False, 0)]


def test_a_longer_retry_after_wins_and_a_shorter_one_does_not() -> None:
    for asked, wait in ((60_000, 60_000), (10, 10_000)):
        decision = decide(FailureKind.SERVER_BUSY, attempts=1, settings=SETTINGS, retry_after_ms=asked)
        assert decision.wait_ms == wait


@pytest.mark.parametrize("kind", sorted(PERMANENT))
def test_what_no_second_attempt_can_change_gets_none(kind: FailureKind) -> None:
    assert not decide(kind, attempts=1, settings=SETTINGS).again


def test_the_table_as_it_is_unless_set_otherwise() -> None:
    """Attempts, and the pauses between them in seconds."""
    table: dict[str, tuple[float, ...]] = {
        "dns_not_found": (),
        "dns_error": (5, 20),
        "connect": (5, 20),
        "tls": (2,),
        "timeout": (5, 20),
        "disconnected": (2, 8),
        "protocol": (2,),
        "server_busy": (10, 40, 160, 640),
        "server_error": (2, 8),
        "challenged": (60, 240),
        "robots_unreachable": (2, 8),
        "body": (2,),
        "handler": (2,),
        "handler_retry": (2, 8),
    }
    assert {kind: pauses(kind, RetrySettings()) for kind in RETRIED} == table


def pauses(kind: FailureKind, settings: RetrySettings) -> tuple[float, ...]:
    decisions = (decide(kind, attempts=n, settings=settings) for n in range(1, 99))
    return tuple(d.wait_ms / 1000 for d in decisions if d.again)


def test_every_kind_has_a_row_in_the_settings_or_is_permanent() -> None:
    common = {"attempts", "backoff_s", "backoff_factor", "backoff_max_s"}
    assert set(RetrySettings.__struct_fields__) - common == set(RETRIED)


def test_what_is_set_for_one_kind_holds_for_it_alone() -> None:
    own = RetrySettings(attempts=2, backoff_s=1.0, timeout=RetryKind(attempts=3, backoff_s=4.0))
    assert pauses(FailureKind.TIMEOUT, own) == (4, 16)
    assert pauses(FailureKind.SERVER_ERROR, own) == (1,)


@given(settings, st.sampled_from(RETRIED), st.integers(1, 1000), st.floats(0, 1), st.integers(0, 10**8))
def test_waits_keep_their_bounds_whatever_is_set(
    own: RetrySettings, kind: FailureKind, attempts: int, jitter: float, asked_ms: int
) -> None:
    policy = policy_of(kind, own)
    decision = decide(kind, attempts=attempts, settings=own, retry_after_ms=asked_ms, jitter=jitter)
    assert decision.again == (attempts < policy.attempts)
    if decision.again:
        whole_ms = policy.backoff_ms(attempts)
        assert max(asked_ms, (1 - JITTER) * whole_ms - 1) <= decision.wait_ms <= max(asked_ms, whole_ms)
        assert whole_ms <= policy.max_s * 1000


@given(settings, st.sampled_from(RETRIED), st.integers(1, 100), st.floats(0, 1))
def test_pauses_never_shrink_from_one_attempt_to_the_next(
    own: RetrySettings, kind: FailureKind, nth: int, jitter: float
) -> None:
    policy = policy_of(kind, own)
    assert policy.backoff_ms(nth, jitter) <= policy.backoff_ms(nth + 1, jitter)


@given(st.text(), st.integers(0, 1000))
def test_jitter_is_the_same_each_time_and_between_none_and_all(key: str, nth: int) -> None:
    assert 0 <= jitter_of(key, nth) == jitter_of(key, nth) <= 1


def test_jitter_spreads_what_failed_together() -> None:
    assert len({round(jitter_of(str(n), 1), 1) for n in range(100)}) == 11


def test_server_errors_are_failures_and_everything_else_is_a_result() -> None:
    table = {200: None, 301: None, 404: None, 410: None, 429: "server_busy", 499: None, 500: "server_error"}
    table |= {503: "server_busy", 599: "server_error", 600: "server_error", 999: "server_error"}
    assert {status: failure_of_status(status) for status in table} == table


DECODED = {"": Decoded.CLEAN, "not gzip": Decoded.UNCODED, "incomplete": Decoded.PART, "unknown": Decoded.NOTHING}


@pytest.mark.parametrize(
    ("status", "truncated", "decode_error", "kind"),
    [
        (200, "", "", None),
        (200, "length", "", None),
        (200, "time", "", FailureKind.BODY),
        (404, "disconnect", "", FailureKind.BODY),
        (200, "", "not gzip", None),
        (200, "", "incomplete", FailureKind.BODY),
        (404, "", "unknown", FailureKind.BODY),
        (301, "", "incomplete", None),
        (500, "time", "", FailureKind.SERVER_ERROR),
    ],
)
def test_a_body_that_did_not_come_whole_is_a_failure_unless_it_was_too_long(
    status: int, truncated: str, decode_error: str, kind: FailureKind | None
) -> None:
    response = answer(status, DECODED[decode_error], truncated=truncated, decode_error=decode_error)
    assert failure_of(response) is kind


@pytest.mark.parametrize("status", [200, 206, 304, 404, 412, 428])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize("condition", ["", "If-None-Match: x", "if-modified-since: x", "If-Match: x", "X-If-Match: x"])
def test_an_answer_to_conditions_that_nobody_sent_is_none(status: int, method: str, condition: str) -> None:
    head = f"{method} / HTTP/1.1\r\nHost: a.test\r\n{condition}\r\n\r\n".encode()
    asking = {304: ("if-none-match", "if-modified-since"), 412: ("if-match",)}
    is_unasked = status in asking and method == "GET" and not condition.lower().startswith(asking[status])
    found = failure_of(msgspec.structs.replace(answer(status, Decoded.CLEAN), request_head=head))
    assert found == (FailureKind.PROTOCOL if is_unasked else None)


def answer(status: int, decoded: Decoded, **more: str) -> Response:
    return Response(
        url="http://a.test/", status=status, reason="", http_version="1.1", headers=(), raw_body=b"", body=b"",
        decoded=decoded, request_head=b"", remote_ip="", started_at=0.0, fetch_ms=0, **more,
    )  # fmt: skip


def test_a_page_without_a_readable_byte_is_not_a_result() -> None:
    table = {199: False, 200: True, 299: True, 300: False, 404: False, 500: False}
    assert {status: is_unreadable(answer(status, Decoded.NOTHING)) for status in table} == table
    assert not is_unreadable(answer(200, Decoded.PART))
