"""A crawl whose engine lost everything, rebuilt from its folder: it ends with the exact set, each page once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from crawler.archive.folder import open_existing
from crawler.cli.main import main
from crawler.crawl.admission import holding
from crawler.crawl.opening import make_seeder
from crawler.engine.server import Change, everything
from crawler.errors import ConflictError, EngineDown, EngineError, UsageError
from crawler.frontier.members import Member
from crawler.frontier.owner import Frontier
from crawler.frontier.pending import PendingUrls
from crawler.frontier.restore import Restoring
from crawler.membership.node_names import check_no_instance_runs
from crawler.settings import MembershipSettings
from tests.crawl.harness import crawl, lab_names
from tests.crawl.rebuild_lab import (
    WebLab,
    crawl_on_two,
    end_on_two,
    given,
    opened,
    opened_anew,
    page_of,
    rebuild,
    totals,
)
from tests.support.engine import Engine
from tests.support.heard_meter import HeardMeter
from tests.support.serving import serve_web


@pytest.fixture
async def lab(tmp_path: Path, engine: Engine) -> AsyncIterator[WebLab]:
    with serve_web(seed=11, domains=4, pages=5) as site:
        async with lab_names() as dns:
            yield WebLab(site, dns, engine, tmp_path)


async def test_a_rebuild_restores_committed_and_pending_urls(lab: WebLab) -> None:
    some = await lab.crawl_some(150)
    before, asked = await totals(lab.settings()), lab.asked()
    lab.engine.flush()
    report = await rebuild(lab.settings())
    assert (report.committed, report.restored, report.seeds) == (len(some.entries), len(some.entries), 1)
    assert (report.flaws, report.orphans, report.unplaced) == ([], 0, 0)
    assert all(b"hold" in value for key, value in lab.kept().items() if key.endswith(b"}:m"))
    after = await totals(lab.settings())
    assert (after.fetched, after.bytes, after.status) == (before.fetched, before.bytes, before.status)
    assert after.pending >= before.pending
    done = await lab.finish(lab.settings())
    assert all(asked[page_of(e.url)] for e in some.entries)
    assert [e.url for e in some.entries if (lab.asked() - asked)[page_of(e.url)]] == []
    assert len(done.entries) == len(lab.expected)


@pytest.mark.slow(ci=True)
async def test_a_rebuild_tells_how_far_it_is_in_each_part(lab: WebLab) -> None:
    some, meter = await lab.crawl_some(150), HeardMeter()
    lab.engine.flush()
    report = await rebuild(lab.settings(), meter=meter)
    assert [part.what for part in meter.parts] == ["reading index", "adding seeds", "reading archive", "checking URLs"]
    archive = meter.part("reading archive")
    assert archive.counts[-1] == report.records >= len(some.entries)
    assert archive.share > 0.8, "but for records that are no responses, and robots.txt in files of their own"


@pytest.mark.slow(ci=True)
async def test_a_scope_changed_after_a_rebuild_has_its_own_version(lab: WebLab) -> None:
    async with opened_anew(lab) as found:
        for n in range(5):
            await found.crawls.add_roots([f"domain:other{n}.test"])
    some = await lab.crawl_some(150)
    judged_by = max(entry.scope_version for entry in some.entries)
    assert judged_by >= 5
    lab.engine.flush()
    await rebuild(lab.settings())
    async with opened(lab.settings()) as found:
        await found.crawls.add_roots(["domain:new.test"])
        assert (await found.crawls.history()).roots["domain:new.test"] > judged_by


@pytest.mark.slow(ci=True)
async def test_each_seed_has_its_urls_after_a_rebuild_too(lab: WebLab) -> None:
    async def counts() -> dict[str, int]:
        async with opened(lab.settings()) as found:
            return {one.url: one.added async for some in found.seeds.read() for one in some}

    await lab.crawl_some(150)
    before = await counts()
    assert sum(before.values()) > 150
    lab.engine.flush()
    await rebuild(lab.settings())
    assert await counts() == before


@pytest.mark.slow(ci=True)
async def test_a_rebuild_may_change_the_number_of_partitions(lab: WebLab) -> None:
    await lab.crawl_some(150)
    lab.engine.flush()
    await rebuild(lab.settings(), partitions=256)
    async with opened(lab.settings()) as found:
        assert found.record.partitions == 256
    await lab.finish(lab.settings())


@pytest.mark.slow(ci=True)
async def test_another_number_of_partitions_needs_an_engine_that_lacks_the_crawl(lab: WebLab) -> None:
    await lab.crawl_some(50)
    kept = lab.kept()
    with pytest.raises(ConflictError, match=r"has the crawl 'main' already, with 64 partitions: another number"):
        await rebuild(lab.settings(), partitions=256)
    assert lab.kept() == kept
    await rebuild(lab.settings(), partitions=64)


@pytest.mark.slow(ci=True)
async def test_a_folder_that_fetched_nothing_is_left_out_of_a_rebuild(
    lab: WebLab, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever place it has; alone it is refused."""
    await lab.crawl_some(50)
    async with opened_anew(lab, "idle"):
        pass  # it took part
    places = {name: str(lab.home / name) for name in ("c", "idle")}
    for order in (("c", "idle"), ("idle", "c")):
        lab.engine.flush()
        words = [word for name in order for word in ("--dir", places[name])]
        assert await asyncio.to_thread(main, ["rebuild", *words, "--redis", lab.engine.url]) == 0
        printed = capsys.readouterr()
        assert f"{places['idle']} has nothing of the crawl 'main': left out" in printed.err
        assert f"recreated from {places['c']}:" in printed.out
        async with opened_anew(lab, "idle"):
            pass  # and goes on
    lab.engine.flush()
    assert await asyncio.to_thread(main, ["rebuild", "--dir", places["idle"], "--redis", lab.engine.url]) == 2
    assert "idle has nothing to rebuild the crawl 'main' from" in capsys.readouterr().err


