"""Our own network fails while a crawl runs: no URL is charged for it, and the crawl goes on, or stops resumable."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from crawler.crawl.instance import Instance
from crawler.crawl.opening import open_crawl
from crawler.model import FailureKind
from crawler.rules import outage
from crawler.runtime.tasks import OUTAGE
from crawler.settings import Settings
from tests.crawl.harness import Crawled, crawl, settings_of
from tests.support.dns_server import SERVFAIL, DnsAnswer, DnsServer
from tests.support.engine import free_port
from tests.support.patience import until

HERE = {"*.test": DnsAnswer(addresses=("127.0.0.1",), ttl=0)}
BROKEN = {"*": DnsAnswer(rcode=SERVFAIL)}
PAGES = 3  # of each site; each links to the next one
ONE_ATTEMPT = {f"retry__{kind}__attempts": 1 for kind in ("dns_error", "connect", "disconnected", "timeout")}
AT_ONCE = outage.Policy(attempts=1, backoff_s=0.1, factor=1.0, max_s=0.1)


class World:
    """Sites under names that end with .test, their DNS server, and the ways to both."""

    def __init__(self, dns: DnsServer) -> None:
        self.dns = dns
        self.port = 0
        self.requests: Counter[str] = Counter()
        self.gate = asyncio.Event()  # pages wait for it; robots.txt does not
        self.gate.set()
        self.links: list[str] = []  # of each page; none: to the next one
        self.dies_after: int | None = None  # requests
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def up(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def down(self) -> None:
        """No connection is taken, and those that are open break."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, IndexError, ValueError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                path = head.split()[1]
                self.requests[path] += 1
                if path == "/robots.txt":
                    writer.write(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")
                    continue
                await self.gate.wait()
                writer.write(page(self.links_of(path)))
                if self.dies_after is not None and sum(self.requests.values()) >= self.dies_after:
                    await writer.drain()
                    asyncio.get_running_loop().call_soon(self._die)
        writer.close()

    def links_of(self, path: str) -> list[str]:
        number = int(path[1:] or 0) + 1
        return self.links or ([f"/{number}"] if number < PAGES else [])

    def _die(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._open:
            writer.close()
        self._server = None

    def seeds(self, first: int, last: int) -> list[str]:
        return [f"http://s{n}.test:{self.port}/" for n in range(first, last)]


def page(links: list[str]) -> bytes:
    body = "".join(f'<a href="{link}">x</a>' for link in links) or "the last one"
    return f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


@contextlib.asynccontextmanager
async def world() -> AsyncIterator[World]:
    async with DnsServer(HERE) as dns:
        made = World(dns)
        await made.up()
        try:
            yield made
        finally:
            await made.down()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "PAUSES", AT_ONCE)
    monkeypatch.setattr(outage, "WAIT_MS", 50)


def settings_for(folder: Path, of: World, **options: Any) -> Settings:
    """A failed attempt is the last one: so each that counted shows."""
    given = {
        "dns__nameservers": [of.dns.address],
        "dns__tries": 1,
        "dns__ttl_min_s": 0.0,
        "scope__mode": "host",
        **ONE_ATTEMPT,
        **options,
    }
    return settings_of(folder / "c", **given)


async def dead_in(settings: Settings) -> dict[str, int]:
    async with open_crawl(settings, create=False) as opened:
        totals, _ = await opened.stats.totals_and_examples()
        return dict(totals.dead_by)


Step = Callable[[World], Awaitable[None]]


async def names_fail(of: World) -> None:
    of.dns.table = dict(BROKEN)


async def names_work(of: World) -> None:
    of.dns.table = dict(HERE)


async def link_fails(of: World) -> None:
    await of.down()


async def link_works(of: World) -> None:
    await of.up()


async def all_fails(of: World) -> None:
    await names_fail(of)
    await link_fails(of)


async def all_works(of: World) -> None:
    await names_work(of)
    await link_works(of)


WAYS: dict[str, tuple[Step, Step]] = {
    "resolver": (names_fail, names_work),
    "uplink": (link_fails, link_works),
    "both": (all_fails, all_works),
}


async def crawled_through(
    of: World, settings: Settings, seeds: list[str], *, after: int, fails: Step, works: Step
) -> Crawled:
    """It fails once so many pages are committed, and works again once that was noticed."""

    async def meanwhile(instances: list[Instance]) -> None:
        counters = instances[0].counters
        await until(lambda: counters.committed >= after)
        await fails(of)
        await until(lambda: counters.waits_for == "network")
        assert counters.errors == 0
        await asyncio.sleep(0.1)
        await works(of)

    return await crawl(settings, seeds, meanwhile=meanwhile)


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("after", [4, 20], ids=["in the middle", "near the end"])
async def test_no_url_is_charged_for_an_outage_of_ours(way: str, after: int, tmp_path: Path) -> None:
    fails, works = WAYS[way]
    async with world() as of:
        settings = settings_for(tmp_path, of, politeness__delay_s=0.05, fetch__concurrency=2)
        done = await crawled_through(of, settings, of.seeds(0, 10), after=after, fails=fails, works=works)
        assert len(done.entries) == 10 * PAGES
        assert done.twice == []
        assert await dead_in(settings) == {}
    assert done.instances[0].counters.errors == 0
    assert done.instances[0].stopped_because == "finished"


async def test_an_outage_while_robots_txt_is_read_is_no_fault_of_the_site(tmp_path: Path) -> None:
    """Three sites are known; of the others nothing was read before."""
    async with world() as of:
        settings = settings_for(tmp_path, of, politeness__delay_s=0.05, fetch__concurrency=1)

        async def meanwhile(instances: list[Instance]) -> None:
            counters = instances[0].counters
            await until(lambda: counters.committed >= 3)
            await of.down()
            await until(lambda: counters.waits_for == "network")
            await of.up()

        done = await crawl(settings, of.seeds(0, 9), meanwhile=meanwhile)
        assert len(done.entries) == 9 * PAGES
        assert await dead_in(settings) == {}


async def test_after_a_long_outage_the_crawl_stops_and_goes_on_later(tmp_path: Path) -> None:
    async with world() as of:
        settings = settings_for(tmp_path, of, politeness__delay_s=0.05, fetch__concurrency=2, hosts__give_up_s=0.5)

        async def meanwhile(instances: list[Instance]) -> None:
            await until(lambda: instances[0].counters.committed >= 4)
            await all_fails(of)

        done = await crawl(settings, of.seeds(0, 6), meanwhile=meanwhile)
        assert done.instances[0].stopped_because == OUTAGE
        assert 4 <= len(done.entries) < 6 * PAGES
        assert await dead_in(settings) == {}
        await all_works(of)
        done = await crawl(settings, [])
        assert len(done.entries) == 6 * PAGES
        assert await dead_in(settings) == {}


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("way", WAYS)
async def test_who_resumes_during_an_outage_is_not_charged_for_it(way: str, tmp_path: Path) -> None:
    """By another process, which knows by the index who answered."""
    fails, works = WAYS[way]
    async with world() as of:
        settings = settings_for(tmp_path, of, politeness__delay_s=0.05, fetch__concurrency=4, hosts__give_up_s=0.5)

        async def meanwhile(instances: list[Instance]) -> None:
            await until(lambda: instances[0].counters.committed >= 20 * PAGES)  # of twenty domains at least
            await fails(of)

        done = await crawl(settings, of.seeds(0, 40), meanwhile=meanwhile)
        assert done.instances[0].stopped_because == OUTAGE
        done = await crawl(settings, of.seeds(40, 45))
        assert done.instances[0].stopped_because == OUTAGE
        assert await dead_in(settings) == {}
        await works(of)
        done = await crawl(settings, [])
        assert len(done.entries) == 45 * PAGES
        assert await dead_in(settings) == {}


@pytest.mark.parametrize("known", [1, 2])
async def test_with_few_domains_each_is_judged_by_itself(known: int, tmp_path: Path) -> None:
    async with world() as of:
        settings = settings_for(tmp_path, of, politeness__delay_s=0.05, hosts__give_up_s=0.5)

        async def meanwhile(instances: list[Instance]) -> None:
            await until(lambda: instances[0].counters.committed >= known)
            await of.down()

        done = await crawl(settings, of.seeds(0, known), meanwhile=meanwhile)
        assert done.instances[0].stopped_because == "finished"
        assert set(await dead_in(settings)) <= {"connect", "disconnected", "host_dead"}
        assert len(done.entries) < known * PAGES


async def test_a_site_that_died_is_given_up_while_others_answer_and_after_them(tmp_path: Path) -> None:
    """Its last attempts come when nobody else has anything left, so nobody else is answered."""
    async with world() as of:
        settings = settings_for(tmp_path, of, retry__connect__attempts=3, retry__connect__backoff_s=0.4)
        dead = [f"http://dead{n}.test:{free_port()}/" for n in range(3)]
        done = await crawl(settings, [*of.seeds(0, 6), *dead])
        assert len(done.entries) == 6 * PAGES
        assert await dead_in(settings) == {"connect": 3}
        assert done.instances[0].counters.trouble.get(FailureKind.NETWORK, "") == ""


async def test_who_stops_to_answer_in_three_domains_stops_nobody(tmp_path: Path) -> None:
    """They answered last, and all at once they do not any more: they are given up, and the crawl ends by itself."""
    async with world() as of, world() as evil:
        evil_seeds = [f"http://evil{n}.test:{evil.port}/" for n in range(5)]
        settings = settings_for(tmp_path, of, hosts__give_up_s=0.5, politeness__delay_s=0.05, fetch__concurrency=4)

        async def meanwhile(instances: list[Instance]) -> None:
            await until(lambda: evil.requests["/"] >= 5)
            await until(lambda: instances[0].counters.committed >= 8)
            await evil.down()

        done = await crawl(settings, [*of.seeds(0, 4), *evil_seeds], meanwhile=meanwhile)
        assert done.instances[0].stopped_because == "finished"
        assert sum("evil" not in entry.url for entry in done.entries) == 4 * PAGES
        assert sum((await dead_in(settings)).values()) >= 1


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("count", [20, pytest.param(1000, marks=pytest.mark.slow(seconds=60))])
async def test_who_dies_in_three_domains_before_anybody_else_was_asked_stops_nobody(count: int, tmp_path: Path) -> None:
    """They are the only ones that ever answered, and all that they lead to waits."""
    async with world() as of, world() as evil:
        evil.links, evil.dies_after = of.seeds(0, count), 2 * outage.WITNESSES_MIN  # robots.txt and a page each
        seeds = [f"http://evil{n}.test:{evil.port}/{path}" for n in range(3) for path in ("", "9")]
        settings = settings_for(
            tmp_path, of, hosts__give_up_s=60.0, politeness__delay_s=0.05, scope__mode="any", dns__tries=4,
            retry__dns_error__attempts=10,
        )  # fmt: skip
        done = await crawl(settings, seeds)
        assert done.instances[0].stopped_because == "finished"
        assert sum("evil" not in entry.url for entry in done.entries) == count * PAGES
        assert 0 < sum((await dead_in(settings)).values()) <= len(seeds)


@pytest.mark.slow(seconds=30)
async def test_a_resolver_that_flaps_costs_no_attempt(tmp_path: Path) -> None:
    """It answers one in ten look-ups, of names that answered before and of new ones. Three attempts, as by default."""
    async with world() as of:
        luck = random.Random(7)
        settings = settings_for(
            tmp_path, of, politeness__delay_s=0.05, fetch__concurrency=8, retry__dns_error__attempts=3
        )

        async def meanwhile(instances: list[Instance]) -> None:
            await until(lambda: instances[0].counters.committed >= 20)
            answered = of.dns.answer_for

            def flapping(name: str) -> DnsAnswer:
                return answered(name) if luck.random() < 0.1 else BROKEN["*"]

            of.dns.answer_for = flapping  # type: ignore[method-assign]
            await until(lambda: len(of.dns.queries) > 600 or instances[0].counters.is_stopping)
            of.dns.answer_for = answered  # type: ignore[method-assign]

        done = await crawl(settings, of.seeds(0, 60), meanwhile=meanwhile)
        assert await dead_in(settings) == {}
        assert done.instances[0].counters.errors == 0
        assert len(done.entries) == 60 * PAGES


@pytest.mark.slow(seconds=10)
async def test_a_resolver_that_comes_and_goes_costs_no_attempt(tmp_path: Path) -> None:
    """Each time it is away as long as it takes to notice that, and there until some pages came."""
    async with world() as of:
        settings = settings_for(tmp_path, of, politeness__delay_s=0.05, fetch__concurrency=4)

        async def meanwhile(instances: list[Instance]) -> None:
            counters = instances[0].counters
            for _ in range(4):
                goal = counters.committed + 8
                await until(lambda: counters.committed >= goal)  # noqa: B023 - awaited in this turn
                await names_fail(of)
                await until(lambda: counters.waits_for == "network")
                await names_work(of)

        done = await crawl(settings, of.seeds(0, 40), meanwhile=meanwhile)
        assert await dead_in(settings) == {}
        assert done.instances[0].counters.errors == 0
        assert len(done.entries) == 40 * PAGES


@pytest.mark.slow(seconds=6)
@pytest.mark.parametrize("way", ["resolver", "uplink"])
@pytest.mark.parametrize("ends", [True, False], ids=["it ends", "for long"])
async def test_who_takes_over_during_an_outage_charges_nobody(way: str, ends: bool, tmp_path: Path) -> None:
    """One of two leaves while nothing works; the other gets its sites, and all that was set aside there."""
    fails, works = WAYS[way]
    async with world() as of:
        settings = settings_for(
            tmp_path, of, politeness__delay_s=0.05, fetch__concurrency=4, hosts__give_up_s=3600.0 if ends else 2.0,
        )  # fmt: skip

        async def meanwhile(instances: list[Instance]) -> None:
            first, second = instances
            await until(lambda: min(one.counters.committed for one in instances) >= 8)  # each has its witnesses
            await fails(of)
            await until(lambda: all(one.counters.waits_for == "network" for one in instances))
            first.stop()
            await until(lambda: len(second.work.held) == 64 or second.stopped_because)
            if ends:
                await works(of)

        done = await crawl(settings, of.seeds(0, 40), instances=2, meanwhile=meanwhile)
        assert done.errors == []
        assert await dead_in(settings) == {}
        assert sum(one.counters.errors for one in done.instances) == 0
        if not ends:
            assert done.instances[1].stopped_because == OUTAGE
            await works(of)
            done = await crawl(settings, [])
            assert await dead_in(settings) == {}
        assert done.twice == []
        assert len(done.entries) == 40 * PAGES


@pytest.mark.slow(seconds=3)
@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
@pytest.mark.parametrize("ends", [True, False], ids=["it ends", "for long"])
async def test_a_clock_that_jumps_during_an_outage_changes_nothing(
    jump_s: float, ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour less a bit is what an outage may take here: a jump is not time that passed, and stops no time."""
    real, jumped = time.time, 0.0
    monkeypatch.setattr(time, "time", lambda: real() + jumped)
    async with world() as of:
        settings = settings_for(
            tmp_path, of, politeness__delay_s=0.05, fetch__concurrency=2, hosts__give_up_s=3500.0 if ends else 0.5
        )

        async def meanwhile(instances: list[Instance]) -> None:
            nonlocal jumped
            counters = instances[0].counters
            await until(lambda: counters.committed >= 6)
            await all_fails(of)
            await until(lambda: counters.waits_for == "network")
            jumped = jump_s
            if ends:
                await asyncio.sleep(0.3)
                assert not instances[0].stopped_because
                await all_works(of)

        done = await crawl(settings, of.seeds(0, 10), meanwhile=meanwhile)
        assert await dead_in(settings) == {}
        assert done.instances[0].counters.errors == 0
        assert done.instances[0].stopped_because == ("finished" if ends else OUTAGE)
        if not ends:
            await all_works(of)
            done = await crawl(settings, [])
            assert await dead_in(settings) == {}
        assert done.twice == []
        assert len(done.entries) == 10 * PAGES
