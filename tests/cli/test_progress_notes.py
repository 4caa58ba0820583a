"""What a progress line explains: the time left, a stall, the last error."""

import io
from typing import Any

import pytest

from crawler.frontier.members import Awaited, Awaits, Member
from crawler.frontier.series import Sample, Samples
from crawler.rules.shapes import HINT_MS, PAGES_MIN
from crawler.runtime.clocks import monotonic_ms
from crawler.terminal.words import failure_reason
from crawler.views.headline import notes, overview_parts, sentence, state_text
from crawler.views.live import PlainLines, Shown
from crawler.views.overview import left_s, left_text, stall_text, still_s
from crawler.views.snapshot import CrawlState, JobsAhead, jobs_ahead
from crawler.worker.counters import ERROR_MAX, ERROR_SHOWN_S, Counters, LastError
from crawler.worker.open_claims import OpenClaims
from tests.support.views import NOW, overview, snapshot

T = 1_800_000_000.0


def samples(seconds: float, *, pending: float, per_s: float, pages_per_s: float = 5, gap_s: float = 0) -> Samples:
    """One each 5 s of a crawl that began so long ago, and what there is now; `gap_s`: without any, a minute ago."""

    done_per_s = max(pages_per_s, -per_s)

    def at(s: float) -> Sample:
        done = int(done_per_s * s)
        return Sample(T + s, added=int(pending + (per_s + done_per_s) * s), done=done, pages=int(pages_per_s * s))

    times = [s for s in range(0, int(seconds), 5) if not seconds - 60 - gap_s < s < seconds - 60]
    return Samples(at(seconds), [at(s) for s in times], [])


def test_the_time_left_is_told_once_the_queue_has_shrunk_for_half_a_minute() -> None:
    assert left_s(samples(29, pending=2000, per_s=-5)) is None
    assert left_s(samples(31, pending=2000, per_s=-5)) == pytest.approx((2000 - 155) / 5, rel=0.01)
    assert left_s(samples(300, pending=2000, per_s=-5)) == pytest.approx(100)
    assert left_s(samples(400, pending=2000, per_s=-5)) is None, "nothing is pending"
    assert left_s(Samples(Sample(T), [], [])) is None


def test_a_queue_that_grows_or_stands_still_has_no_time_left() -> None:
    assert left_s(samples(90, pending=2000, per_s=1)) is None
    assert left_s(samples(90, pending=2000, per_s=0)) is None


def test_a_queue_that_is_filled_as_fast_as_it_empties_has_no_time_left() -> None:
    """Of 1,000 URLs 15 a second are done and 14 found: that does not make it last 17 minutes."""
    assert left_s(samples(90, pending=1000, per_s=-1, pages_per_s=15)) is None
    assert left_s(samples(90, pending=1000, per_s=-7, pages_per_s=15)) is None
    assert left_s(samples(90, pending=1000, per_s=-8, pages_per_s=15)) == pytest.approx(35, rel=0.02)


def test_a_queue_that_turned_is_measured_over_the_last_minute() -> None:
    up, down = samples(100, pending=1000, per_s=10), samples(200, pending=3000, per_s=-10)
    assert left_s(Samples(down.now, [*up.fine, *down.fine[20:]], [])) == pytest.approx(100)


def test_time_without_an_instance_is_no_time_of_the_crawl() -> None:
    stopped = samples(70, pending=2000, per_s=-5, gap_s=20)
    assert left_s(stopped) == pytest.approx((2000 - 350) / 5), "what there is since the gap"
    assert left_s(samples(90, pending=2000, per_s=-5, gap_s=-60)) is not None
    late = Samples(Sample(T + 900, added=500, pages=9), [Sample(T, added=900, pages=9)], [])
    assert (left_s(late), still_s(late)) == (None, 0)


