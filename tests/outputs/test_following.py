import json
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from crawler.archive.folder import CrawlFolder
from crawler.archive.index import IndexWriter
from crawler.errors import ArchiveError, ConflictError, OutputError
from crawler.outputs import files, following
from crawler.outputs.following import Follower, Outputs
from crawler.outputs.records import Pages
from crawler.outputs.sink import OutputAway
from tests.archive.archive_samples import entry, folder_in
from tests.outputs.samples import json_lines, target
from tests.support.postgres import PostgresServer
from tests.support.processes import nursery

WRITER = """
import sys, time
from crawler.archive.folder import open_existing
from crawler.outputs.following import Outputs
from crawler.outputs.opening import targets_of
from crawler.outputs.records import Pages
folder = open_existing(sys.argv[1])
outputs = Outputs(folder, targets_of(sys.argv[2:]), lambda: Pages(folder), warn=print)
outputs.start()
print("started", flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "EVERY_S", 0.02)
    monkeypatch.setattr(following, "LOCK_TIMEOUT_S", 0.1)


class Crawl:
    """An index that grows, as several sessions write it."""

    def __init__(self, tmp_path: Path, lines_max: int = 50_000) -> None:
        self.folder: CrawlFolder = folder_in(tmp_path)
        self.urls: list[str] = []
        self.index = IndexWriter(self.folder, "aa11", lines_max=lines_max)

    def add(self, count: int = 1) -> None:
        for _ in range(count):
            found = entry(len(self.urls))
            self.index.add(found)
            self.urls.append(found.url)
        self.index.sync()

    def follower(self, path: Path | str) -> Follower:
        self.said: list[str] = []
        return Follower(self.folder, target(path), Pages(self.folder), warn=self.said.append)


@pytest.fixture
def crawl(tmp_path: Path) -> Iterator[Crawl]:
    made = Crawl(tmp_path)
    yield made
    made.index.close()


@contextmanager
def running(follower: Follower) -> Iterator[Follower]:
    follower.open()
    follower.start()
    try:
        yield follower
    finally:
        follower.finish()


def urls(path: Path) -> list[str]:
    return [record["url"] for record in json_lines(path)]


def wait_until(holds: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_file_has_each_page_soon_after_its_commit_in_the_order_of_commits(crawl: Crawl, tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    with running(crawl.follower(path)):
        for _ in range(5):
            crawl.add(40)
            wait_until(lambda: len(urls(path)) == len(crawl.urls))
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
        wait_until(lambda: len(urls(path)) == 10)
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
        wait_until(lambda: len(urls(path)) == 20)
        with monkeypatch.context() as patched:
            patched.setattr(files.os, "fsync", fail)
            crawl.add(20)
            wait_until(lambda: follower.problem is not None)
            assert isinstance(follower.problem, ArchiveError)
        wait_until(lambda: len(urls(path)) == 40)
    assert urls(path) == crawl.urls
    assert [line.partition(":")[0] for line in crawl.said] == [f"can't write {path}", f"{path} goes on"]


def test_a_disk_that_stays_full_is_said_at_the_end_and_the_next_start_catches_up(
    crawl: Crawl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pages.jsonl"
    monkeypatch.setattr(following, "FINISH_S", 0.1)

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


def test_a_parquet_file_is_written_when_the_crawl_has_ended(crawl: Crawl, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "pages.parquet"
    outputs = Outputs(crawl.folder, [target(path)], lambda: Pages(crawl.folder), warn=print)
    outputs.start()
    crawl.add(30)
    assert not path.exists()
    assert outputs.finish() == []
    assert sorted(pq.read_table(path)["url"].to_pylist()) == sorted(crawl.urls)


def test_a_server_that_is_away_in_the_middle_gets_all_once_it_is_back(
    crawl: Crawl, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "PAUSE_MAX_S", 0.2)
    database = postgres.new_database()
    follower = crawl.follower(postgres.url(database))

    def count() -> int:
        return int(postgres.psql(database, "SELECT count(*) FROM pages")[0][0])

    with running(follower):
        crawl.add(30)
        wait_until(lambda: count() == 30)
        postgres.stop()
        try:
            crawl.add(100)
            wait_until(lambda: follower.problem is not None)
        finally:
            postgres.start()
        wait_until(lambda: count() == 130)
        crawl.add(30)
    assert follower.problem is None
    found = [row[0] for row in postgres.psql(database, "SELECT url FROM pages")]
    assert sorted(found) == sorted(crawl.urls)
    assert len(crawl.said) == 2
    assert crawl.said[0].endswith("the crawl goes on, and what is found waits in the crawl folder")
    assert crawl.said[1] == f"postgresql://crawler@127.0.0.1:{postgres.port}/{database} goes on"


def test_a_server_that_stays_away_is_said_at_the_end_and_an_export_catches_up(
    crawl: Crawl, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "FINISH_S", 0.3)
    url = postgres.url(postgres.new_database())
    follower = crawl.follower(url)
    follower.open()
    follower.start()
    postgres.stop()
    try:
        crawl.add(30)
        problem = follower.finish()
    finally:
        postgres.start()
    assert isinstance(problem, OutputAway)
    assert problem.exit_code == 12
    with running(crawl.follower(url)):
        pass
    assert postgres.psql(url.rpartition("/")[2], "SELECT count(*) FROM pages") == [["30"]]


def test_records_that_do_not_fit_end_that_output_and_no_other(crawl: Crawl, postgres: PostgresServer) -> None:
    database = postgres.new_database()
    postgres.psql(
        database,
        "CREATE TABLE pages (_fingerprint bigint, _visit int, _number int, title date, "
        "PRIMARY KEY (_fingerprint, _visit, _number))",
    )
    follower = crawl.follower(postgres.url(database))
    follower.open()
    follower.start()
    crawl.add(3)
    problem = follower.finish()
    assert isinstance(problem, OutputError)
    assert 'invalid input syntax for type date: "Title 0"' in str(problem)
    assert crawl.said == [f"{problem}; this output has ended, the crawl goes on"]


def test_pages_of_segments_that_are_full_come_as_well(tmp_path: Path) -> None:
    crawl, path = Crawl(tmp_path, lines_max=7), tmp_path / "pages.jsonl"
    with running(crawl.follower(path)):
        for _ in range(6):
            crawl.add(20)
            wait_until(lambda: len(urls(path)) == len(crawl.urls))
        crawl.index.close()
    assert sorted(urls(path)) == sorted(crawl.urls)


@pytest.mark.processes
def test_writers_killed_again_and_again_leave_each_page_once_in_every_kind_of_target(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    crawl = Crawl(tmp_path, lines_max=70)
    dice = random.Random(5)
    database = postgres.new_database()
    lines, packed, table = tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz", tmp_path / "c.sqlite"
    targets = [str(lines), str(packed), str(table), postgres.url(database)]
    with nursery() as programs:
        for _ in range(8):
            writer = programs.start("python", "-c", WRITER, str(crawl.folder.root), *targets)
            writer.wait_for("started")
            until = time.monotonic() + dice.uniform(0.3, 1.5)
            while time.monotonic() < until:
                crawl.add(dice.randrange(200))
                time.sleep(0.02)
            writer.kill()
    outputs = Outputs(crawl.folder, [target(one) for one in targets], lambda: Pages(crawl.folder), warn=print)
    outputs.start()
    crawl.index.close()
    assert outputs.finish() == []
    wanted = sorted(crawl.urls)
    assert len(wanted) > 1000
    assert sorted(urls(lines)) == wanted
    import gzip

    assert sorted(json.loads(line)["url"] for line in gzip.decompress(packed.read_bytes()).splitlines()) == wanted
    with closing(sqlite3.connect(table)) as base:
        assert sorted(row[0] for row in base.execute("SELECT url FROM pages")) == wanted
    assert sorted(row[0] for row in postgres.psql(database, "SELECT url FROM pages")) == wanted
