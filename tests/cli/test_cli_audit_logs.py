"""Access logs as web servers write them, and what is judged by their times."""

import contextlib
import gzip
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crawler.audit.findings import Report
from crawler.audit.judge_politeness import Delays, StoredDelays, judge_queue
from crawler.audit.judge_robots import OriginRobots, judge_request
from crawler.audit.ledger import LoggedRequest, page_of
from crawler.audit.report import report_text
from crawler.audit.requests import LogLine, check_format, lacks_host, parse_line, read_log
from crawler.errors import UsageError
from crawler.rules.robots import RobotsRules
from crawler.settings import load

STAMP = "[21/Nov/2026:19:00:00 +0000]"
AT = 1795287600.0
NGINX = f'a.test:8080 10.0.0.1 - - {STAMP} "GET /p?q=1 HTTP/1.1" 200 123 "-" "shardcrawl/1" 1795287600.250 0.050'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            '{"start": 12.5, "end": 12.75, "host": "A.test", "target": "/p", "agent": "x", "status": 200, "port": 4}',
            LogLine(host="a.test", port=0, target="/p", started=12.5, ended=12.75, blur_s=0, status=200, agent="x"),
        ),
        (
            f'a.test 10.0.0.1 - - {STAMP} "GET / HTTP/1.1" 404 12',
            LogLine(host="a.test", port=0, target="/", started=AT, ended=AT, blur_s=1.0, status=404),
        ),
        (
            '[::1]:80 10.0.0.1 - bob [21/Nov/2026:20:00:00 +0100] "GET /\\"x HTTP/1.1" 301 0 "http://r/" "a \\"b\\""',
            LogLine(
                host="[::1]", port=80, target='/\\"x', started=AT, ended=AT, blur_s=1, status=301, agent='a \\"b\\"'
            ),
        ),
        (
            NGINX,
            LogLine(
                host="a.test", port=8080, target="/p?q=1", started=AT + 0.2, ended=AT + 0.25, blur_s=0.002, status=200,
                agent="shardcrawl/1",
            ),
        ),
        (
            f'a.test 10.0.0.1 - - {STAMP} "GET / HTTP/1.1" 200 1 "-" "x" 1795287600250000 3000',
            LogLine(
                host="a.test", port=0, target="/", started=AT + 0.25, ended=AT + 0.253, blur_s=1e-6, status=200,
                agent="x",
            ),
        ),
        (
            f'a.test 10.0.0.1 - - {STAMP} "GET / HTTP/1.1" 200 1 "-" "x" 1795287600250',
            LogLine(
                host="a.test", port=0, target="/", started=AT + 0.25, ended=AT + 0.25, blur_s=1e-3, status=200,
                agent="x",
            ),
        ),
    ],
)  # fmt: skip
def test_lines_of_every_format_are_understood(text: str, line: LogLine) -> None:
    found = parse_line(text)
    assert found is not None
    assert found.started == pytest.approx(line.started, abs=1e-5)
    assert found.ended == pytest.approx(line.ended, abs=1e-5)
    assert found == LogLine(
        host=line.host, port=line.port, target=line.target, started=found.started, ended=found.ended,
        blur_s=line.blur_s, status=line.status, agent=line.agent,
    )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "{}", '{"start": 1}', "GET / HTTP/1.1", f'a.test 10.0.0.1 - - {STAMP} "-" 400 0',
        '10.0.0.1 - - [nonsense] "GET / HTTP/1.1" 200 1', f'a/b 10.0.0.1 - - {STAMP} "GET / HTTP/1.1" 200 1',
    ],
)  # fmt: skip
def test_what_is_no_line_of_a_log_is_told_from_what_is(text: str) -> None:
    assert parse_line(text) is None


DEFAULTS = [
    f'10.0.0.1 - - {STAMP} "GET /p HTTP/1.1" 200 1',  # Apache's common
    f'10.0.0.1 - bob {STAMP} "GET /p HTTP/1.1" 200 1 "-" "shardcrawl/1"',  # combined, of both
    f'::1 - - {STAMP} "GET /p HTTP/1.1" 200 - "http://r/" "shardcrawl/1" 1795287600.250 0.050',
]


@pytest.mark.parametrize("text", DEFAULTS)
def test_lines_without_a_host_are_of_the_host_that_is_given(text: str) -> None:
    assert parse_line(text) is None
    line = parse_line(text, "A.test:8080")
    assert line is not None
    assert (line.host, line.port, line.target) == ("a.test", 8080, "/p")
    assert parse_line(NGINX, "other.test") == parse_line(NGINX)


