"""The orders of `crawler stats --sort`, and what `--watch` prints on a terminal and elsewhere."""

import io

import pytest

from crawler.cli.parse_stats import SORTS
from crawler.frontier import domain_lists
from crawler.terminal import output


def test_the_command_offers_all_orders_that_there_are() -> None:
    """It names them itself, to begin without the imports that reading takes."""
    assert {*SORTS} == {*domain_lists.SORTS}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_repainted_within_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("COLUMNS", "8")
    monkeypatch.setenv("LINES", "3")
    output.repaint("0123456789\nb\x1b[2J\nc\nd")
    assert screen.getvalue() == "\x1b[H0123456\x1b[K\nb\\x1b[2\x1b[K\n\x1b[J"


def test_elsewhere_tables_follow_each_other_with_an_empty_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr("sys.stdout", pipe)
    output.repaint("a\nb")
    output.repaint("c")
    assert pipe.getvalue() == "a\nb\n\nc\n\n"


def test_a_message_that_nobody_reads_any_more_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    output.say("a line", stream=Gone())
    with pytest.raises(BrokenPipeError):  # results: their command ends
        output.out("a line", stream=Gone())
