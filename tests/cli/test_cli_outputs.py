"""-o of `crawl` and `run`: kept up to date while pages come, completed at the end, refused before the beginning."""

import csv
import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from crawler.engine.embedded import EmbeddedEngine
from crawler.version import how_to_install
from tests.cli.cli_lab import HOST, QUICK, SMALL_PAGES, Ran, crawler, in_process, small
from tests.support.patience import wait_until
from tests.support.postgres import PostgresServer
from tests.support.processes import Nursery

pytestmark = pytest.mark.processes


def lines(path: Path) -> list[str]:
    """URLs of a file of JSON lines; a line that is just being written does not count yet."""
    whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    return [json.loads(line)["url"] for line in whole.splitlines()]


def said_last(ran: Ran) -> str:
    return ran.err.splitlines()[-1]


@pytest.mark.slow(ci=True)
def test_every_kind_of_target_gets_every_page_once(programs: Nursery, tmp_path: Path, postgres: PostgresServer) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    database = postgres.new_database()
    names = ["a.jsonl", "b.csv", "c.parquet", "d.sqlite"]
    targets = [*(str(tmp_path / name) for name in names), postgres.url(database, table="seen")]
    with small() as site:
        options = [part for target in targets for part in ("-o", target)]
        ran = in_process(programs, "crawl", site.url(HOST), *QUICK, "--dir", str(tmp_path / "c"), *options)
        assert (ran.code, "Traceback" in ran.err) == (0, False), ran.err
        assert f"Results: {tmp_path / 'a.jsonl'}, " in ran.out
        assert "secret" not in ran.out
    wanted = sorted(lines(tmp_path / "a.jsonl"))
    assert len(wanted) == len(set(wanted)) == SMALL_PAGES
    with (tmp_path / "b.csv").open(newline="") as file:
        assert sorted(row["url"] for row in csv.DictReader(file)) == wanted
    assert sorted(pq.read_table(tmp_path / "c.parquet")["url"].to_pylist()) == wanted
    with closing(sqlite3.connect(tmp_path / "d.sqlite")) as base:
        assert sorted(row[0] for row in base.execute("SELECT url FROM pages")) == wanted
    assert sorted(row[0] for row in postgres.psql(database, "SELECT url FROM seen")) == wanted


@pytest.mark.slow(ci=True)
def test_pages_are_in_the_file_while_the_crawl_runs_and_a_stopped_one_goes_on(
    programs: Nursery, tmp_path: Path
) -> None:
    path = tmp_path / "pages.jsonl"
    with small(40, delay_s=0.15) as site:
        command = ("crawl", site.url(HOST), *QUICK, "--dir", str(tmp_path / "c"), "-o", str(path))
        running = programs.crawler(*command)
        wait_until(lambda: len(lines(path)) >= 3)
        assert running.process.poll() is None
        running.interrupt()
        assert running.wait() == 10
        before = lines(path)
        assert 3 <= len(before) < 43
        assert in_process(programs, *command).code == 0
        assert lines(path)[: len(before)] == before
        assert len(lines(path)) == len(set(lines(path))) == 43


@pytest.mark.slow
@pytest.mark.parametrize("instances", [(), ("-n", "2")])
def test_a_command_killed_again_and_again_leaves_each_page_once(
    programs: Nursery, tmp_path: Path, instances: tuple[str, ...]
) -> None:
    path, table = tmp_path / "pages.jsonl", tmp_path / "pages.sqlite"
    with small(60, delay_s=0.05) as site:
        command = ("crawl", site.url(HOST), *QUICK, "--dir", str(tmp_path / "c"), *instances)
        command += ("-o", str(path), "-o", str(table), "-q")
        engine = EmbeddedEngine(tmp_path / "c" / "engine")
        for pages in (5, 20, 40):
            running = programs.crawler(*command)
            wait_until(lambda pages=pages: len(lines(path)) >= pages)  # type: ignore[misc]
            running.kill()
            wait_until(lambda: not set(programs.left()) - {engine.pid()})  # killed early, it is left to be adopted
        ran = crawler(programs, *command)
        assert (ran.code, ran.err) == (0, "")
    assert len(lines(path)) == len(set(lines(path))) == 63
    with closing(sqlite3.connect(table)) as base:
        assert sorted(row[0] for row in base.execute("SELECT url FROM pages")) == sorted(lines(path))


