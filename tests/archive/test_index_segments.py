import errno
import json
import os
import random
import re
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from archive_samples import AT, archived, entry, folder_in

from crawler.archive import appender, index_reader
from crawler.archive.checked_lines import with_checksum, without_checksum
from crawler.archive.folder import CrawlFolder
from crawler.archive.index import is_footer, pruned, surt, to_entry, to_line
from crawler.archive.index_reader import IndexReader, MissingFile, find_url, read_entries
from crawler.archive.index_writer import IndexWriter, change_lines, seal, serials_missing
from crawler.archive.repair import Flaw, recover_open_files, walk_lines
from crawler.errors import ArchiveError, ConflictError
from crawler.model import CommitEntry, WarcLocation


def keys(entries: list[CommitEntry]) -> list[tuple[str, int]]:
    return [(e.fingerprint, e.visit) for e in entries]


def test_a_line_is_cdxj_with_the_fields_that_wayback_tools_read() -> None:
    place = WarcLocation(file="m-1.warc.gz", offset=10, length=20)
    key, stamp, fields = to_line(entry(1, warc=place, url="https://www.d1.test/A?b=1")).decode().split(" ", 2)
    assert (key, stamp) == ("test,d1)/a?b=1", "20240501120001")
    found = json.loads(fields)
    assert found["url"] == "https://www.d1.test/A?b=1"
    assert found["mime"] == "text/html"
    assert found["status"] == "200"
    assert found["digest"] == "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"
    assert (found["filename"], found["offset"], found["length"]) == ("m-1.warc.gz", "10", "20")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"warc": WarcLocation(file="a.warc.gz", offset=0, length=1)},
        {"mime": "unk", "title": "", "times": {}, "digest": ""},
        {"title": 'quotes " and \\ and \n breaks and ü and \U0001f600', "noindex": True},
        {"status_text": "301", "redirect_to": "https://x.test/?a b", "truncated": "length", "redirects": 3, "visit": 9},
        {"fingerprint": "-9223372036854775808", "fetched_at": AT + 0.123456},
    ],
)
def test_an_entry_comes_back_from_its_line_as_it_was(changes: dict[str, object]) -> None:
    original = entry(4, **changes)
    line = to_line(original)
    assert line.count(b"\n") == 1
    assert to_entry(line) == original


def test_a_damaged_line_is_not_an_entry() -> None:
    line = to_line(entry())
    for damaged in (b"", b"x", line[:40], line.replace(b'"200"', b'"abc"'), line.replace(b"{", b"[", 1)):
        assert to_entry(damaged) is None


