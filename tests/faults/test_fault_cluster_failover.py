"""A shard of a cluster fails over, and its last writes are lost: each page is known from one other page only."""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crawler.crawl.opening import open_crawl
from crawler.crawl.url_input import GivenUrl
from crawler.frontier.operator_log import Actor, Via
from crawler.rules.places import partition_of
from crawler.settings import load
from crawler.views.seeds import add_seeds
from tests.cli.scale_lab import clean_nursery, name_server
from tests.crawl.harness import entries_of
from tests.crawl.lab import closest_pairs
from tests.support.cluster import Cluster, Node
from tests.support.engine import running_cluster
from tests.support.patience import wait_until
from tests.support.processes import Nursery, Program
from tests.support.serving import Site, serve_linked
from tests.support.web import Resource

pytestmark = [pytest.mark.cluster, pytest.mark.processes, pytest.mark.slow(seconds=45)]

HOSTS, CHAINS, LENGTH, PARTITIONS = 40, 40, 25, 64
DELAY_S = 0.1


@pytest.fixture
def programs() -> Iterator[Nursery]:
    with clean_nursery() as programs, name_server() as dns:
        programs.environment["CRAWLER_DNS_NAMESERVERS"] = dns
        yield programs


def host(chain: int, step: int) -> str:
    return f"d{(chain * 7 + step * 11) % HOSTS}.test"


def chains(port: int) -> dict[tuple[str, str], Resource]:
    """Page k of a chain links to its page k + 1, on another host, and to nothing else."""

    def link(chain: int, step: int) -> str:
        return f'<a href="http://{host(chain, step)}:{port}/{chain}/{step}">next</a>'

    pages = {("start.test", "/"): Resource(body="".join(link(chain, 0) for chain in range(CHAINS)))}
    for chain in range(CHAINS):
        for step in range(LENGTH):
            body = link(chain, step + 1) if step + 1 < LENGTH else "the end"
            pages[host(chain, step), f"/{chain}/{step}"] = Resource(body=body)
    return pages


class Crawl:
    """Three instances on a cluster, and what must hold of them after any fault."""

    def __init__(self, programs: Nursery, site: Site, cluster: Cluster, folder: Path) -> None:
        self.site, self._programs, self._folder = site, programs, folder
        self._where = ("--redis", cluster.url, "--dir", str(folder))
        self.start(site.url("start.test"), "--scope", "any", "--set", f"crawl.partitions={PARTITIONS}")

    def start(self, *options: str) -> None:
        more = ("-n", "3", "-q", "--allow-private", "--delay", str(DELAY_S))
        self.program: Program = self._programs.crawler("crawl", *options, *self._where, *more)

    def rebuild(self) -> None:
        rebuild = self._programs.crawler("rebuild", *self._where)
        assert rebuild.wait(60) == 0, rebuild.out + rebuild.err

    @property
    def instances(self) -> list[int]:
        """Their process ids."""
        pid = self.program.process.pid
        return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]

    def fetched(self, n: int) -> None:
        wait_until(lambda: len(self.site.requests()) >= n or self.program.process.poll() is not None)
        assert self.program.process.poll() is None, self.program.err

    def check(self) -> None:
        assert self.program.wait(240) == 0, self.program.err
        entries = Counter(entry.url for entry in entries_of(self._folder))
        expected = {self.site.url(where, target) for where, target in chains(self.site.port)}
        assert expected - entries.keys() == set()
        assert entries.keys() - expected == set()
        assert [url for url, n in entries.items() if n > 1] == []
        assert min(closest_pairs(self.site.requests()).values()) >= DELAY_S
        audit = self._programs.crawler("audit", *self._where)
        assert audit.wait(60) == 0, audit.out + audit.err


def home(cluster: Cluster) -> Node:
    """The primary of what all partitions share."""
    return cluster.primary_of("{main}")


def other(cluster: Cluster) -> Node:
    """Another one, that has partitions with work."""
    names = [f"{{main:{partition_of(f'd{n}.test', PARTITIONS)}}}" for n in range(HOSTS)]
    return next(node for name in names if (node := cluster.primary_of(name)) != home(cluster))


