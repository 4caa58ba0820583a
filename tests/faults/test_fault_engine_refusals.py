"""For a while the engine takes nothing: it loads its file, is busy, is a replica, or its own disk is full."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from crawler.crawl.instance import Instance
from crawler.settings import MembershipSettings
from tests.faults.engine_lab import (
    HASTY,
    DurableEngine,
    committed,
    counted,
    durable_engine,
    lab,
)
from tests.support.disks import fill, small_disk
from tests.support.engine import free_ports, short_folder, wait_for
from tests.support.proxy import tcp_proxy

DEADLINE_S = MembershipSettings(dead_s=HASTY["membership__dead_s"]).self_stop_s
LOADED_COMMANDS = 20_000
BUSY_S = DEADLINE_S + 1.5
SPINNING = f"local began = os.clock() while os.clock() - began < {BUSY_S} do end return 'to the end'"


def says(engine: DurableEngine, word: str, *command: str) -> bool:
    """Does the engine refuse a command with this word?"""
    try:
        engine.say(*(command or ("SET", "unrelated", "1")))
    except redis.RedisError as error:
        return word in f"{type(error).__name__} {error}"
    return False


@pytest.mark.slow
async def test_an_engine_that_loads_for_longer_than_the_deadline_is_awaited(tmp_path: Path) -> None:
    """Delayed by the engine's own setting for each command of its file, it answers LOADING meanwhile."""
    loaded_s = 0.0
    with durable_engine() as engine, contextlib.closing(engine.client()) as client:
        with client.pipeline(transaction=False) as pipeline:
            for n in range(LOADED_COMMANDS):
                pipeline.set(f"unrelated:{n % 10}", n)
            pipeline.execute()

        async def restart_slowly(instances: list[Instance]) -> None:
            nonlocal loaded_s
            await committed(instances, 150)
            engine.options = ("--key-load-delay", "150")
            killed_at = time.monotonic()
            await asyncio.to_thread(engine.kill)
            await asyncio.to_thread(engine.start)
            loaded_s = time.monotonic() - killed_at

        async with lab(tmp_path, seed=51) as here:
            await here.crawl(engine.url, meanwhile=restart_slowly, **HASTY)
            totals = await counted(engine.url)
        refusals = engine.say("INFO", "errorstats")
    assert loaded_s > DEADLINE_S
    assert refusals["errorstat_LOADING"]["count"] >= 5
    assert (totals.added, totals.fetched) == (totals.done, here.pages)


@pytest.mark.slow
async def test_an_engine_busy_with_a_foreign_script_is_waited_for(tmp_path: Path) -> None:
    with durable_engine("--busy-reply-threshold", "50") as engine:

        async def spin(instances: list[Instance]) -> None:
            await committed(instances, 60)
            assert await asyncio.to_thread(engine.say, "EVAL", SPINNING, 0) == b"to the end"

        async with lab(tmp_path, seed=52) as here:
            await here.crawl(engine.url, meanwhile=spin, **HASTY)
            totals = await counted(engine.url)
        with contextlib.closing(engine.client()) as client:
            assert client.info("errorstats")["errorstat_BUSY"]["count"] >= 1
            assert "cmdstat_script|kill" not in client.info("commandstats")
    assert (totals.added, totals.fetched) == (totals.done, here.pages)


@pytest.mark.slow
async def test_a_crawl_follows_a_failover_to_the_new_primary(tmp_path: Path) -> None:
    """A hand-over that loses nothing; the address that all know leads to the new primary two seconds later."""
    ports = free_ports(2)
    with contextlib.ExitStack() as stack:
        old, new = (stack.enter_context(durable_engine(*on_port(port))) for port in ports)
        new.say("REPLICAOF", "127.0.0.1", ports[0])
        wait_for(lambda: new.say("INFO", "replication")["master_link_status"] == "up", "the replica")
        proxy = stack.enter_context(tcp_proxy(old.url))

        async def hand_over(instances: list[Instance]) -> None:
            await committed(instances, 60)
            old.say("FAILOVER", "TO", "127.0.0.1", str(ports[1]), "TIMEOUT", "5000")
            while not says(old, "ReadOnly"):
                await asyncio.sleep(0.02)
            await asyncio.sleep(2.0)
            proxy.cut()
            proxy.upstream = new.url
            proxy.heal()

        async with lab(tmp_path, seed=53) as here:
            await here.crawl(proxy.url, meanwhile=hand_over, instances=2)
            totals = await counted(new.url)
        with contextlib.closing(old.client()) as client:
            assert client.info("errorstats")["errorstat_READONLY"]["count"] >= 3
    assert (totals.added, totals.fetched) == (totals.done, here.pages)


def on_port(port: int) -> tuple[str, ...]:
    return "--port", str(port), "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0"


@pytest.fixture
def disk() -> Iterator[Path]:
    """Eight megabytes of their own for an engine."""
    with short_folder() as folder, small_disk(folder, "8m"):
        yield folder


@pytest.mark.slow
async def test_an_engine_with_a_full_disk_resumes_once_there_is_space(tmp_path: Path, disk: Path) -> None:
    """It refuses every write, heartbeats too (MISCONF). Its file is whole afterwards: it is killed to see that."""
    engine = DurableEngine(disk)
    engine.start()
    stalled: list[int] = []

    async def fill_up(instances: list[Instance]) -> None:
        await committed(instances, 60)
        ballast = fill(disk)
        while not says(engine, "MISCONF"):
            await asyncio.sleep(0.02)
        await asyncio.sleep(DEADLINE_S + 1.0)
        stalled.append(instances[0].counters.committed)
        await asyncio.sleep(1.0)
        stalled.append(instances[0].counters.committed)
        ballast.unlink()
        await committed(instances, stalled[-1] + 20)
        await engine.kill_and_restart()

    try:
        async with lab(tmp_path, seed=54) as here:
            await here.crawl(engine.url, meanwhile=fill_up, **HASTY)
            totals = await counted(engine.url)
    finally:
        engine.kill()
    assert stalled[0] == stalled[1]
    assert (totals.added, totals.fetched) == (totals.done, here.pages)
