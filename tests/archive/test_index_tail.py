import io
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from archive_samples import entry, folder_in
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.archive.checked_lines import LineReader, number_line
from crawler.archive.folder import CrawlFolder
from crawler.archive.index_reader import Place, new_chunks
from crawler.archive.index_writer import IndexWriter
from crawler.archive.repair import Flaw, IndexLine, walk_lines


class Reader:
    """Reads what is new, and remembers what it has had, as outputs do."""

    def __init__(self, folder: CrawlFolder) -> None:
        self.folder = folder
        self.places: dict[str, Place] = {}
        self.had: list[str] = []

    def look(self) -> int:
        """How many lines were read."""
        lines = 0
        for chunk in new_chunks(self.folder, dict(self.places)):
            lines += len(chunk.entries)
            self.had += [one.fingerprint for one in chunk.entries if one.fingerprint not in self.had]
            self.places[chunk.segment] = chunk.place
        return lines


def test_lines_are_read_as_they_are_written_and_each_once(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    reader, writers = Reader(folder), [IndexWriter(folder, "aa11"), IndexWriter(folder, "bb22")]
    assert reader.look() == 0
    for number in range(6):
        writers[number % 2].add(entry(number))
        assert reader.look() == 0
        writers[number % 2].sync()
        assert reader.look() == 1
    assert reader.look() == 0
    assert reader.had == [entry(number).fingerprint for number in range(6)]
    for writer in writers:
        writer.close()
    assert reader.look() == 6  # sorted now: once more, and never again
    assert reader.look() == 0
    assert all(place.is_done for place in reader.places.values())


class Number(msgspec.Struct):
    number: int
    crc: str = ""


class Growing(io.RawIOBase):
    """A file whose writer adds the rest after a reader has come to its end."""

    def __init__(self, first: bytes, rest: bytes) -> None:
        self._parts = [first, b"", rest, b""]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        assert (offset, whence) in ((0, 0), (0, 1)), "it is read from its beginning"
        return 0

    def readinto(self, buffer: Any) -> int:
        part = self._parts.pop(0) if self._parts else b""
        buffer[: len(part)] = part
        return len(part)


@pytest.fixture
def torn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CrawlFolder:
    """A folder with an open segment of two lines, the second of which is completed while it is read."""
    folder = folder_in(tmp_path)
    writer = IndexWriter(folder, "aa11")
    writer.add(entry(0))
    writer.add(entry(1))
    writer.sync()
    (path,) = folder.index.iterdir()
    whole, real = path.read_bytes(), Path.open

    def opened(self: Path, mode: str = "r", **more: Any) -> Any:
        if self != path:
            return real(self, mode, **more)
        return io.BufferedReader(Growing(whole[:-40], whole[-40:]))

    monkeypatch.setattr(Path, "open", opened)
    return folder


def test_a_line_that_is_completed_while_it_is_read_is_not_damage(torn: CrawlFolder) -> None:
    (chunk,) = list(new_chunks(torn, {}))
    assert ([one.fingerprint for one in chunk.entries], chunk.damaged) == ([entry(0).fingerprint], 0)


def test_nor_is_it_for_an_audit_beside_the_writer(torn: CrawlFolder) -> None:
    line, flaw = walk_lines(torn)
    assert isinstance(line, IndexLine)
    assert isinstance(flaw, Flaw)
    assert flaw.is_tail


def test_nor_in_a_journal_whose_lines_have_checksums() -> None:
    lines = [number_line(1), number_line(2)]
    reader = LineReader("a journal", Number)
    file = io.BufferedReader(Growing(lines[0] + lines[1][:9], lines[1][9:]))
    assert [one.number for one in reader.records(file)] == [1]
    assert reader.damaged == []


def test_a_torn_line_waits_for_its_end(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    writer, reader = IndexWriter(folder, "aa11"), Reader(folder)
    for number in range(2):
        writer.add(entry(number))
    writer.sync()
    (path,) = folder.index.iterdir()
    whole = path.read_bytes()
    for size in (len(whole) - 1, len(whole) - 40, whole.index(b"\n") + 1):
        os.truncate(path, size)
        reader.look()
        assert reader.had == [entry(0).fingerprint]
    path.write_bytes(whole)
    assert reader.look() == 1
    writer.close()


def test_a_segment_that_is_sealed_between_listing_and_reading_is_found_at_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_in(tmp_path)
    writer, reader = IndexWriter(folder, "aa11"), Reader(folder)
    writer.add(entry(1))
    writer.sync()
    real = Path.open

    def sealed_before(path: Path, *arguments: Any) -> Any:
        if path.name.endswith(".open"):
            monkeypatch.undo()
            writer.close()
        return real(path, *arguments)

    monkeypatch.setattr(Path, "open", sealed_before)
    assert reader.look() == 0
    assert reader.look() == 1
    assert reader.had == [entry(1).fingerprint]


@settings(max_examples=60)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["add", "add", "add", "sync", "look", "close"]), st.integers(0, 1)),
        max_size=40,
    ),
    lines_max=st.integers(1, 4),
)
def test_whatever_is_synced_is_read_in_the_end(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], lines_max: int
) -> None:
    folder = folder_in(tmp_path_factory.mktemp("tail"))
    reader = Reader(folder)
    sessions = [0, 1]
    writers = [IndexWriter(folder, f"s{one}", lines_max=lines_max) for one in sessions]
    added: list[str] = []
    for number, (step, who) in enumerate(steps):
        match step:
            case "add":
                writers[who].add(entry(number))
                added.append(entry(number).fingerprint)
            case "sync":
                writers[who].sync()
            case "look":
                reader.look()
            case _:
                writers[who].close()
                sessions[who] += 2
                writers[who] = IndexWriter(folder, f"s{sessions[who]}", lines_max=lines_max)
    for writer in writers:
        writer.close()
    reader.look()
    assert sorted(reader.had) == sorted(added)
