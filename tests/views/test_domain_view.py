"""A domain's row and the sentence about it, from values."""

from typing import Any

import pytest

from crawler.frontier.busy import BusyQueue, Slot
from crawler.frontier.operator import EVERYWHERE, Overrides
from crawler.views.domains import sentence
from crawler.views.figures import DomainState, DomainView, domain_view
from tests.support.views import stats

NOW_S = 1_800_000_001.0
SLOT = int(NOW_S // 5)
NOTHING = Overrides()


def view(busy: BusyQueue | None = None, overrides: Overrides = NOTHING, **known: Any) -> DomainView:
    values = {"partition": 7, "owner": "node-1"} | known
    return domain_view(stats("docs.a.test", **values), busy, overrides, NOW_S)


def busy(in_flight: int = 0, pages: int = 0, error: str = "") -> BusyQueue:
    newest = [Slot(SLOT - 1, pages), Slot(SLOT - 2, pages)]
    return BusyQueue("docs.a.test", 7, newest, in_flight, error, NOW_S if error else 0.0)


@pytest.mark.parametrize(
    ("known", "state"),
    [
        ({}, DomainState.DONE),
        ({"fetched": 3, "status": {"2": 3}}, DomainState.DONE),
        ({"queued": 1}, DomainState.DUE),
        ({"queued": 1, "next_fetch_in_ms": 49}, DomainState.DUE),
        ({"queued": 1, "next_fetch_in_ms": 50, "delay_ms": 100}, DomainState.ACTIVE),
        ({"queued": 1, "next_fetch_in_ms": 60_000, "delay_ms": 60_000}, DomainState.ACTIVE),
        ({"queued": 1, "next_fetch_in_ms": 60_000, "delay_ms": 30_000}, DomainState.WAITING),
        ({"queued": 1, "next_fetch_in_ms": 50, "delay_ms": -1}, DomainState.WAITING),
        ({"queued": 1, "next_fetch_in_ms": 50, "delay_ms": 100, "owner": ""}, DomainState.WAITING),
        ({"retrying": 1, "next_fetch_in_ms": 50, "delay_ms": 100}, DomainState.WAITING),
        ({"retrying": 2}, DomainState.WAITING),
        ({"retrying": 2, "queued": 1}, DomainState.DUE),
        ({"queued": 1, "claimed": 1, "busy": busy(in_flight=1)}, DomainState.FETCHING),
        ({"queued": 1, "busy": busy(in_flight=1)}, DomainState.DUE),
        ({"queued": 1, "stop": "paused"}, DomainState.PAUSED),
        ({"queued": 1, "overrides": Overrides(paused=frozenset({EVERYWHERE}))}, DomainState.PAUSED),
        ({"stop": "blocked"}, DomainState.BLOCKED),
        ({"stop": "pages"}, DomainState.SPENT),
    ],
)
def test_the_state_in_one_word(known: dict[str, Any], state: DomainState) -> None:
    assert view(**known).state is state


def test_open_requests_are_at_most_the_claims_and_unknown_of_quiet_domains() -> None:
    assert view(busy(in_flight=3), claimed=2).in_flight == 2
    assert view(busy(in_flight=3), claimed=2, owner="").in_flight is None, "its owner is gone"
    assert view(None, claimed=2).in_flight is None
    assert view(None).in_flight == 0


def test_numbers_that_are_made_of_others() -> None:
    overrides = Overrides(boosts={"a.test": 5})
    row = view(
        busy(pages=10), overrides, fetched=4, fetch_ms=50, queued=1, retrying=2, refused={"robots": 3, "depth": 1}
    )
    assert (row.latency_ms, row.pending, row.robots_denied, row.boost) == (12.5, 3, 3, 5)
    assert row.rates
    assert row.rates.pages == 2.0
    assert view().latency_ms is None
    assert view().rates is None


def test_the_last_error_is_shown_for_fifteen_minutes() -> None:
    for age_s, shown in ((0, "timeout"), (900, "timeout"), (901, "")):
        row = view(BusyQueue("docs.a.test", 7, [], 0, "timeout", NOW_S - age_s))
        assert (row.last_error, bool(row.last_error_at)) == (shown, bool(shown))


def said(crawl_stop: str = "", instances: int = 1, deferred: Any = None, *, full: bool = False, **known: Any) -> str:
    waits_for = "memory" if full else ""
    return sentence(view(**known), deferred or {}, instances=instances, crawl_stop=crawl_stop, waits_for=waits_for)


def test_the_sentence_says_why_nothing_happens() -> None:
    waits = {"queued": 5}
    assert said(stop="blocked", queued=1) == (
        "Nothing is fetched: blocked by an operator (continue with 'crawler unblock docs.a.test')."
    )
    assert said("the whole crawl is paused", **waits) == "Nothing is fetched: the whole crawl is paused."
    assert said(instances=0, **waits) == "Nothing is fetched: no instance is running, and 5 URLs wait."
    assert said(instances=0, queued=1) == "Nothing is fetched: no instance is running, and 1 URL waits."
    assert "no instance owns partition 7" in said(owner="", **waits)
    assert "memory is full" in said(full=True, **waits)
    assert said(next_fetch_in_ms=3000, delay_ms=5000, **waits) == "The next request starts in 3 s, its delay is 5 s."
    assert said(next_fetch_in_ms=90_000, delay_ms=5000, busy=busy(error="timeout"), **waits) == (
        "The next request starts in 1 m 30 s after errors (the last: timeout)."
    )
    assert "errors" not in said(next_fetch_in_ms=5010, delay_ms=5000, busy=busy(error="timeout"), **waits)
    assert said(retrying=1) == "1 URL waits for a retry."
    assert said(retrying=1, scheduled=1) == "2 URLs wait for a retry."
    assert said(scheduled=2) == "2 URLs wait for the time given to 'crawler seed --at'."
    assert said(claimed=2, busy=busy(), **waits) == (
        "node-1 has claimed 2 URLs of it: a request starts when there is room."
    )
    assert said(**waits) == "It is due: node-1 claims from it when there is room for more requests."


def test_the_sentence_says_what_happens_and_what_became_of_it() -> None:
    assert said(queued=5, claimed=3, busy=busy(2, pages=10)) == (
        "node-1 fetches from it: 2 open requests, 2.0 pages/s."
    )
    assert said(fetched=2, dead=1) == "Done: all of its URLs are fetched or given up (2 pages, 1 dead letter)."
    assert said(dead=2, errors={"timeout": 2}) == "Nothing was fetched: 2 dead letters (timeout 2)."
    assert said(refused={"robots": 1}) == "Nothing was fetched: robots.txt forbids 1 URL."
    assert said(deferred={"urls": 9}, fetched=1) == (
        "Nothing is pending; deferred: 9 beyond the budget of URLs ('crawler release docs.a.test')."
    )
    assert said() == "Nothing is known of it but its name."
