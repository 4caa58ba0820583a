"""A wiped engine is noticed and reported, and the crawl stops; it can be rebuilt from its folder."""

import asyncio
import contextlib
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from crawler.crawl.instance import Instance
from crawler.engine.embedded import EmbeddedEngine
from crawler.errors import ConflictError
from tests.crawl.harness import crawl, entries_of, lab_names, settings_of
from tests.crawl.lab import QUICK, closest_pairs, name_server
from tests.support.engine import Engine
from tests.support.processes import Nursery, Program, nursery
from tests.support.serving import GeneratedSite, serve_web

DELAY_S = 0.03


async def committed(instances: list[Instance], n: int) -> None:
    async with asyncio.timeout(60):
        while sum(i.counters.committed for i in instances) < n:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("instances", [1, 3])
async def test_flushall_in_mid_crawl_ends_every_instance_with_an_error(
    tmp_path: Path, engine: Engine, instances: int
) -> None:
    """Counters of an empty engine say that nothing is pending: that must not be taken for the end of the crawl."""

    async def wipe(running: list[Instance]) -> None:
        await committed(running, 60)
        with contextlib.closing(engine.client()) as client:
            client.flushall()

    with serve_web(seed=3, domains=4, pages=5) as site:
        async with lab_names() as dns:
            settings = settings_of(
                tmp_path / "c",
                dns__nameservers=[dns],
                scope__mode="any",
                politeness__delay_s=DELAY_S,
                frontier__redis=engine.url,
            )
            done = await crawl(settings, site.web.seeds, instances=instances, meanwhile=wipe)
    assert len(done.entries) < len(site.web.expected(site.web.seeds, "any").committed)
    assert [type(error) for error in done.errors] == [ConflictError] * instances
    assert all("'crawler rebuild'" in str(error) for error in done.errors)
    assert not any(instance.stopped_because for instance in done.instances)


# -- real processes --


@pytest.fixture
def programs() -> Iterator[Nursery]:
    with name_server() as dns, nursery(QUICK | {"CRAWLER_DNS_NAMESERVERS": dns}) as running:
        yield running


def start(programs: Nursery, site: GeneratedSite, folder: Path, *options: str, command: str = "crawl") -> Program:
    settings = ["--dir", str(folder), "--delay", str(DELAY_S), "--set", "scope.mode=any", "--concurrency", "8"]
    seeds = site.web.seeds if command == "crawl" else []
    return programs.crawler(command, *seeds, *settings, *options)


def wait_for_requests(site: GeneratedSite, n: int, program: Program) -> None:
    deadline = time.monotonic() + 60
    while len(site.requests()) < n:
        assert program.process.poll() is None, program.err
        assert time.monotonic() < deadline, f"only {len(site.requests())} requests"
        time.sleep(0.02)


def said(program: Program) -> str:
    """The last line, which must be the program's own."""
    line = program.err.splitlines()[-1]
    assert line.startswith("crawler: "), program.err
    return line


def rebuilt(programs: Nursery, folder: Path, *options: str) -> Program:
    program = programs.crawler("rebuild", "--dir", str(folder), *options)
    assert program.wait(60) == 0, program.err
    return program


def assert_exact_and_polite(site: GeneratedSite, folder: Path) -> None:
    entries = entries_of(folder)
    assert {e.url: e.status for e in entries} == site.web.expected(site.web.seeds, "any").committed
    assert [url for url, n in Counter(e.url for e in entries).items() if n > 1] == []
    assert min(closest_pairs(site.requests()).values()) >= DELAY_S


def assert_audited(programs: Nursery, folder: Path, *options: str) -> None:
    audit = programs.crawler("audit", "--dir", str(folder), *options)
    assert audit.wait(60) == 0, audit.out + audit.err


@pytest.mark.slow
@pytest.mark.processes
def test_a_flushed_embedded_engine_stops_the_crawl_and_rebuild_restores_it(programs: Nursery, tmp_path: Path) -> None:
    """Once emptied while it runs, once gone between two runs with all its files."""
    folder = tmp_path / "c"
    with serve_web(seed=5, domains=5, pages=5) as site:
        crawling = start(programs, site, folder)
        wait_for_requests(site, 120, crawling)
        with contextlib.closing(redis.Redis.from_url(EmbeddedEngine(folder / "engine").url)) as client:
            client.flushall()
        assert crawling.wait() == 4
        assert "the engine lost the crawl 'main'" in said(crawling)
        assert "'crawler rebuild'" in said(crawling)
        time.sleep(0.5)  # the site notes a request when it has answered: one was under way, maybe
        asked = len(site.requests())
        again = start(programs, site, folder)
        assert again.wait() == 4
        assert "'crawler rebuild'" in said(again)
        assert len(site.requests()) == asked
        assert "not fetched again" in rebuilt(programs, folder).out

        crawling = start(programs, site, folder)
        wait_for_requests(site, asked + 60, crawling)
        crawling.interrupt()
        assert crawling.wait() == 10
        shutil.rmtree(folder / "engine")
        again = start(programs, site, folder)
        assert again.wait() == 4
        assert "'crawler rebuild'" in said(again)
        rebuilt(programs, folder)
        last = start(programs, site, folder)
        assert last.wait(90) == 0, last.err
        assert_exact_and_polite(site, folder)
        assert_audited(programs, folder)


@pytest.mark.slow
@pytest.mark.processes
def test_a_wiped_engine_stops_supervised_instances_and_seeders_with_one_line(
    programs: Nursery, tmp_path: Path, engine: Engine
) -> None:
    here = ("--redis", engine.url)
    with serve_web(seed=6, domains=5, pages=5) as site:
        running = start(programs, site, tmp_path / "c", *here, "-n", "2", command="run")
        running.wait_for("Starting 2 instances")
        seeding = ("seed", "--dir", str(tmp_path / "s"), *here, *site.web.seeds)
        seeded = programs.crawler(*seeding)
        assert seeded.wait() == 0, seeded.err
        wait_for_requests(site, 100, running)
        with contextlib.closing(engine.client()) as client:
            client.flushall()
        assert running.wait() == 4, running.err
        assert "'crawler rebuild'" in said(running)
        late = programs.crawler(*seeding)
        assert late.wait() == 4
        assert "'crawler rebuild'" in said(late)
        with contextlib.closing(engine.client()) as client:
            assert not client.exists("{main}:crawl")

        rebuilding = programs.crawler("rebuild", "--dir", str(tmp_path / "c"), "--dir", str(tmp_path / "s"), *here)
        assert rebuilding.wait(60) == 0, rebuilding.err
        last = start(programs, site, tmp_path / "c", *here)
        assert last.wait(90) == 0, last.err
        assert_exact_and_polite(site, tmp_path / "c")
        assert_audited(programs, tmp_path / "c", *here)
