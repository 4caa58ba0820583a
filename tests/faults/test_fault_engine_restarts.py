"""The engine dies and comes back: as it was, without its last writes, as an older backup, or slowly."""

import asyncio
import logging
import random
import shutil
from pathlib import Path

import pytest

from crawler.crawl import set_back
from crawler.crawl.instance import Instance
from crawler.crawl.opening import open_crawl
from crawler.crawl.set_back import check_set_back
from crawler.errors import ConflictError
from tests.crawl.harness import crawl
from tests.faults.engine_lab import (
    DurableEngine,
    committed,
    counted,
    durable_engine,
    is_crawling,
    lab,
    spy_on_acquires,
)

UP_S = 0.8  # between two kills: time to acquire everything again and to work a little


@pytest.mark.slow
async def test_repeated_engine_kills_lose_no_url_and_repeat_no_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    won = spy_on_acquires(monkeypatch)
    kills = 0
    with durable_engine() as engine:

        async def strike(instances: list[Instance]) -> None:
            nonlocal kills
            await committed(instances, 5)
            while is_crawling(instances):
                await engine.kill_and_restart(down_s=0.1)
                kills += 1
                await asyncio.sleep(UP_S)

        async with lab(tmp_path, seed=31) as here:
            await here.crawl(engine.url, meanwhile=strike, instances=2)
            totals = await counted(engine.url)
    assert kills >= 4
    assert (totals.added, totals.fetched) == (totals.done, here.pages)
    granted = [(partition, epoch) for partition, _, epoch in won]
    assert len(granted) == len(set(granted)) > 64 * 2


@pytest.mark.slow
async def test_nothing_is_forgotten_when_an_engine_loses_its_last_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Killed and cut shorter again and again, by nothing, within a command, and by a large part of the crawl.

    An epoch may be granted again by number: the fence names the session too.
    """
    won = spy_on_acquires(monkeypatch)
    caplog.set_level(logging.WARNING, "crawler")
    cuts = [0, 1, 13, 200, 1_000, 5_000, 20_000, 60_000]
    random.Random(8).shuffle(cuts)
    lost: list[int] = []
    with durable_engine() as engine:

        async def strike(instances: list[Instance]) -> None:
            for n in cuts:
                await committed(instances, sum(i.counters.committed for i in instances) + 10)
                await asyncio.to_thread(engine.kill)
                lost.append(cut_tail(engine, n))
                await asyncio.to_thread(engine.start)

        async with lab(tmp_path, seed=32) as here:
            done = await here.crawl(engine.url, meanwhile=strike, instances=2)
            totals = await counted(engine.url)
    assert lost == cuts
    assert totals.added == totals.done
    assert sum(i.counters.committed for i in done.instances) > here.pages, "some pages must have been crawled again"
    assert len(won) == len(set(won))
    told = [r for r in caplog.records if r.getMessage() == "engine.changed"]
    assert len(told) >= len(cuts) * 2


@pytest.mark.slow(ci=True)
async def test_an_engine_set_back_to_an_older_backup_is_crawled_forward_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "crawler")
    with durable_engine() as engine:
        files, backup = engine.folder / "appendonlydir", engine.folder / "backup"

        async def set_back(instances: list[Instance]) -> None:
            await committed(instances, 40)
            await asyncio.to_thread(shutil.copytree, files, backup)
            await committed(instances, 160)
            await asyncio.to_thread(engine.kill)
            shutil.rmtree(files)
            backup.rename(files)
            await asyncio.to_thread(engine.start)

        async with lab(tmp_path, seed=33) as here:
            done = await here.crawl(engine.url, meanwhile=set_back)
            totals = await counted(engine.url)
    assert (totals.added, totals.fetched) == (totals.done, here.pages)
    again = done.instances[0].counters.committed - here.pages
    assert again > 50
    assert [vars(r)["pages"] for r in caplog.records if r.getMessage() == "engine.set_back"] == [again]
    assert done.instances[0].counters.description()["set_back_pages"] == again


@pytest.mark.slow
async def test_an_engine_set_back_while_nothing_runs_is_noticed_by_its_exact_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines of the index have the numbers of their commits, whoever wrote them."""
    with durable_engine() as engine:
        files, backup = engine.folder / "appendonlydir", engine.folder / "backup"
        async with lab(tmp_path, seed=33) as here:
            settings = here.settings(engine.url)
            first = await crawl(here.settings(engine.url, crawl__pages_max=40), here.site.web.seeds, instances=2)
            await asyncio.to_thread(engine.kill)
            shutil.copytree(files, backup)
            engine.start()
            second = await crawl(here.settings(engine.url, crawl__pages_max=150), [], instances=2)
            assert not first.errors + second.errors
            async with open_crawl(settings, create=False) as opened:
                assert await check_set_back(opened) == []
            await asyncio.to_thread(engine.kill)
            shutil.rmtree(files)
            backup.rename(files)
            engine.start()
            lost = len(second.entries) - len(first.entries)
            assert lost > 50
            assert all(entry.sequence for entry in second.entries)
            async with open_crawl(settings, create=False) as opened:
                monkeypatch.setattr(set_back, "LOST_MAX", lost - 1)
                monkeypatch.setattr(set_back, "LOST_S", 0.0)
                with pytest.raises(ConflictError, match=f"lacks {lost} pages"):
                    await check_set_back(opened)
                monkeypatch.setattr(set_back, "LOST_MAX", lost)
                (line,) = await check_set_back(opened)
                assert f"{lost} pages are fetched again" in line
            third = await crawl(settings, here.site.web.seeds)
            assert third.statuses == here.site.web.expected(here.site.web.seeds, "any").committed
            async with open_crawl(settings, create=False) as opened:
                assert await check_set_back(opened) == []


def cut_tail(engine: DurableEngine, n: int) -> int:
    """Take the last n bytes from the append-only file; how many were taken."""
    (file,) = (engine.folder / "appendonlydir").glob("*.incr.aof")
    size = file.stat().st_size
    with file.open("rb+") as opened:
        opened.truncate(size - min(n, size // 2))
    return min(n, size // 2)
