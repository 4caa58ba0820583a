"""A backup next to running instances: all of them stand still meanwhile, and go on by themselves."""

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from crawler.archive.session_locks import SessionLock
from crawler.crawl.build import open_instance
from crawler.crawl.instance import Instance
from crawler.crawl.opening import OpenCrawl, make_seeder, member_of_command, open_crawl
from crawler.crawl.url_input import GivenUrl
from crawler.errors import ArchiveError, ConflictError
from crawler.frontier.keys import Keys
from crawler.frontier.members import Member
from crawler.frontier.operator_log import Actor, Via
from crawler.recovery import backup
from crawler.recovery.arrival import Arrival
from crawler.recovery.backup import back_up, restore
from crawler.recovery.pause import Pause
from crawler.recovery.side import Copied, Side
from crawler.views.seeds import add_seeds, seeding_member
from tests.crawl.harness import entries_of, lab_names, settings_of
from tests.support.engine import Engine, running_engine
from tests.support.patience import others_run, until
from tests.support.serving import GeneratedSite, serve_resources, serve_web
from tests.support.web import Resource


class Lab:
    """A web, an engine, and instances in a folder each."""

    def __init__(self, site: GeneratedSite, dns: str, engine: Engine, home: Path) -> None:
        self.site, self.dns, self.engine, self.home = site, dns, engine, home
        self.file = home / "main.backup"
        self._stack = contextlib.AsyncExitStack()
        self.running: list[asyncio.Task[None]] = []

    def settings(self, name: str, **options: Any) -> Any:
        mine = {"dns__nameservers": [self.dns], "frontier__redis": self.engine.url, "scope__mode": "any"}
        return settings_of(self.home / name, **(mine | {"politeness__delay_s": 0.02} | options))

    async def opened(self, name: str, **options: Any) -> OpenCrawl:
        return await self._stack.enter_async_context(open_crawl(self.settings(name, **options), create=True))

    async def start(self, name: str, **options: Any) -> Instance:
        crawl = await (await self.opened(name, **options)).reloaded()
        instance = await self._stack.enter_async_context(open_instance(crawl, node=name, until_finished=True))
        self.running.append(asyncio.create_task(instance.run()))
        return instance

    async def seed(self) -> None:
        await make_seeder(await self.opened("a")).add_all([GivenUrl("here", url) for url in self.site.web.seeds])

    async def fetched(self, pages: int) -> None:
        while len(self.site.requests()) < pages:
            await asyncio.sleep(0.02)

    async def ended(self) -> None:
        async with asyncio.timeout(60):
            await asyncio.gather(*self.running)
        lines = [e for name in ("a", "b") if (self.home / name).exists() for e in entries_of(self.home / name)]
        commits = {(e.url, e.session, e.epoch, e.sequence) for e in lines}  # a commit may be in the index of two owners
        found = Counter(url for url, *_ in commits)
        assert found == Counter(list(self.site.web.expected(self.site.web.seeds, "any").committed))

    @contextlib.asynccontextmanager
    async def pause(self, patience_s: float = 20.0) -> AsyncIterator[Pause]:
        crawl = await self.opened("p")
        with contextlib.closing(SessionLock(crawl.folder, "pauser")) as lock:
            member = member_of_command("pauser", "backup", lock)
            yield Pause(crawl.members, member, crawl.settings.membership, patience_s=patience_s)

    async def side(self, name: str = "a", crawl: str = "main", url: str = "") -> Side:
        opened = await self.opened(name, **({"frontier__redis": url} if url else {}), crawl__name=crawl)
        return Side(
            engine=opened.engine, keys=Keys(crawl), place="here", spill_folder=None, work=opened.folder.root / "work"
        )

    async def back_up(self, **options: Any) -> Copied:
        async with self.pause(**options) as pause:
            side = await self.side()
            return await back_up(side, self.file, self.settings("a").membership, pause=pause)

    async def close(self) -> None:
        for task in self.running:
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)
        await self._stack.aclose()


@pytest.fixture
def site() -> Iterator[GeneratedSite]:
    with serve_web(seed=11, domains=4, pages=5) as site:
        yield site


@pytest.fixture
async def lab(tmp_path: Path, engine: Engine, site: GeneratedSite) -> AsyncIterator[Lab]:
    async with lab_names() as dns:
        lab = Lab(site, dns, engine, tmp_path)
        await lab.seed()
        try:
            yield lab
        finally:
            await lab.close()


@pytest.mark.slow(ci=True)
async def test_instances_stand_still_while_a_backup_is_written_and_go_on(lab: Lab) -> None:
    """The file has no claims, no log, no members and no leases; the crawl loses nothing and fetches nothing twice."""
    await lab.start("a")
    await lab.start("b")
    await lab.fetched(60)
    requests = list[int]()
    whole = backup.read_entries

    async def read(*given: Any) -> AsyncIterator[Any]:
        async for some in whole(*given):
            requests.append(len(lab.site.requests()))
            yield some

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backup, "read_entries", read)
        copied = await lab.back_up()
    assert copied.partitions == 64
    assert len(set(requests)) == 1, "nothing is requested meanwhile"
    await lab.ended()
    with running_engine() as other:
        target = await lab.side("t", "elsewhere", other.url)
        await target.engine.command("UNLINK", Keys("elsewhere").crawl)
        with pytest.raises(Exception, match="add --name main, or another name for the copy"):
            await restore(lab.file, Arrival(target, "f"))
        await restore(lab.file, Arrival(target, "f"), renames=True)
        with contextlib.closing(other.client()) as client:
            names = {key.decode().partition("}:")[2] for key in client.keys("{elsewhere*")}
            metas = [client.hgetall(key) for key in client.keys("{elsewhere:*}:m")]
        assert not names & {"x", "l", "members", "nodes", "returns", "evicted"}
        assert {field for meta in metas for field in meta} & {b"session", b"node", b"engine"} == set()
        assert sum(b"hold" in meta for meta in metas) > 0
        assert "q" in {name.partition(":")[0] for name in names}, "it was in its middle"


