"""One fact, one text: a state is told in the same words by the command line, `top`, the API and the dashboard."""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from crawler.cli.main import main
from crawler.crawl.opening import make_seeder
from crawler.crawl.url_input import GivenUrl
from crawler.frontier.members import Member
from crawler.frontier.operator_log import Actor, Via
from crawler.rules.job_text import JobPatch
from crawler.tui.app import TopApp
from crawler.tui.detail import DetailView
from crawler.tui.source import CrawlSource
from crawler.views import jobs, operator
from tests.api.api_lab import Served, served
from tests.support.chromium import chromium, needs_chromium
from tests.support.engine import Engine
from tests.tui.tui_lab import NEVER_S, screen_text
from tests.views.views_lab import give_up, seeded

ANN = Actor(who="ann", via=Via.CLI)
IN_A_DAY_S = 86_400
STOPPED = "Nothing is fetched: {} by an operator (continue with 'crawler {} {}.example')."
SENTENCES = {
    "paused.example": STOPPED.format("paused", "resume", "paused"),
    "deferred.example": STOPPED.format("blocked", "unblock", "deferred"),
    "waiting.example": "1 URL waits for the time given to 'crawler seed --at'.",
    "failed.example": "Nothing was fetched: 2 dead letters (timeout 2).",
}


@contextlib.asynccontextmanager
async def told(folder: Path, engine: Engine) -> AsyncIterator[Served]:
    """A crawl with a domain in each of these states, and a job."""
    async with seeded(folder, engine, "https://failed.example/1", "https://failed.example/2") as crawl:
        await give_up(crawl)
        given = [f"https://{state}.example/{n}" for state in ("paused", "deferred") for n in range(3)]
        seeds = [GivenUrl("test", url) for url in given]
        seeds.append(GivenUrl("test", "https://waiting.example/", visible_at=time.time() + IN_A_DAY_S))
        await make_seeder(crawl).add_all(seeds)
        await operator.pause(crawl, "paused.example", actor=ANN)
        await operator.block(crawl, "deferred.example", actor=ANN)
        spec = JobPatch(execution_interval="PT3H", depth=2, overlap="queue").applied(None, int(time.time()))
        await jobs.add_job(crawl, "ann", "news", spec, ["https://news.example/"], actor=ANN)
        member = Member(session=crawl.session, node="n", counter=1, state="alive", started_at=time.time())
        await crawl.members.join(member)
        leases = await crawl.leases.read(range(crawl.record.partitions))
        await crawl.leases.acquire(crawl.session, "n", [(lease, 0) for lease in leases])
        async with served(crawl) as api:
            yield api


async def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints."""
    assert await asyncio.to_thread(main, words) == 0
    return capsys.readouterr().out


def plain(text: str) -> str:
    """Without what differs by where lines are broken."""
    return re.sub(r"\s+", " ", text)


@pytest.mark.slow(ci=True)
async def test_a_domain_has_one_sentence_and_the_same_facts_everywhere(
    tmp_path: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    async with told(tmp_path / "c", engine) as api:
        for name, sentence in SENTENCES.items():
            status, found = await api.get(f"/v1/domains/{name}")
            assert (status, found["sentence"]) == (200, sentence)
            printed = await said(capsys, "stats", name, "--redis", engine.url)
            assert printed.startswith(f"{sentence}\n\n")
            lines = [plain(line) for line in printed.splitlines()[2:]]
            assert lines == [plain(f"{fact} {text}") for fact, text in found["facts"]]
            async with TopApp(CrawlSource(api.crawl, ANN), every_s=NEVER_S).run_test(size=(200, 50)) as pilot:
                pilot.app.push_screen(DetailView(name))
                for _ in range(200):
                    await pilot.pause()
                    if sentence in screen_text(pilot.app):
                        break
                screen = plain(screen_text(pilot.app))
            assert sentence in screen
            assert [line for line in lines if line not in screen] == []


async def test_a_job_is_the_same_for_programs_and_for_people_everywhere(
    tmp_path: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    async with told(tmp_path / "c", engine) as api:
        words = ("jobs", "show", "news", "--user", "ann", "--redis", engine.url)
        for _ in range(5):  # a minute may end between the two
            _, found = await api.get("/v1/users/ann/jobs/news")
            printed = json.loads(await said(capsys, *words, "--json"))
            if printed["sentence"] == found["sentence"]:
                break
        assert printed == found
        sentence, _, *lines = (await said(capsys, *words)).splitlines()
        assert sentence.startswith("Every 3 hours: next in 2 h 59 m") or sentence == found["sentence"]
        assert [plain(line) for line in lines] == [plain(f"{fact} {text}") for fact, text in found["facts"]]


@pytest.mark.slow(ci=True)
@needs_chromium
async def test_the_dashboard_shows_these_sentences_and_facts(tmp_path: Path, engine: Engine) -> None:
    async with told(tmp_path / "c", engine) as api, chromium() as browser:
        page = await browser.new_page()
        for address, where, name in [
            *((f"domain/{name}", "domain", f"domains/{name}") for name in SENTENCES),
            ("job/ann/news", "job", "users/ann/jobs/news"),
        ]:
            _, found = await api.get(f"/v1/{name}")
            await page.goto(f"{api.url('/')}#/{address}")
            box = page.locator(f"#{where}-sentence")
            await box.filter(has_text=found["sentence"][:12]).wait_for()
            assert plain(await box.inner_text()) == found["sentence"]
            facts = page.locator("#domain-facts > div" if where == "domain" else "#job-definition > div")
            shown = [plain(text) for text in await facts.all_inner_texts()]
            assert shown == [plain(f"{fact} {text}") for fact, text in found["facts"]]