BEHIND = [  # fields behind the User-Agent, when the request began and ended (s after the time in brackets), resolution
    ("", 0, 0, 1.0),
    (' "-"', 0, 0, 1.0),  # nginx's usual $http_x_forwarded_for
    (' "10.0.0.9, 10.0.0.8" "say \\"hi\\""', 0, 0, 1.0),
    (" rt=0.003 uct=- TLSv1.3", 0, 0, 1.0),
    (" 543 0.012 [up-80] [] 10.0.0.5:80 1 0.012 200 3f2a", 0, 0, 1.0),  # an ingress: a length comes first
    (" 0.012", 0, 0, 1.0),
    (" -", 0, 0, 1.0),
    (f" {AT + 0.25:.3f} 0.050", 0.2, 0.25, 2e-3),
    (f" {AT + 0.25:.3f} 0.050 \"-\" x", 0.2, 0.25, 2e-3),
    (f' {AT + 0.25:.3f} "-" 0.050', 0.25, 0.25, 1e-3),
    (f" {(AT + 0.25) * 1e6:.0f} 50000 more", 0.25, 0.3, 1e-6),
    (f" {(AT + 0.25) * 1e3:.0f}", 0.25, 0.25, 1e-3),
    (f" {AT - 90_000:.3f}", 0, 0, 1.0),
    (" " + "9" * 400, 0, 0, 1.0),
    (" 1.2.3", 0, 0, 1.0),
]  # fmt: skip


@pytest.mark.parametrize(("behind", "began", "ended", "blur_s"), BEHIND, ids=[one[0] or "none" for one in BEHIND])
def test_fields_behind_the_agent_are_times_or_are_passed_over(
    behind: str, began: float, ended: float, blur_s: float
) -> None:
    line = parse_line(f'a.test 10.0.0.1 - - {STAMP} "GET /p HTTP/1.1" 200 1 "-" "shardcrawl/1"{behind}\n')
    assert line is not None
    assert (line.agent, line.blur_s) == ("shardcrawl/1", blur_s)
    assert (line.started - AT, line.ended - AT) == pytest.approx((began, ended), abs=1e-5)


@pytest.mark.parametrize("behind", [' "', ' "x', "  x", ' "x"y'])
def test_a_line_whose_end_is_cut_off_is_none(behind: str) -> None:
    assert parse_line(f'a.test 10.0.0.1 - - {STAMP} "GET /p HTTP/1.1" 200 1 "-" "shardcrawl/1"{behind}') is None


