"""Three instances on one server: each URL once, by its domain's owner, and every owner has its share."""

from collections import defaultdict
from pathlib import Path

import pytest

from tests.crawl.harness import entries_of
from tests.crawl.lab import QUICK, closest_pairs, domain_of, fetched_twice, name_server
from tests.support.engine import Engine
from tests.support.processes import nursery
from tests.support.serving import serve_web

pytestmark = pytest.mark.processes

DELAY_S = 0.05


def test_three_instances_share_the_domains_and_fetch_each_url_once(tmp_path: Path, engine: Engine) -> None:
    domains = 24
    with name_server() as dns, serve_web(seed=9, domains=domains, pages=4) as site:
        common = ["--redis", engine.url]
        with nursery(QUICK | {"CRAWLER_DNS_NAMESERVERS": dns, "CRAWLER_POLITENESS_DELAY_S": str(DELAY_S)}) as programs:
            running = []
            for n in range(3):
                agent = {"CRAWLER_FETCH_USER_AGENT": f"shardcrawl/test node-{n}", "CRAWLER_SCOPE_MODE": "any"}
                folder = ["--dir", str(tmp_path / f"c{n}"), "--node", f"node-{n}"]
                running.append(programs.crawler("run", *common, *folder, **agent))
            for program in running:
                program.wait_for("joined|waiting|ready", timeout_s=20)
            seed = programs.crawler("seed", *common, "--dir", str(tmp_path / "s"), *site.web.seeds)
            assert seed.wait(30) == 0, seed.err
            waiting = programs.crawler("crawl", *common, "--dir", str(tmp_path / "w"), *site.web.seeds, "--quiet")
            assert waiting.wait(90) == 0, waiting.err
            for program in running:
                program.terminate()
            assert [program.wait(40) for program in running] == [10, 10, 10], running[0].err
        requests = site.requests()
    committed = {}
    for folder in [*(tmp_path / f"c{n}" for n in range(3)), tmp_path / "w"]:
        for entry in entries_of(folder):
            assert entry.url not in committed
            committed[entry.url] = entry.status
    assert committed == site.web.expected(site.web.seeds, "any").committed
    assert fetched_twice(requests) == []
    assert min(closest_pairs(requests).values()) >= DELAY_S
    agents = defaultdict(set)
    for request in requests:
        agents[domain_of(request)].add(request.agent)
    shares = defaultdict(int)
    for requesters in agents.values():
        for agent in requesters:
            shares[agent] += 1
    assert len(agents) == domains
    assert all(n >= domains * 0.2 for agent, n in shares.items() if "node-" in agent), shares
