"""The journal of seeds: durable before it says so, whole lines only, shared by any number of writers."""

import os
import threading
from pathlib import Path

import pytest

from crawler.archive.folder import CrawlFolder, open_or_create
from crawler.archive.job_journal import journals_in
from crawler.archive.seed_journal import SeedJournal, SeedLine
from crawler.errors import ArchiveError


@pytest.fixture
def folder(tmp_path: Path) -> CrawlFolder:
    return open_or_create(tmp_path / "c")


def journal_of(folder: CrawlFolder) -> SeedJournal:
    return SeedJournal(folder, "main", 1700000000.123456)


def seeds(*numbers: int) -> list[SeedLine]:
    return [SeedLine(url=f"http://a.test/{n}", depth=n) for n in numbers]


def test_what_was_appended_is_read_back_in_order_by_anybody(folder: CrawlFolder) -> None:
    lines = [SeedLine(root="domain:a.test"), SeedLine(url="http://a.test/", priority=2.5), *seeds(1, 2)]
    journal = journal_of(folder)
    assert not journal.has_lines
    journal.append(lines[:1])
    journal_of(folder).append(lines[1:])
    assert list(journal_of(folder).read()) == lines
    assert journal.has_lines


def test_a_torn_line_is_cut_off_at_every_byte_and_what_follows_stays_whole(folder: CrawlFolder) -> None:
    journal = journal_of(folder)
    journal.append(seeds(1, 2))
    whole = journal.path.read_bytes()
    for cut in range(len(whole) - 1):
        journal.path.write_bytes(whole[:cut])
        kept = seeds(*range(1, 1 + whole[:cut].count(b"\n")))
        assert list(journal.read()) == kept, cut
        journal.append(seeds(7))
        assert list(journal.read()) == [*kept, *seeds(7)], cut


def test_a_long_torn_line_is_cut_off_too(folder: CrawlFolder) -> None:
    journal = journal_of(folder)
    journal.append(seeds(1))
    with journal.path.open("ab") as file:
        file.write(b"x" * 200_000)
    journal.append(seeds(2))
    assert list(journal.read()) == seeds(1, 2)


def test_many_writers_at_once_lose_nothing(folder: CrawlFolder) -> None:
    """Each append opens the file for itself, so threads stand for processes here."""
    batches = [[SeedLine(url=f"http://{n}.test/{i}/{'x' * 900}") for i in range(50)] for n in range(8)]

    def write(batch: list[SeedLine]) -> None:
        for start in range(0, len(batch), 10):
            journal_of(folder).append(batch[start : start + 10])

    threads = [threading.Thread(target=write, args=(batch,)) for batch in batches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    read = list(journal_of(folder).read())
    assert sorted(line.url for line in read) == sorted(line.url for batch in batches for line in batch)
    for batch in batches:
        mine = [line for line in read if line in batch]
        assert mine == batch


def test_a_disk_that_fails_is_said_and_leaves_the_lines_that_were_there(
    folder: CrawlFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = journal_of(folder)
    journal.append(seeds(1))

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(ArchiveError, match="free some space"):
        journal.append(seeds(2))
    monkeypatch.undo()
    assert list(journal.read()) == seeds(1)


def test_the_journal_is_on_disk_when_append_returns(folder: CrawlFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    plain = os.fdatasync

    def noting(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_size)
        plain(descriptor)

    monkeypatch.setattr(os, "fdatasync", noting)
    journal = journal_of(folder)
    journal.append(seeds(1))
    size_file = journal.path.with_name(f"{journal.path.name}.size")
    assert synced == [journal.path.stat().st_size, *[size_file.stat().st_size] * 2]


@pytest.mark.parametrize("how", ["cut", "emptied", "removed", "its last line feed is another byte"])
def test_a_journal_that_lost_its_end_is_noticed(folder: CrawlFolder, how: str) -> None:
    journal = journal_of(folder)
    journal.append(seeds(1))
    journal.append(seeds(5))
    data = journal.path.read_bytes()
    assert journal.missing() == ""
    journal.path.write_bytes(data + b'{"url":"http://torn')  # torn is not damaged
    assert (journal.missing(), journal.damaged()) == ("", [])
    if how == "removed":
        journal.path.unlink()
    else:
        end = data.rindex(b"\n", 0, -1) + 1
        journal.path.write_bytes({"cut": data[:end], "emptied": b""}.get(how, data[:-1] + b"\x0b"))
    assert journal.missing()
    assert journal.damaged() == []
    assert [one.path for one in journals_in(folder)] == [journal.path]
    for number in range(9):  # longer than it was
        journal.append(seeds(number))
        assert journal.missing()
    journal.drop_damaged(folder.log / "damaged.jsonl")
    assert journal.missing() == ""


def test_crawls_that_share_a_folder_have_journals_of_their_own(folder: CrawlFolder) -> None:
    other, later = SeedJournal(folder, "news", 1700000000.123456), SeedJournal(folder, "main", 1700000000.123457)
    journal_of(folder).append(seeds(1))
    other.append(seeds(2))
    assert (list(other.read()), list(later.read())) == (seeds(2), [])
    assert not later.has_lines
