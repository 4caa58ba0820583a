"""Little is claimed while the engine is nearly full, nothing while the disk is; then the crawl goes on, complete."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from crawler.archive.folder import UNKNOWN
from crawler.crawl import build
from crawler.crawl.instance import Instance
from crawler.errors import NoRoomError
from crawler.instance import vitals
from crawler.worker import disk_room
from crawler.worker.claim import FULL_CLAIMS_MAX
from crawler.worker.disk_room import DiskRoom
from tests.crawl.harness import crawl, lab_names, settings_of
from tests.support.engine import Engine
from tests.support.serving import serve_web


@pytest.mark.slow(ci=True)
async def test_claiming_slows_above_the_memory_mark_and_goes_on_below_it(tmp_path: Path, engine: Engine) -> None:
    open_at_once: list[int] = []
    client = engine.client()

    async def squeeze(instances: list[Instance]) -> None:
        counters = instances[0].counters
        while counters.committed < 30:
            await asyncio.sleep(0.01)
        while not counters.is_engine_full:  # again and again: what is done meanwhile frees some
            client.config_set("maxmemory", int(client.info("memory")["used_memory"] / 0.9))  # the mark is at 0.85
            await asyncio.sleep(0.01)
        while counters.open_claims.total > FULL_CLAIMS_MAX + counters.held_pages:
            await asyncio.sleep(0.01)
        for _ in range(100):
            await asyncio.sleep(0.01)
            open_at_once.append(counters.open_claims.total - counters.held_pages)
        client.config_set("maxmemory", 0)

    try:
        with serve_web(seed=13, domains=4, pages=4) as site:
            async with lab_names() as dns:
                settings = settings_of(
                    tmp_path / "c",
                    dns__nameservers=[dns],
                    scope__mode="any",
                    politeness__delay_s=0.03,
                    frontier__redis=engine.url,
                )
                done = await crawl(settings, site.web.seeds, meanwhile=squeeze)
            expected = site.web.expected(site.web.seeds, "any").committed
    finally:
        client.config_set("maxmemory", 0)
    assert done.errors == []
    assert max(open_at_once) <= FULL_CLAIMS_MAX
    assert done.statuses == expected


@pytest.mark.slow(ci=True)
async def test_claiming_stops_before_the_disk_is_full_and_goes_on_when_there_is_room(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, stalled = [1_000], list[int]()
    monkeypatch.setattr(vitals, "DISK_EVERY_S", 0.02)
    monkeypatch.setattr(vitals, "free_bytes", lambda _: free[0])

    async def fill_up(instances: list[Instance]) -> None:
        counters = instances[0].counters
        while counters.committed < 20:
            await asyncio.sleep(0.01)
        free[0] = 999
        while counters.waits_for != "disk" or counters.open_claims.total:
            await asyncio.sleep(0.01)
        before = counters.committed
        await asyncio.sleep(1.2)  # longer than the claimer waits for a hint
        stalled.extend((before, counters.committed))
        free[0] = 1_000

    with serve_web(seed=13, domains=4, pages=4) as site:
        async with lab_names() as dns:
            settings = settings_of(
                tmp_path / "c", dns__nameservers=[dns], scope__mode="any", politeness__delay_s=0.03,
                frontier__redis=engine.url, archive__disk_free_bytes_min=1_000,
            )  # fmt: skip
            done = await crawl(settings, site.web.seeds, meanwhile=fill_up)
        expected = site.web.expected(site.web.seeds, "any").committed
    assert done.errors == []
    assert stalled[0] == stalled[1] < len(expected), "what was in flight is committed, and nothing more"
    assert done.statuses == expected


@pytest.mark.slow(ci=True)
async def test_nothing_is_claimed_on_a_disk_that_is_full_from_the_start(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [0]
    monkeypatch.setattr(vitals, "DISK_EVERY_S", 0.02)
    monkeypatch.setattr(vitals, "free_bytes", lambda _: free[0])
    before: list[int] = []

    async def make_room(instances: list[Instance]) -> None:
        await asyncio.sleep(0.5)
        before.append(instances[0].counters.committed + instances[0].counters.open_claims.total)
        free[0] = 1 << 40

    with serve_web(seed=13, domains=2, pages=2) as site:
        async with lab_names() as dns:
            settings = settings_of(
                tmp_path / "c", dns__nameservers=[dns], scope__mode="any", frontier__redis=engine.url
            )
            done = await crawl(settings, site.web.seeds, meanwhile=make_room)
        expected = site.web.expected(site.web.seeds, "any").committed
    assert before == [0]
    assert done.statuses == expected


async def held_by(instances: list[Instance], wanted: Callable[[list[int]], bool]) -> list[int]:
    """How many partitions each has, once that is as wanted."""
    while not wanted(held := [len(instance.work.held) for instance in instances]):
        await asyncio.sleep(0.02)
    return held


@pytest.mark.slow(seconds=6)
@pytest.mark.parametrize("how", ["looked at", "written to"])
@pytest.mark.parametrize("full", [(0,), (0, 1)])
async def test_an_instance_without_disk_room_gives_its_sites_to_another_and_comes_back(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, full: tuple[int, ...], how: str
) -> None:
    rooms, waiting, is_free = list[DiskRoom](), list[tuple[int, ...]](), False
    monkeypatch.setattr(vitals, "DISK_EVERY_S", 0.05)
    monkeypatch.setattr(disk_room, "can_write", lambda *_: is_free)
    monkeypatch.setattr(vitals, "free_bytes", lambda _: UNKNOWN)
    monkeypatch.setattr(build, "DiskRoom", lambda *known: rooms.append(DiskRoom(*known)) or rooms[-1])

    async def fill_up(instances: list[Instance]) -> None:
        await held_by(instances, lambda held: min(held) > 20)
        while sum(instance.counters.committed for instance in instances) < 10:
            await asyncio.sleep(0.01)
        nonlocal is_free
        for n in full:
            if how == "looked at":
                rooms[n].judge(999)
            else:
                rooms[n].failed(NoRoomError("full", tmp_path))
        if len(full) == 1:
            await held_by(instances, lambda held: held == [0, 64])
        while any(instances[n].counters.open_claims.total for n in full):
            await asyncio.sleep(0.01)
        stalled = [instances[n].counters.committed for n in full]
        await asyncio.sleep(0.5)
        assert [instances[n].counters.committed for n in full] == stalled
        waiting.append(tuple(await held_by(instances, lambda held: sum(held) == 64)))
        assert {instances[n].membership.heartbeat.member.state for n in full} == {"quarantined"}
        is_free = True
        for n in full if how == "looked at" else ():
            rooms[n].judge(1_999)
            assert not rooms[n].is_enough
            rooms[n].judge(2_000)
            assert rooms[n].is_enough
        await held_by(instances, lambda held: min(held) > 20)

    with serve_web(seed=13, domains=12, pages=12) as site:
        async with lab_names() as dns:
            settings = settings_of(
                tmp_path / "c", dns__nameservers=[dns], scope__mode="any", politeness__delay_s=0.15,
                frontier__redis=engine.url, archive__disk_free_bytes_min=1_000, archive__room_s=0.0,

            )  # fmt: skip
            done = await crawl(settings, site.web.seeds, instances=2, meanwhile=fill_up)
        expected = site.web.expected(site.web.seeds, "any").committed
    assert done.errors == []
    assert done.statuses == expected
    assert done.twice == []
    assert waiting[0] == (0, 64) if len(full) == 1 else min(waiting[0]) > 20


@pytest.mark.slow(ci=True)
async def test_a_page_is_acked_only_after_a_full_engine_takes_its_links(tmp_path: Path, engine: Engine) -> None:
    client = engine.client()

    async def fill_up(instances: list[Instance]) -> None:
        counters = instances[0].counters
        while counters.committed < 20:
            await asyncio.sleep(0.01)
        client.config_set("maxmemory", 1)
        await asyncio.sleep(2.5)
        client.config_set("maxmemory", 0)

    try:
        with serve_web(seed=14, domains=4, pages=4) as site:
            async with lab_names() as dns:
                settings = settings_of(
                    tmp_path / "c", dns__nameservers=[dns], scope__mode="any", frontier__redis=engine.url
                )
                done = await crawl(settings, site.web.seeds, meanwhile=fill_up)
            expected = site.web.expected(site.web.seeds, "any").committed
    finally:
        client.config_set("maxmemory", 0)
    assert done.errors == []
    assert done.statuses == expected
