"""The lines of -v and -vv: what they tell of each outcome, once, and that nothing is printed without them."""

import io
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from crawler.hosts.robots_cache import RobotsEntry
from crawler.hosts.robots_reader import RobotsResult
from crawler.model import Candidate, FailureKind, ParsedPage, RefusalReason
from crawler.rules.robots import RobotsRules
from crawler.runtime.log_files import show_urls, url_log
from crawler.worker import url_lines
from crawler.worker.attempts import AttemptNotes
from crawler.worker.outcomes import Committable, Deferred, Failed, Outcome, Refused
from crawler.worker.url_lines import line_of
from tests.worker.test_attempt_notes import CLAIM, RESPONSE, committable, failed

URL = CLAIM.url


@pytest.fixture
def printed() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    yield stream
    show_urls(None)
    url_log.propagate = True


def without_time(stream: io.StringIO) -> list[str]:
    return [line.partition(" ")[2] for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (committable(), f"404       0 B    500 ms {URL}"),
        (replace(committable(), redirect_to="http://b.test/"), f"404       0 B    500 ms {URL} - redirects to http://b.test/"),
        (replace(committable(), response=replace(RESPONSE, status=200, body=b"x" * 11_200, truncated="length")),
         f"200  10.9 KiB    500 ms {URL} - cut off by length"),
        (failed(30_000), f"refused        1,000 ms {URL} - retry in 30 s (attempt 2)"),
        (failed(-1), f"refused        1,000 ms {URL} - given up after 2 attempts"),
        (Failed.finally_(replace(CLAIM, attempts=0), FailureKind.HOST_DEAD, "silent"),
         f"host dead: silent         - {URL} - given up"),
        (Refused(claim=CLAIM, reason=RefusalReason.ROBOTS), f"refused               - {URL} - forbidden by robots.txt"),
        (Deferred(claim=CLAIM, reason="depth"), f"deferred              - {URL} - kept, not fetched: depth"),
    ],
)  # fmt: skip
def test_a_line_tells_what_came_and_what_comes_of_it(outcome: Outcome, line: str) -> None:
    assert line_of(outcome) == line


def test_links_are_told_with_the_details_only() -> None:
    refused = Counter({RefusalReason.SCOPE: 2, RefusalReason.DEPTH: 0})
    page = replace(committable(), page=ParsedPage(links=("http://b.test/",) * 7), refused=refused, fresh=3, deferred=1)
    assert line_of(page, detailed=True) == f"{line_of(page)} - 7 links, 3 new, 2 out of scope, 1 deferred"


def notes() -> AttemptNotes:
    writer: Any = SimpleNamespace(add=lambda _: None)
    return AttemptNotes(writer, node="n", session="s")


def test_each_accepted_outcome_is_printed_once_and_a_lost_one_not(printed: io.StringIO) -> None:
    show_urls(printed)
    notes().accepted(committable())
    notes().lost(failed(0))
    url_lines.robots_read("http://a.test", robots(), delay_ms=50)
    assert without_time(printed) == [line_of(committable())]


def test_decisions_are_printed_as_well_with_vv(printed: io.StringIO) -> None:
    show_urls(printed, decisions=True)
    notes().lost(failed(0))
    url_lines.robots_read("http://a.test", robots(), delay_ms=50)
    url_lines.robots_read("http://a.test", robots(FailureKind.CONNECT), delay_ms=50)
    lost, read, unread = without_time(printed)
    assert lost.endswith(" - does not count: the URL belongs to another instance by now")
    assert read == "robots.txt         3 ms http://a.test - read; delay 50 ms"
    assert unread.endswith("http://a.test - connection refused")
    outcome = committable()
    url_lines.links_judged(outcome, [candidate(), candidate(deferred="depth")])
    assert (outcome.fresh, outcome.deferred) == (2, 1)


def robots(failure: FailureKind | None = None) -> RobotsResult:
    detail = "connect: [Errno 111] Connection refused" if failure else ""
    rules = None if failure else RobotsRules()
    entry = RobotsEntry(rules=rules, failure=failure, detail=detail, expires_ms=0, expires_at=0.0)
    return RobotsResult(entry, is_requested=True, fetch_ms=3)


def candidate(*, deferred: str = "") -> Candidate:
    return Candidate(
        url="http://a.test/", fingerprint="1", partition=1, domain="a.test", queue="a.test", depth=0, deferred=deferred
    )


def test_nothing_is_printed_nor_counted_without_v(printed: io.StringIO) -> None:
    show_urls(printed)
    show_urls(None)
    outcome: Committable = committable()
    notes().accepted(outcome)
    url_lines.links_judged(outcome, [candidate()])
    assert (printed.getvalue(), outcome.fresh, url_log.handlers) == ("", 0, [])


def test_text_of_a_site_stays_in_its_line_and_has_no_commands(printed: io.StringIO) -> None:
    show_urls(printed)
    hostile = "\x1b[2J\n12:00:00 200 http://good.test/\u202e"
    notes().accepted(replace(failed(0), detail=hostile))
    (line,) = printed.getvalue().splitlines()
    assert "\\x1b[2J\\n12:00:00" in line
    assert "\\u202e" in line
    assert line.isprintable()


def test_a_reader_that_is_gone_does_not_stop_the_crawl(printed: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: str) -> int:
        raise BrokenPipeError

    monkeypatch.setattr("logging.raiseExceptions", False)  # as start_logging does
    monkeypatch.setattr(printed, "write", gone)
    show_urls(printed)
    notes().accepted(committable())
