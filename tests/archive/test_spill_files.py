"""Files of spilled URLs: what was written is read as it was, or not at all."""

from pathlib import Path

import pytest

from crawler.archive import appender
from crawler.archive.spill_files import SpillFiles
from crawler.errors import ArchiveError


@pytest.fixture
def files(tmp_path: Path) -> SpillFiles:
    return SpillFiles(tmp_path / "spill" / "main-1", "ann")


def test_what_was_written_is_read_by_any_session(files: SpillFiles) -> None:
    places = files.write(7, 3, [b"one", b"", b"three" * 1000])
    more = files.write(7, 3, [b"four"])
    other = SpillFiles(files.root, "bob")
    assert other.read(7, [*places, *more]) == [b"one", b"", b"three" * 1000, b"four"]
    assert other.read(7, places[::-1]) == [b"three" * 1000, b"", b"one"]
    assert (other.partitions(), other.names(7)) == ([7], ["3-ann-1", "3-ann-2"])


def test_no_two_sessions_write_to_one_file(files: SpillFiles) -> None:
    """An epoch may be granted again after the engine fell back: the name has the session, too."""
    other = SpillFiles(files.root, "bob")
    assert files.write(1, 5, [b"x"]) != other.write(1, 5, [b"x"])


@pytest.mark.parametrize("byte", [0, 4, 8, 11])
def test_a_damaged_block_is_named_and_not_read(files: SpillFiles, byte: int) -> None:
    places = files.write(0, 1, [b"left", b"right"])
    path = files.root / "0" / "1-ann-1"
    data = bytearray(path.read_bytes())
    data[places[1][1] + byte] ^= 1
    path.write_bytes(data)
    assert files.read(0, places[:1]) == [b"left"]
    with pytest.raises(ArchiveError, match=r"0/1-ann-1 is damaged at byte 12"):
        files.read(0, places)


def test_a_torn_or_lost_file_is_named(files: SpillFiles) -> None:
    places = files.write(0, 1, [b"left", b"right"])
    path = files.root / "0" / "1-ann-1"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArchiveError, match="damaged at byte 12"):
        files.read(0, places)
    path.write_bytes(path.read_bytes()[:14])
    with pytest.raises(ArchiveError, match="damaged at byte 12"):
        files.read(0, places)
    path.unlink()
    with pytest.raises(ArchiveError, match=r"can't read spilled URLs from .*0/1-ann-1: No such file"):
        files.read(0, places)


def test_a_failed_write_leaves_nothing_that_is_read_and_the_next_one_works(
    files: SpillFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(appender.os, "fdatasync", lambda descriptor: (_ for _ in ()).throw(OSError(28, "No space left")))
        with pytest.raises(ArchiveError, match="No space left"):
            files.write(0, 1, [b"lost"])
    (place,) = files.write(0, 1, [b"kept"])
    assert files.read(0, [place]) == [b"kept"]
    assert files.names(0) == ["1-ann-2"], "what a full disk took in part is still on it"


def test_files_and_folders_that_nobody_needs_go(files: SpillFiles) -> None:
    files.write(0, 1, [b"a"])
    (place,) = files.write(0, 1, [b"b"])
    files.remove(0, ["1-ann-1"])
    files.remove(0, ["1-ann-1", "unknown"])
    assert (files.names(0), files.read(0, [place])) == (["1-ann-2"], [b"b"])
    files.remove(0, ["1-ann-2"])
    assert (files.partitions(), files.names(0)) == ([], [])
    assert SpillFiles(files.root / "nowhere", "x").partitions() == []
