"""Durations, sizes, tables, progress lines, log lines: what people read, as pure text."""

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from crawler.frontier.series import Rates
from crawler.runtime.log_files import start_logging
from crawler.terminal.tables import facts, shortened, table
from crawler.terminal.words import counted, duration, rate, size
from crawler.views.live import PlainLines, Quiet, Shown, summary_line, view_for
from crawler.views.report import domain_table, named
from tests.support.views import domain, snapshot


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.02, "20 ms"), (0.0996, "0.1 s"), (0.44, "0.4 s"),
     (9.96, "10 s"), (59.4, "59 s"), (59.6, "1 m 00 s"), (187, "3 m 07 s"),
     (7500, "2 h 05 m"), (3 * 3600 - 1, "3 h 00 m"), (86_399, "1 d 00 h"), (4 * 86400 + 3 * 3600, "4 d 03 h")],
)  # fmt: skip
def test_durations_have_at_most_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "0.98 KiB"), (31_900, "31.2 KiB"), (1_560_000_000, "1.45 GiB")],
)
def test_sizes_have_three_digits(count: int, text: str) -> None:
    assert size(count) == text


def test_counts_and_rates_read_naturally() -> None:
    assert counted(1, "page") == "1 page"
    assert counted(2000, "retry", "retries") == "2,000 retries"
    assert (rate(0.52), rate(98.4), rate(1234)) == ("0.5", "98", "1,234")


def test_columns_line_up_whatever_stands_in_them() -> None:
    lines = table(("name", "n"), [("a", "1"), ("日本", "1,000")]).splitlines()
    assert lines == ["name      n", "a         1", "日本  1,000"]
    assert facts([("a", "1"), ("long", "2")]) == "a     1\nlong  2"
    assert shortened("a" * 50, 9) == "aaaa…aaaa"


def test_columns_that_tell_nothing_are_left_out() -> None:
    plain = domain("a.test", fetched=2, status={"2": 2}, bytes=10)
    assert domain_table([plain]).splitlines()[0].split() == ["domain", "pages", "2xx", "size"]
    assert "retries" in domain_table([plain, domain("b.test", retries=1)])
    assert named({"timeout": 1, "connect": 3, "tls": 0}) == "connect 3, timeout 1"


def shown(at_s: float, fetched: int = 0, **values: Any) -> Shown:
    counts = {"pending": 1000, "pages": fetched, "dead": 1, "bytes": 2048, "in_flight": 64}
    return Shown(at_s=at_s, snapshot=snapshot(**counts | values))


def test_a_progress_line_says_all_that_matters() -> None:
    line = summary_line(shown(12, 1204, rates=Rates(10.0, pages=98.2)))
    assert line == "12 s: 1,204 pages, 98/s, 936 queued, 64 in flight, 1 error, 2.00 KiB"


def test_a_progress_line_says_why_nothing_moves() -> None:
    full = "slowed by lack of room in the engine's memory (frontier.memory, or its own maxmemory)"
    line = summary_line(shown(12, 1204, waits_for=["memory", "paused"]))
    assert line.endswith(f"2.00 KiB; {full}; waits for 'crawler resume'")


def test_where_there_is_no_terminal_lines_come_every_few_seconds() -> None:
    stream = io.StringIO()
    view = view_for(stream, quiet=False, verbose=False)
    assert isinstance(view, PlainLines)
    for second in range(13):
        view.show(shown(second, 10 * second))
    assert [line.split(":")[0] for line in stream.getvalue().splitlines()] == ["5 s", "10 s"]
    assert isinstance(view_for(stream, quiet=True, verbose=False), Quiet)


@pytest.mark.slow(ci=True)
def test_lines_come_more_and_more_seldom_to_one_a_minute() -> None:
    stream = io.StringIO()
    view = view_for(stream, quiet=False, verbose=False)
    day_s = 24 * 3600
    for second in range(0, day_s, 5):
        view.show(shown(second, 10))
    lines = stream.getvalue().splitlines()
    assert 24 * 60 <= len(lines) <= 24 * 60 + 60
    assert [line.split(":")[0] for line in lines[:3]] == ["5 s", "10 s", "15 s"]


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    before, level, raises = list(root.handlers), root.level, logging.raiseExceptions
    yield root
    for handler in [h for h in root.handlers if h not in before]:
        root.removeHandler(handler)
        handler.close()
    for handler in before:
        root.addHandler(handler)
    root.setLevel(level)
    logging.raiseExceptions = raises


def test_log_events_are_json_lines_in_a_file_that_is_made_with_the_first(root_logger: logging.Logger, tmp_path) -> None:
    for handler in list(root_logger.handlers):
        root_logger.removeHandler(handler)
    file, stream = tmp_path / "node.log", io.StringIO()
    start_logging("info", file=file, stream=stream, node="vm-0")
    assert not file.exists()
    logging.getLogger("x").info("member.dead", extra={"member": "host-1", "n": 2})
    logging.getLogger("x").debug("unheard")
    (line,) = file.read_text().splitlines()
    event = json.loads(line)
    assert (event["event"], event["level"], event["member"], event["n"]) == ("member.dead", "info", "host-1", 2)
    assert event["node"] == "vm-0"
    assert event["at"].endswith("Z")
    assert stream.getvalue().rstrip().endswith("info member.dead member=host-1 n=2")


def test_the_live_view_shows_totals_and_the_busiest_domains_and_leaves_the_terminal_clean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "24")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    view = view_for(terminal, quiet=False, verbose=False)
    busy = [domain(f"d{n}.example", fetched=1204 - n, queued=36, errors={"timeout": 2}) for n in range(30)]
    table = Shown(at_s=12, snapshot=snapshot(*busy, pages=1204))
    view.show(table)
    view.say("[a] a line among them")
    view.close()
    text = terminal.getvalue()
    assert "1,204 pages" in text
    assert re.search(r"d0\.example +1,204 +- .* 2 .* 36 +- +now", text)
    assert view.rows == 24 - 5
    assert ("d18.example" in text, "d19.example" in text) == (True, False)
    assert "a line among them" in text
    assert text.rindex("\x1b[2K") > text.rindex("d0.example")  # erased at the end: the summary takes its place