def test_a_crawl_stands_still_since_its_last_finished_attempt() -> None:
    still = samples(60, pending=9, per_s=0, pages_per_s=0)
    assert still_s(still) == 60
    assert left_s(samples(60, pending=2000, per_s=-5, pages_per_s=0)) is None
    assert still_s(samples(60, pending=9, per_s=0)) == 0
    moved = [*still.fine[:-2], *(s._replace(failures=1) for s in still.fine[-2:])]
    assert still_s(Samples(still.now._replace(failures=1), moved, [])) == 10


def test_a_crawl_with_a_limit_ends_before_its_queue_does() -> None:
    o = overview(pending=900, left_s=200.0)
    assert list(notes(o)) == ["about 3 min left"]
    assert list(notes(o, is_limited=True)) == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(40, "less than a minute left"), (58, "about 1 min left"), (200, "about 3 min left"),
     (7200, "about 2 h left"), (5 * 86400, "about 5 days left")],
)  # fmt: skip
def test_the_time_left_is_no_more_exact_than_it_is_known(seconds: float, text: str) -> None:
    assert left_text(seconds) == text


def test_a_stall_is_explained_after_some_seconds() -> None:
    waits = (Awaited(what=Awaits.NEXT, count=3, host="docs.example", in_s=11.2),)
    known: dict[str, Any] = {
        "pending": 9, "pages": 2, "busy_partitions": 3, "awaited": waits, "last_error": "timeout: a.test",
    }  # fmt: skip
    stream = io.StringIO()
    PlainLines(stream).show(Shown(at_s=11, snapshot=snapshot(still_s=11.0, **known)))
    why = "nothing for 11 s: all 3 hosts wait for their next fetch, first docs.example in 12 s"
    assert stream.getvalue().rstrip().endswith(f"; {why}; last error: timeout: a.test")
    assert list(notes(overview(still_s=9.9, **known))) == ["last error: timeout: a.test"]
    for why_not in ({"waits_for": ["paused"]}, {"state": CrawlState.PAUSED}, {"state": CrawlState.IDLE}):
        assert list(notes(overview(still_s=11.0, **known | why_not))) == ["last error: timeout: a.test"]


def test_pages_that_the_engine_lost_are_told_for_a_minute() -> None:
    assert list(notes(overview(set_back_pages=223))) == ["the engine lost its last writes: 223 pages are fetched again"]
    counters = Counters(OpenClaims(1))
    counters.set_back(200)
    counters.set_back(23)
    assert counters.description()["set_back_pages"] == 223
    counters.set_back_at_s -= ERROR_SHOWN_S
    assert counters.description()["set_back_pages"] == 0
    counters.set_back(5)
    assert counters.description()["set_back_pages"] == 5


def test_a_domain_with_one_shape_of_url_is_told() -> None:
    said = "only URLs of one shape for ten minutes: a.test/s?sid=* (without an end? 'crawler block' ends it)"
    assert list(notes(overview(one_shape="a.test/s?sid=*"))) == [said]
    counters = Counters(OpenClaims(1))
    now_ms = monotonic_ms()
    for n in range(PAGES_MIN):
        counters.shapes.note("a.test", f"http://a.test/s?sid={n}", now_ms - HINT_MS + n * HINT_MS // (PAGES_MIN - 1))
    assert counters.description()["one_shape"] == "a.test/s?sid=*"


def test_a_crawl_that_waits_for_scheduled_urls_tells_when_the_first_is_visible() -> None:
    known: dict[str, Any] = {"pending": 9, "scheduled": 9, "first_visible_at": NOW + 3 * 3600, "still_s": 99.0}
    assert list(notes(overview(**known))) == ["next URL visible in 3 h 00 m"]
    assert list(notes(overview(**known | {"first_visible_at": NOW - 1}))) == ["next URL visible now"]
    assert list(notes(overview(**known | {"pending": 10}))) == ["nothing for 1 m 39 s"]
    assert list(notes(overview(**known | {"state": CrawlState.PAUSED}))) == []
    assert overview_parts(overview(**known | {"pending": 12, "in_flight": 1}))[2:5] == [
        "2 queued", "9 scheduled", "1 in flight",
    ]  # fmt: skip


def test_the_time_left_is_that_of_urls_that_are_visible() -> None:
    shrinking = samples(300, pending=2000, per_s=-5)
    assert left_s(shrinking, scheduled=400) == pytest.approx(20)
    assert left_s(shrinking, scheduled=500) is None


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
         ": waits for an answer from a.test and 2 other requests"),
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
    counters.note_error(LastError("connect", "Connection refused", "http://docs.example:81/x", 1000.0))
    monkeypatch.setattr("crawler.worker.counters.wall_s", lambda: 1000.0 + ERROR_SHOWN_S - 1)
    assert counters.description()["last_error"] == "connection refused: docs.example:81"
    monkeypatch.setattr("crawler.worker.counters.wall_s", lambda: 1000.0 + ERROR_SHOWN_S)
    assert counters.description()["last_error"], "nothing else was done since"
    counters.committed += 1
    assert counters.description()["last_error"] == ""
    long = LastError("tls", "x" * 500, f"http://{'y' * 250}/", 0.0).text
    assert len(long) == ERROR_MAX


