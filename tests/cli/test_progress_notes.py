"""What a progress line explains: the time left, a stall, the last error."""

import io
from typing import Any

import pytest

from crawler.frontier.members import Awaited, Awaits
from crawler.reports.live_view import Headline, PlainLines, Shown
from crawler.reports.progress_notes import Trend, left_text, stall_text
from crawler.runtime.counters import ERROR_MAX, ERROR_SHOWN_S, Counters, LastError, OpenClaims
from crawler.terminal.wording import failure_reason
from tests.support.views import snapshot


def shown(at_s: float, *, pending: int, fetched: int, is_limited: bool = False, **values: Any) -> Shown:
    found = snapshot(pending=pending, pages=fetched, busy_partitions=3, **values)
    return Shown(at_s=at_s, snapshot=found, is_limited=is_limited)


def notes_after(seconds: int, *, pending: int, per_s: int, fetched_per_s: int = 5) -> str:
    headline = Headline()
    for second in range(seconds + 1):
        notes = headline.take(shown(second, pending=pending + per_s * second, fetched=fetched_per_s * second))[1]
    return notes


def test_the_time_left_is_told_once_the_queue_has_shrunk_for_half_a_minute() -> None:
    assert notes_after(29, pending=2000, per_s=-5) == ""
    assert notes_after(30, pending=2000, per_s=-5) == "about 6 min left"
    assert notes_after(300, pending=2000, per_s=-5) == "about 2 min left"


def test_a_queue_that_grows_or_stands_still_has_no_time_left() -> None:
    assert notes_after(90, pending=2000, per_s=1) == ""
    assert notes_after(90, pending=2000, per_s=0) == ""


def test_a_queue_that_turned_is_measured_over_the_last_minute() -> None:
    trend = Trend()
    for second in range(201):
        trend.take(second, pending=1000 + 10 * second if second < 100 else 3000 - 10 * second, attempts=second)
    assert trend.left_s == pytest.approx(100)


def test_a_crawl_with_a_limit_ends_before_its_queue_does() -> None:
    headline = Headline()
    for second in range(61):
        limited = shown(second, pending=900 - second, fetched=second, is_limited=True)
        assert headline.take(limited)[1] == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(40, "less than a minute left"), (58, "about 1 min left"), (200, "about 3 min left"),
     (7200, "about 2 h left"), (5 * 86400, "about 5 days left")],
)  # fmt: skip
def test_the_time_left_is_no_more_exact_than_it_is_known(seconds: float, text: str) -> None:
    assert left_text(seconds) == text


def test_a_stall_is_explained_after_some_seconds() -> None:
    view, stream = Headline(), io.StringIO()
    plain = PlainLines(stream)
    waits = (Awaited(what=Awaits.NEXT, count=3, host="docs.example", in_s=11.2),)
    for second in range(12):
        still = shown(second, pending=9, fetched=2, awaited=waits, last_error="timeout: a.test")
        notes = view.take(still)[1]
        plain.show(still)
    why = "nothing for 11 s: all 3 hosts wait for their next fetch, first docs.example in 12 s"
    assert notes == f"{why}; last error: timeout: a.test"
    assert stream.getvalue().splitlines()[-1].endswith("; last error: timeout: a.test")
    paused = shown(12, pending=9, fetched=2, awaited=waits, last_error="timeout: a.test", waits_for=["paused"])
    assert view.take(paused)[1] == "last error: timeout: a.test"
    assert view.take(shown(13, pending=8, fetched=3))[1] == ""


@pytest.mark.parametrize(
    ("awaited", "busy", "why"),
    [
        ([], 1, ""),
        ([("next", 2, "a.test", 5), ("next", 1, "b.test", 3)], 9,
         ": all 3 hosts wait for their next fetch, first b.test in 3 s"),
        ([("next", 3, "a.test", 5)], 1, ": a.test waits for its next fetch in 5 s"),
        ([("next", 3, "", 5)], 1, ": a host waits for its next fetch in 5 s"),
        ([("next", 500, "a.test", 5)], 500, ": all hosts wait for their next fetch, first a.test in 5 s"),
        ([("next", 3, "a.test", 5), ("robots", 1, "b.test", 0)], 4, ": waits for robots.txt of b.test"),
        ([("answer", 1, "a.test", 0), ("answer", 2, "b.test", 0)], 4,
         ": waits for an answer of a.test and 2 other requests"),
        ([("page", 1, "a.test", 0)], 1, ": works on a page of a.test"),
        ([("unheard of", 1, "a.test", 0)], 1, ""),  # of a newer version
    ],
)  # fmt: skip
def test_what_instances_wait_for_is_summed_up(awaited: list[tuple[str, int, str, float]], busy: int, why: str) -> None:
    known = [Awaited(what=what, count=count, host=host, in_s=in_s) for what, count, host, in_s in awaited]
    assert stall_text(40, known, busy=busy) == f"nothing for 40 s{why}"


@pytest.mark.parametrize(
    ("kind", "detail", "reason"),
    [
        ("connect", "[Errno 111] Connection refused", "connection refused"),
        ("connect", "robots.txt: [Errno 111] Connection refused", "robots.txt: connection refused"),
        ("server_busy", "status 503", "status 503"),
        ("timeout", "robots.txt: no response in time", "robots.txt: timeout: no response in time"),
        ("dns_not_found", "NXDOMAIN", "dns not found: NXDOMAIN"),
        ("tls", "TLS alert", "tls: TLS alert"),
        ("host_dead", "", "host dead"),
        ("address_refused", "127.0.0.1 is a private address", "127.0.0.1 is a private address"),
    ],
)
def test_a_failure_is_told_in_few_words(kind: str, detail: str, reason: str) -> None:
    assert failure_reason(kind, detail) == reason


def test_the_last_error_is_bounded_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = Counters(OpenClaims(1))
    assert counters.description()["last_error"] == ""
    counters.last_error = LastError("connect", "Connection refused", "http://docs.example:81/x", 1000.0)
    monkeypatch.setattr("crawler.runtime.counters.wall_s", lambda: 1000.0 + ERROR_SHOWN_S - 1)
    assert counters.description()["last_error"] == "connection refused: docs.example:81"
    monkeypatch.setattr("crawler.runtime.counters.wall_s", lambda: 1000.0 + ERROR_SHOWN_S)
    assert counters.description()["last_error"] == ""
    long = LastError("tls", "x" * 500, f"http://{'y' * 250}/", 0.0).text
    assert len(long) == ERROR_MAX
