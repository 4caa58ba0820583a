"""A crawl moves in its middle, again and again, and each move is killed: nothing is lost or fetched too soon."""

import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from redis import Redis, RedisError

from crawler.engine.embedded import EmbeddedEngine
from crawler.frontier.record import MOVED
from tests.cli.scale_lab import clean_nursery, name_server
from tests.crawl.harness import entries_of
from tests.crawl.lab import closest_pairs
from tests.faults.test_fault_cluster_failover import DELAY_S, chains
from tests.support.engine import running_cluster, running_engine
from tests.support.patience import wait_until
from tests.support.processes import Nursery
from tests.support.serving import serve_linked

pytestmark = [pytest.mark.cluster, pytest.mark.processes, pytest.mark.slow(seconds=45)]

KILLED = 2  # times a move, after the first time


@pytest.fixture
def programs() -> Iterator[Nursery]:
    with clean_nursery() as programs, name_server() as dns:
        programs.environment["CRAWLER_DNS_NAMESERVERS"] = dns
        yield programs


def test_a_crawl_that_moves_to_a_server_a_cluster_and_back_is_whole(programs: Nursery, tmp_path: Path) -> None:
    folder, dice = tmp_path / "c", random.Random(7)
    with running_engine() as server, running_cluster() as cluster, serve_linked(chains) as site:
        places = ["", server.url, cluster.url]
        embedded = Redis(unix_socket_path=str(EmbeddedEngine(folder / "engine").socket))

        def is_marked(place: str) -> bool:
            client = {"": embedded, server.url: server.client()}.get(place) or cluster.primary_of("{main}").client()
            with contextlib.suppress(RedisError), contextlib.closing(client):
                return json.loads(client.hget("{main}:crawl", "record"))["layout"] == MOVED
            return False

        more = ("-n", "2", "-q", "--allow-private", "--delay", str(DELAY_S), "--scope", "any")

        def where(place: str) -> tuple[str, ...]:
            return ("--dir", str(folder), *(("--redis", place) if place else ()))

        for turn, (here, there) in enumerate([*pairwise(places), (places[-1], "")]):
            seeds = (site.url("start.test"), "--set", "crawl.partitions=512") if turn == 0 else ()
            crawl = programs.crawler("crawl", *seeds, *where(here), *more)
            fetched = 200 * (turn + 1)
            wait_until(lambda n=fetched, c=crawl: len(site.requests()) >= n or c.process.poll() is not None)
            crawl.interrupt()
            assert crawl.wait(60) == 10, crawl.err
            first = programs.crawler("move", *where(here), "--to", there or "embedded")
            wait_until(lambda here=here, first=first: is_marked(here) or first.process.poll() is not None)
            assert first.kill() == -9, first.err  # in its middle
            for _ in range(KILLED):
                move = programs.crawler("move", *where(here), "--to", there or "embedded")
                time.sleep(dice.uniform(0.2, 0.8))
                move.kill()
            move = programs.crawler("move", *where(here), "--to", there or "embedded")
            assert move.wait(60) == 0 or "has moved to" in move.err, move.err
        crawl = programs.crawler("crawl", *where(""), *more)
        assert crawl.wait(120) == 0, crawl.err
        entries = Counter(entry.url for entry in entries_of(folder))
        assert entries == Counter(site.url(host, target) for host, target in chains(site.port))
        assert min(closest_pairs(site.requests()).values()) >= DELAY_S
        audit = programs.crawler("audit", *where(""))
        assert audit.wait(60) == 0, audit.out + audit.err


def processes_of(pid: int) -> list[int]:
    """A process and its descendants."""
    children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [pid, *(one for child in children for one in processes_of(child))]


def test_an_instance_that_slept_through_a_move_commits_nothing_and_says_where_it_is(
    programs: Nursery, tmp_path: Path
) -> None:
    """It sleeps with pages that are fetched and not committed, and wakes when the crawl has gone on elsewhere."""
    folder, other = tmp_path / "c", tmp_path / "d"
    more = ("-q", "--allow-private", "--delay", str(DELAY_S), "--scope", "any")
    with running_engine() as here, running_engine() as there, serve_linked(chains) as site:
        at_old, at_new = ("--dir", str(folder), "--redis", here.url), ("--dir", str(other), "--redis", there.url)
        sleeper = programs.crawler("crawl", site.url("start.test"), *at_old, "--set", "crawl.partitions=64", *more)
        wait_until(lambda: len(site.requests()) >= 150 or sleeper.process.poll() is not None)
        family = processes_of(sleeper.process.pid)
        for pid in family:
            os.kill(pid, signal.SIGSTOP)
        try:
            move = programs.crawler("move", *at_old, "--to", there.url)
            assert move.wait(60) == 0, move.err
            crawl = programs.crawler("crawl", *at_new, "--set", "membership.node=other-machine", *more)
            wait_until(lambda: len(site.requests()) >= 400 or crawl.process.poll() is not None)
        finally:
            for pid in family:
                os.kill(pid, signal.SIGCONT)
        assert sleeper.wait(60) == 4, sleeper.err
        assert f"crawl 'main' has moved to {there.url}: name that engine" in sleeper.err
        assert "rebuild" not in sleeper.err
        assert crawl.wait(120) == 0, crawl.err
        entries = Counter(entry.url for where in (folder, other) for entry in entries_of(where))
        assert entries == Counter(site.url(host, target) for host, target in chains(site.port))
        audit = programs.crawler("audit", *at_new, "--dir", str(folder))
        assert audit.wait(60) == 0, audit.out + audit.err
