"""The audit of runs: where their links went while they are active, which partitions know them, and how many pages they
had.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from crawler.cli.main import main
from crawler.crawl.opening import OpenCrawl, open_crawl
from crawler.settings import Settings
from tests.crawl.harness import lab_names
from tests.crawl.rebuild_lab import WebLab
from tests.crawl.runs_lab import ONE, TWO, end, finish, runs_of, start
from tests.crawl.test_runs_in_a_crawl import run_until_idle
from tests.support.engine import Engine
from tests.support.serving import serve_web


@pytest.fixture
async def lab(tmp_path: Path, engine: Engine) -> AsyncIterator[WebLab]:
    with serve_web(seed=12, domains=4, pages=6) as site:
        async with lab_names() as dns:
            yield WebLab(site, dns, engine, tmp_path)


async def audited(settings: Settings, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], list[str]]:
    """Violations by name, and notes."""
    capsys.readouterr()
    await asyncio.to_thread(
        main, ["audit", "--json", "--dir", settings.archive.dir, "--redis", settings.frontier.redis]
    )
    report = json.loads(capsys.readouterr().out)
    found = {name: one["examples"] for name, one in report["findings"].items() if one and one["is_violation"]}
    return {name: some for name, some in found.items() if some}, report["notes"]


async def some_of(lab: WebLab, crawl: OpenCrawl, **spec: Any) -> None:
    """A part of a run."""
    await start(crawl, ONE, lab.site.web.seeds, **spec)
    await run_until_idle(crawl)


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("spec", [{}, {"scope": "any", "depth": 2}, {"scope": "host"}, {"scope": "prefix"}])
async def test_a_run_that_goes_on_is_clean_and_its_links_are_judged(
    lab: WebLab, spec: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    settings = lab.settings(crawl__pages_max=60, scope__mode="domain")
    async with open_crawl(settings, create=True) as crawl:
        await some_of(lab, crawl, **spec)
    found, notes = await audited(settings, capsys)
    assert (found, notes) == ({}, [])


@pytest.mark.slow(ci=True)
async def test_a_link_of_an_active_run_that_was_never_added_is_lost(
    lab: WebLab, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = lab.settings(crawl__pages_max=60)
    async with open_crawl(settings, create=True) as crawl:
        await some_of(lab, crawl)
        partition = min(await runs_of(crawl).touched(ONE))
        (buckets,) = await crawl.engine.command("HMGET", crawl.keys.meta(partition), f"buckets{ONE}")
        for n in range(int(buckets or 1)):
            await crawl.engine.command("DEL", crawl.keys.of(partition, f"s{ONE}:{n}"))
    found, _ = await audited(settings, capsys)
    assert any(one["reason"] == "the engine never saw it" and one["linked_from"] for one in found["lost"])


@pytest.mark.slow(ci=True)
async def test_what_a_run_that_has_ended_led_to_is_not_known(lab: WebLab, capsys: pytest.CaptureFixture[str]) -> None:
    settings = lab.settings()
    async with open_crawl(settings, create=True) as crawl:
        await some_of(lab, crawl)
        pages = (await finish(crawl, ONE)).pages
    found, notes = await audited(settings, capsys)
    assert found == {}
    assert notes == [f"{pages} commits are of ended runs: where their links went can't be judged"]


@pytest.mark.slow(ci=True)
async def test_partitions_that_a_run_does_not_know_or_that_did_not_forget_it_are_found(
    lab: WebLab, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = lab.settings()
    async with open_crawl(settings, create=True) as crawl:
        await start(crawl, TWO, lab.site.web.seeds)
        await some_of(lab, crawl)
        runs = runs_of(crawl)
        first, *others = sorted(await runs.touched(ONE))
        await crawl.engine.command("SREM", crawl.keys.of(runs.home(ONE), f"touched:{ONE}"), first)
        left = sorted(await runs.touched(TWO))
        await end(crawl, TWO)  # and nobody is to close it
    found, _ = await audited(settings, capsys)
    assert others
    assert found.pop("runs") == [
        {"run": ONE, "partition": first, "reason": "it has URLs there, and the partition is not noted for it"},
        *({"run": TWO, "partition": p, "reason": "it has ended, and the partition has not forgotten it"} for p in left),
    ]
    assert found == {}
    async with open_crawl(settings, create=False) as crawl:
        await crawl.engine.command("SADD", crawl.keys.of(runs.home(TWO), "closing"), TWO)
        await crawl.engine.command("SADD", crawl.keys.of(runs.home(ONE), "closing"), ONE)
    found, notes = await audited(settings, capsys)
    assert [one["reason"] for one in found["runs"]] == [
        "it goes on, and is noted as one to be removed",
        "it has URLs there, and the partition is not noted for it",
    ]
    assert any(note.startswith("1 ended run is still to be removed from partitions") for note in notes)
