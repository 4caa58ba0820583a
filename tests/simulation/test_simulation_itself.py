"""The simulation can be trusted: it repeats itself, and notices when a rule of the crawler is left out."""

import os
import subprocess
import sys

import pytest

from tests.simulation.mutants import MUTANTS, first_caught
from tests.simulation.report import failure
from tests.simulation.run import simulate
from tests.simulation.web import Kind, Url, Web
from tests.simulation.wire import RealEngine

WEIRD = 33  # a seed with many kinds of faults
FIRST = {  # seeds from which on it is caught soon
    "clock_not_stored": 9, "files_go_at_once": 130, "job_unchecked": 10, "no_self_stop": 60, "no_token": 17,
}  # fmt: skip


@pytest.mark.slow
def test_the_same_seed_is_the_same_run_to_the_last_call(real: RealEngine) -> None:
    first, between, second = simulate(WEIRD, real), simulate(WEIRD + 1, real), simulate(WEIRD, real)
    assert first.tail == second.tail
    assert first.digest == second.digest != between.digest


@pytest.mark.slow
def test_a_seed_gives_the_same_run_in_another_process(real: RealEngine) -> None:
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(WEIRD)]
    environment = os.environ | {"PYTHONHASHSEED": "77"}
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60).stdout
    assert f"trace {simulate(WEIRD, real).digest[:16]}" in shown


@pytest.mark.parametrize("rule", sorted(MUTANTS))
def test_each_rule_can_still_be_left_out(rule: str) -> None:
    """A mutant of a script that has changed fails."""
    with MUTANTS[rule].change():
        pass


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "rule",
    [
        "ack_before_sync", "items_not_synced", "drain_before_index", "clock_not_stored", "delay_not_stored", "no_fence",
        "no_token", "no_note", "no_drain", "no_recovery", "no_hold", "no_self_stop", "one_pass", "files_not_synced",
        "files_go_at_once", "ends_with_room", "nothing_is_raised", "shown_early", "job_unchecked", "run_of_one_pass",
        "touch_after_add", "links_untouched", "run_of_crawl", "miss_undecided",
        "clock_unchecked", "held_links_left_out",
    ],
)  # fmt: skip
def test_a_crawler_without_one_of_its_rules_is_caught(rule: str, real: RealEngine) -> None:
    """In few seeds of the kind that is made for it; `scripts/simulate --mutants 60` counts them."""
    first = FIRST.get(rule, 0)
    assert first_caught(rule, range(first, first + 60), real) is not None


@pytest.mark.slow(ci=True)
def test_a_failure_tells_what_was_broken_and_how_to_see_it_again(real: RealEngine) -> None:
    outcome = first_caught("drain_before_index", range(20), real)
    assert outcome is not None
    shown = failure(outcome)
    assert "I3 broken at" in shown
    assert f"scripts/simulate --seed {outcome.seed} --verbose" in shown


def test_the_truth_of_a_web_follows_links_and_stops_at_what_ends() -> None:
    web = Web()
    web.add(Url("http://a.test/", "a.test", links=["http://a.test/1", "http://b.test/", "http://outside.test/x"]))
    web.add(Url("http://a.test/1", "a.test", kind=Kind.HIDDEN, links=["http://a.test/2"]))
    web.add(Url("http://b.test/", "b.test", kind=Kind.BROKEN, links=["http://a.test/2"]))
    web.add(Url("http://a.test/2", "a.test"))
    web.seeds = ["http://a.test/"]
    truth = web.truth()
    assert truth.committed == {"http://a.test/": 200}
    assert truth.refused == {"http://a.test/1"}
    assert truth.dead == {"http://b.test/"}
