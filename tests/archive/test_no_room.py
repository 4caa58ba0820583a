"""Files that found no room on the disk: the durable part stays, new files take the rest, nothing counts as missing."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawler.archive import told_log
from crawler.archive.appender import Appender
from crawler.archive.folder import CrawlFolder, archive_error
from crawler.archive.index_reader import IndexReader
from crawler.archive.index_writer import IndexWriter
from crawler.archive.items import ItemFiles, ItemWriter
from crawler.archive.told_log import Told, ToldLog, told_in
from crawler.archive.warc_reader import read_record
from crawler.errors import ArchiveError, NoRoomError
from tests.archive.archive_samples import entry, folder_in, response, writer_in

FULL = (errno.ENOSPC, errno.EDQUOT)


class Disk:
    """Takes so many writes, and then none; a write that it does not take is there in part."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
        self.room, self.code, self._write = 1 << 30, code, Appender._write
        monkeypatch.setattr(Appender, "_write", lambda file, data: self._take(file, data))

    def _take(self, file: Appender, data: bytes) -> None:
        self.room -= 1
        if self.room < 0:
            durable = file.durable
            self._write(file, data[: len(data) // 2])
            file.durable = durable
            raise OSError(self.code, os.strerror(self.code))
        self._write(file, data)


@pytest.mark.parametrize("code", FULL)
def test_lack_of_room_is_told_from_other_errors(code: int, tmp_path: Path) -> None:
    error = archive_error("write", tmp_path / "file", OSError(code, os.strerror(code)))
    assert isinstance(error, NoRoomError)
    assert (error.folder, error.exit_code) == (tmp_path, ArchiveError.exit_code)
    assert type(archive_error("write", tmp_path / "file", OSError(errno.EIO, "I/O error"))) is ArchiveError


def write_pages(folder: CrawlFolder) -> tuple[Any, Callable[[int], Callable[[], bytes]]]:
    writer = writer_in(folder, warc_bytes_max=700)

    def add(number: int) -> Callable[[], bytes]:
        place, _ = writer.add(response(number))
        return lambda: read_record(folder, place).payload

    return writer, add


def write_items(folder: CrawlFolder) -> tuple[Any, Callable[[int], Callable[[], bytes]]]:
    writer = ItemWriter(folder, "aa11", file_bytes_max=60)

    def add(number: int) -> Callable[[], bytes]:
        place = writer.add([b'{"n": %d}' % number])

        def read() -> bytes:
            with ItemFiles(folder) as files:
                return files.items(place)[0]

        return read

    return writer, add


@pytest.mark.parametrize("what", [write_pages, write_items])
@pytest.mark.parametrize("room", range(4))
@pytest.mark.parametrize("again", [1, 3])
def test_a_group_that_found_no_room_is_added_again_to_new_files(
    what: Any, room: int, again: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writes of a group of several files fail at any of them, once or more often."""
    folder, disk = folder_in(tmp_path), Disk(monkeypatch, errno.ENOSPC)
    writer, add = what(folder)
    durable = [add(number) for number in range(3)]
    writer.sync()
    for _ in range(again):
        disk.room = room
        for number in range(3, 8):
            add(number)
        try:
            writer.sync()
        except NoRoomError:
            writer.drop_unwritten()
        disk.room = 1 << 30
    durable += [add(number) for number in range(3, 8)]
    writer.sync()
    writer.close()
    assert len({read() for read in durable}) == 8
    assert not [path for path in (*folder.warc.iterdir(), *folder.items.iterdir()) if path.suffix == ".open"]


@pytest.mark.parametrize("room", range(5))
@pytest.mark.parametrize("lines_max", [1, 2, 100])
@pytest.mark.parametrize("code", FULL)
def test_lines_that_found_no_room_are_in_the_index_later_and_no_segment_is_missed(
    room: int, lines_max: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, disk = folder_in(tmp_path), Disk(monkeypatch, code)
    index = IndexWriter(folder, "aa11", lines_max=lines_max)
    for begin, end in ((0, 3), (3, 8), (8, 9)):
        for is_full in (True, True, False):
            disk.room = room if is_full else 1 << 30
            for number in range(begin, end):
                index.add(entry(number))
            try:
                index.sync()
            except NoRoomError:
                index.drop_unwritten()
    index.close()
    reader = IndexReader(folder)
    assert sorted(one.sequence for one in reader.entries()) == list(range(9))
    assert reader.missing == []


def test_a_segment_that_could_not_be_sorted_is_sorted_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The draft of a sorted segment is what finds no room: its lines are on disk."""
    folder = folder_in(tmp_path)
    index = IndexWriter(folder, "aa11", lines_max=2)

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for number in range(4):
        index.add(entry(number))
    with monkeypatch.context() as patched:
        patched.setattr("crawler.disk_sync.sync", lambda _: None)
        patched.setattr("crawler.archive.folder.write_durably", lambda *_: full(0))
        with pytest.raises(NoRoomError):
            index.sync()
        index.drop_unwritten()
    for number in range(4):
        index.add(entry(number))
    index.sync()
    index.close()
    reader = IndexReader(folder)
    assert sorted(one.sequence for one in reader.entries()) == [0, 1, 2, 3]
    assert reader.missing == []
    assert {path.suffix for path in folder.index.iterdir()} == {".cdxj"}


def test_what_was_told_after_a_torn_write_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_in(tmp_path)
    log = ToldLog(folder, "aa11", clock_ms=lambda: 0)
    log.note([Told(1, (1,))])

    def torn(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(told_log, "write_all", torn)
        with pytest.raises(NoRoomError):
            log.note([Told(2, (2,))])
    log.note([Told(3, (3,))])
    assert list(told_in(log.paths)) == [Told(1, (1,)), Told(3, (3,))]


def test_a_file_of_what_was_told_that_could_not_be_made_is_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = ToldLog(folder_in(tmp_path), "aa11", clock_ms=lambda: 0)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(told_log, "open_private", full)
        for _ in range(3):
            with pytest.raises(NoRoomError):
                log.note([Told(1, (1,))])
    log.note([Told(2, (2,))])
    assert list(told_in(log.paths)) == [Told(2, (2,))]
    assert len(log.paths) == 1
