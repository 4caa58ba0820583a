"""Outputs whose disk is full: an error of the disk, nothing doubled, and all of it once there is room."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from crawler.errors import ArchiveError
from crawler.outputs import follow
from crawler.outputs.export import export
from crawler.outputs.follow import Outputs
from crawler.outputs.records import Pages
from crawler.outputs.sqlite import SqliteSink
from tests.outputs.growing import FILES, Crawl, running, sorted_urls
from tests.outputs.samples import target
from tests.support.disks import PAGE_BYTES, fill
from tests.support.patience import wait_until

PAGES = 1500
DISK_FULL = 5


@pytest.mark.parametrize("pages_left", [0, 1, 2])
@pytest.mark.parametrize("name", FILES)
def test_a_full_disk_is_exit_code_5_and_the_same_command_catches_up(
    crawl: Crawl, disk: Path, monkeypatch: pytest.MonkeyPatch, name: str, pages_left: int
) -> None:
    monkeypatch.setattr(follow, "FINISH_S", 0.05)
    path = disk / name

    def outputs() -> Outputs:
        return Outputs(crawl.folder, [target(path)], lambda: Pages(crawl.folder), warn=print)

    crawl.add(PAGES)
    ballast = fill(disk, pages_left=pages_left)
    try:
        full = outputs()
        full.start()
        problems = full.finish()
    except ArchiveError as error:  # it could not even be opened
        problems = [error]
    (problem,) = problems
    assert isinstance(problem, ArchiveError)
    ballast.unlink()
    again = outputs()
    again.start()
    assert again.finish() == []
    assert sorted_urls(path) == sorted(crawl.urls)
    assert {one.name for one in disk.iterdir()} == {name}


def test_the_last_bytes_that_a_full_disk_did_not_take_are_not_written_later(
    crawl: Crawl, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are in the buffer of the file, and there is room for them when what came before them is cut off."""
    monkeypatch.setattr(follow, "FINISH_S", 0.05)
    crawl.add(30)
    export(crawl.folder, [target(disk / "pages.jsonl")], Pages(crawl.folder))
    length = (disk / "pages.jsonl").stat().st_size
    assert length % PAGE_BYTES
    (disk / "pages.jsonl").unlink()
    fill(disk, pages_left=length // PAGE_BYTES + 1)  # one for the lock
    follower = crawl.follower(disk / "pages.jsonl")
    follower.open()
    follower.start()
    assert isinstance(follower.finish(), ArchiveError)
    assert (disk / "pages.jsonl").read_bytes() == b""
    assert {one.name for one in disk.iterdir()} == {"pages.jsonl", "ballast"}


@pytest.mark.parametrize("name", [name for name in FILES if not name.endswith(".parquet")])
def test_an_output_goes_on_by_itself_when_its_disk_has_room_again(
    crawl: Crawl, disk: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(follow, "PAUSE_MAX_S", 0.05)
    path = disk / name
    follower = crawl.follower(path)
    with running(follower):
        crawl.add(20)
        wait_until(lambda: path.exists() and sorted_urls(path) == sorted(crawl.urls))
        ballast = fill(disk, pages_left=1)
        crawl.add(PAGES)
        wait_until(lambda: follower.problem is not None)
        assert isinstance(follower.problem, ArchiveError)
        ballast.unlink()
        wait_until(lambda: follower.problem is None)
    assert sorted_urls(path) == sorted(crawl.urls)
    assert len(crawl.said) == 2


@pytest.mark.parametrize("pages_left", [0, 1, 2])
@pytest.mark.parametrize("name", FILES)
def test_an_export_to_a_full_disk_is_exit_code_5_and_leaves_nothing(
    crawl: Crawl, disk: Path, name: str, pages_left: int
) -> None:
    crawl.add(PAGES)
    fill(disk, pages_left=pages_left)
    with pytest.raises(ArchiveError) as raised:
        export(crawl.folder, [target(disk / name)], Pages(crawl.folder))
    assert raised.value.exit_code == DISK_FULL
    assert {one.name for one in disk.iterdir()} == {"ballast"}


def test_a_database_file_that_can_not_grow_is_a_full_disk(
    crawl: Crawl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a small disk: SQLite itself keeps the file small."""
    path = tmp_path / "pages.sqlite"
    real = SqliteSink._connected

    def limited(sink: SqliteSink, *, is_reader: bool) -> sqlite3.Connection:
        base = real(sink, is_reader=is_reader)
        base.execute("PRAGMA max_page_count = 8")
        return base

    monkeypatch.setattr(follow, "FINISH_S", 0.05)
    crawl.add(PAGES)
    with monkeypatch.context() as patched:
        patched.setattr(SqliteSink, "_connected", limited)
        follower = crawl.follower(path)
        follower.open()
        follower.start()
        problem = follower.finish()
    assert isinstance(problem, ArchiveError)
    assert str(problem) == f"can't write {path}: database or disk is full; free some space and start again"
    with running(crawl.follower(path)):
        pass
    with closing(sqlite3.connect(path)) as base:
        assert base.execute("SELECT count(*) FROM pages").fetchone() == (PAGES,)
