"""`crawler stats --sort` and what `--watch` prints on a terminal and elsewhere."""

import io

import pytest

from crawler.cli.stats import SORTS
from crawler.frontier.stats import DomainStats
from crawler.terminal import printing

A = DomainStats(domain="a.test", partition=1, fetched=3, bytes=10, queued=1, next_fetch_in_ms=500)
B = DomainStats(domain="b.test", partition=2, fetched=9, bytes=5, queued=7, next_fetch_in_ms=900)
C = DomainStats(domain="c.test", partition=3, fetched=1, bytes=99, errors={"timeout": 2})


@pytest.mark.parametrize(
    ("sort", "order"),
    [("pages", "bac"), ("queue", "bac"), ("errors", "cab"), ("bytes", "cab"), ("next", "abc"), ("domain", "abc")],
)
def test_domains_are_sorted_by_what_was_named(sort: str, order: str) -> None:
    assert "".join(d.domain[0] for d in sorted([C, B, A], key=SORTS[sort])) == order


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_repainted_within_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("COLUMNS", "8")
    monkeypatch.setenv("LINES", "3")
    printing.repaint("0123456789\nb\x1b[2J\nc\nd")
    assert screen.getvalue() == "\x1b[H0123456\x1b[K\nb\\x1b[2\x1b[K\n\x1b[J"


def test_elsewhere_tables_follow_each_other_with_an_empty_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr("sys.stdout", pipe)
    printing.repaint("a\nb")
    printing.repaint("c")
    assert pipe.getvalue() == "a\nb\n\nc\n\n"


def test_a_message_that_nobody_reads_any_more_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    printing.say("a line", stream=Gone())
    with pytest.raises(BrokenPipeError):  # results: their command ends
        printing.out("a line", stream=Gone())
