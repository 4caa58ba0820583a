"""An instance that falls silent is replaced; when it wakes up, nothing that it still tries to write counts."""

import json
import time
from collections import defaultdict
from pathlib import Path

import pytest

from crawler.model import CommitEntry
from tests.crawl.harness import entries_of
from tests.crawl.lab import QUICK, closest_pairs, fetched_twice, name_server
from tests.crawl.test_sharing import start, wait_until_done
from tests.support.engine import Engine
from tests.support.patience import wait_until
from tests.support.processes import Nursery, nursery
from tests.support.serving import serve_web

pytestmark = pytest.mark.processes

DELAY_S = 0.1
DOMAINS = 8
PAUSE_S = 10.0


def held(programs: Nursery, engine: Engine, folder: Path) -> dict[str, int]:
    """Partitions held, by node."""
    asked = programs.crawler("ring", "--json", "--redis", engine.url, "--dir", str(folder / "s"))
    assert asked.wait() == 0, asked.err
    return {member["node"]: member["held"] for member in json.loads(asked.out)["members"]}


@pytest.mark.slow
def test_a_paused_instance_is_taken_over_and_its_late_writes_are_refused(tmp_path: Path, engine: Engine) -> None:
    settings = QUICK | {"CRAWLER_SCOPE_MODE": "any", "CRAWLER_POLITENESS_DELAY_S": str(DELAY_S)}
    with name_server() as dns, serve_web(seed=15, domains=DOMAINS, pages=4) as site:
        with nursery(settings | {"CRAWLER_DNS_NAMESERVERS": dns}) as programs:
            running = [start(programs, engine, tmp_path, n) for n in range(2)]
            for program in running:
                program.wait_for("waits for work")
            time.sleep(2)
            seed = programs.crawler("seed", "--redis", engine.url, "--dir", str(tmp_path / "s"), *site.web.seeds)
            assert seed.wait() == 0, seed.err
            while len(site.requests()) < 60:
                time.sleep(0.02)
            running[0].pause()
            paused_at = time.monotonic()
            wait_until(lambda: held(programs, engine, tmp_path).get("node-1") == 64)
            time.sleep(max(0.0, PAUSE_S - (time.monotonic() - paused_at)))
            running[0].resume()
            wait_until_done(programs, engine, tmp_path)
            for program in running:
                program.terminate()
            assert [program.wait() for program in running] == [10, 10]
        requests = site.requests()
    entries = [entry for n in range(2) for entry in entries_of(tmp_path / f"c{n}")]
    assert_committed_once(entries)
    assert {e.url: e.status for e in entries} == site.web.expected(site.web.seeds, "any").committed
    assert len(fetched_twice(requests)) <= DOMAINS * 5  # what was in flight at the pause, unacked groups included
    assert min(closest_pairs(requests).values()) >= DELAY_S


def assert_committed_once(entries: list[CommitEntry]) -> None:
    """One commit for each key, however many lines name it.

    The line of one commit may be in two folders: the new owner indexes what the paused one had committed and not yet
    drained, and the paused one indexes it when it wakes. Lines of two commits would differ.
    """
    commits: defaultdict[tuple[str, int], set[tuple[object, ...]]] = defaultdict(set)
    for e in entries:
        commits[e.url, e.visit].add((e.session, e.epoch, e.fetched_at, e.digest, e.warc))
    assert {key: lines for key, lines in commits.items() if len(lines) > 1} == {}
