import errno
import os
import threading
from pathlib import Path

import pytest
from archive_samples import folder_in

from crawler.archive import appender
from crawler.archive.journal import Journal
from crawler.archive.session_lock import SessionLock
from crawler.errors import ArchiveError


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_what_was_synced_is_replayed_by_the_next_session_after_a_kill(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    first = Journal(folder, "aa11")
    payloads = [b"", b"\0\n", os.urandom(70_000), b"last"]
    for payload in payloads:
        first.append(payload)
    first.sync()
    first.append(b"never synced: its parent was not acknowledged")
    assert list(Journal(folder, "bb22").replay()) == payloads


def test_a_session_replays_its_own_entries_too_the_fresh_ones_included(tmp_path: Path) -> None:
    folder, clock = folder_in(tmp_path), Clock()
    journal = Journal(folder, "aa11", clock=clock, rotate_s=10)
    for number in range(5):
        journal.append(b"%d" % number)
        clock.now += 6
    assert list(journal.replay()) == [b"0", b"1", b"2", b"3", b"4"]
    assert len(list(folder.journal.iterdir())) == 3


def test_the_journal_of_a_living_session_is_its_own_matter(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    lock = SessionLock(folder, "aa11")
    journal = Journal(folder, "aa11")
    journal.append(b"mine")
    journal.sync()
    assert list(Journal(folder, "bb22").replay()) == []
    lock.close()
    assert list(Journal(folder, "bb22").replay()) == [b"mine"]


def test_a_torn_tail_at_any_byte_costs_only_the_torn_entry(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    journal = Journal(folder, "aa11")
    for payload in (b"one", b"two", b"three"):
        journal.append(payload)
    journal.sync()
    (path,) = folder.journal.iterdir()
    whole = path.read_bytes()
    last = len(whole) - 8 - len(b"three")
    for size in range(last, len(whole)):
        path.write_bytes(whole[:size])
        assert list(Journal(folder, "bb22").replay()) == [b"one", b"two"]
    path.write_bytes(whole + bytes(64))
    assert list(Journal(folder, "bb22").replay()) == [b"one", b"two", b"three"]
    path.write_bytes(whole[:-1] + b"X")
    assert list(Journal(folder, "bb22").replay()) == [b"one", b"two"]


def test_entries_go_only_when_confirmed_and_old(tmp_path: Path) -> None:
    folder, clock = folder_in(tmp_path), Clock()
    journal = Journal(folder, "aa11", clock=clock, keep_s=600, rotate_s=60)
    journal.append(b"a")
    clock.now += 61
    journal.append(b"b")
    journal.sync()
    journal.confirm_before(clock.now)  # confirmed, but young
    assert list(journal.replay()) == [b"a", b"b"]
    clock.now += 10_000  # old; the first file is confirmed, the second is not
    journal.append(b"c")
    journal.sync()
    journal.confirm_before(1062.0)
    assert list(journal.replay()) == [b"b", b"c"]
    clock.now += 601
    journal.confirm_before(clock.now)
    assert list(journal.replay()) == [b"c"]


def test_a_dead_sessions_journal_goes_when_its_replay_is_confirmed_and_old(tmp_path: Path) -> None:
    folder, clock = folder_in(tmp_path), Clock()
    dead = Journal(folder, "aa11")
    dead.append(b"x")
    dead.sync()
    journal = Journal(folder, "bb22", clock=clock, keep_s=600)
    clock.now += 10_000
    journal.confirm_before(clock.now)
    assert list(journal.replay()) == [b"x"]
    clock.now += 10
    journal.confirm_before(clock.now)
    assert list(journal.replay()) == [b"x"]
    clock.now += 700
    journal.confirm_before(clock.now)
    assert list(journal.replay()) == []
    assert list(folder.journal.iterdir()) == []


def test_appending_while_another_thread_syncs_and_files_rotate_loses_nothing(tmp_path: Path) -> None:
    folder, clock = folder_in(tmp_path), Clock()
    journal = Journal(folder, "aa11", clock=clock, rotate_s=50)
    stop = threading.Event()

    def sync_all_the_time() -> None:
        while not stop.is_set():
            journal.sync()

    thread = threading.Thread(target=sync_all_the_time)
    thread.start()
    for number in range(2_000):
        clock.now += 1
        journal.append(b"%d" % number)
    stop.set()
    thread.join()
    journal.close()
    assert sorted(map(int, Journal(folder, "bb22").replay())) == list(range(2_000))


def test_after_a_full_disk_the_durable_entries_stay_and_a_new_file_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_in(tmp_path)
    journal = Journal(folder, "aa11")
    journal.append(b"durable")
    journal.sync()
    journal.append(b"lost")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(appender.os, "fdatasync", full)
        with pytest.raises(ArchiveError):
            journal.sync()
    with pytest.raises(ArchiveError):
        journal.sync()
    journal.reopen()
    journal.append(b"again")
    journal.sync()
    assert sorted(journal.replay()) == [b"again", b"durable"]
