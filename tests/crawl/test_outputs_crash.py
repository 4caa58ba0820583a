"""Items in files and databases, exactly once, whatever is killed: instances, the writer with them, the database."""

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.cli.scale_lab import NODES, clean_nursery, pid_of, status, wait_for_requests, web_for
from tests.crawl.lab import QUICK, name_server
from tests.crawl.test_handlers_crash import APP
from tests.support.patience import wait_until
from tests.support.postgres import PostgresServer
from tests.support.processes import nursery
from tests.support.serving import GeneratedSite, serve_web

pytestmark = pytest.mark.processes


def in_file(path: Path) -> Counter[str]:
    return Counter(json.loads(line)["url"] for line in path.read_bytes().splitlines())


def in_table(postgres: PostgresServer, database: str) -> Counter[str]:
    return Counter(row[0] for row in postgres.psql(database, "SELECT url FROM items"))


def expected(site: GeneratedSite) -> Counter[str]:
    """One item for each page of the known graph that is there."""
    committed = site.web.expected(site.web.seeds, "any").committed
    fine = [url for url, status_ in committed.items() if status_ == 200]
    assert len(fine) > 50
    return Counter(fine)


@pytest.mark.slow(ci=True)
def test_a_crawl_killed_repeatedly_writes_each_item_once(tmp_path: Path, postgres: PostgresServer) -> None:
    """One process: the kill takes the instance and the writer of outputs at the same moment."""
    folder, app, lines = tmp_path / "c", tmp_path / "shop.py", tmp_path / "items.jsonl"
    app.write_text(APP)
    database = postgres.new_database()
    with name_server() as dns, serve_web(seed=8, domains=3, pages=5) as site:
        command = ("crawl", *site.web.seeds, "--dir", str(folder), "--app", str(app), "--scope", "any", "--delay", "0")
        command += ("-o", str(lines), "-o", postgres.url(database), "-q")
        with nursery(QUICK | {"CRAWLER_DNS_NAMESERVERS": dns}) as programs:
            for requests in (25, 75):  # after a third kill a slow page may be given up as a poison URL
                program = programs.crawler(*command)
                wait_until(lambda n=requests: len(site.requests()) >= n)  # type: ignore[misc]
                program.kill()
            program = programs.crawler(*command)
            assert program.wait(60) == 0, program.err
        assert in_file(lines) == in_table(postgres, database) == expected(site)


@pytest.mark.slow
def test_killed_instances_and_a_stopped_database_give_each_item_once(tmp_path: Path, postgres: PostgresServer) -> None:
    folder, app, lines = tmp_path / "c", tmp_path / "shop.py", tmp_path / "items.jsonl"
    app.write_text(APP)
    database = postgres.new_database()
    with clean_nursery() as programs, web_for(programs) as site:
        options = ("--scope", "any", "--dir", str(folder), "-n", "3", "--app", f"{app}:app")
        running = programs.crawler("crawl", *site.web.seeds, *options, "-o", str(lines), "-o", postgres.url(database))
        is_stopped = False
        for requests, node in ((40, NODES[1]), (90, NODES[2]), (140, NODES[0])):
            wait_for_requests(site, requests)
            os.kill(pid_of(status(programs, "--dir", str(folder)), node), signal.SIGKILL)
            postgres.start() if is_stopped else postgres.stop()
            is_stopped = not is_stopped
        postgres.start()
        assert running.wait(90) == 0, running.err
        assert "its results wait in the crawl folder" in running.err
        assert f"{database} is being written again" in running.err
        assert in_file(lines) == in_table(postgres, database) == expected(site)
