"""Two passes prove the end; one does not."""

import pytest

from crawler.rules.finish import Pass, RunPass, is_finished, is_run_finished
from crawler.rules.job_runs import RunCounts


def a_pass(*counts: tuple[int, int, int], run_id: str = "e", streams_open: bool = False) -> Pass:
    return Pass(run_id, counts, streams_open)


QUIET = a_pass((3, 3, 0), (5, 5, 0))


def test_two_equal_quiet_passes_are_the_end() -> None:
    assert is_finished([QUIET, QUIET])
    assert not is_finished([QUIET])
    assert not is_finished([])


def test_only_the_last_two_passes_count() -> None:
    assert is_finished([a_pass((4, 3, 0), (5, 5, 0)), QUIET, QUIET])
    assert not is_finished([QUIET, QUIET, a_pass((4, 3, 0), (5, 5, 0))])


def test_a_chain_that_hops_ahead_of_the_reader_is_not_ended_by_it() -> None:
    """A page of partition 1 links to partition 0, whose page links to 1, and so on: one URL is pending at any time.

    A reader that goes 0, 1, 0, 1 ... can miss it each time: it reads 0 before the child comes there, and 1 after the
    parent was done. Each of its passes finds nothing pending; what was added gives the chain away.
    """
    added, done, where = [0, 1], [0, 0], 1

    def hop() -> None:
        nonlocal where
        added[1 - where] += 1  # routed before the ack
        done[where] += 1
        where = 1 - where

    passes = []
    for _ in range(4):
        first = (added[0], done[0], 0)
        hop()  # from 1 to 0, behind the reader's back
        passes.append(a_pass(first, (added[1], done[1], 0)))
        hop()  # back to 1
    assert all(p.pending == 0 for p in passes), "a reader of single passes would end at once"
    assert not any(is_finished(passes[: n + 1]) for n in range(4))


def test_pending_of_one_partition_is_not_balanced_by_another() -> None:
    odd = a_pass((4, 3, 0), (3, 4, 0))
    assert odd.pending == 0
    assert not is_finished([odd, odd])


def test_a_restarted_engine_restarts_the_proof() -> None:
    other = a_pass((3, 3, 0), (5, 5, 0), run_id="other")
    assert not is_finished([QUIET, other])
    assert is_finished([QUIET, other, other])


def test_undrained_logs_and_open_streams_hold_the_end() -> None:
    log, stream = a_pass((3, 3, 1)), a_pass((3, 3, 0), streams_open=True)
    assert not is_finished([log, log])
    assert not is_finished([stream, stream])
    assert not is_finished([a_pass((3, 3, 0)), stream])


ENDED = RunCounts(added=4, done=1, dead=2, deferred=1)
OF_RUN = RunPass("e", {0: ENDED, 3: ENDED})


@pytest.mark.parametrize(
    ("passes", "finished"),
    [
        ([OF_RUN, OF_RUN], True),
        ([OF_RUN], False),
        ([RunPass("e", {0: RunCounts(added=1)}), OF_RUN, OF_RUN], True),
        ([OF_RUN, OF_RUN, RunPass("other", OF_RUN.counts)], False),
        ([OF_RUN, RunPass("e", {0: ENDED})], False),  # another partition was touched
        ([RunPass("e", {0: ENDED, 3: RunCounts(added=1, done=1)}), OF_RUN], False),
        ([RunPass("e", {0: RunCounts(added=2, done=1), 3: RunCounts(done=1)})] * 2, False),
    ],
)
def test_a_run_ends_after_two_equal_quiet_passes_of_its_partitions(passes: list[RunPass], finished: bool) -> None:
    assert is_run_finished(passes) is finished