@pytest.mark.slow
async def test_an_instance_that_joins_meanwhile_waits(lab: Lab) -> None:
    await lab.start("a")
    await lab.fetched(30)
    async with lab.pause() as pause, pause.held():
        before = len(lab.site.requests())
        joined = await lab.start("b")
        await asyncio.sleep(0.5)
        await pause.settle()
        assert (len(lab.site.requests()), len(joined.work.held)) == (before, 0)
    await lab.ended()


@pytest.mark.slow(ci=True)
async def test_a_member_that_never_stands_still_ends_the_backup_and_the_crawl_goes_on(lab: Lab) -> None:
    await lab.start("a")
    crawl = await lab.opened("s")
    async with seeding_member(crawl):  # a command that writes without a turn
        with pytest.raises(
            ConflictError, match=r"after 0\.5 s there was still work in (a, )?seed-\w+: nothing was written"
        ):
            await lab.back_up(patience_s=0.5)
    assert [*lab.home.glob("*.backup*")] == []
    await lab.ended()


async def test_a_full_disk_takes_the_pause_back(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup, "open_private", lambda *_: os.open("/dev/full", os.O_WRONLY))
    monkeypatch.setattr(backup.BackupWriter, "again", lambda _: True)  # that one can't be truncated
    with pytest.raises(ArchiveError, match="No space left on device: there is no backup"):
        await lab.back_up()
    assert await (await lab.opened("s")).members.read() == {}
    assert [*lab.home.glob("*.backup*")] == []


async def test_a_stream_of_seeds_waits_for_a_backup(lab: Lab) -> None:
    """It may have begun before, or begin meanwhile; it never ends by itself."""
    crawl, told, added = await lab.opened("s"), list[str](), list[str]()
    ends = asyncio.Event()

    def stream(name: str) -> asyncio.Task[Any]:
        async def batches() -> AsyncIterator[list[GivenUrl]]:
            number = 0
            while not ends.is_set():
                await asyncio.sleep(0.01)
                number += 1
                yield [GivenUrl("here", f"http://{name}{number}.test/")]

        return asyncio.create_task(
            add_seeds(
                crawl, batches(), given="URLs", actor=Actor(who="ann", via=Via.CLI),
                on_batch=lambda _: added.append(name), on_pause=lambda: told.append(name),
            )
        )  # fmt: skip

    first = stream("first")
    await until(lambda: added)
    async with lab.pause() as pause, pause.held():
        before = len(added)
        second = stream("second")
        await until(lambda: told == ["first", "second"])
        await pause.settle()
        await others_run()
        assert len(added) == before
    await until(lambda: {*added[before:]} == {"first", "second"})
    ends.set()
    assert [(await one).new for one in (first, second)] == [added.count("first"), added.count("second")]


@pytest.mark.slow
async def test_a_command_that_dies_pauses_nothing(lab: Lab) -> None:
    """Its lock is free, or where nobody can look at it, its heartbeats stop."""
    await lab.start("a")
    for host in ("", "another machine"):
        crawl = await lab.opened("p")
        lock = SessionLock(crawl.folder, f"dead{len(host)}")
        member = member_of_command(lock.session, f"backup-{len(host)}", lock)
        marked = Member(
            **{f: getattr(member, f) for f in ("session", "node", "counter", "pid", "started_at", "lock")},
            host=host or member.host, state="pausing",
        )  # fmt: skip
        await crawl.members.join(marked)
        async with asyncio.timeout(20):
            while not any(marked.session in one.still_for for one in (await crawl.members.read()).values()):
                await asyncio.sleep(0.05)
            lock.close()
            while marked.session in await crawl.members.read():
                await asyncio.sleep(0.05)
    await lab.ended()


@pytest.mark.slow(ci=True)
async def test_what_a_command_writes_meanwhile_is_copied_with_the_next_try(lab: Lab) -> None:
    await lab.start("a")
    await lab.fetched(30)
    crawl, whole, left = await lab.opened("s"), backup.changed_since, iter([1])

    async def changed(*given: Any) -> Any:
        if next(left, None):
            await make_seeder(await crawl.reloaded()).add_all([GivenUrl("here", "http://late.test/")])
        return await whole(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backup, "changed_since", changed)
        assert (await lab.back_up()).partitions == 64


async def test_an_instance_that_is_stuck_ends_the_backup_and_is_named(tmp_path: Path, engine: Engine) -> None:
    """A page that does not come holds its claim, and nothing more is claimed while the command waits."""
    web = {("d0.test", "/"): Resource(body="<a href='/slow'>x</a><a href='/b'>x</a>"), ("d0.test", "/b"): Resource()}
    with serve_resources(web | {("d0.test", "/slow"): Resource(delay_s=3600.0)}) as served:
        async with lab_names() as dns:
            lab = Lab(served, dns, engine, tmp_path)  # type: ignore[arg-type]
            try:
                await make_seeder(await lab.opened("a")).add_all([GivenUrl("here", served.url("d0.test"))])
                await lab.start("a", politeness__concurrency_per_queue=1)
                await until(lambda: "/slow" in served.delayed())
                with pytest.raises(ConflictError, match=r"after 0\.2 s there was still work in a: nothing was written"):
                    await lab.back_up(patience_s=0.2)
                assert [*lab.home.glob("*.backup*")] == []
                served.end_delays()
                async with asyncio.timeout(60):
                    await asyncio.gather(*lab.running)
                assert len(entries_of(tmp_path / "a")) == 3
            finally:
                await lab.close()