@pytest.mark.parametrize("dies_too", [False, True], ids=["", "and-an-instance"])
@pytest.mark.parametrize("which", [home, other])
def test_a_failover_that_loses_the_last_writes_loses_no_page(
    programs: Nursery, tmp_path: Path, which: Callable[[Cluster], Node], dies_too: bool
) -> None:
    with running_cluster(replicas=1) as cluster, serve_linked(chains) as site:
        crawl = Crawl(programs, site, cluster, tmp_path / "c")
        crawl.fetched(250)
        primary = which(cluster)
        replica = cluster.replica_of(primary)

        def fail() -> None:
            if dies_too:
                os.kill(crawl.instances[0], signal.SIGKILL)
            primary.kill()

        cluster.cut(replica, 1.0, at_end=fail)
        cluster.wait_promoted(replica)
        crawl.check()


async def test_seeds_that_a_failover_loses_are_added_again(tmp_path: Path) -> None:
    """Each batch is given when the one before it is taken; the link of a replica is cut, and its primary killed."""
    batches = [[GivenUrl(f"{n}", f"http://d{k % HOSTS}.test/{n}/{k}") for k in range(HOSTS)] for n in range(100)]
    with running_cluster(replicas=1) as cluster:
        primary = home(cluster)
        replica = cluster.replica_of(primary)
        options: dict[str, Any] = {
            "frontier.redis": cluster.url,
            "archive.dir": str(tmp_path),
            "crawl.partitions": PARTITIONS,
        }
        async with open_crawl(load(environment={}, options=options), create=True) as crawl:
            cutting: asyncio.Future[None] | None = None

            async def given() -> AsyncIterator[list[GivenUrl]]:
                nonlocal cutting
                for n, batch in enumerate(batches):
                    if n == 20:
                        cutting = asyncio.ensure_future(
                            asyncio.to_thread(cluster.cut, replica, 1.0, at_end=primary.kill)
                        )
                    yield batch

            result = await add_seeds(crawl, given(), given="many", actor=Actor(who="ann", via=Via.CLI))
            assert cutting is not None
            await cutting
            cluster.wait_promoted(replica)
            assert (result.new, result.seen) == (100 * HOSTS, 0)
            assert (await crawl.stats.totals()).pending == 100 * HOSTS
            assert len(crawl.roots | (await crawl.reloaded()).roots) == HOSTS


def test_while_a_shard_is_down_the_others_go_on_and_its_own_pages_come_later(programs: Nursery, tmp_path: Path) -> None:
    """It has no replica, so nobody takes over."""
    with running_cluster("--appendonly", "yes") as cluster, serve_linked(chains) as site:
        crawl = Crawl(programs, site, cluster, tmp_path / "c")
        crawl.fetched(150)
        primary = other(cluster)
        primary.kill()
        time.sleep(3.0)
        asked = len(site.requests())
        cluster.start(primary.port)
        assert asked > 150
        crawl.check()


def test_a_primary_that_is_stopped_and_comes_back_as_a_replica_loses_no_page(programs: Nursery, tmp_path: Path) -> None:
    with running_cluster(replicas=1) as cluster, serve_linked(chains) as site:
        crawl = Crawl(programs, site, cluster, tmp_path / "c")
        crawl.fetched(250)
        primary = other(cluster)
        replica = cluster.replica_of(primary)
        os.kill(primary.pid, signal.SIGSTOP)
        cluster.wait_promoted(replica)
        os.kill(primary.pid, signal.SIGCONT)
        crawl.check()


@pytest.mark.parametrize("how", ["flushed", "restarted-empty"])
def test_a_shard_that_was_wiped_stops_the_crawl_by_its_name_and_a_rebuild_mends_it(
    programs: Nursery, tmp_path: Path, how: str
) -> None:
    """A crawl whose last pages are gone there looks finished."""
    with running_cluster() as cluster, serve_linked(chains) as site:
        crawl = Crawl(programs, site, cluster, tmp_path / "c")
        crawl.fetched(250)
        primary = other(cluster)
        if how == "flushed":
            primary.ask("FLUSHALL")
        else:
            primary.kill()
            cluster.start(primary.port)
        assert crawl.program.wait(60) == 4, crawl.program.err
        assert f"127.0.0.1:{primary.port} was wiped" in crawl.program.err
        assert "'crawler rebuild'" in crawl.program.err
        crawl.rebuild()
        crawl.start()
        crawl.check()
