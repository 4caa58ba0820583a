"""Three instances on one server: each URL once, by its domain's owner, and every owner has its share."""

import json
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.crawl.harness import entries_of
from tests.crawl.lab import QUICK, closest_pairs, domain_of, fetched_twice, name_server
from tests.support.engine import Engine
from tests.support.processes import Nursery, Program, nursery
from tests.support.serving import Request, serve_web

pytestmark = pytest.mark.processes

DELAY_S = 0.05
DOMAINS = 24
INTERRUPTED = 10


@pytest.mark.slow
def test_three_instances_share_the_domains_and_fetch_each_url_once(tmp_path: Path, engine: Engine) -> None:
    settings = QUICK | {"CRAWLER_SCOPE_MODE": "any", "CRAWLER_POLITENESS_DELAY_S": str(DELAY_S)}
    with name_server() as dns, serve_web(seed=9, domains=DOMAINS, pages=4) as site:
        with nursery(settings | {"CRAWLER_DNS_NAMESERVERS": dns}) as programs:
            running = [start(programs, engine, tmp_path, n) for n in range(3)]
            for program in running:
                program.wait_for("waits for work")
            time.sleep(2)  # joins are applied together after a short debounce
            seed = programs.crawler("seed", "--redis", engine.url, "--dir", str(tmp_path / "s"), *site.web.seeds)
            assert seed.wait() == 0, seed.err
            wait_until_done(programs, engine, tmp_path)
            for program in running:
                program.terminate()
            assert [program.wait() for program in running] == [INTERRUPTED] * 3, running[0].err
        requests = site.requests()
    entries = [entry for n in range(3) for entry in entries_of(tmp_path / f"c{n}")]
    assert [url for url, n in Counter(e.url for e in entries).items() if n > 1] == []
    assert {e.url: e.status for e in entries} == site.web.expected(site.web.seeds, "any").committed
    assert fetched_twice(requests) == []
    assert min(closest_pairs(requests).values()) >= DELAY_S
    assert_owned_alone(requests)


@pytest.mark.slow(ci=True)
def test_instances_that_start_at_the_same_moment_get_slots_of_their_own(tmp_path: Path, engine: Engine) -> None:
    with nursery(QUICK) as programs:
        running = [programs.crawler("run", "--redis", engine.url, "--dir", str(tmp_path / f"c{n}")) for n in range(4)]
        slots = {program.wait_for(r"Instance \S+-(\d) of crawl")[1] for program in running}
        for program in running:
            program.terminate()
        assert [program.wait() for program in running] == [INTERRUPTED] * 4, [program.err for program in running]
    assert slots == {"0", "1", "2", "3"}


def start(programs: Nursery, engine: Engine, folder: Path, n: int) -> Program:
    """An instance that waits for work; its User-Agent tells its requests apart in the server's log."""
    place = ["--redis", engine.url, "--dir", str(folder / f"c{n}"), "--node", f"node-{n}"]
    return programs.crawler("run", *place, CRAWLER_FETCH_USER_AGENT=f"test/1 node-{n}")


def wait_until_done(programs: Nursery, engine: Engine, folder: Path) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        asked = programs.crawler("stats", "--json", "--redis", engine.url, "--dir", str(folder / "s"))
        assert asked.wait() == 0, asked.err
        totals = json.loads(asked.out)["totals"]
        if totals["added"] and totals["added"] == totals["done"]:
            return
        time.sleep(0.3)
    raise TimeoutError(asked.out)


def assert_owned_alone(requests: list[Request]) -> None:
    """All requests of a domain came from one instance, and each instance had at least a fifth of the domains."""
    agents: dict[str, set[str]] = defaultdict(set)
    for request in requests:
        agents[domain_of(request)].add(request.agent)
    assert len(agents) == DOMAINS
    assert {domain: who for domain, who in agents.items() if len(who) > 1} == {}
    shares = Counter(agent for who in agents.values() for agent in who)
    assert len(shares) == 3
    assert min(shares.values()) >= DOMAINS * 0.2, shares