def test_a_log_without_hosts_is_known_by_its_first_line(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    for text, is_lacking in [(one, True) for one in DEFAULTS] + [(NGINX, False), ("{}", False), ("", False)]:
        log.write_text(f"\n{text}\n")
        assert lacks_host(log) is is_lacking


def test_requests_of_others_are_left_out_and_packed_logs_are_read(tmp_path: Path) -> None:
    other = NGINX.replace("shardcrawl/1", "Mozilla/5.0")
    packed = tmp_path / "access.log.gz"
    packed.write_bytes(gzip.compress(f"{NGINX}\n{other}\n\nnonsense\n".encode()))
    lines = list(read_log(packed, "Shardcrawl"))
    assert [line and line.agent for line in lines] == ["shardcrawl/1", None]
    assert len([line for line in read_log(packed, "") if line]) == 2
    packed.write_bytes(b"no gzip")
    with pytest.raises(UsageError, match="can't read the web log"):
        list(read_log(packed, ""))


@pytest.mark.parametrize(
    ("text", "said"),
    [("", ""), ("\n\n", ""), ("<html>\n" * 20_000, "no line of"), (f"<html>\n{NGINX}\n", "")],
)
def test_a_file_that_is_no_log_is_refused_by_its_first_lines(tmp_path: Path, text: str, said: str) -> None:
    log = tmp_path / "access.log"
    log.write_text(text)
    with pytest.raises(UsageError, match=said) if said else contextlib.nullcontext():
        check_format(log, "")


def request(started: float, *, host: str = "a.test", target: str = "/", blur: float = 0.0) -> LoggedRequest:
    page = page_of(host, target)
    return LoggedRequest("a.test", 0, host, 0, target, page, started, started, blur, 200, "x")


def too_close(*requests: LoggedRequest, delays: Delays) -> int:
    report = Report(crawl="main")
    judge_queue(requests, delays, report)
    return report.findings.politeness.count


def test_two_starts_closer_than_the_delay_are_one_violation() -> None:
    delays = Delays(1000)
    assert too_close(request(1), request(2), request(2.999), delays=delays) == 1
    assert too_close(request(1), request(1), delays=Delays(0)) == 0


def test_times_to_the_second_condemn_nobody_for_less_than_a_second() -> None:
    assert too_close(request(1, blur=1.0), request(2, blur=1.0), delays=Delays(1900)) == 0
    assert too_close(request(1, blur=1.0), request(2, blur=1.0), delays=Delays(2100)) == 1


@pytest.mark.parametrize(
    ("gap_s", "delay_ms", "is_judged"),
    [(0, 500, False), (1, 1000, False), (1, 1500, False), (4, 500, True), (2, 1000, True), (1, 5000, True)],
)
def test_pairs_that_times_to_the_second_say_nothing_of_are_counted(gap_s: int, delay_ms: int, is_judged: bool) -> None:
    report = Report(crawl="main")
    judge_queue((request(1, blur=1.0), request(1 + gap_s, blur=1.0)), Delays(delay_ms), report)
    assert report.pairs_too_coarse == (0 if is_judged else 1)
    fine = Report(crawl="main")
    judge_queue((request(1, blur=0.002), request(1 + gap_s, blur=0.002)), Delays(delay_ms), fine)
    assert fine.pairs_too_coarse == 0


def test_what_was_not_judged_is_not_called_ok() -> None:
    report = Report(crawl="main", has_web_log=True)
    finding = report.findings.politeness
    finding.is_judged, finding.note = False, "1 pair not judged: times in whole seconds"
    text = report_text(report)
    assert "-     politeness violations                 ?  1 pair not judged: times in whole seconds" in text
    assert text.startswith("Audit of the crawl main in : clean, but politeness could not be judged")
    finding.add()
    assert "FAIL  politeness violations                 1  1 pair not judged" in report_text(report)


def test_where_hosts_of_a_queue_ask_for_different_delays_the_first_of_two_requests_says_how_long() -> None:
    delays = Delays(100, {"slow.a.test": 5000, "a.test": 100})
    slow, fast = request(1, host="slow.a.test"), request(2)
    assert too_close(fast, request(2.5, host="slow.a.test"), delays=delays) == 0
    assert too_close(slow, fast, delays=delays) == 1


def robots_of(*, read_at: float | None, origin_read_at: float = 0.0, started: float = AT) -> tuple[int, int]:
    """(violations, not judged) of one request for an allowed page."""
    report = Report(crawl="main")
    origin = OriginRobots(
        "http://a.test", RobotsRules.parse(b"User-agent: *\nDisallow: /private/\n", "x"), origin_read_at
    )
    judge_request(request(started), [origin], read_at, report)
    return report.findings.robots.count, report.findings.unjudged.count


def test_a_page_may_be_asked_for_once_robots_txt_was_read_by_whichever_log_tells_it() -> None:
    assert robots_of(read_at=AT - 1) == (0, 0)
    assert robots_of(read_at=AT + 1, origin_read_at=AT + 1) == (1, 0)
    assert robots_of(read_at=None, origin_read_at=AT - 1) == (0, 0)
    assert robots_of(read_at=None, origin_read_at=AT + 1) == (0, 1)
    # A log whose clock began with the machine can't be compared with dates.
    assert robots_of(read_at=None, origin_read_at=AT - 1, started=12.5) == (0, 1)


def test_a_host_that_serves_two_origins_is_only_judged_by_what_both_forbid() -> None:
    rules = [RobotsRules.parse(text, "x") for text in (b"User-agent: *\nDisallow: /\n", b"")]
    origins = [OriginRobots(url, r, 0.0) for url, r in zip(("http://a.test", "https://a.test"), rules, strict=True)]
    report = Report(crawl="main")
    judge_request(request(AT), origins, AT - 1, report)
    assert report.findings.robots.count == 0
    judge_request(request(AT), origins[:1], AT - 1, report)
    assert report.findings.robots.count == 1
    assert [o.serves("a.test", port) for o in origins for port in (0, 443, 8080)] == [True, True, False] * 2


async def test_a_domain_whose_delay_was_ordered_is_judged_by_the_shortest_that_may_have_held() -> None:
    async def stored(wanted: list[tuple[int, str]]) -> list[int]:
        return [{"www.fast.test": 5000, "slow.test": 9000, "plain.test": 1000}[queue] for _, queue in wanted]

    states: Any = SimpleNamespace(delays=stored, robots=nothing)
    delays = StoredDelays(states, SimpleNamespace(), load(environment={}), {"fast.test": 200, "slow.test": 9000})  # type: ignore[arg-type]
    queues = [(0, "www.fast.test"), (0, "slow.test"), (0, "plain.test")]
    await delays.read(queues)
    assert [(await delays.of(queue)).default_ms for queue in queues] == [200, 1000, 1000]


async def nothing(partition: int) -> dict[str, bytes]:
    return {}
