"""Attempts go from the history by time and domain, and what a living session writes to stays."""

from pathlib import Path

import pytest
from archive_samples import AT, folder_in

from crawler.archive.history import Attempt, Became, HistoryWriter, attempts, segments
from crawler.archive.prune_attempts import prune_attempts
from crawler.archive.prune_records import PruneRule


def attempt(number: int, session: str) -> Attempt:
    return Attempt(
        url=f"http://d{number % 3}.test/{number}", fp=str(number), domain=f"d{number % 3}.test", attempt=1,
        became=Became.COMMITTED, node="n", session=session, epoch=1, finished=AT + number,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path):  # type: ignore[no-untyped-def]
    made = folder_in(tmp_path)
    for session, first in (("aa11", 0), ("bb22", 30)):
        writer = HistoryWriter(made, session, bytes_max=64 * 1_000)
        for number in range(first, first + 30):
            writer.add(attempt(number, session))
        writer.close()
    return made


def left(folder) -> set[int]:  # type: ignore[no-untyped-def]
    return {int(one.fp) for n in range(3) for one in attempts([folder], domain=f"d{n}.test")}


def nobody(session: str) -> bool:
    return False


def test_old_attempts_go_and_a_dry_run_tells_how_many(folder) -> None:  # type: ignore[no-untyped-def]
    rule, before = PruneRule(before=AT + 40), sum(path.stat().st_size for path in segments(folder))
    told = prune_attempts(folder, rule, is_alive=nobody, dry_run=True)
    assert left(folder) == set(range(60))
    assert prune_attempts(folder, rule, is_alive=nobody, dry_run=False) == told
    assert left(folder) == set(range(40, 60))
    assert told == (40, before - sum(path.stat().st_size for path in segments(folder)))
    assert prune_attempts(folder, rule, is_alive=nobody, dry_run=False) == (0, 0)
    assert list(folder.tmp.glob("*.jsonl")) == []


def test_attempts_of_a_domain_go(folder) -> None:  # type: ignore[no-untyped-def]
    stamps = {path: path.stat().st_mtime_ns for path in segments(folder)}
    prune_attempts(folder, PruneRule(domain="d1.test"), is_alive=nobody, dry_run=False)
    assert left(folder) == {n for n in range(60) if n % 3 != 1}
    assert {path: path.stat().st_mtime_ns for path in segments(folder)} == stamps, "their order is that of writing"


def test_the_segment_that_a_living_session_writes_to_stays(folder) -> None:  # type: ignore[no-untyped-def]
    last = segments(folder)[-1].read_bytes()
    prune_attempts(folder, PruneRule(before=AT + 1_000), is_alive=lambda session: session == "bb22", dry_run=False)
    assert [path.read_bytes() for path in segments(folder)] == [last]


def test_where_runs_are_kept_the_history_stays(folder) -> None:  # type: ignore[no-untyped-def]
    rule = PruneRule(before=AT + 1_000, runs=frozenset({"j.1.1"}))
    assert prune_attempts(folder, rule, is_alive=nobody, dry_run=False) == (0, 0)
    assert left(folder) == set(range(60))
