import os
from pathlib import Path
from typing import Any

import pytest
from archive_samples import entry, folder_in
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.archive.folder import CrawlFolder
from crawler.archive.index_reader import Place, new_chunks
from crawler.archive.index_writer import IndexWriter


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