@pytest.mark.slow(ci=True)
def test_run_keeps_targets_up_to_date_too(programs: Nursery, tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    with small() as site:
        waiting = programs.crawler("run", *QUICK, "--dir", str(tmp_path / "c"), "-n", "2", "-o", str(path))
        waiting.wait_for("Starting 2 instances")
        ran = in_process(programs, "seed", site.url(HOST), "--dir", str(tmp_path / "c"), *QUICK)
        assert ran.code == 0
        wait_until(lambda: len(lines(path)) == SMALL_PAGES)
        waiting.terminate()
        assert waiting.wait() == 10
    assert len(set(lines(path))) == SMALL_PAGES


@pytest.mark.slow
def test_a_database_that_is_gone_in_the_end_is_one_line_and_an_export_catches_up(
    programs: Nursery, tmp_path: Path, postgres: PostgresServer
) -> None:
    database = postgres.new_database()
    target = postgres.url(database)
    with small(30, delay_s=0.05) as site:
        running = programs.crawler("crawl", site.url(HOST), *QUICK, "--dir", str(tmp_path / "c"), "-o", target)
        wait_until(lambda: len(site.requests()) > 3)
        wait_until(lambda: int(postgres.psql(database, "SELECT count(*) FROM pages")[0][0]) > 0)
        postgres.stop()
        try:
            assert running.wait(60) == 12, running.err
        finally:
            postgres.start()
    assert "Finished: 33 pages" in running.out
    last = running.err.splitlines()[-1]
    assert last.startswith(f"crawler: no answer from postgresql://crawler@127.0.0.1:{postgres.port}/{database}: ")
    assert last.endswith("; nothing is lost: 'crawler export' with the same -o catches up")
    assert "secret" not in running.err
    ran = in_process(programs, "export", "--dir", str(tmp_path / "c"), "-o", target)
    assert ran.code == 0, ran.err
    assert postgres.psql(database, "SELECT count(*), count(DISTINCT url) FROM pages") == [["33", "33"]]


@pytest.mark.parametrize(
    ("target", "code", "said"),
    [
        ("pages.xml", 2, "can't tell the format of pages.xml: name it .jsonl or .csv"),
        ("pages", 2, "can't tell the format of pages"),
        ("pages.gz", 2, "can't tell the format of pages.gz"),
        ("missing/pages.csv", 2, "folder does not exist: missing"),
        ("folder.jsonl", 2, "folder.jsonl is a folder; name a file in it"),
        ("notes.db", 2, "notes.db is not an SQLite file"),
        ("other.sqlite", 2, "table pages of other.sqlite is not a results table"),
        ("pages.sqlite?table=a-b", 2, "table=a-b: not the name of a table"),
        ("postgresql://u:secret@127.0.0.1:1/", 2, "which database? Name it: postgresql://u@127.0.0.1:1/NAME"),
        ("theirs.jsonl", 2, "theirs.jsonl already exists, and this crawl did not write it"),
        ("postgresql://u:secret@127.0.0.1:x/db", 2, "can't read the URL of the database"),
        ("postgresql://u:secret@127.0.0.1:1/db?nonsense=1", 2, "can't use postgresql://u@127.0.0.1:1/db"),
        ("postgresql://u:secret@127.0.0.1:1/db", 12, "no answer from postgresql://u@127.0.0.1:1/db"),
    ],
)
def test_a_bad_target_is_one_line_before_any_work(
    programs: Nursery, tmp_path: Path, target: str, code: int, said: str
) -> None:
    if "127.0.0.1:1/db" in target:
        pytest.importorskip("psycopg", reason="psycopg is not installed")
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "theirs.jsonl").write_text("{}\n")
    (tmp_path / "notes.db").write_bytes(b"notes" * 1000)
    with closing(sqlite3.connect(tmp_path / "other.sqlite")) as base:
        base.execute("CREATE TABLE pages (id INTEGER)")
    before = sorted(tmp_path.iterdir())
    for command in (["crawl", "http://a.test/"], ["run"]):
        ran = in_process(programs, *command, "-o", "good.jsonl", "-o", target, cwd=tmp_path)
        assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1), ran.err
        assert ran.err.startswith("crawler: ")
        assert said in ran.err
        assert "secret" not in ran.err
        assert sorted(tmp_path.iterdir()) == before


def test_export_since_gives_what_was_committed_since(programs: Nursery, tmp_path: Path) -> None:
    folder = ("--dir", str(tmp_path / "c"))
    with small() as site:
        assert in_process(programs, "crawl", site.url(HOST), *QUICK, *folder, "--pages", "4", "-q").code == 0
        time.sleep(1.1)
        between = time.time()
        assert in_process(programs, "crawl", *QUICK, *folder, "-q").code == 0
    counts = {}
    for since in (
        "1h",
        "1d2h",
        time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(between)),
        "0s",
        "2000-01-01",
        "2999-01-01",
    ):
        ran = in_process(programs, "export", *folder, "--since", since)
        assert ran.code == 0
        counts[since] = ran.out.count("\n")
    all_, day, late, none, old, future = counts.values()
    assert all_ == day == old == SMALL_PAGES
    assert none == future == 0
    assert 0 < late < SMALL_PAGES
    ran = in_process(programs, "export", *folder, "--since", "yesterday")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "'yesterday' is not a valid time (use a time ago: 2h, 3d; or a date" in ran.err


@pytest.mark.slow(ci=True)
def test_main_text_leaves_menus_out_and_needs_its_library(programs: Nursery, tmp_path: Path) -> None:
    pytest.importorskip("resiliparse")
    folder = ("--dir", str(tmp_path / "c"))
    with small(1) as site:
        assert in_process(programs, "crawl", site.url(HOST), *QUICK, *folder, "-q").code == 0
    assert in_process(programs, "export", *folder, "--columns", "main_text").code == 0
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "resiliparse.py").write_text("raise ImportError\n")
    path = f"{tmp_path / 'without'}:{programs.environment['PYTHONPATH']}"
    ran = crawler(programs, "export", *folder, "--columns", "main_text", PYTHONPATH=path)
    assert (ran.code, ran.out) == (2, "")
    assert said_last(ran) == (
        f"crawler: column main_text needs resiliparse: {how_to_install('text', 'resiliparse')} "
        "(text and markdown need nothing)"
    )
    assert crawler(programs, "export", *folder, "--columns", "text,markdown", PYTHONPATH=path).code == 0
