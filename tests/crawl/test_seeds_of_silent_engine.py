"""Seeds that are added while the engine does not answer: each once, counted once, noted once."""

from pathlib import Path
from typing import Any

import pytest

from crawler.archive.seed_journal import SeedJournal
from crawler.crawl.opening import make_seeder, open_crawl
from crawler.crawl.url_input import GivenUrl
from crawler.errors import EngineDown, EngineFull
from crawler.frontier.bulk import BulkLookup
from crawler.frontier.owner import Frontier
from crawler.frontier.seeds import Seeds
from tests.crawl.harness import settings_of
from tests.support.engine import Engine

URLS = [f"http://s{n}.test/" for n in range(5)]
CALLS = {"states": (BulkLookup, "of"), "numbers": (Seeds, "number"), "add": (Frontier, "add")}


def silent(monkeypatch: pytest.MonkeyPatch, call: str, *, acts: bool, error: Exception) -> None:
    """The first call of this kind has no answer; `acts`: the engine has got it."""
    kind, name = CALLS[call]
    whole, failures = getattr(kind, name), iter([error])

    async def called(self: Any, *given: Any, **named: Any) -> Any:
        failure = next(failures, None)
        found = await whole(self, *given, **named) if acts or failure is None else None
        if failure is not None:
            raise failure
        return found

    monkeypatch.setattr(kind, name, called)


@pytest.mark.parametrize("acts", [True, False], ids=["reply-lost", "call-lost"])
@pytest.mark.parametrize("call", CALLS)
async def test_one_silence_of_the_engine_ends_no_seeding(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: Any, call: str, *, acts: bool
) -> None:
    async with open_crawl(settings_of(tmp_path / "c", frontier__redis=engine.url), create=True) as crawl:
        silent(monkeypatch, call, acts=acts, error=EngineDown("no answer from the engine"))
        report = await make_seeder(crawl).add_all([GivenUrl("here", url) for url in URLS])
        assert (report.new, report.seen) == (5, 0)
        again = await make_seeder(crawl).add_all([GivenUrl("here", url) for url in URLS])
        assert (again.new, again.seen) == (0, 5)
        lines = [*SeedJournal(crawl.folder, "main", crawl.record.first_begun_at).read()]
        assert sorted(line.url for line in lines if line.url) == URLS
        assert {line.root for line in lines if line.root} == crawl.roots | (await crawl.reloaded()).roots
        assert sum([one.added async for some in crawl.seeds.read() for one in some]) == 5
    assert capsys.readouterr().err.count("no answer from the engine; waiting for it") == 1


async def test_a_silence_that_lasts_ends_it_and_so_does_a_full_engine(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_crawl(settings_of(tmp_path / "c", frontier__redis=engine.url), create=True) as crawl:
        seeder = make_seeder(crawl)
        seeder._patience_s = 0.0
        silent(monkeypatch, "add", acts=False, error=EngineDown("no answer from the engine"))
        with pytest.raises(EngineDown):
            await seeder.add_all([GivenUrl("here", URLS[0])])
        silent(monkeypatch, "add", acts=False, error=EngineFull("full"))
        with pytest.raises(EngineFull):
            await make_seeder(crawl).add_all([GivenUrl("here", URLS[1])])
