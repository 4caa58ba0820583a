"""The history on disk: lines that come back, segments that stay within their bound, and what is found in them."""

import errno
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from archive_samples import AT, folder_in
from hypothesis import given
from hypothesis import strategies as st

from crawler.archive import history
from crawler.archive.history import (
    TIMES,
    Attempt,
    Became,
    HistoryWriter,
    attempts,
    kept_since,
    newest_attempts,
    segments,
    status_of,
    to_attempt,
    to_line,
)
from crawler.archive.session_locks import SessionLock
from crawler.errors import ArchiveError

BYTES_MAX = 64_000  # segments of 1,000 bytes: three lines or so


def attempt(number: int = 0, **changes: Any) -> Attempt:
    values: dict[str, Any] = {
        "url": f"http://d{number % 3}.test/page/{number}", "fp": str(number), "domain": f"d{number % 3}.test",
        "attempt": 1, "became": Became.COMMITTED, "node": "host-1", "session": "aa11", "epoch": 3,
        "claimed": AT + number, "started": AT + number + 0.5, "finished": AT + number + 0.75, "http_status": 200,
    }  # fmt: skip
    return Attempt(**(values | changes))


def written(tmp_path: Path, *found: Attempt, session: str = "aa11", bytes_max: int = BYTES_MAX) -> Any:
    folder = folder_in(tmp_path)
    writer = HistoryWriter(folder, session, bytes_max=bytes_max)
    for one in found:
        writer.add(one)
    writer.close()
    return folder


def test_damaged_lines_are_left_out_and_counted_by_file(tmp_path: Path) -> None:
    folder = written(tmp_path, *(attempt(n, domain="d.test") for n in range(3)))
    (path,) = segments(folder)
    path.write_bytes(path.read_bytes().replace(b'"epoch":3', b'"epoch":4', 1) + b'{"domain":"d.test", torn')
    damaged = Counter[str]()
    assert [one.fp for one in attempts([folder], domain="d.test", damaged=damaged)] == ["1", "2"]
    assert damaged == {f"history/{path.name}": 1}


@pytest.mark.parametrize(
    ("times", "status"),
    [
        ((), "unknown"), (("queued",), "queued"), (("queued", "claimed"), "claimed"),
        (("claimed", "started"), "started"), (("claimed", "started", "finished"), "finished"),
        (("claimed", "started", "failed"), "failed"), (("claimed", "failed"), "failed"),
        (("claimed", "refused"), "refused"), (("claimed", "started", "finished", "lost"), "lost"),
    ],
)  # fmt: skip
def test_the_status_of_an_attempt_follows_from_which_times_are_there(times: tuple[str, ...], status: str) -> None:
    assert status_of(dict.fromkeys(times, AT)) == status


@given(st.sets(st.sampled_from(TIMES)), st.sampled_from(TIMES))
def test_a_further_time_never_sets_an_attempt_back(known: set[str], further: str) -> None:
    before, after = dict.fromkeys(known, AT), dict.fromkeys({*known, further}, AT)
    order = ("unknown", *TIMES)
    assert order.index(status_of(after)) >= order.index(status_of(before))


def test_an_attempt_comes_back_from_its_line_as_it_was() -> None:
    odd = attempt(
        3, became=Became.DEAD, kind="tls", detail='quotes " and \\ and \n breaks and ü', failed=AT, queued=0.5
    )
    line = to_line(odd)
    assert line.count(b"\n") == 1
    assert to_attempt(line) == odd
    assert {to_attempt(damaged) for damaged in (b"", b"{}", line[:40], line[:-10] + b"\n", b"\xff\n")} == {None}


def test_no_flipped_bit_changes_an_attempt() -> None:
    line, whole = to_line(attempt(7)), attempt(7)
    for at in range(len(line) - 1):
        data = bytearray(line)
        data[at] ^= 1 << at % 8
        assert to_attempt(bytes(data)) in (None, whole)


def test_attempts_at_a_url_are_found_in_order_across_sessions(tmp_path: Path) -> None:
    mine = attempt(1, became=Became.RETRY, failed=AT + 1, finished=0.0)
    later = attempt(1, attempt=2, session="bb22", claimed=AT + 10, started=AT + 11, finished=AT + 12)
    others = [attempt(0), attempt(1, url="http://d1.test/page/12")]
    written(tmp_path, *others, later, session="0022")
    folder = written(tmp_path, mine)
    assert list(attempts([folder], url=mine.url)) == [mine, later]
    assert list(attempts([folder], url="http://d1.test/pag")) == []
    assert kept_since([folder]) == others[0].last_at


def test_attempts_at_a_domain_are_those_at_all_its_urls_only(tmp_path: Path) -> None:
    found = [attempt(n) for n in range(9)]
    trap = attempt(1, domain="d2.test", became=Became.DEAD, detail='"domain":"d1.test"')
    folder = written(tmp_path, *found, trap)
    assert list(attempts([folder], domain="d1.test")) == [one for one in found if one.domain == "d1.test"]


def test_a_torn_last_line_is_passed_over_and_so_is_a_damaged_one(tmp_path: Path) -> None:
    folder = written(tmp_path, attempt(1), attempt(1, attempt=2))
    (segment,) = segments(folder)
    first, second = segment.read_bytes().splitlines(keepends=True)
    for cut in range(len(second)):
        segment.write_bytes(first + second[:cut])
        assert [one.attempt for one in attempts([folder], url=attempt(1).url)] == [1]
    segment.write_bytes(first.replace(b'"attempt":1', b'"attempt":x') + second)
    assert [one.attempt for one in attempts([folder], url=attempt(1).url)] == [2]