def test_a_closed_segment_is_sorted_by_bytes_and_has_its_final_name(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    index = IndexWriter(folder, "aa11")
    for number in (5, 3, 9, 1, 7):
        index.add(entry(number, url=f"http://h{number}.test/Z%20x?b&a"))
    index.sync()
    assert [p.name for p in folder.index.iterdir()] == ["aa11-00000.cdxj.open"]
    index.close()
    (path,) = folder.index.iterdir()
    lines = path.read_bytes().splitlines(keepends=True)
    assert path.name == "aa11-00000.cdxj"
    assert lines == sorted(lines)
    assert len(lines) == 6
    assert [is_footer(line) for line in lines] == [*[False] * 5, True]
    assert list(folder.tmp.iterdir()) == []


def test_segments_rotate_by_lines_and_are_numbered_without_gaps(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    index = IndexWriter(folder, "aa11", lines_max=10)
    for number in range(35):
        index.add(entry(number))
    index.sync()
    assert sorted(p.name for p in folder.index.iterdir()) == [
        "aa11-00000.cdxj",
        "aa11-00001.cdxj",
        "aa11-00002.cdxj",
        "aa11-00003.cdxj.open",
    ]
    assert len(keys(list(read_entries(folder)))) == 35
    index.close()
    assert sorted(keys(list(read_entries(folder)))) == sorted(keys([entry(n) for n in range(35)]))


def test_adding_while_another_thread_syncs_loses_nothing(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    index = IndexWriter(folder, "aa11", lines_max=100)
    stop = threading.Event()

    def sync_all_the_time() -> None:
        while not stop.is_set():
            index.sync()

    thread = threading.Thread(target=sync_all_the_time)
    thread.start()
    for number in range(3_000):
        index.add(entry(number))
    stop.set()
    thread.join()
    index.close()
    assert len(list(read_entries(folder))) == 3_000


@pytest.mark.parametrize("durable", [0, 1])
def test_after_a_failure_the_durable_lines_stay_and_no_segment_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: int
) -> None:
    folder = folder_in(tmp_path)
    index = IndexWriter(folder, "aa11")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for number in range(durable):
        index.add(entry(number))
        index.sync()
    index.add(entry(2))
    with monkeypatch.context() as patched:
        patched.setattr(appender.os, "fdatasync", full)
        with pytest.raises(ArchiveError, match="free some space"):
            index.sync()
    index.close()
    reader = IndexReader(folder)
    assert keys(list(reader.entries())) == keys([entry(number) for number in range(durable)])
    assert reader.missing == []


def test_each_key_counts_once_and_the_earliest_fetch_wins(tmp_path: Path) -> None:
    """A drained log may be written twice: by a session that died before it cleared it, and by the next owner."""
    folder = folder_in(tmp_path)
    for session, fetched_at in (("bb22", AT + 60), ("aa11", AT), ("cc33", AT + 120)):
        index = IndexWriter(folder, session)
        index.add(entry(7, fetched_at=fetched_at, session=session))
        index.add(entry(8))
        index.add(entry(7, visit=2, fetched_at=AT + 3600))
        if session == "cc33":
            index.sync()
        else:
            index.close()
    found = list(read_entries(folder))
    assert sorted(keys(found)) == sorted(keys([entry(7), entry(8), entry(7, visit=2)]))
    assert [e.session for e in found if e.fingerprint == entry(7).fingerprint and e.visit == 1] == ["aa11"]


def test_urls_that_share_a_sort_key_are_told_apart(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    index = IndexWriter(folder, "aa11")
    urls = ["http://d.test/a", "http://d.test/A", "https://www.d.test/a/", "http://d.test/a?", "http://d.test/a0"]
    for number, url in enumerate(urls):
        index.add(entry(number, url=url))
    index.close()
    assert sorted(e.url for e in read_entries(folder)) == sorted(urls)
    assert [find_url(folder, url)[0].url for url in urls] == urls


def test_more_segments_than_may_be_open_are_merged_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_in(tmp_path)
    index = IndexWriter(folder, "aa11", lines_max=4)
    for number in range(50):
        index.add(entry(number % 40))
    index.close()
    monkeypatch.setattr(index_reader, "BLOCK_MAX", 2)  # a line at a time
    damaged = folder.index / "aa11-00002.cdxj"
    damaged.write_bytes(damaged.read_bytes()[:-5])
    reader = IndexReader(folder)
    found = list(map(to_line, reader.entries()))
    assert found == sorted(to_line(entry(n)) for n in range(40))
    assert [(m.file, m.reason) for m in reader.missing] == [("index/aa11-00002.cdxj", "its last line is damaged")]


def test_segments_that_are_replaced_while_many_are_read_are_read_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_reader, "BLOCK_MAX", 2)
    folder = folder_in(tmp_path)
    index = IndexWriter(folder, "aa11", lines_max=10)
    for number in range(30):
        index.add(entry(number))
    index.close()
    reader = IndexReader(folder)
    entries = reader.entries()
    found = [next(entries) for _ in range(12)]
    change_lines(folder, lambda one: one if one.depth % 2 else pruned(one))
    found += entries
    urls = [one.url for one in found]
    assert urls == sorted(set(urls), key=surt)
    assert {entry(n).url for n in range(30) if entry(n).depth % 2} <= set(urls)
    assert len(urls) < 30
    assert reader.missing == []


def test_a_line_being_written_is_not_read(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    (folder.index / "aa11-00000.cdxj.open").write_bytes(to_line(entry(1)) + to_line(entry(2))[:-1])
    reader = IndexReader(folder)
    assert keys(list(reader.entries())) == keys([entry(1)])
    assert reader.missing == []


def test_a_segment_that_is_gone_or_damaged_is_named(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    index = IndexWriter(folder, "aa11", lines_max=2)
    for number in range(8):
        index.add(entry(number))
    index.close()
    (folder.index / "aa11-00001.cdxj").unlink()
    with (folder.index / "aa11-00002.cdxj").open("r+b") as file:
        file.truncate(file.seek(0, os.SEEK_END) - 5)
    (folder.index / "aa11-00003.cdxj").unlink()
    (folder.index / "aa11-00003.cdxj").mkdir()
    reader = IndexReader(folder)
    assert len(list(reader.entries())) == 4
    assert [(m.file, m.reason) for m in reader.missing] == [
        ("index/aa11-00001.cdxj", "not found"),
        ("index/aa11-00003.cdxj", "Is a directory"),
        ("index/aa11-00002.cdxj", "its last line is damaged"),
    ]


def segment_of(folder: CrawlFolder, *numbers: int) -> Path:
    index = IndexWriter(folder, "aa11")
    for number in numbers:
        index.add(entry(number))
    index.sync()
    index.close()
    return folder.index / "aa11-00000.cdxj"


def test_each_flipped_bit_of_a_line_costs_that_line_and_is_named_with_its_place(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    path = segment_of(folder, 1, 2, 3)
    whole = path.read_bytes()
    first, second = whole.index(b"\n") + 1, whole.index(b"\n", whole.index(b"\n") + 1)
    for at in range(first, second):
        data = bytearray(whole)
        data[at] ^= 1 << at % 8
        path.write_bytes(data)
        reader = IndexReader(folder)
        assert len(list(reader.entries())) == 2
        assert reader.missing[0].file == "index/aa11-00000.cdxj"
        assert f"at byte {first}" in reader.missing[0].reason


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], "its end is missing"),
        ([0, 1, 2], "its end is missing"),
        ([0, 1, 3], "it has 2 lines, and had 3"),
        ([3], "it has 0 lines, and had 3"),
        ([0, 1, 1, 2, 3], "it has 4 lines, and had 3"),
        ([0, 0, 2, 3], "its lines are not those that were written"),
    ],
)
def test_whole_lines_that_a_closed_segment_lost_or_has_twice_are_noticed(
    tmp_path: Path, lines: list[int], why: str
) -> None:
    folder = folder_in(tmp_path)
    path = segment_of(folder, 1, 2, 3)
    written = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(written[n] for n in lines))
    reader = IndexReader(folder)
    list(reader.entries())
    assert [m.reason for m in reader.missing] == [why]
    assert [found.reason for found in walk_lines(folder) if isinstance(found, Flaw)] == [why]


