"""Seeds for a later time: a crawl waits for them by its wall clock, and a rebuild knows their times."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from crawler.crawl import seed
from crawler.crawl.build import open_instance
from crawler.crawl.opening import make_seeder, open_crawl
from crawler.crawl.url_input import GivenUrl
from crawler.instance.finish import FinishWatcher
from crawler.settings import Settings
from crawler.views.facts import explain
from crawler.views.reasons import record_of
from crawler.worker import claim
from tests.cli.cli_lab import HOST, page
from tests.crawl.harness import entries_of, settings_of
from tests.crawl.rebuild_lab import audit, rebuild, totals
from tests.support.engine import Engine
from tests.support.patience import PATIENCE_S
from tests.support.serving import Site, serve_resources

NOON = 1_800_000_000.0
LATER, LAST = NOON + 3600, NOON + 7200
LOOKS = 3  # at the end of the crawl, before it is believed that it waits


class Wall:
    """A wall clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now_s = NOON

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    clock = Wall()
    monkeypatch.setattr(claim, "wall_s", clock)
    monkeypatch.setattr(seed, "wall_s", clock)
    monkeypatch.setattr(claim, "SWEEP_MS", 20)
    return clock


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    with serve_resources({(HOST, f"/{name}"): page("/later") for name in ("now", "later", "last", "soon")}) as one:
        yield one


@pytest.fixture
def settings(tmp_path: Path, engine: Engine) -> Settings:
    return settings_of(tmp_path / "c", frontier__redis=engine.url)


async def looked(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when the instance has looked some times whether the crawl is at its end."""
    looks, done = 0, asyncio.Event()
    ask = FinishWatcher._is_refuted

    async def counted(self: FinishWatcher, *, has_jobs: bool) -> bool:
        nonlocal looks
        looks += 1
        if looks >= LOOKS:
            done.set()
        return await ask(self, has_jobs=has_jobs)

    monkeypatch.setattr(FinishWatcher, "_is_refuted", counted)
    return done


async def committed(settings: Settings, n: int) -> None:
    while (await totals(settings)).fetched < n:
        await asyncio.sleep(0.02)


async def test_a_crawl_waits_for_scheduled_seeds_and_fetches_them_at_their_time(
    site: Site, settings: Settings, wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_quiet = await looked(monkeypatch)
    async with open_crawl(settings, create=True) as crawl:
        seeds = [GivenUrl("1", site.url(HOST, "/now"))]
        seeds += [GivenUrl("2", site.url(HOST, f"/{n}"), visible_at=at) for n, at in (("later", LATER), ("last", LAST))]
        await make_seeder(crawl).add_all(seeds)
        async with open_instance(await crawl.reloaded(), node="n", until_finished=True) as instance:
            running = asyncio.create_task(instance.run())
            await committed(settings, 1)  # the page that leads to a scheduled one
            await is_quiet.wait()
            assert not running.done()
            assert (await totals(settings)).scheduled == 2
            assert await audit(settings) == 0, "clean while it waits"
            why = record_of(await explain(crawl, site.url(HOST, "/later")))
            assert (why.state, why.visible_at) == ("scheduled", LATER)
            assert "it waits until 2027-01-15 09:00:00 UTC (seed --at)" in why.verdict
            wall.now_s = NOON - 3600  # a clock that steps back shows nothing
            await make_seeder(crawl).add_all([GivenUrl("4", site.url(HOST, "/soon"), visible_at=NOON + 1)])
            wall.now_s = LATER
            await committed(settings, 3)
            assert not running.done()
            wall.now_s = LAST + 3600
            await asyncio.wait_for(running, PATIENCE_S)
    assert await audit(settings) == 0
    done = sorted(entries_of(Path(settings.archive.dir)), key=lambda entry: entry.fetched_at)
    assert [entry.url.rpartition("/")[2] for entry in done] == ["now", "soon", "later", "last"]


async def test_a_rebuild_gives_scheduled_seeds_their_time_again(site: Site, settings: Settings, engine: Engine) -> None:
    url = site.url(HOST, "/later")
    async with open_crawl(settings, create=True) as crawl:
        await make_seeder(crawl).add_all([GivenUrl("1", url, visible_at=4e9), GivenUrl("2", site.url(HOST, "/now"))])
    await asyncio.to_thread(engine.flush)
    assert (await rebuild(settings)).seeds == 2
    found = await totals(settings)
    assert (found.pending, found.scheduled, found.first_visible_at) == (2, 1, 4e9)
