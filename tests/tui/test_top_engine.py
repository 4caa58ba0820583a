"""`crawler top` on a real engine: what it reads, and what its keys change there."""

from pathlib import Path

import pytest
from textual.pilot import Pilot

from crawler.crawl.opening import OpenCrawl
from crawler.frontier.operator_log import Actor, Via
from crawler.tui.app import TopApp
from crawler.tui.source import CrawlSource
from tests.support.engine import Engine, running_engine
from tests.tui.tui_lab import NEVER_S, screen_text
from tests.views.views_lab import DOMAIN, seeded

ANN = Actor(who="ann", via=Via.TOP)
READS_MAX = 200


async def shown(pilot: Pilot[None], text: str) -> str:
    """The screen, once this is on it."""
    for _ in range(READS_MAX):
        await pilot.pause()
        if text in (screen := screen_text(pilot.app)):
            return screen
    raise AssertionError(f"{text!r} is not in:\n{screen_text(pilot.app)}")


def top_of(crawl: OpenCrawl) -> TopApp:
    return TopApp(CrawlSource(crawl, ANN), every_s=NEVER_S)


async def test_it_shows_a_crawl_that_waits_for_an_instance(tmp_path: Path, engine: Engine) -> None:
    async with seeded(tmp_path / "c", engine) as crawl, top_of(crawl).run_test(size=(80, 24)) as pilot:
        screen = await shown(pilot, DOMAIN)
        assert "main: no instance is running   0 pages   5 queued   0 in flight" in screen
        assert [line.split() for line in screen.splitlines() if line.startswith(DOMAIN)] == [
            [DOMAIN, "0", "-", "-", "5", "-", "now"]
        ]
        await pilot.press("enter")
        assert "no instance is running, and 5 URLs wait." in await shown(pilot, "partition")
        await pilot.press("escape", "m")
        await shown(pilot, "No instance is running")


@pytest.mark.slow(ci=True)
async def test_its_keys_change_the_crawl_and_are_in_the_operator_log(tmp_path: Path, engine: Engine) -> None:
    async with seeded(tmp_path / "c", engine) as crawl, top_of(crawl).run_test(size=(80, 24)) as pilot:
        await shown(pilot, DOMAIN)
        await pilot.press("p", "y")
        await shown(pilot, f"{DOMAIN} is now paused: 5 URLs wait")
        await shown(pilot, "  paused")
        await pilot.press("p", "y")
        await shown(pilot, f"{DOMAIN} is resumed with 5 URLs")
        await pilot.press("D", "7", "enter")
        await shown(pilot, f"{DOMAIN}: 7 s between requests from now on")
        await pilot.press("plus", "y")
        await shown(pilot, f"{DOMAIN}: boost 1")
        await pilot.press("b", "y")
        await shown(pilot, f"{DOMAIN} is now blocked: 5 URLs deferred")
        await pilot.press("P", "y")
        await shown(pilot, "The crawl is now paused")
        overrides = await crawl.operator.overrides()
        assert (overrides.is_paused, overrides.stop_of(DOMAIN)) == (True, "blocked")
        assert (overrides.delays_ms, overrides.boosts) == ({DOMAIN: 7000}, {DOMAIN: 1})
        log = await crawl.operator_log.newest()
        assert [one.action for one in log] == ["pause", "resume", "delay", "boost", "block", "pause"]
        assert {(one.who, one.via) for one in log} == {("ann", Via.TOP)}
        await pilot.press("o")
        await shown(pilot, "the crawl")


async def test_an_engine_that_ends_is_a_line(tmp_path: Path) -> None:
    with running_engine() as own:
        async with seeded(tmp_path / "c", own) as crawl, top_of(crawl).run_test(size=(80, 24)) as pilot:
            await shown(pilot, DOMAIN)
            own.process.kill()
            own.process.wait()
            pilot.app.poke()
            assert DOMAIN in await shown(pilot, "engine down: ")
