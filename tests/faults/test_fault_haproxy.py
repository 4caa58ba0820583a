"""Who watches a crawl behind a real HAProxy, while the engine there is demoted and another one becomes the primary."""

import asyncio
import contextlib
import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.crawl.opening import open_crawl
from crawler.frontier.operator_log import Actor, Via
from crawler.tui.app import TopApp
from crawler.tui.source import CrawlSource
from tests.crawl.harness import settings_of
from tests.faults.engine_lab import DurableEngine, durable_engine
from tests.support.engine import free_ports, wait_for
from tests.support.haproxy import haproxy
from tests.support.patience import until
from tests.support.processes import Nursery, Program, nursery
from tests.tui.tui_lab import screen_text

ENGINE_DOWN = 3
NOWHERE = "1"  # a port at which nothing listens


def server_at(port: str) -> contextlib.AbstractContextManager[DurableEngine]:
    return durable_engine("--port", port, "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0")


@pytest.fixture
def pair() -> Iterator[tuple[DurableEngine, DurableEngine, list[str]]]:
    """A primary and its replica, and their ports."""
    ports = [str(port) for port in free_ports(2)]
    with contextlib.ExitStack() as stack:
        old, new = (stack.enter_context(server_at(port)) for port in ports)
        new.say("REPLICAOF", "127.0.0.1", ports[0])
        wait_for(lambda: new.say("INFO", "replication")["master_link_status"] == "up", "the replica")
        yield old, new, ports


class Served:
    """`crawler serve`, asked from outside."""

    def __init__(self, programs: Nursery, at: tuple[str, ...]) -> None:
        self.program = programs.crawler("serve", "--listen", "127.0.0.1:0", *at)
        self.port = int(self.program.wait_for(r"^Serving crawl main at http://127\.0\.0\.1:(\d+)/ ")[1])

    def overview(self) -> tuple[int, int]:
        """Status, and the URLs that were added; -1: an error."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request("GET", "/v1/overview")
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read()).get("added", -1)


def ran(programs: Nursery, *arguments: str) -> Program:
    """A command that has ended."""
    program = programs.crawler(*arguments)
    program.wait(60)
    return program


@pytest.mark.slow(seconds=30)
@pytest.mark.parametrize("cuts", [True, False], ids=["cut", "kept"])
@pytest.mark.parametrize("follows", [True, False], ids=["follows", "alone"])
async def test_who_watches_a_crawl_sees_what_another_primary_has(
    cuts: bool, follows: bool, tmp_path: Path, pair: tuple[DurableEngine, DurableEngine, list[str]]
) -> None:
    """There is no primary for a while, as in most failovers. `follows`: the old one replicates the new one, or is cut
    off from it and has what it had.
    """
    old, new, ports = pair
    with haproxy(ports, cuts=cuts) as url, nursery() as programs:
        at = ("--redis", url, "--dir", str(tmp_path / "c"))
        seeded = await asyncio.to_thread(ran, programs, "seed", "http://a.test/", *at, "--set", "crawl.partitions=4")
        assert seeded.wait() == 0, seeded.err
        served = await asyncio.to_thread(Served, programs, at)
        watching = programs.crawler("stats", "--watch", "1", *at)
        await asyncio.to_thread(watching.wait_for, r"^pending +1 ")
        settings = settings_of(tmp_path / "c", frontier__redis=url)
        async with open_crawl(settings, create=False) as crawl:
            app = TopApp(CrawlSource(crawl, Actor(who="ann", via=Via.TOP)), every_s=0.5)
            async with app.run_test(size=(100, 24)) as pilot:
                await until(lambda: "1 queued" in screen_text(app))
                await until(lambda: new.say("DBSIZE") == old.say("DBSIZE"))
                old.say("REPLICAOF", "127.0.0.1", ports[1] if follows else NOWHERE)
                began = time.monotonic()
                await until(lambda: app.is_in_trouble)
                assert app.message.startswith("engine down: ")
                while (await asyncio.to_thread(served.overview))[0] != 503:
                    await asyncio.sleep(0.1)
                await asyncio.to_thread(watching.wait_for, r"^crawler: .*; trying again$")
                once = await asyncio.to_thread(ran, programs, "stats", *at)
                assert (once.wait(), len(once.err.splitlines())) == (ENGINE_DOWN, 1), once.err
                print(f"all of this was said within {time.monotonic() - began:.1f} s")
                new.say("REPLICAOF", "NO", "ONE")
                after = await asyncio.to_thread(ran, programs, "seed", "http://b.test/", *at)
                assert after.wait() == 0, after.err
                await until(lambda: "2 queued" in screen_text(app) and not app.is_in_trouble)
                while await asyncio.to_thread(served.overview) != (200, 2):
                    await asyncio.sleep(0.1)
                await asyncio.to_thread(watching.wait_for, r"^pending +2 ")
                await pilot.press("q")