@pytest.mark.slow(ci=True)
async def test_a_folder_whose_note_is_damaged_is_not_taken_for_an_empty_one(lab: WebLab) -> None:
    """Its journal has seeds that nothing else has."""
    await lab.crawl_some(50)
    async with opened_anew(lab, "seeds") as found:
        await make_seeder(found).add_all([given("http://seeded.test/")])
    (lab.home / "seeds" / "bound.json").write_bytes(b"damaged")
    lab.engine.flush()
    assert holding([open_existing(lab.home / name) for name in ("c", "seeds")], "main")[1] == []
    assert (await rebuild(lab.settings(), lab.home / "seeds")).seeds == 2


@pytest.mark.slow(ci=True)
async def test_a_second_rebuild_changes_nothing(lab: WebLab) -> None:
    await lab.crawl_some(100)
    lab.engine.flush()
    await rebuild(lab.settings())
    once = lab.kept()
    report = await rebuild(lab.settings())
    assert report.restored == 0
    assert lab.kept() == once


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("dies_at", [2, 10, *(pytest.param(one, marks=pytest.mark.slow) for one in (1, 4, 7))])
async def test_a_rebuild_that_dies_anywhere_is_finished_by_the_next_one(
    lab: WebLab, monkeypatch: pytest.MonkeyPatch, dies_at: int
) -> None:
    """After each death the folder is still refused to a crawl: half of a crawl is not crawled on."""
    await lab.crawl_some(150)
    lab.engine.flush()
    await rebuild(lab.settings())
    whole = await state(lab)
    lab.engine.flush()
    monkeypatch.setattr("crawler.recovery.replay.BATCH", 60)
    left = [dies_at]
    with monkeypatch.context() as patch:
        for door, name in ((Frontier, "add"), (Restoring, "restore")):
            patch.setattr(door, name, dying(getattr(door, name), left))
        with pytest.raises(EngineDown):
            await rebuild(lab.settings())
    with pytest.raises(ConflictError, match="rebuilt in the engine without"):
        async with opened(lab.settings()):
            pass
    await rebuild(lab.settings())
    assert await state(lab) == whole
    await lab.finish(lab.settings())


