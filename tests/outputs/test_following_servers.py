"""Outputs next to a crawl whose database goes away, and whose writer is killed."""

import gzip
import json
import random
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from crawler.errors import OutputError
from crawler.outputs import follow
from crawler.outputs.follow import Outputs
from crawler.outputs.records import Pages
from crawler.outputs.sink import OutputAway
from tests.outputs.growing import Crawl, running, urls
from tests.outputs.samples import target
from tests.support.patience import wait_until
from tests.support.postgres import PostgresServer
from tests.support.processes import nursery

WRITER = """
import sys, time
from crawler.archive.folder import open_existing
from crawler.outputs.follow import Outputs
from crawler.outputs.opening import targets_of
from crawler.outputs.records import Pages
folder = open_existing(sys.argv[1])
outputs = Outputs(folder, targets_of(sys.argv[2:]), lambda: Pages(folder), warn=print)
outputs.start()
print("started", flush=True)
time.sleep(600)
"""


@pytest.mark.slow(ci=True)
def test_a_server_that_is_away_in_the_middle_gets_all_once_it_is_back(
    crawl: Crawl, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "PAUSE_MAX_S", 0.2)
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
    assert crawl.said[0].endswith("the crawl continues, and its results wait in the crawl folder")
    assert crawl.said[1] == f"postgresql://crawler@127.0.0.1:{postgres.port}/{database} is being written again"


def test_a_server_that_stays_away_is_said_at_the_end_and_an_export_catches_up(
    crawl: Crawl, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "FINISH_S", 0.3)
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
    assert crawl.said == [f"{problem}; this output has ended, the crawl continues"]


@pytest.mark.slow
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
        for _ in range(5):
            writer = programs.start(sys.executable, "-c", WRITER, str(crawl.folder.root), *targets)
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
    assert len(wanted) > 500
    assert sorted(urls(lines)) == wanted
    assert sorted(json.loads(line)["url"] for line in gzip.decompress(packed.read_bytes()).splitlines()) == wanted
    with closing(sqlite3.connect(table)) as base:
        assert sorted(row[0] for row in base.execute("SELECT url FROM pages")) == wanted
    assert sorted(row[0] for row in postgres.psql(database, "SELECT url FROM pages")) == wanted
