"""The texts of `crawler top`: headline in each state, keys by width, questions."""

import pytest

from crawler.tui.texts import HELP, boost_question, crawl_question, head_text, keys_text, notes_text
from crawler.views.snapshot import CrawlState
from crawler.views.values import BOOST_MAX
from tests.support.views import domain, overview


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (CrawlState.RUNNING, "main: running"),
        (CrawlState.PAUSED, "main: paused by an operator"),
        (CrawlState.SPENT, "main: its budget of pages is used up"),
        (CrawlState.IDLE, "main: no instance is running"),
        (CrawlState.FINISHED, "main: finished"),
    ],
)
def test_the_headline_tells_the_state(state: CrawlState, text: str) -> None:
    assert head_text(overview(state=state, spent="crawl:pages"), 3, 80).startswith(f"{text}   0 pages")


def test_the_headline_has_two_lines_at_most_and_cuts_no_number() -> None:
    o = overview(pages=10**9, pending=10**9, bytes=10**15, retries=10**7, dead=10**6, instances=100)
    lines = head_text(o, 10**6, 80).splitlines()
    assert len(lines) == 2
    assert all(len(line) <= 80 for line in lines)
    assert "1,000,000,000 pages" in lines[0]


def test_the_headline_tells_requisites_apart_from_pages() -> None:
    assert "   0 B   40 requisites" in head_text(overview(pages=12, requisites=40), 3, 80).replace("\n", "   ")
    assert "requisite" not in head_text(overview(pages=12), 3, 80)


def test_notes_tell_why_nothing_is_claimed() -> None:
    o = overview(waits_for=["paused"], left_s=200.0)
    assert notes_text(o) == "waits for 'crawler resume'; about 3 min left"


def test_help_and_quit_are_always_among_the_keys() -> None:
    keys = [("a", "first"), ("b", "second"), ("?", "help"), ("q", "quit")]
    assert keys_text(keys, 80) == "a first  b second  ? help  q quit"
    assert keys_text(keys, 24) == "a first  ? help  q quit"
    assert keys_text(keys, 1) == "? help  q quit"


def test_a_boost_stays_within_its_bounds() -> None:
    assert boost_question(domain(boost=BOOST_MAX), 1)[1] == BOOST_MAX
    text, boost = boost_question(domain(boost=1), -1)
    assert (text, boost) == ("Remove the boost of docs.example? It is fetched like all without a boost.", 0)


def test_a_paused_crawl_is_resumed() -> None:
    assert crawl_question(overview(state=CrawlState.PAUSED, pending=1)).startswith("Resume the whole crawl?")


def test_the_help_fits_into_eighty_columns() -> None:
    assert max(map(len, HELP.splitlines())) <= 66  # beside border and scrollbar of the dialog