def test_the_last_segment_of_a_session_is_missed(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    segment_of(folder, 1).unlink()
    reader = IndexReader(folder)
    assert list(reader.entries()) == []
    assert [(m.file, m.reason) for m in reader.missing] == [("index/aa11-00000.cdxj", "not found")]


def test_the_only_segment_of_a_session_is_missed_that_was_closed_at_once(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    index = IndexWriter(folder, "aa11")
    index.add(entry(1))
    index.close()
    (folder.index / "aa11-00000.cdxj").unlink()
    assert serials_missing(folder, []) == ["aa11-00000.cdxj"]


def test_damage_in_an_open_segment_is_named_with_its_place(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    lines = [to_line(entry(n)) for n in range(3)]
    lines[1] = lines[1].replace(b"200", b"201")
    (folder.index / "aa11-00000.cdxj.open").write_bytes(b"".join(lines))
    reader = IndexReader(folder)
    assert keys(list(reader.entries())) == keys([entry(0), entry(2)])
    (missing,) = reader.missing
    assert missing.file == "index/aa11-00000.cdxj.open"
    assert missing.reason.startswith(f"line 2 at byte {len(lines[0])} is damaged")


def test_lines_of_an_earlier_release_are_read_without_checksums(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    lines = [without_checksum(to_line(entry(n))[:-1]) + b"\n" for n in range(3)]
    (folder.index / "aa11-00000.cdxj").write_bytes(b"".join(sorted(lines)))
    reader = IndexReader(folder)
    assert sorted(keys(list(reader.entries()))) == sorted(keys([entry(n) for n in range(3)]))
    assert (reader.missing, reader.unchecked) == ([], 3)
    for found in (b'"fp":"5e3x"', b'"fp":"99999999999999999999"', b'"fq":"1"'):
        assert to_entry(re.sub(rb'"fp":"[^"]*"', found, lines[0])) is None


def test_a_field_of_a_newer_release_is_told_from_damage() -> None:
    line = to_line(entry(1))
    newer = with_checksum(without_checksum(line[:-1])[:-1] + b',"colour":"red"}')
    with pytest.raises(ConflictError, match=r"newer release.*colour"):
        to_entry(newer)
    assert to_entry(newer.replace(b"colour", b"coluor")) is None


def test_what_is_damaged_before_a_whole_line_was_not_torn(tmp_path: Path) -> None:
    """It stays in the segment that a dead session left open, so that it is reported."""
    folder = folder_in(tmp_path)
    first, second, third = (to_line(entry(n)) for n in range(3))
    path = folder.index / "aa11-00000.cdxj.open"
    path.write_bytes(first + second.replace(b"200", b"201") + third + b"\0" * 60 + b"\n" + third[:50])
    assert seal(folder, path) == 3
    reader = IndexReader(folder)
    assert keys(list(reader.entries())) == keys([entry(0), entry(2)])
    (missing,) = reader.missing
    assert "is damaged" in missing.reason


def test_an_archive_file_that_can_not_be_reached_is_named_with_its_entries(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    (place,) = archived(folder, 1)
    gone = WarcLocation(file="gone.warc.gz", offset=0, length=1)
    index = IndexWriter(folder, "aa11")
    for number in range(4):
        index.add(entry(number, warc=place if number == 2 else gone))
    index.add(entry(5))
    index.close()
    reader = IndexReader(folder)
    assert len(list(reader.entries())) == 5
    assert reader.missing == [MissingFile("warc/gone.warc.gz", "not found", 3)]


STEPS = frozenset(
    {"open", "write", "writelines", "flush", "close", "fsync", "fdatasync", "replace", "unlink", "with_footer"}
)
KILLED = 60  # entries; each fourth is synced, a segment has twenty of them


def killed_at(step: int, work: Callable[[], None]) -> int:
    """Do the work in another process, which gets SIGKILL before this step of it; how many it did at most. A step is a
    call that touches a file, or a line that is handed to one.
    """
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    done = 0

    def profile(frame: Any, event: str, called: Any) -> None:
        nonlocal done
        name = called.__name__ if event == "c_call" else frame.f_code.co_name if event == "call" else ""
        if name in STEPS:
            done += 1
            if done == step:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        os.fsync = os.fdatasync = lambda _: None  # a killed process loses nothing that it wrote
        sys.setprofile(profile)
        work()
        sys.setprofile(None)
    finally:
        os._exit(0)


def write_some(folder: CrawlFolder, known: int) -> None:
    """Write entries, and tell behind `known` how many are synced."""
    index = IndexWriter(folder, "aa11", lines_max=20)
    for number in range(KILLED):
        index.add(entry(number, title="long " * 40))
        if number % 4 == 3:
            index.sync()
            os.pwrite(known, b"%d " % (number + 1), 0)
    index.close()


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(
    "cases", [range(12), *(pytest.param(range(n, n + 100), marks=pytest.mark.slow) for n in range(0, 500, 100))]
)
def test_a_kill_anywhere_between_data_footer_and_name_is_no_damage(tmp_path: Path, cases: range) -> None:
    """Nor is one of those who recover what it left; and all that was synced is there."""
    cut_off = 0
    for case in cases:
        folder, chance = folder_in(tmp_path / str(case)), random.Random(case)
        known = os.open(tmp_path / "known", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        cut_off += killed_at(chance.randint(1, 190), lambda folder=folder, known=known: write_some(folder, known)) != 0
        durable = int(os.pread(known, 10, 0) or 0)
        os.close(known)
        for step in (0, chance.randint(1, 36), chance.randint(1, 36), 10**9):
            if step:
                killed_at(step, lambda folder=folder: recover_open_files(folder, lambda _: True) and None)
            reader = IndexReader(folder)
            found = keys(list(reader.entries()))
            assert reader.missing == [], case
            assert {*keys([entry(n) for n in range(durable)])} <= {*found}, case
            assert [one for one in walk_lines(folder) if isinstance(one, Flaw) and not one.is_tail] == [], case
        assert not list(folder.index.glob("*.open"))
    assert cut_off > len(cases) / 2


def test_gaps_are_seen_per_session_also_when_its_name_has_dashes(tmp_path: Path) -> None:
    names, folder = ["a-b-00000.cdxj", "a-b-00002.cdxj.open", "c-00001.cdxj"], folder_in(tmp_path)
    assert serials_missing(folder, names) == ["a-b-00001.cdxj", "c-00000.cdxj"]
    assert serials_missing(folder, []) == []


def test_every_url_is_found_by_binary_search_and_others_are_not(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    index = IndexWriter(folder, "aa11", lines_max=60)
    for number in range(150):
        index.add(entry(number, url=f"http://h.test/{'x' * (number % 37)}/{number}"))
    index.add(entry(3, url="http://h.test/xxx/3", visit=2, fetched_at=AT + 99))
    index.sync()
    for number in range(150):
        url = f"http://h.test/{'x' * (number % 37)}/{number}"
        assert {e.fingerprint for e in find_url(folder, url)} == {entry(number).fingerprint}
    assert [e.visit for e in find_url(folder, "http://h.test/xxx/3")] == [1, 2]
    for absent in ("http://a.test/", "http://z.test/", "http://h.test/xxx/", "http://h.test/xxx/33"):
        assert find_url(folder, absent) == []
    index.close()


@pytest.mark.slow
def test_an_index_that_is_being_written_and_sealed_is_never_read_short(tmp_path: Path) -> None:
    """A reader lists the open name of a segment that gets its final one before the reader opens it."""
    folder = folder_in(tmp_path)
    index = IndexWriter(folder, "aa11", lines_max=5)
    stop = threading.Event()
    durable = [0]

    def write() -> None:
        for number in range(600):
            index.add(entry(number))
            index.sync()
            durable[0] = number + 1
        stop.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not stop.is_set():
        before = durable[0]
        reader = IndexReader(folder)
        assert len(list(reader.entries())) >= before
        assert reader.missing == []
    thread.join()
