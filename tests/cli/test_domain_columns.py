"""The columns of tables of domains: which fit, what they show, and that they stay in their places."""

import pytest

from crawler.frontier.series import Rates
from crawler.terminal.tables import fitted
from crawler.views.columns import COLUMNS, NAME_WIDTH_MAX, domain_grid
from crawler.views.figures import DomainState
from crawler.views.report import domain_table
from tests.support.views import domain

FIRST = ["domain", "pages", "/s", "errors", "queued", "in flight", "next"]


def test_eighty_columns_have_the_most_important_ones() -> None:
    assert domain_grid([], 80).titles == FIRST


def test_wider_terminals_have_more_and_none_is_lost_again() -> None:
    before: set[str] = set()
    for width in range(20, 300):
        titles = set(domain_grid([domain()], width).titles)
        assert before <= titles
        before = titles
    assert before == {column.title for column in COLUMNS}


@pytest.mark.parametrize("width", [1, 20, 40, 80, 137, 200, 400])
def test_no_line_is_wider_than_asked(width: int) -> None:
    rows = [domain("a" * 200 + ".example", fetched=10**12, queued=10**9, pending=10**9), domain("日本.example")]
    for line in domain_grid(rows, width).lines():
        assert len(line) <= width


def test_columns_stay_where_they_are_while_numbers_grow() -> None:
    before, after = (domain_grid([domain(fetched=n, queued=n, bytes=n)], 120) for n in (0, 99_999))
    assert (before.widths, before.titles) == (after.widths, after.titles)


def test_names_have_what_room_there_is() -> None:
    name = "a-host-with-some-name.of-a-domain.example"
    assert name[:10] in domain_grid([domain(name)], 80).lines()[1]
    assert domain_grid([domain(name)], 400).widths[0] == NAME_WIDTH_MAX
    assert fitted("abcdefghij", 5, left=True) == "ab…ij"
    assert fitted("漢漢漢漢", 5, left=True) == "□□□□ "


def test_a_row_shows_what_is_known() -> None:
    row = domain(
        fetched=7, status={"2": 4, "4": 2, "5": 1}, errors={"timeout": 3}, bytes=2048, pending=12, queued=9,
        rates=Rates(10.0, pages=1.25), delay_ms=1500, next_fetch_in_ms=700, latency_ms=120.0, owner="vm-0",
        last_error="tls", in_flight=2, state=DomainState.WAITING,
    )  # fmt: skip
    grid = domain_grid([row], 300)
    cells = dict(zip(grid.titles, grid.rows[0], strict=True))
    assert cells == {
        "domain": "docs.example", "pages": "7", "/s": "1.2", "2xx": "4", "3xx": "-", "4xx": "2", "5xx": "1",
        "errors": "6", "size": "2.00 KiB", "retries": "-", "dead": "-", "refused by robots.txt": "-",
        "queued": "9", "in flight": "2", "retrying": "-", "scheduled": "-", "set aside": "-", "delay": "1.5 s",
        "next": "in 0.7 s", "latency": "0.1 s",
        "owner": "vm-0", "last error": "tls",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("state", "word"),
    [(DomainState.PAUSED, "paused"), (DomainState.BLOCKED, "blocked"), (DomainState.SPENT, "budget"),
     (DomainState.DONE, "-"), (DomainState.DUE, "now")],
)  # fmt: skip
def test_a_domain_that_is_stopped_says_so_by_a_word(state: DomainState, word: str) -> None:
    row = domain(state=state, pending=0 if state is DomainState.DONE else 5)
    assert domain_grid([row], 80).rows[0][-1] == word


def test_a_domain_with_nothing_but_scheduled_urls_is_fetched_later() -> None:
    rows = [domain(state=DomainState.WAITING, pending=5, scheduled=n) for n in (5, 4)]
    assert [row[-1] for row in domain_grid(rows, 80).rows] == ["later", "now"]


def test_what_is_not_kept_of_a_domain_is_a_question_mark() -> None:
    assert domain_grid([domain(in_flight=None)], 80).rows[0][FIRST.index("in flight")] == "?"


def test_the_sorted_column_has_a_mark() -> None:
    assert "queued↓" in domain_grid([], 80, sort="queue").titles
    assert "↓" not in "".join(domain_grid([], 80, sort="name").titles)


def test_text_of_a_site_stays_one_line() -> None:
    evil = domain("a\nb\x1b[2J.example", last_error="x\ty")
    (line,) = domain_grid([evil], 300).lines()[1:]
    assert r"a\nb\x1b[2J.example" in line
    assert r"x\ty" in line


def test_a_finished_crawl_has_no_columns_of_what_runs() -> None:
    done = domain(fetched=3, status={"2": 3}, owner="vm-0", delay_ms=1000)
    assert domain_table([done]).splitlines()[0].split() == ["domain", "pages", "2xx"]
    assert domain_table([done], is_running=True).splitlines()[0].split() == ["domain", "pages", "2xx", "delay", "owner"]
