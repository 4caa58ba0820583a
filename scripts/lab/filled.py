"""Crawls for the curves of scaling.py: of a web without end, and out of a queue that was filled before."""

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lives import Bench
from watched import MadeWeb, Span, crawl, made_web

from crawler.app.build import spend_less_on_memory
from crawler.app.crawl import OpenCrawl
from crawler.app.open_crawl import open_crawl
from crawler.engine.client import Engine
from crawler.engine.embedded import EmbeddedEngine
from crawler.errors import EngineDown
from crawler.frontier.frontier import Frontier
from crawler.frontier.script_library import library
from crawler.model import Candidate
from crawler.rules.fingerprint import Fingerprints, partition_of
from crawler.settings import load

HASH_KEY = bytes(16)
FINGERPRINTS = Fingerprints(HASH_KEY)
SITES = 200
ADDED_AT_ONCE, CALLS_AT_ONCE = 64, 16
ADD_TRIES = 30
TOGETHER = 10  # URLs of a domain, in the frontier alone


def endless(dns: str, pages: int, *, processes: int, cores: list[int]) -> Span:
    """The middle of a crawl by so many processes. One has the first core with its engine; two have all."""
    with _scratch() as scratch:
        with made_web(cores[-1], "--grow", "2", "--hosts", str(SITES), log=scratch / "web.log") as web:
            mine = set(cores) if processes > 1 else {cores[0]}
            arguments = [*web.crawl_of(SITES, scratch), "--delay", "0", "--pages", str(pages)]
            arguments += ["-n", str(processes)] if processes > 1 else []
            run = crawl(web, arguments, dns=dns, scratch=scratch, cores=mine, engine_cores=mine)
        return run.middle(0.2, 0.85)


def out_of_a_queue(
    dns: str, urls: int, domains: int, pages: int, *, cores: list[int], closes: bool
) -> tuple[Span, Span]:
    """A crawl out of many URLs that are queued: the middle of the pages by which domains are met, and of later ones.

    The engine stays as it was filled. Queues don't take turns strictly: while the last domains are met, some have had
    their second page. So half as many pages as there are domains are crawled besides, and then `pages`, as far as there
    are URLs. `closes`: the server ends each connection.
    """
    web_is = ["--grow", "0", "--hosts", "0", *(["--close"] if closes else [])]
    with _scratch() as scratch, made_web(cores[-1], *web_is, log=scratch / "web.log") as web:
        return asyncio.run(_filled_and_crawled(web, scratch, dns, urls, domains, pages, cores))


async def _filled_and_crawled(
    web: MadeWeb, scratch: Path, dns: str, urls: int, domains: int, pages: int, cores: list[int]
) -> tuple[Span, Span]:
    folder = scratch / "crawl"
    options = {"archive.dir": str(folder), "scope.mode": "any", "fetch.allow_private": True}
    async with open_crawl(load(environment={}, options=options), create=True) as opened:
        await _fill(opened, web, urls, domains)
        engine_pid = EmbeddedEngine(folder / "engine").pid()
        await _rewritten(opened.engine)
        wanted = min(urls, domains + domains // 2 + pages)
        arguments = ["--dir", str(folder), "--delay", "0", "--pages", str(wanted)]
        run = await asyncio.to_thread(
            crawl, web, arguments, dns=dns, scratch=scratch, cores={cores[0]}, engine_cores={cores[-1]},
            engine_pid=engine_pid,
        )  # fmt: skip
    met = max(domains, run.first_contacts())  # of few domains, the last is met before there is any page
    return run.middle(0.2, 0.85, last=met), run.middle(0.2, 0.85, first=met)


async def _fill(opened: OpenCrawl, web: MadeWeb, urls: int, domains: int) -> None:
    """Site by site, some pages of each at a time, so that a domain's URLs are queued as they would be found."""
    frontier, partitions = opened.frontier, opened.record.partitions
    group: dict[int, list[Candidate]] = {}
    each = urls // domains
    for first in range(0, each, ADDED_AT_ONCE):
        for n in range(domains):
            name = f"d{n}.test"
            partition = partition_of(name, partitions)
            if partition in group or len(group) == CALLS_AT_ONCE:
                await _add(frontier, group)
                group = {}
            last = min(first + ADDED_AT_ONCE, each)
            group[partition] = [_candidate(web, name, partition, k) for k in range(first, last)]
    await _add(frontier, group)


async def _add(frontier: Frontier, group: dict[int, list[Candidate]]) -> None:
    """Again while the engine waits for its disk, which takes in what a second of filling makes."""
    for _ in range(ADD_TRIES):
        with contextlib.suppress(EngineDown):
            await frontier.add(group)
            return
    raise SystemExit("bench-scaling: the engine takes nothing in")


def _candidate(web: MadeWeb, name: str, partition: int, number: int) -> Candidate:
    """Numbers that pages lead to are among them: each page's links are known but for sites that are smaller."""
    url = f"http://{name}:{web.port}/p/{number}"
    return Candidate(
        url=url, fingerprint=FINGERPRINTS.of(url), partition=partition, domain=name, queue=name, depth=1, score=-1
    )  # fmt: skip


async def _rewritten(engine: Engine) -> None:
    """Have the append-only file of the filling written anew now: later it would count as what pages cost."""
    await engine.command("BGREWRITEAOF")
    is_running = True
    while is_running:
        await asyncio.sleep(0.2)
        found = await engine.command("INFO", "persistence")
        is_running = any(int(found[key]) for key in ("aof_rewrite_in_progress", "aof_rewrite_scheduled"))


async def frontier_alone(urls: int, domains: int, claimed: int) -> dict[str, float]:
    """Microseconds of CPU a URL: all added; some of them claimed and committed."""
    spend_less_on_memory()
    with _scratch() as scratch:
        embedded = EmbeddedEngine(scratch / "engine")
        embedded.ensure()
        engine = Engine(embedded.url, library(), call_timeout_s=60.0)
        try:
            await engine.connect()
            bench = Bench(engine, TOGETHER)
            await bench.open(domains)
            began_s = (await engine.info()).cpu_s
            await bench.add_all(urls // domains)
            await _rewritten(engine)
            added_s, client_s = (await engine.info()).cpu_s, bench.cost.client_s
            done = await bench.crawl(claimed, 0)
            ended_s = (await engine.info()).cpu_s
        finally:
            await engine.close()
            embedded.stop()
    all_of_them = urls // domains * domains
    return {
        "added_engine_us": 1e6 * (added_s - began_s) / all_of_them,
        "added_client_us": 1e6 * client_s / all_of_them,
        "claimed_engine_us": 1e6 * (ended_s - added_s) / done,
        "claimed_client_us": 1e6 * (bench.cost.client_s - client_s) / done,
    }


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="scaling-") as home:
        yield Path(home)
