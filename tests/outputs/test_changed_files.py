"""Files that others replace, shorten or write to while a crawl writes them: all records, and nobody's loss."""

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from crawler.errors import ArchiveError, ConflictError, OutputError, UsageError
from crawler.outputs.export import export
from crawler.outputs.follow import Outputs
from crawler.outputs.lines import CsvLines
from crawler.outputs.opening import open_growing, open_whole, targets_of
from crawler.outputs.records import Pages
from crawler.outputs.writer_lock import writing
from tests.outputs.growing import Crawl, lines_of, running, urls
from tests.outputs.samples import ITEMS, rows, target
from tests.support.patience import wait_until

FOREIGN = b'{"url": "somebody else\'s"}\nhalf a li'


def sed(path: Path) -> None:
    subprocess.run(["sed", "-i", "5d", str(path)], check=True)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def shorten(path: Path) -> None:
    os.truncate(path, 777)


def move_another_there(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(FOREIGN)
    other.rename(path)


def copy_another_there(path: Path) -> None:
    """At no moment is the file empty: what is written to an empty one might come after ours."""
    with path.open("r+b") as file:
        file.write(FOREIGN)
        file.truncate()


def move_away(path: Path) -> None:
    path.rename(path.with_name("moved"))


def add_a_line(path: Path) -> None:
    with path.open("ab") as file:
        file.write(FOREIGN)


def change_the_end(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-30, os.SEEK_END)
        file.write(b"#" * 20)


CHANGES = [sed, empty, shorten, move_another_there, copy_another_there, move_away, add_a_line, change_the_end]


@pytest.mark.parametrize("when", ["in the middle", "at the end", "between two commands"])
@pytest.mark.parametrize("change", CHANGES)
def test_all_records_are_there_and_no_foreign_file_is_lost(
    crawl: Crawl, tmp_path: Path, change: Callable[[Path], None], when: str
) -> None:
    path = tmp_path / "pages.jsonl"
    follower = crawl.follower(path)
    with running(follower):
        crawl.add(60)
        wait_until(lambda: lines_of(path) == 60)
        if when == "in the middle":
            change(path)
            crawl.add(30)
            wait_until(lambda: bool(crawl.said))
        elif when == "at the end":
            change(path)
    if when == "between two commands":
        change(path)
        crawl.add(30)
        follower = crawl.follower(path)
        with running(follower):
            pass
    assert follower.problem is None
    assert sorted(urls(path)) == sorted(crawl.urls)
    assert len(follower.notes) == 1
    assert "all its records are written again" in follower.notes[0]
    assert crawl.said == follower.notes or len(crawl.said) == 2
    left = b"".join(p.read_bytes() for p in tmp_path.glob("pages.jsonl.changed-*"))
    if change in (move_another_there, copy_another_there):
        assert left == FOREIGN
        assert str(tmp_path / "pages.jsonl.changed-1") in " ".join(crawl.said)
    if change is add_a_line:
        assert left.endswith(FOREIGN)
    if change is empty:
        assert not left
    assert not [p.name for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_a_file_that_is_replaced_while_a_column_is_added_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "items.csv"
    sink = open_growing(target(path), ITEMS, None)
    sink.write(rows([{"a": 1}]))
    sink.commit()
    real = CsvLines.widened

    def widened(*arguments: object) -> object:
        move_another_there(path)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(CsvLines, "widened", widened)
    sink.write(rows([{"b": 1}], 1))
    with pytest.raises(OutputError, match="was replaced by another program"):
        sink.commit()
    sink.close()
    assert path.read_bytes() == FOREIGN
    assert sorted(p.name for p in tmp_path.iterdir()) == ["items.csv"]


def test_a_file_of_a_killed_writer_is_cut_back_and_not_set_aside(tmp_path: Path) -> None:
    """Also one that was killed before its first commit."""
    for committed in (0, 40):
        crawl, path = Crawl(tmp_path / str(committed)), tmp_path / f"{committed}.jsonl"
        crawl.add(committed)
        follower = crawl.follower(path)
        follower.open()
        if committed:
            follower.step()
        with path.open("ab") as file:
            file.write(b'{"url": "not committed')
        assert follower._sink is not None
        follower._sink.close()
        follower._held.close()  # as a kill leaves it
        crawl.add(10)
        follower = crawl.follower(path)
        with running(follower):
            pass
        assert sorted(urls(path)) == sorted(crawl.urls)
        assert follower.notes == []
        crawl.index.close()


@pytest.mark.parametrize("change", ["moved", "dropped", "emptied", "not a database"])
def test_a_table_that_changes_in_the_middle_is_exact_or_said(crawl: Crawl, tmp_path: Path, change: str) -> None:
    path = tmp_path / "pages.sqlite"

    def found() -> list[str]:
        with closing(sqlite3.connect(path)) as base:
            return sorted(row[0] for row in base.execute("SELECT url FROM pages"))

    follower = crawl.follower(path)
    with running(follower):
        crawl.add(60)
        wait_until(lambda: found() == sorted(crawl.urls))
        if change == "moved":
            path.rename(tmp_path / "moved")
        elif change == "not a database":
            move_another_there(path)
        else:
            with closing(sqlite3.connect(path)) as base, base:
                base.execute("DROP TABLE pages" if change == "dropped" else "DELETE FROM pages")
        crawl.add(30)
        if change == "not a database":
            wait_until(lambda: follower.problem is not None)
            assert path.read_bytes() == FOREIGN
            path.unlink()
    if change == "emptied":
        assert isinstance(follower.problem, OutputError)
        assert f"{path} has 30 pages where the crawl has 90" in str(follower.problem)
        follower = crawl.follower(path)
        with running(follower):
            pass
    assert follower.problem is None
    assert found() == sorted(crawl.urls)


def test_a_parquet_file_of_somebody_else_is_not_overwritten(crawl: Crawl, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "pages.parquet"
    for number in range(3):
        crawl.add(20)
        outputs = Outputs(crawl.folder, [target(path)], lambda: Pages(crawl.folder), warn=print)
        outputs.start()
        if number == 2:
            move_another_there(path)
        assert outputs.finish() == []
        assert sorted(pq.read_table(path)["url"].to_pylist()) == sorted(crawl.urls)
        assert len(outputs.notes) == (1 if number == 2 else 0)
    assert (tmp_path / "pages.parquet.changed-1").read_bytes() == FOREIGN


# --- one writer ---


def test_an_export_into_a_file_that_a_crawl_writes_is_refused_and_names_the_crawl(crawl: Crawl, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("pages.jsonl", "pages.csv.gz"):
        path = tmp_path / name
        with running(crawl.follower(path)):
            crawl.add(10)
            with pytest.raises(ConflictError) as caught:
                export(crawl.folder, [target(tmp_path / "link" / name)], Pages(crawl.folder))
            assert f"(pid {os.getpid()}, crawl in {crawl.folder.root})" in str(caught.value)
        assert list(tmp_path.glob(".*")) == []


def test_a_crawl_keeps_its_lock_when_the_folder_of_the_file_is_moved_and_made_again(
    crawl: Crawl, tmp_path: Path
) -> None:
    folder, moved = tmp_path / "out", tmp_path / "moved"
    folder.mkdir()
    path = folder / "pages.jsonl"
    follower = crawl.follower(path)
    with running(follower):
        for _ in range(2):
            crawl.add(20)
            wait_until(lambda: lines_of(path) == len(crawl.urls))
            shutil.rmtree(moved, ignore_errors=True)
            folder.rename(moved)
            folder.mkdir()
        crawl.add(20)
        wait_until(lambda: lines_of(path) == len(crawl.urls))
        with pytest.raises(ConflictError, match=f"another process is writing {path}"):
            export(crawl.folder, [target(path)], Pages(crawl.folder))
    assert follower.problem is None
    assert sorted(urls(path)) == sorted(crawl.urls)
    assert [one.name for one in folder.iterdir()] == ["pages.jsonl"]


def test_a_lock_that_lost_its_name_takes_nobody_elses_away(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    with writing(folder / "pages.jsonl", "pages.jsonl", "") as is_named:
        assert is_named()
        folder.rename(tmp_path / "moved")
        assert not is_named()
        folder.mkdir()
        with writing(folder / "pages.jsonl", "pages.jsonl", ""):
            locked = [one.name for one in folder.iterdir()]
        assert locked == [".pages.jsonl.lock"]
        other = writing(folder / "pages.jsonl", "pages.jsonl", "")
        other.__enter__()
    assert [one.name for one in folder.iterdir()] == locked
    other.__exit__(None, None, None)
    assert not list(folder.iterdir())


def test_an_export_into_a_file_of_the_crawl_is_no_foreign_file(crawl: Crawl, tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    for _ in range(3):
        crawl.add(20)
        follower = crawl.follower(path)
        with running(follower):
            pass
        assert (sorted(urls(path)), follower.notes) == (sorted(crawl.urls), [])
        assert export(crawl.folder, [target(path)], Pages(crawl.folder)).records == len(crawl.urls)
    assert list(tmp_path.glob("*.changed-*")) == []


KILLED = """
import os, signal, sys
from crawler.archive.folder import open_existing
from crawler.outputs import files, parquet
from crawler.outputs.export import export
from crawler.outputs.opening import targets_of
from crawler.outputs.records import Pages
files.take_place = parquet.take_place = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
folder = open_existing(sys.argv[1])
export(folder, targets_of([sys.argv[2]]), Pages(folder))
"""


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv.gz", "a.parquet"])
def test_drafts_of_killed_exports_are_removed_by_the_next_one(crawl: Crawl, tmp_path: Path, name: str) -> None:
    crawl.add(10)
    (tmp_path / f".{name}.mine.part").write_bytes(b"of somebody else")
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", KILLED, str(crawl.folder.root), str(tmp_path / name)], check=False)
        assert done.returncode == -signal.SIGKILL
        assert len(list(tmp_path.glob(".*.part"))) == 2
    export(crawl.folder, [target(tmp_path / name)], Pages(crawl.folder))
    assert [p.name for p in tmp_path.glob(".*")] == [f".{name}.mine.part"]


def test_two_writers_that_start_on_one_sqlite_file_do_not_meet_in_its_columns(tmp_path: Path) -> None:
    one, other = (open_growing(target(tmp_path / "items.sqlite"), ITEMS, None) for _ in range(2))
    one.write(rows([{"v": 1}]))
    one.commit()
    other.write(rows([{"v": "x", "w": 1}], 1))
    other.commit()
    one.write(rows([{"v": 2, "w": 2.5, "W": 3}], 2))
    one.commit()
    one.close()
    other.close()
    with closing(sqlite3.connect(tmp_path / "items.sqlite")) as base:
        assert base.execute("SELECT v, w, W_ FROM items ORDER BY _fingerprint").fetchall() == [
            (1, None, None), ("x", 1, None), (2, 2.5, 3)
        ]  # fmt: skip


def test_a_look_at_a_new_sqlite_file_takes_it_from_nobody(tmp_path: Path) -> None:
    path = tmp_path / "items.sqlite"
    look = open_whole(target(path), ITEMS)
    look.close()
    writer = open_growing(target(path), ITEMS, None)
    open_growing(target(path), ITEMS, None).close()
    writer.write(rows([{"v": 1}]))
    writer.commit()
    writer.close()
    with closing(sqlite3.connect(path)) as base:
        assert base.execute("SELECT count(*) FROM items").fetchone() == (1,)


def test_a_target_that_is_named_twice_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").symlink_to(tmp_path)
    (tmp_path / "old.jsonl").write_text("")
    (tmp_path / "same.jsonl").hardlink_to(tmp_path / "old.jsonl")
    for names in (
        ["a.jsonl", "./a.jsonl"], ["a.jsonl", "a.jsonl"], ["a.csv", f"{tmp_path}/a.csv"], ["-", "-"],
        ["here/b.parquet", "b.parquet"], ["old.jsonl", "same.jsonl"], ["c.sqlite", "c.sqlite?table=pages"],
        ["c.sqlite?table=A", "./c.sqlite?table=a"], ["postgresql://h/db", "postgresql://h/db?table=pages"],
    ):  # fmt: skip
        with pytest.raises(UsageError, match="is named twice"):
            targets_of(names, table="pages")
    assert len(targets_of(["a.jsonl", "a.csv", "c.sqlite", "c.sqlite?table=x", "-"], table="pages")) == 5


# --- counted at the end ---


def test_a_file_that_lost_lines_unseen_is_an_error_with_both_numbers(
    crawl: Crawl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a mistake of ours would lose them."""
    path = tmp_path / "pages.jsonl"
    from crawler.outputs.lines import JsonLinesFormat

    real = JsonLinesFormat.encode
    with monkeypatch.context() as patched:
        patched.setattr(JsonLinesFormat, "encode", lambda self, records: real(self, list(records)[1:]))
        crawl.add(20)
        follower = crawl.follower(path)
        with running(follower):
            pass
        assert type(follower.problem) is OutputError
        assert str(follower.problem) == f"{path} has 19 pages where the crawl has 20"
        with pytest.raises(OutputError, match="has 19 pages where the crawl has 20"):
            export(crawl.folder, [target(tmp_path / "b.jsonl")], Pages(crawl.folder))
    follower = crawl.follower(path)
    with running(follower):
        pass
    assert (follower.problem, follower.notes) == (None, [])
    assert sorted(urls(path)) == sorted(crawl.urls)


def test_damaged_lines_of_the_index_are_an_error_at_every_end(crawl: Crawl, tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    crawl.add(20)
    (segment,) = crawl.folder.index.iterdir()
    with segment.open("ab") as file:
        file.write(b"com,test)/ damaged {\n")
    for _ in range(2):
        follower = crawl.follower(path)
        with running(follower):
            pass
        assert isinstance(follower.problem, ArchiveError)
        assert re.match(r"index/\S+\.cdxj has \d flaws?: ", str(follower.problem))
    assert len(urls(path)) == 20


def test_an_export_goes_on_with_other_targets_when_the_reader_of_one_has_enough(crawl: Crawl, tmp_path: Path) -> None:
    class Closed:
        def write(self, data: bytes) -> int:
            raise BrokenPipeError

        def flush(self) -> None: ...

    crawl.add(2500)
    path = tmp_path / "pages.jsonl"
    export(crawl.folder, targets_of([str(path), "-"]), Pages(crawl.folder), stdout=Closed())  # type: ignore[arg-type]
    assert lines_of(path) == 2500