def dying(call: Any, left: list[int]) -> Any:
    """The n-th call of this kind is not made any more."""

    async def wrapped(*arguments: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise EngineDown("killed here")
        return await call(*arguments)

    return wrapped


@pytest.mark.slow(ci=True)
async def test_a_rebuild_during_which_a_server_was_replaced_is_not_believed(
    lab: WebLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its successor lacks what came last; the calls of the rebuild do not fail where another one answers them."""
    await lab.crawl_some(150)
    lab.engine.flush()
    restore, left = Restoring.restore, [1]

    async def restored(self: Restoring, urls: Any) -> int:
        if left and left.pop():
            self._engine.restarts(Change(everything))
            return 0
        return await restore(self, urls)

    monkeypatch.setattr(Restoring, "restore", restored)
    with pytest.raises(EngineError, match="was replaced while the crawl was rebuilt"):
        await rebuild(lab.settings())
    with pytest.raises(ConflictError, match="rebuilt in the engine without"):
        async with opened(lab.settings()):
            pass
    await rebuild(lab.settings())
    await lab.finish(lab.settings())


async def state(lab: WebLab) -> tuple[Any, ...]:
    """The URLs that are seen and those that are pending with their depths, and what was counted."""
    async with opened(lab.settings()) as found:
        counted, kept = await found.stats.totals(), lab.kept()
        seen = {m for k, v in kept.items() if b"}:s:" in k for m in v}
        urls = PendingUrls(found.engine, found.keys)
        pending = {
            (one.url.url, one.url.depth, one.url.redirects, one.url.seed)
            for p in range(found.record.partitions)
            async for some in urls.read(p)
            for one in some
        }
        return seen, pending, counted


@pytest.mark.slow(ci=True)
async def test_stored_scope_partitions_and_roots_override_current_settings(lab: WebLab) -> None:
    seeds = [lab.site.url("d0.test"), lab.site.url("d1.test")]
    strict = {"scope__mode": "host", "scope__depth_max": 1, "scope__exclude": ["slow"], "crawl__partitions": 32}
    whole = await crawl(lab.settings(**strict), seeds)
    async with opened(lab.settings()) as found:
        before, roots = found.record, found.roots
    lab.engine.flush()
    await rebuild(lab.settings())
    async with opened(lab.settings()) as found:
        assert found.record.scope == before.scope
        assert (found.record.partitions, found.roots) == (32, roots)
        assert found.record.first_begun_at == before.begun_at < found.record.begun_at
    again = await crawl(lab.settings(), [])
    assert again.statuses == whole.statuses


@pytest.mark.slow(ci=True)
async def test_unfetched_seeds_keep_their_depth_and_score_after_a_rebuild(lab: WebLab) -> None:
    async with opened_anew(lab) as found:
        await make_seeder(found, depth=4, priority=9.5).add_all([given(lab.site.url("d2.test", "/p/1.html"))])
    await lab.crawl_some(20)
    lab.engine.flush()
    report = await rebuild(lab.settings())
    assert report.seeds == 2
    await lab.finish(lab.settings())


@pytest.mark.slow(ci=True)
async def test_folders_of_several_machines_are_added_one_by_one(lab: WebLab) -> None:
    """Each refuses to be crawled on until it is in; together they hold every page once."""
    await crawl_on_two(lab)
    lab.engine.flush()
    one, two = lab.settings("c0"), lab.settings("c1")
    first = await rebuild(one)
    with pytest.raises(ConflictError, match="rebuilt in the engine without"):
        async with opened(two):
            pass
    second = await rebuild(two)
    assert first.committed > 0 < second.committed
    await end_on_two(lab)


@pytest.mark.slow(ci=True)
async def test_folders_of_several_machines_are_added_at_once(lab: WebLab) -> None:
    await crawl_on_two(lab)
    lab.engine.flush()
    report = await rebuild(lab.settings("c0"), lab.home / "c1")
    assert report.unplaced == 0
    await end_on_two(lab)


async def test_a_crawl_with_running_instances_is_not_rebuilt(lab: WebLab) -> None:
    beating = Member(session="ann", node="n-0", counter=1, state="alive")
    settings = MembershipSettings(dead_s=1.4)

    async def beat(members: Any) -> None:
        for counter in range(2, 20):
            await asyncio.sleep(0.1)
            await members.heartbeat(Member(session="ann", node="n-0", counter=counter, state="alive"))

    async with opened_anew(lab) as found:
        await found.members.join(beating)
        await check_no_instance_runs(found.members, lambda _: True, settings)
        await check_no_instance_runs(found.members, lambda _: False, settings)
        alive = asyncio.create_task(beat(found.members))
        with pytest.raises(ConflictError, match="running on this crawl: n-0"):
            await check_no_instance_runs(found.members, lambda _: False, settings)
        alive.cancel()
        await asyncio.gather(alive, return_exceptions=True)


@pytest.mark.slow(ci=True)
async def test_a_rebuild_replaces_a_recreated_crawl_only_while_it_is_empty(lab: WebLab) -> None:
    await lab.crawl_some(20)
    async with opened(lab.settings()) as found:
        before = found.record
    lab.engine.flush()
    async with opened_anew(lab, "elsewhere", scope__mode="domain"):
        pass  # an instance without results of its own was started too early
    await rebuild(lab.settings())
    async with opened(lab.settings()) as found:
        assert found.record.scope == before.scope
    lab.engine.flush()
    async with opened_anew(lab, "elsewhere2") as found:
        await make_seeder(found).add_all([given("http://x.test/")])
    with pytest.raises(ConflictError, match="another crawl 'main' was started"):
        await rebuild(lab.settings())


async def test_an_empty_folder_has_nothing_to_rebuild(lab: WebLab) -> None:
    with pytest.raises(UsageError, match="has nothing to rebuild"):
        await rebuild(lab.settings("new"))


@pytest.mark.slow(ci=True)
async def test_an_engine_that_still_has_the_crawl_keeps_all_that_it_knows(lab: WebLab) -> None:
    await lab.crawl_some(120)
    before = await totals(lab.settings())
    report = await rebuild(lab.settings())
    assert report.restored == 0
    assert await totals(lab.settings()) == before
    await lab.finish(lab.settings())


@pytest.mark.slow(ci=True)
async def test_an_older_backup_gets_what_it_lacks_and_nothing_is_fetched_again(lab: WebLab) -> None:
    await lab.crawl_some(60)
    with contextlib.closing(lab.engine.client()) as client:
        backup = {key: client.dump(key) for key in client.keys("*")}
    some = await crawl(lab.settings(crawl__pages_max=160), [])
    asked = lab.asked()
    with contextlib.closing(lab.engine.client()) as client:
        client.flushall()
        for key, value in backup.items():
            client.restore(key, 0, value)
    report = await rebuild(lab.settings())
    assert 0 < report.restored < report.committed == len(some.entries)
    await lab.finish(lab.settings())
    assert [e.url for e in some.entries if (lab.asked() - asked)[page_of(e.url)]] == []


async def test_a_rebuild_does_not_exceed_the_crawls_budget(lab: WebLab) -> None:
    most = 60
    settings = lab.settings(budget__crawl_urls=most)
    some = await crawl(settings, lab.site.web.seeds)
    assert not some.errors
    lab.engine.flush()
    await rebuild(settings)
    done = await crawl(settings, [])
    assert not done.errors
    after = await totals(settings)
    assert after.taken_in == most
    assert {e.url for e in some.entries} <= {e.url for e in done.entries}
    await lab.finish(lab.settings(budget__crawl_urls=0))
