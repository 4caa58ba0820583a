import gzip
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from archive_samples import entry, folder_in, response, writer_in
from warcio.archiveiterator import ArchiveIterator

from crawler.archive.folder import CrawlFolder
from crawler.archive.index import with_footer
from crawler.archive.index_reader import read_entries
from crawler.archive.index_writer import IndexWriter
from crawler.archive.repair import Recovered, recover_open_files, whole_member_after
from crawler.archive.session_locks import SessionLock, is_abandoned
from crawler.archive.warc_reader import read_record
from crawler.model import WarcLocation
from tests.support.growth import LINEAR_MAX, growth


def everyone(session: str) -> bool:
    return True


def torn_by_kill(folder: CrawlFolder, count: int, session: str = "aa11") -> tuple[Path, list[WarcLocation]]:
    """A file as a killed session leaves it: synced, never closed."""
    writer = writer_in(folder, session)
    places = [writer.add(response(n, raw_body=b"<p>%d" % n))[0] for n in range(count)]
    writer.sync()
    return folder.warc / (places[0].file + ".open"), places


def responses_in(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for record in ArchiveIterator(file, check_digests="raise") if record.rec_type == "response")


@pytest.mark.slow(ci=True)
def test_a_file_cut_at_any_byte_of_its_last_records_keeps_all_earlier_ones(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    path, places = torn_by_kill(folder, 3)
    whole = path.read_bytes()
    request_at = places[2].offset + places[2].length
    final = folder.warc / places[0].file
    for size in range(places[2].offset, len(whole) + 1):
        path.write_bytes(whole[:size])
        (found,) = recover_open_files(folder, everyone)
        end = next(e for e in (len(whole), request_at, places[2].offset) if e <= size)
        assert final.read_bytes() == whole[:end]
        kept = {len(whole): 7, request_at: 6, places[2].offset: 5}[end]
        assert found == Recovered(file=f"warc/{final.name}", kept=kept, cut_bytes=size - end)
        final.rename(path)
    path.rename(final)
    assert responses_in(final) == 3
    subprocess.run(["gzip", "-t", str(final)], check=True)


def test_a_recovered_file_is_read_whole_by_gzip_and_warcio(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    path, places = torn_by_kill(folder, 4)
    with path.open("r+b") as file:
        file.truncate(places[3].offset + places[3].length // 2)
    recover_open_files(folder, everyone)
    final = folder.warc / places[0].file
    subprocess.run(["gzip", "-t", str(final)], check=True)
    assert responses_in(final) == 3
    assert [read_record(folder, p).payload for p in places[:3]] == [b"<p>0", b"<p>1", b"<p>2"]


def test_zeros_at_the_end_as_a_power_cut_leaves_them_are_cut(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    path, places = torn_by_kill(folder, 2)
    whole = path.read_bytes()
    path.write_bytes(whole + bytes(100_000))
    (found,) = recover_open_files(folder, everyone)
    assert (found.cut_bytes, found.damaged) == (100_000, False)
    assert (folder.warc / places[0].file).read_bytes() == whole


def test_damage_in_the_middle_costs_no_later_record(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    path, places = torn_by_kill(folder, 4)
    data = bytearray(path.read_bytes())
    data[places[1].offset + 30 : places[1].offset + 40] = bytes(10)
    path.write_bytes(data)
    (found,) = recover_open_files(folder, everyone)
    assert found.damaged
    assert found.cut_bytes == 0
    assert [read_record(folder, places[n]).payload for n in (0, 2, 3)] == [b"<p>0", b"<p>2", b"<p>3"]


def test_a_file_without_a_whole_record_goes_away(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    for number, content in enumerate((b"", b"\x1f\x8b\x08\0")):
        (folder.warc / f"main-20240501120000250-aa11-0000{number}.warc.gz.open").write_bytes(content)
    assert [(r.file, r.kept) for r in recover_open_files(folder, everyone)] == [("", 0), ("", 0)]
    assert list(folder.warc.iterdir()) == []


def test_files_of_living_sessions_are_left_alone_also_when_names_have_dashes(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    for session in ("aa11", "with-dash-9"):
        torn_by_kill(folder, 1, session)
        index = IndexWriter(folder, session)
        index.add(entry())
        index.sync()
    asked: list[str] = []

    def ask(session: str) -> bool:
        asked.append(session)
        return False

    assert recover_open_files(folder, ask) == []
    assert sorted(asked) == ["aa11", "aa11", "with-dash-9", "with-dash-9"]
    lock = SessionLock(folder, "with-dash-9")
    found = recover_open_files(folder, lambda session: is_abandoned(folder, session))
    assert all("aa11" in r.file for r in found)
    assert len(found) == 2
    lock.close()


def test_an_index_segment_loses_its_torn_last_line_and_is_sorted(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    index = IndexWriter(folder, "aa11")
    for number in range(20):
        index.add(entry(number))
    index.sync()
    (path,) = folder.index.iterdir()
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    expected = list(with_footer(sorted(whole[:last].splitlines(keepends=True))))
    for size in range(last, len(whole)):
        path.write_bytes(whole[:size])
        (found,) = recover_open_files(folder, everyone)
        assert found == Recovered(file="index/aa11-00000.cdxj", kept=19)
        sealed = folder.index / "aa11-00000.cdxj"
        assert sealed.read_bytes() == b"".join(expected)
        sealed.rename(path)


def test_a_crash_between_the_sorted_file_and_the_removal_of_the_open_one_doubles_nothing(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    index = IndexWriter(folder, "aa11")
    for number in range(5):
        index.add(entry(number))
    index.sync()
    (path,) = folder.index.iterdir()
    shutil.copy(path, folder.tmp / "saved")
    index.close()
    shutil.copy(folder.tmp / "saved", path)
    assert len(list(read_entries(folder))) == 5
    recover_open_files(folder, everyone)
    assert [p.name for p in folder.index.iterdir()] == ["aa11-00000.cdxj"]
    assert len(list(read_entries(folder))) == 5


def test_recovery_may_be_repeated_and_tried_by_several_at_once(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    for session in ("aa11", "bb22", "cc33"):
        path, places = torn_by_kill(folder, 3, session)
        with path.open("r+b") as file:
            file.truncate(places[2].offset + 5)
    found: list[Recovered] = []
    threads = [threading.Thread(target=lambda: found.extend(recover_open_files(folder, everyone))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert recover_open_files(folder, everyone) == []
    assert [responses_in(p) for p in sorted(folder.warc.iterdir())] == [2, 2, 2]


@pytest.mark.slow(ci=True)
def test_a_tail_full_of_beginnings_of_members_is_judged_in_bounded_time() -> None:
    """Each leads through stored blocks to the end of the file, and is not whole there. Then nothing is cut off."""
    start = gzip.compress(b"")[:10]
    block = b"\0\x0a\0\xf5\xff" + start  # it holds the next beginning
    small, large = [memoryview(start + block * count) for count in (10_000, 100_000)]
    assert whole_member_after(large, 0)
    assert growth(lambda data: whole_member_after(data, 0), small, large) < LINEAR_MAX
    assert not whole_member_after(memoryview(start + block * 100), 0)