def test_a_crawl_that_waits_for_jobs_tells_when_the_next_one_is_due() -> None:
    ahead = JobsAhead(next_at=NOW + 2466.2)
    assert list(notes(overview(jobs=ahead))) == ["next job in 41 m 07 s"]
    assert list(notes(overview(jobs=ahead, pending=3))) == []
    assert state_text(overview(jobs=ahead, state=CrawlState.WAITING)) == "waiting for jobs"
    assert state_text(overview(state=CrawlState.FINISHED)) == "finished"
    assert list(notes(overview(jobs=JobsAhead(next_at=NOW - 5)))) == ["next job in 0 s"]


def test_an_instance_whose_clock_is_wrong_is_told() -> None:
    def member(node: str, **values: float) -> Member:
        return Member(session=node, node=node, counter=1, **values)  # type: ignore[arg-type]

    ahead = jobs_ahead([member("a"), member("b", clock_off_s=-7.0), member("c", clock_off_s=3600.0, next_job_at=0.0)])
    told = "c triggers no jobs: its clock is 1 h 00 m behind the engine's"
    assert list(notes(overview(jobs=ahead, pending=3))) == [told]
    assert jobs_ahead([member("a", next_job_at=9.0), member("b", next_job_at=7.0)]) == JobsAhead(next_at=7.0)
    assert jobs_ahead([]) == JobsAhead()


@pytest.mark.parametrize(
    ("known", "text"),
    [
        ({}, "Running on 1 instance."),
        ({"instances": 2}, "Running on 2 instances."),
        ({"state": CrawlState.PAUSED, "pending": 1}, "Paused by an operator: 1 URL waits for 'crawler resume'."),
        ({"state": CrawlState.PAUSED, "pending": 2}, "Paused by an operator: 2 URLs wait for 'crawler resume'."),
        ({"state": CrawlState.SPENT, "spent": "crawl:pages"}, "Its budget of pages is used up: raise it to continue."),
        (
            {"state": CrawlState.IDLE, "pending": 9},
            "No instance is running, and 9 URLs wait: start one with 'crawler crawl'.",
        ),
        ({"state": CrawlState.WAITING, "added": 3}, "Waiting for jobs."),
        ({"state": CrawlState.FINISHED, "added": 3}, "Finished: nothing is pending."),
        ({"state": CrawlState.FINISHED}, "Nothing to do yet: add a seed."),
    ],
)
def test_a_sentence_tells_what_the_crawl_does(known: dict[str, Any], text: str) -> None:
    o = overview(**known)
    assert sentence(o) == o.sentence == text
    if "add a seed" not in text:
        assert text.lower().startswith(state_text(o))
