"""Which runs are beyond those that are kept, and which pages a rule matches."""

from crawler.archive.prune_records import PruneRule, runs_beyond
from crawler.model import CommitEntry
from crawler.rules.job_runs import run_id


def page(url: str = "http://www.a.test/x", *, at: float = 100.0, run: str = "", pruned: bool = False) -> CommitEntry:
    return CommitEntry(
        url=url, fingerprint="1", visit=1, mime="unk", status_text="200", fetched_at=at, run=run, pruned=pruned
    )


def test_the_newest_runs_of_each_job_are_kept_by_nominal_time_whatever_the_revision() -> None:
    job = [run_id("job1", revision, nominal) for revision, nominal in ((1, 5), (2, 40), (1, 1_300), (3, 39))]
    other = [run_id("job2", 1, 1)]
    assert runs_beyond([*job, *other], 2) == {job[0], job[3]}
    assert runs_beyond([*job, *other], 9) == frozenset()


def test_attempts_of_one_run_stay_and_go_together_and_manual_runs_count_for_themselves() -> None:
    first, again = run_id("j", 1, 7), run_id("j", 1, 7, attempt=2)
    manual, later = run_id("j", 1, 7, is_manual=True), run_id("j", 1, 8)
    assert runs_beyond([first, again, later], 1) == {first, again}
    assert runs_beyond([first, again, manual, later], 2) == {first, again}


def test_active_runs_are_never_beyond_and_do_not_take_the_place_of_ended_ones() -> None:
    old, last, now = (run_id("j", 1, nominal) for nominal in (1, 2, 3))
    assert runs_beyond([old, last, now], 1, active=[now]) == {old}
    assert runs_beyond([old, last, now], 1, active=[old]) == {last}


def test_what_is_not_the_id_of_a_run_is_kept() -> None:
    assert runs_beyond(["x", "a.b", "j.1.!", "j.1.2.3.4", ""], 0) == frozenset()


def test_a_page_goes_when_all_conditions_hold() -> None:
    assert PruneRule(before=101.0).matches(page())
    assert not PruneRule(before=100.0).matches(page())
    assert PruneRule(domain="a.test").matches(page())
    assert not PruneRule(domain="www.a.test").matches(page())
    assert not PruneRule(before=101.0, domain="b.test").matches(page())
    assert PruneRule(runs=frozenset({"r"})).matches(page(run="r"))
    assert not PruneRule(runs=frozenset({"r"})).matches(page())
    assert not PruneRule(before=101.0, active=frozenset({"r"})).matches(page(run="r"))
    assert not PruneRule(before=101.0).matches(page(pruned=True))
