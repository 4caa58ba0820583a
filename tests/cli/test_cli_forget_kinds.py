"""What a crawl has of a domain in each of its forms: pages of ended and active runs, withheld pages, deferred URLs."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.cli.forget_lab import KEPT, LINKED, OTHER, VICTIM, ForgetLab, entries, page, unlike, web
from tests.crawl.harness import lab_names
from tests.jobs.jobs_lab import NAME, Lab, hasten, running, until
from tests.support.engine import Engine
from tests.support.processes import Nursery
from tests.support.serving import serve_linked
from tests.support.web import Resource

PAGES, OF_VICTIM = 31, 16
BEHIND_OTHER = 3  # its own, and one of the domain to which it redirects


@pytest.mark.slow(ci=True)
def test_runs_of_jobs_lose_pages_and_their_histories_add_up(
    tmp_path: Path, programs: Nursery, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasten(monkeypatch)
    with serve_linked(web) as site:
        lab = ForgetLab(tmp_path, site, programs, redis=engine.url)
        seeds = site.url(KEPT), site.url(OTHER, "/to"), site.url(VICTIM, f"/?c={LINKED}")

        async def crawl_until(done: Callable[[Lab], Awaitable[object]], *, adds: bool = False) -> None:
            async with lab_names() as dns:
                settings = lab.settings(dns__nameservers=[dns])
                async with running(settings) as crawl:
                    jobs = Lab(site, engine, settings, crawl)
                    if adds:
                        await jobs.add(*seeds)
                    await done(jobs)

        async def two_runs(jobs: Lab) -> None:
            for n in (1, 2):
                await jobs.run()
                await jobs.ended(n)

        async def most_of_a_run(jobs: Lab) -> None:
            """One site is paused, so the run is active when the pages of the others are committed."""
            before = (await jobs.crawl.stats.totals()).fetched
            await asyncio.to_thread(lab.program, "pause", OTHER)
            await jobs.run()

            async def is_there() -> bool:
                return (await jobs.crawl.stats.totals()).fetched >= before + PAGES - BEHIND_OTHER

            await until(is_there, "the pages of two sites")

        async def its_end(jobs: Lab) -> None:
            await asyncio.to_thread(lab.program, "resume", OTHER)
            await jobs.ended(3)

        asyncio.run(crawl_until(two_runs, adds=True))
        asyncio.run(crawl_until(most_of_a_run))
        before = lab.kept()
        ran = lab.run("forget", VICTIM)
        assert (ran.code, ran.err) == (0, ""), ran
        lab.forgotten()
        assert unlike(before, lab.kept()) == []
        assert lab.run("audit").code == 0
        asyncio.run(crawl_until(its_end))
        rows = json.loads(lab.say("jobs", "history", NAME, "--json"))["rows"]
        assert [row["pages"] for row in rows] == [PAGES - OF_VICTIM, PAGES, PAGES]
        lab.forgotten()
        assert lab.run("audit").code == 0
        assert ": 0 pages, 0 records" in lab.say("forget", VICTIM), "the run that went on brought nothing of it"
        assert lab.run("audit").code == 0
        assert lab.run("crawls", "rm", "main", "--yes").code == 0
        assert lab.run("rebuild").code == 0
        lab.forgotten()
        assert lab.run("audit").code == 0


def web_that_says_no(port: int) -> dict[tuple[str, str], Resource]:
    """Of the domain, one page says no in its head, and robots.txt of one of its hosts says no of all."""
    robots = Resource(body="User-agent: *\nContent-Usage: train-ai=n\n", content_type="text/plain")
    no = page("TITLECANARY", f"http://{KEPT}:{port}/", body='BODYCANARY<meta name="tdm-reservation" content="1">')
    return web(port) | {(VICTIM, "/meta"): no, (f"www.{VICTIM}", "/robots.txt"): robots, (KEPT, "/no"): no}


@pytest.mark.slow(ci=True)
def test_withheld_pages_and_deferred_urls_go(tmp_path: Path, programs: Nursery) -> None:
    with serve_linked(web_that_says_no) as site:
        lab = ForgetLab(tmp_path, site, programs)
        seeds = [site.url(KEPT), site.url(OTHER, "/to"), site.url(KEPT, "/no"), site.url(VICTIM, "/meta")]
        lab.crawl(*seeds, rights__purpose="ai-train", rights__policy="skip")
        before = lab.kept()
        assert {one.url: one.is_withheld for one in entries(lab.folder)}[site.url(VICTIM, "/meta")]
        assert "1 whose robots.txt says no" in lab.say("stats", VICTIM)
        lost = {"cut rights": 2, "deferred rights": 1, "given up port_refused": 1}
        assert ("ai-train n 2" in lab.say("stats"), lab.losses()) == (True, lost)
        ran = lab.run("forget", VICTIM)
        assert (ran.code, ran.err) == (0, ""), ran
        lab.forgotten()
        assert unlike(before, lab.kept()) == []
        left = {"cut rights": 1}
        assert ("ai-train n 1" in lab.say("stats"), lab.losses()) == (True, left)
        assert lab.run("audit").code == 0
        assert lab.run("release", VICTIM, "--reason", "rights").code == 2
        assert lab.run("crawls", "rm", "main", "--yes").code == 0
        assert lab.run("rebuild").code == 0
        lab.forgotten()
        assert ("ai-train n 1" in lab.say("stats"), lab.losses()) == (True, left)
        assert lab.run("audit").code == 0
