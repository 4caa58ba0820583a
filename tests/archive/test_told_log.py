"""Files of what a session told other partitions: all of it for some minutes, and nothing that is damaged."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.archive.folder import CrawlFolder, open_or_create
from crawler.archive.session_locks import SessionLock
from crawler.archive.told_log import FILE_MS, FILES, Told, ToldLog, left_behind, told_in
from crawler.errors import ArchiveError

MANY = [Told(n, (n, "run", b"\x00\xff" * n, "")) for n in range(4)]


class Clock:
    ms = 0

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def folder(tmp_path: Path) -> CrawlFolder:
    return open_or_create(tmp_path / "crawl")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(folder: CrawlFolder, clock: Clock) -> Iterator[ToldLog]:
    made = ToldLog(folder, "aa11", clock_ms=clock)
    yield made
    made.close(keep=False)


def test_what_was_noted_is_read_in_its_order(log: ToldLog, clock: Clock) -> None:
    log.note(MANY[:2])
    clock.ms += FILE_MS
    log.note(MANY[2:])
    assert list(told_in(log.paths)) == MANY
    assert len(log.paths) == 2


def test_without_a_note_there_is_no_file(log: ToldLog, folder: CrawlFolder) -> None:
    log.note([])
    assert list(told_in(log.paths)) == []
    log.close(keep=False)
    assert list(folder.sessions.iterdir()) == []


def test_only_the_last_files_are_kept_unless_something_is_owed(log: ToldLog, clock: Clock, folder: CrawlFolder) -> None:
    for n in range(2 * FILES):
        log.note([Told(n, ())])
        clock.ms += FILE_MS
    assert [told.partition for told in told_in(log.paths) if told] == [4, 5, 6, 7]
    assert len(list(folder.sessions.iterdir())) == FILES
    for n in range(FILES):
        log.note([Told(n, ())], drops_old=False)
        clock.ms += FILE_MS
    assert [told.partition for told in told_in(log.paths) if told] == [4, 5, 6, 7, 0, 1, 2, 3]
    log.note([Told(9, ())])
    assert [told.partition for told in told_in(log.paths) if told] == [1, 2, 3, 9]
    assert len(list(folder.sessions.iterdir())) == FILES


def test_there_is_room_until_the_bound(log: ToldLog, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crawler.archive.told_log.BYTES_MAX", 100)
    log.note([Told(0, (b"x" * 60,))])
    assert log.has_room
    log.note([Told(0, (b"x" * 60,))], drops_old=False)
    assert not log.has_room
    for _ in range(FILES):  # when nothing is owed any more, the old ones go
        clock.ms += FILE_MS
        log.note([Told(0, ())])
    assert log.has_room


def test_a_record_that_is_torn_anywhere_is_left_out(log: ToldLog) -> None:
    log.note(MANY[1:3])
    (path,) = log.paths
    data = path.read_bytes()
    whole = len(data)
    for length in range(whole):
        path.write_bytes(data[:length])
        assert list(told_in([path])) == MANY[1 : 1 + sum(length >= end for end in ends_of(data))]


def test_each_flipped_bit_is_noticed(log: ToldLog) -> None:
    log.note(MANY[1:3])
    (path,) = log.paths
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        found = list(told_in([path]))
        assert all(one is None or one in MANY for one in found)
        assert found != MANY[1:3]


def ends_of(data: bytes) -> list[int]:
    """Where each record ends."""
    ends, at = list[int](), 0
    while at < len(data):
        at += 8 + int.from_bytes(data[at : at + 4], "little")
        ends.append(at)
    return ends


def test_only_files_of_sessions_that_are_over_are_left_behind(folder: CrawlFolder, log: ToldLog) -> None:
    lock = SessionLock(folder, "aa11")
    other = ToldLog(folder, "bb22", clock_ms=Clock())
    for one in (log, other):
        one.note(MANY)
    assert left_behind(folder.sessions) == other.paths
    lock.close()
    assert left_behind(folder.sessions) == log.paths + other.paths
    other.close(keep=True)
    assert list(told_in(other.paths)) == MANY
    other.close(keep=False)
    assert left_behind(folder.sessions) == log.paths


def test_a_full_disk_and_a_file_that_can_not_be_read_are_named(log: ToldLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.note(MANY)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ArchiveError, match=r"can't write .*aa11\.told1: No space left"):
        log.note(MANY)
    folder_of_that_name = log.paths[0].with_name("aa11.told7")
    folder_of_that_name.mkdir()
    with pytest.raises(ArchiveError, match=r"can't read .*aa11\.told7: Is a directory"):
        list(told_in([folder_of_that_name]))