def test_the_history_of_a_folder_never_exceeds_its_bound_and_the_oldest_goes_first(tmp_path: Path) -> None:
    """Two living sessions write in turn; a third one has ended and left what it wrote."""
    folder = written(tmp_path, *(attempt(n, session="dead") for n in range(60)), session="dead")
    for path in segments(folder):
        os.utime(path, (1.0, 1.0))
    locks = [SessionLock(folder, session) for session in ("aa11", "bb22")]
    writers = [HistoryWriter(folder, lock.session, bytes_max=BYTES_MAX) for lock in locks]
    sizes = []
    for n in range(400):
        writers[n % 2].add(attempt(n, session=locks[n % 2].session))
        if n % 7 == 0:
            for writer in writers:
                writer.write()
            sizes.append(sum(path.stat().st_size for path in segments(folder)))
    for writer in writers:
        writer.close()
    assert max(sizes) <= BYTES_MAX
    assert sizes[-1] > 0.8 * BYTES_MAX
    assert not [path for path in segments(folder) if path.name.startswith("dead")]
    kept = [one for d in range(3) for one in attempts([folder], domain=f"d{d}.test")]
    assert {one.url for one in kept} > {attempt(n).url for n in range(300, 400)}
    assert kept_since([folder]) == min(one.last_at for one in kept) > attempt(0).last_at
    for lock in locks:
        lock.close()


def test_a_segment_that_is_being_written_to_is_not_removed(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    with_lock = SessionLock(folder, "aa11")
    slow = HistoryWriter(folder, "aa11", bytes_max=BYTES_MAX)
    slow.add(attempt(1))
    slow.write()
    (mine,) = segments(folder)
    os.utime(mine, (1.0, 1.0))
    written(tmp_path, *(attempt(n) for n in range(600)), session="bb22")
    assert mine.exists()
    with_lock.close()


def test_without_a_bound_nothing_is_kept(tmp_path: Path) -> None:
    assert segments(written(tmp_path, attempt(1), bytes_max=0)) == []


def test_a_full_disk_loses_lines_but_tears_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_in(tmp_path)
    writer = HistoryWriter(folder, "aa11", bytes_max=BYTES_MAX)
    writer.add(attempt(1))
    writer.write()

    class FullDisk:
        """Takes half of what is written, then nothing."""

        room = 100

        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def write(self, descriptor: int, data: Any) -> int:
            if not self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            taken, self.room = os.write(descriptor, data[: self.room]), 0
            return taken

    writer.add(attempt(1, attempt=2))
    monkeypatch.setattr(history, "os", FullDisk())
    with pytest.raises(ArchiveError, match="free some space"):
        writer.write()
    monkeypatch.undo()
    writer.add(attempt(1, attempt=3))
    writer.close()
    assert [one.attempt for one in attempts([folder], url=attempt(1).url)] == [1, 3]


def test_while_the_disk_hangs_memory_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "WAITING_BYTES_MAX", 1000)
    folder = written(tmp_path, *(attempt(n) for n in range(100)))
    assert sum(path.stat().st_size for path in segments(folder)) < 1500


@pytest.mark.parametrize("limit", [1, 5, 500])
def test_the_newest_attempts_are_the_last_of_all_whatever_session_they_are_of(tmp_path: Path, limit: int) -> None:
    for session, offset in (("aa11", 0), ("bb22", 1), ("cc33", 2)):
        found = [attempt(n, session=session) for n in range(offset, 120, 3)]
        folder = written(tmp_path, *found, session=session)
    for field, value in (("domain", "d1.test"), ("url", "http://d0.test/page/3"), ("domain", "other.test")):
        every = list(attempts([folder], **{field: value}))
        assert newest_attempts(folder, limit=limit, **{field: value}) == every[::-1][:limit]


def test_the_newest_attempts_are_looked_for_in_the_bytes_written_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path, *[attempt(n, domain="d.test") for n in range(60)])
    for n, path in enumerate(segments(folder)):
        os.utime(path, (AT + n, AT + n))
    looked: list[Path] = []
    mapped = history._mapped
    monkeypatch.setattr(history, "_mapped", lambda path: looked.append(path) or mapped(path))
    assert len(segments(folder)) > 6
    every = [one.fp for one in newest_attempts(folder, domain="d.test", limit=100)]
    assert every == [str(n) for n in reversed(range(60))]
    few = newest_attempts(folder, domain="d.test", limit=100, bytes_max=2_500)
    assert [one.fp for one in few] == every[: len(few)]
    assert 2_500 / 300 < len(few) < 20
    looked.clear()
    assert newest_attempts(folder, domain="d.test", limit=1)[0].fp == "59"
    assert len(looked) < len(segments(folder))


def test_an_attempt_that_is_being_written_is_not_among_the_newest(tmp_path: Path) -> None:
    folder = written(tmp_path, attempt(1), attempt(4))
    (path,) = segments(folder)
    path.write_bytes(path.read_bytes() + to_line(attempt(7))[:-5])
    assert [one.fp for one in newest_attempts(folder, domain="d1.test", limit=9)] == ["4", "1"]
