import os
import random
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from crawler.archive.folder import open_existing
from crawler.archive.index_writer import IndexWriter
from crawler.archive.items import ItemWriter
from crawler.errors import ArchiveError, ConflictError
from crawler.outputs import files, follow
from crawler.outputs.cursor import Cursor, refuse_foreign
from crawler.outputs.follow import Follower, Outputs
from crawler.outputs.records import Items, Pages
from crawler.outputs.sink import OutputAway, Row
from crawler.outputs.sqlite import SqliteSink
from tests.archive.archive_samples import entry
from tests.outputs.growing import Crawl, lines_of, running, urls
from tests.outputs.samples import json_lines, target
from tests.support.patience import wait_until


def test_a_file_has_each_page_soon_after_its_commit_in_the_order_of_commits(crawl: Crawl, tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    with running(crawl.follower(path)):
        for _ in range(5):
            crawl.add(40)
            wait_until(lambda: lines_of(path) == len(crawl.urls))
    assert urls(path) == crawl.urls


def test_the_same_target_goes_on_where_it_was_and_what_it_missed_comes(crawl: Crawl, tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    for _ in range(3):
        with running(crawl.follower(path)):
            crawl.add(30)
        crawl.add(5)
    assert urls(path) == crawl.urls[:-5]
    with running(crawl.follower(path)):
        pass
    assert urls(path) == crawl.urls


def test_an_entry_that_two_sessions_wrote_counts_once(crawl: Crawl, tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    with running(crawl.follower(path)):
        crawl.add(10)
        wait_until(lambda: lines_of(path) == 10)
        other = IndexWriter(crawl.folder, "bb22")
        for number in range(10):
            other.add(entry(number))
        other.close()
    assert urls(path) == crawl.urls


@pytest.mark.parametrize("change", ["gone", "other"])
def test_a_file_that_people_took_away_or_changed_is_written_anew(crawl: Crawl, tmp_path: Path, change: str) -> None:
    path = tmp_path / "pages.jsonl"
    crawl.add(50)
    with running(crawl.follower(path)):
        pass
    path.unlink() if change == "gone" else path.write_bytes(b"x" * 100_000)
    with running(crawl.follower(path)):
        pass
    assert sorted(urls(path)) == sorted(crawl.urls)


def test_a_cursor_that_is_damaged_means_to_begin_anew(crawl: Crawl, tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    crawl.add(50)
    with running(crawl.follower(path)):
        pass
    (cursor,) = crawl.folder.outputs.glob("*.cursor")
    cursor.write_bytes(b"no database at all" * 100)
    with running(crawl.follower(path)):
        pass
    assert sorted(urls(path)) == sorted(crawl.urls)


def hurt(data: bytes, chance: random.Random) -> bytes:
    """One bit, a cut, bytes put in, or bytes of another place."""
    at, to, length = chance.randrange(len(data)), chance.randrange(len(data)), chance.randrange(1, 600)
    match chance.choice(["bit", "bit", "bit", "cut", "insert", "splice", "empty"]):
        case "bit":
            return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        case "cut":
            return data[:at]
        case "insert":
            return data[:at] + chance.randbytes(length) + data[at:]
        case "splice":
            return data[:at] + data[to : to + length] + data[at + length :]
        case _:
            return b""


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(
    "some", [range(100), *(pytest.param(range(n, n + 300), marks=pytest.mark.slow) for n in (100, 400, 700))]
)
def test_whatever_happens_to_a_cursor_each_record_is_there_once(crawl: Crawl, tmp_path: Path, some: range) -> None:
    path = tmp_path / "pages.jsonl"
    crawl.add(60)
    with running(crawl.follower(path)):
        pass
    (cursor,) = crawl.folder.outputs.glob("*.cursor")
    before, written = cursor.read_bytes(), path.read_bytes()
    crawl.add(20)
    for seed in some:
        path.write_bytes(written)
        cursor.write_bytes(hurt(before, random.Random(seed)))
        with running(crawl.follower(path)):
            pass
        assert sorted(urls(path)) == sorted(crawl.urls), seed


@pytest.mark.parametrize("how", ["removed", "emptied", "cut"])
def test_a_segment_that_is_not_whole_ends_an_output_with_its_name(crawl: Crawl, tmp_path: Path, how: str) -> None:
    crawl.add(9)
    crawl.index.close()
    (segment,) = crawl.folder.index.iterdir()
    whole = segment.read_bytes()
    segment.unlink()
    if how != "removed":
        segment.write_bytes(b"".join(whole.splitlines(keepends=True)[:4]) if how == "cut" else b"")
    follower = crawl.follower(tmp_path / "out.jsonl")
    with running(follower):
        pass
    assert isinstance(follower.problem, ArchiveError)
    assert f"index/{segment.name}" in str(follower.problem)
    segment.write_bytes(whole)
    with running(follower := crawl.follower(tmp_path / "out.jsonl")):
        pass
    assert follower.problem is None
    assert sorted(urls(tmp_path / "out.jsonl")) == sorted(crawl.urls)


def test_items_that_could_not_be_read_come_once_they_are_there_again(crawl: Crawl, tmp_path: Path) -> None:
    writer = ItemWriter(crawl.folder, "aa11")
    places = [writer.add([b'{"n":%d}' % n]) for n in range(4)]
    writer.close()
    for number, place in enumerate(places):
        crawl.index.add(entry(number, items=place))
    crawl.index.close()
    (file,) = crawl.folder.items.iterdir()
    whole, path = file.read_bytes(), tmp_path / "items.jsonl"
    file.write_bytes(whole[: places[2].offset] + b"\xff" * 30)
    for is_whole in (False, False, True, True):
        if is_whole:
            file.write_bytes(whole)
        follower = Follower(crawl.folder, target(path), Items(crawl.folder), warn=lambda _: None)
        follower.open()
        follower.start()
        problem = follower.finish()
        assert (problem is None) == is_whole
        assert sorted(record["n"] for record in json_lines(path)) == list(range(4 if is_whole else 2))


def test_a_look_without_news_writes_nothing(crawl: Crawl, tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    crawl.add(10)
    with running(crawl.follower(path)):
        pass
    (file,) = crawl.folder.outputs.glob("*.cursor")
    with closing(Cursor(file)) as cursor:
        before = cursor._base.total_changes
        cursor.begin()
        cursor.commit(None)
        assert cursor._base.total_changes == before


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE segments SET is_done = 1", "UPDATE seen SET fingerprint = fingerprint + 1 WHERE rowid_of = 7",
        "UPDATE segments SET offset = offset + 1", "DELETE FROM seen WHERE rowid_of = 7",
        "UPDATE seen SET records = 0 WHERE rowid_of = 7", "DELETE FROM segments", "UPDATE mark SET length = length - 1",
    ],
)  # fmt: skip
def test_a_row_that_is_another_one_is_noticed_and_the_output_begins_again(
    crawl: Crawl, tmp_path: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "pages.jsonl"
    crawl.add(60)
    with running(crawl.follower(path)):
        pass
    (cursor,) = crawl.folder.outputs.glob("*.cursor")
    with closing(sqlite3.connect(cursor, isolation_level=None)) as base:
        (seventh,) = base.execute("SELECT fingerprint FROM seen ORDER BY fingerprint LIMIT 1 OFFSET 7").fetchone()
        assert base.execute(change.replace("rowid_of = 7", f"fingerprint = {seventh}")).rowcount > 0
    crawl.add(20)
    with running(crawl.follower(path)):
        pass
    assert sorted(urls(path)) == sorted(crawl.urls)
    assert "output.cursor_damaged" in [record.getMessage() for record in caplog.records]


def test_a_crawl_that_is_moved_with_its_output_goes_on_there(crawl: Crawl, tmp_path: Path) -> None:
    path = crawl.folder.root.parent / "pages.jsonl"
    crawl.add(30)
    with running(crawl.follower(path)):
        pass
    (cursor,) = crawl.folder.outputs.glob("*.cursor")
    crawl.index.close()
    moved = tmp_path / "elsewhere" / "deep"
    moved.mkdir(parents=True)
    for one in (crawl.folder.root, path):
        one.rename(moved / one.name)
    there = open_existing(moved / crawl.folder.root.name)
    refuse_foreign(there.outputs, target(moved / path.name), "pages")
    with running(Follower(there, target(moved / path.name), Pages(there), warn=print)):
        pass
    assert urls(moved / path.name) == crawl.urls
    assert [one.name for one in there.outputs.glob("*.cursor")] == [cursor.name]


def test_a_table_that_was_dropped_is_filled_again(crawl: Crawl, tmp_path: Path) -> None:
    path = tmp_path / "pages.sqlite"
    crawl.add(50)
    for _ in range(2):
        with running(crawl.follower(path)):
            pass
        with closing(sqlite3.connect(path)) as base:
            assert base.execute("SELECT count(*) FROM pages").fetchone() == (50,)
            base.execute("DROP TABLE pages")


def test_a_target_has_one_writer(crawl: Crawl, tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    with running(crawl.follower(path)):
        second = crawl.follower(path)
        with pytest.raises(ConflictError):
            second.open()
        second.close()


def test_if_one_target_can_not_be_opened_none_runs_and_all_are_let_go(crawl: Crawl, tmp_path: Path) -> None:
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    before = threading.active_count()
    with running(crawl.follower(paths[1])):
        both = Outputs(crawl.folder, [target(path) for path in paths], lambda: Pages(crawl.folder), warn=print)
        with pytest.raises(ConflictError):
            both.start()
    assert threading.active_count() == before
    both = Outputs(crawl.folder, [target(path) for path in paths], lambda: Pages(crawl.folder), warn=print)
    both.start()
    assert both.finish() == []


def test_a_disk_that_is_full_for_a_while_loses_and_doubles_nothing(
    crawl: Crawl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pages.jsonl"

    def fail(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    follower = crawl.follower(path)
    with running(follower):
        crawl.add(20)
        wait_until(lambda: lines_of(path) == 20)
        with monkeypatch.context() as patched:
            patched.setattr(files.os, "fsync", fail)
            crawl.add(20)
            wait_until(lambda: follower.problem is not None)
            assert isinstance(follower.problem, ArchiveError)
        wait_until(lambda: lines_of(path) == 40)
    assert urls(path) == crawl.urls
    assert [line.partition(":")[0] for line in crawl.said] == [f"can't write {path}", f"{path} is being written again"]


def test_a_disk_that_stays_full_is_said_at_the_end_and_the_next_start_catches_up(
    crawl: Crawl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pages.jsonl"
    monkeypatch.setattr(follow, "FINISH_S", 0.1)

    def fail(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    crawl.add(20)
    follower = crawl.follower(path)
    with monkeypatch.context() as patched:
        patched.setattr(files.os, "fsync", fail)
        follower.open()
        follower.start()
        problem = follower.finish()
    assert isinstance(problem, ArchiveError)
    assert problem.exit_code == 5
    assert path.read_bytes() == b""
    with running(crawl.follower(path)):
        pass
    assert urls(path) == crawl.urls


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_a_failed_commit_may_have_written_is_there_once(
    crawl: Crawl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The answer to a commit can be lost: nobody knows whether the rows are there."""
    path = tmp_path / "pages.sqlite"
    real = SqliteSink.commit
    failures: list[bool] = []

    def commit(sink: SqliteSink) -> None:
        if when == "after" or not failures:
            real(sink)
        if failures:
            failures.pop()
            raise OutputAway("no answer")

    monkeypatch.setattr(SqliteSink, "commit", commit)

    def found() -> list[str]:
        with closing(sqlite3.connect(path)) as base:
            return sorted(row[0] for row in base.execute("SELECT url FROM pages"))

    with running(crawl.follower(path)):
        crawl.add(20)
        wait_until(lambda: found() == sorted(crawl.urls))
        failures.append(True)
        crawl.add(20)
        wait_until(lambda: found() == sorted(crawl.urls))
    assert found() == sorted(crawl.urls)
    assert len(crawl.said) == 2


def test_a_parquet_file_is_written_when_the_crawl_has_ended(crawl: Crawl, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "pages.parquet"
    outputs = Outputs(crawl.folder, [target(path)], lambda: Pages(crawl.folder), warn=print)
    outputs.start()
    crawl.add(30)
    assert not path.exists()
    assert outputs.finish() == []
    assert sorted(pq.read_table(path)["url"].to_pylist()) == sorted(crawl.urls)


def test_pages_of_segments_that_are_full_come_as_well(tmp_path: Path) -> None:
    crawl, path = Crawl(tmp_path, lines_max=7), tmp_path / "pages.jsonl"
    with running(crawl.follower(path)):
        for _ in range(6):
            crawl.add(20)
            wait_until(lambda: lines_of(path) == len(crawl.urls))
        crawl.index.close()
    assert sorted(urls(path)) == sorted(crawl.urls)


@pytest.mark.parametrize("hangs", [False, True])
def test_at_the_end_a_target_has_as_long_as_it_needs_but_one_that_hangs_is_left(
    crawl: Crawl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    monkeypatch.setattr(follow, "JOIN_S", 2.0)
    real, let_go = SqliteSink.write, threading.Event()

    def slow(sink: SqliteSink, rows: Sequence[Row]) -> None:
        let_go.wait(10 if hangs else 0.15)
        real(sink, rows)

    monkeypatch.setattr(SqliteSink, "write", slow)
    crawl.add(3000)
    follower = crawl.follower(tmp_path / "pages.sqlite")
    follower.open()
    follower.start()
    try:
        problem = follower.finish()
        assert isinstance(problem, OutputAway) if hangs else problem is None
    finally:
        let_go.set()
        assert follower.finish() is None
    with closing(sqlite3.connect(tmp_path / "pages.sqlite")) as base:
        assert base.execute("SELECT count(*) FROM pages").fetchone() == (3000,)
