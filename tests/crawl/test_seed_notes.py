"""Seeds are in the folder's journal before the engine has them, once, however often they are given."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from crawler.archive.seed_journal import SeedJournal, SeedLine
from crawler.crawl.opening import OpenCrawl, make_seeder, open_crawl
from crawler.crawl.url_input import GivenUrl
from crawler.errors import ConflictError, EngineDown
from crawler.frontier.owner import Frontier
from tests.crawl.harness import settings_of
from tests.support.engine import Engine

A, B = "http://a.test/", "http://b.test/x"
ROOTS = [SeedLine(root="domain:a.test"), SeedLine(root="domain:b.test")]


async def seed(folder: Path, engine: Engine, *urls: str, limit: int = -1, **options: Any) -> list[SeedLine]:
    """Give URLs to a crawl with this limit of depth; all lines of the journal afterwards."""
    settings = settings_of(folder, frontier__redis=engine.url, scope__depth_max=limit)
    async with open_crawl(settings, create=True) as crawl:
        await make_seeder(crawl, **options).add_all(GivenUrl("here", url) for url in urls)
        return noted(crawl)


def noted(crawl: OpenCrawl) -> list[SeedLine]:
    return list(SeedJournal(crawl.folder, "main", crawl.record.first_begun_at).read())


async def test_seeds_are_noted_with_their_roots_and_options(tmp_path: Path, engine: Engine) -> None:
    assert await seed(tmp_path, engine, A, B) == [*ROOTS, SeedLine(url=A, number=1), SeedLine(url=B, number=2)]
    more = await seed(tmp_path, engine, f"{A}deep", depth=3, priority=7.5)
    assert more[4:] == [SeedLine(url=f"{A}deep", depth=3, priority=7.5, number=3)]


async def test_seeds_that_are_given_again_are_not_noted_again(tmp_path: Path, engine: Engine) -> None:
    first = await seed(tmp_path, engine, A, B)
    assert await seed(tmp_path, engine, A, B) == first
    assert await seed(tmp_path, engine, A, f"{A}2") == [*first, SeedLine(url=f"{A}2", number=3)]


async def test_a_seed_known_from_further_away_is_noted_for_its_depth(tmp_path: Path, engine: Engine) -> None:
    first = await seed(tmp_path, engine, A, depth=5, limit=9)
    assert await seed(tmp_path, engine, A, limit=9) == [*first, SeedLine(url=A)]


async def test_a_seed_for_a_later_time_is_noted_with_it(tmp_path: Path, engine: Engine) -> None:
    settings, later = settings_of(tmp_path, frontier__redis=engine.url, scope__depth_max=9), 4e9
    async with open_crawl(settings, create=True) as crawl:
        seeds = [GivenUrl("here", A, visible_at=later), GivenUrl("here", B, visible_at=1.0)]
        await make_seeder(crawl, depth=5).add_all(seeds)
        first = [*ROOTS, SeedLine(url=A, depth=5, number=1, visible_at=later), SeedLine(url=B, depth=5, number=2)]
        assert noted(crawl) == first, "what is past is now"
        await make_seeder(crawl).add_all([GivenUrl("here", A, visible_at=later - 1)])
        assert noted(crawl)[len(first) :] == [ROOTS[0], SeedLine(url=A)], "known from further away: it keeps its time"


async def test_what_is_out_of_scope_is_not_noted(tmp_path: Path, engine: Engine) -> None:
    settings = settings_of(tmp_path, frontier__redis=engine.url, scope__exclude=["/x$"])
    async with open_crawl(settings, create=True) as crawl:
        await make_seeder(crawl).add_all([GivenUrl("here", A), GivenUrl("here", B)])
        assert noted(crawl) == [*ROOTS, SeedLine(url=A, number=1)]


async def test_a_seed_is_noted_before_the_engine_has_it(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(*_: object, **__: object) -> None:
        raise EngineDown("cut off")

    monkeypatch.setattr(Frontier, "add", down)
    async with open_crawl(settings_of(tmp_path, frontier__redis=engine.url), create=True) as crawl:
        seeder = make_seeder(crawl)
        seeder._patience_s = 0.0
        with pytest.raises(EngineDown):
            await seeder.add_all([GivenUrl("here", A)])
        assert SeedLine(url=A, number=1) in noted(crawl)


async def test_a_stream_of_seeds_ends_when_the_engine_loses_the_crawl(tmp_path: Path, engine: Engine) -> None:
    async with open_crawl(settings_of(tmp_path, frontier__redis=engine.url), create=True) as crawl:
        seeder = make_seeder(crawl)
        await seeder.add_all([GivenUrl("line 1", A)])
        await asyncio.to_thread(engine.flush)
        with pytest.raises(ConflictError, match="crawler rebuild"):
            await seeder.add_all([GivenUrl("line 2", B)])
        assert B not in [line.url for line in noted(crawl)]


async def test_a_seeding_folder_serves_other_crawls_and_notices_a_lost_one(tmp_path: Path, engine: Engine) -> None:
    await seed(tmp_path, engine, A)
    other = settings_of(tmp_path, frontier__redis=engine.url, crawl__name="news")
    async with open_crawl(other, create=True) as crawl:
        await make_seeder(crawl).add_all([GivenUrl("here", B)])
    await asyncio.to_thread(engine.flush)
    with pytest.raises(ConflictError, match="whose seeds were noted"):
        async with open_crawl(other, create=True):
            pass
