"""Worker processes take turns by domain; domains that take long never hold the last one."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from crawler.parsing.processes import WorkerPool, WorkerProcess
from tests.support.patience import until


class Worker(WorkerProcess):
    """Answers when a test says so."""

    def __init__(self, lab: "Lab") -> None:
        super().__init__()
        self._lab = lab
        self._is_running = False
        self.kills = 0

    @property
    def is_running(self) -> bool:
        return self._is_running

    async def ask(self, request: Callable[[], bytes], timeout_s: float) -> bytes:
        name, self._is_running = request().decode(), True
        done = self._lab.running[name] = asyncio.get_running_loop().create_future()
        try:
            await done
        finally:
            del self._lab.running[name]
        return b""

    def kill(self) -> None:
        self.kills += 1


class Lab:
    """A pool, and the pages that its processes work on."""

    def __init__(self, size: int, **options: Any) -> None:
        self.running: dict[str, asyncio.Future[None]] = {}
        self.workers = [Worker(self) for _ in range(size)]
        self.pool = WorkerPool(list(self.workers), **options)

    async def ask(self, *pages: str, is_slow: bool = False) -> list[asyncio.Task[bytes]]:
        """Of each page, the part before the slash is the domain."""
        tasks = [
            asyncio.create_task(self.pool.ask(page.partition("/")[0], page.encode, 1.0, is_slow=is_slow))
            for page in pages
        ]
        await self.settle()
        return tasks

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def done(self) -> str:
        """The page that has been worked on for longest is done."""
        page = next(iter(self.running))
        self.running[page].set_result(None)
        await self.settle()
        return page

    async def all_done(self) -> None:
        while self.running:
            await self.done()


async def test_domains_take_turns_however_many_pages_one_has() -> None:
    lab = Lab(1)
    await lab.ask("a/1", "a/2", "a/3", "a/4", "b/1", "c/1", "b/2")
    assert [await lab.done() for _ in range(7)] == ["a/1", "a/2", "b/1", "c/1", "a/3", "b/2", "a/4"]


async def test_slow_domains_never_hold_the_last_process_and_come_last() -> None:
    lab = Lab(2)
    await lab.ask(*(f"slow{n}/1" for n in range(12)), is_slow=True)
    assert list(lab.running) == ["slow0/1"]
    await lab.ask("good/1")
    assert list(lab.running) == ["slow0/1", "good/1"], "at once"
    await lab.ask("good/2", "other/1")
    await lab.done()
    assert list(lab.running) == ["good/1", "good/2"]
    await lab.done()
    await lab.done()
    assert list(lab.running) == ["other/1", "slow1/1"]
    await lab.all_done()


async def test_slow_domains_get_the_only_process() -> None:
    lab = Lab(1)
    await lab.ask("slow/1", "slow/2", is_slow=True)
    assert [await lab.done(), await lab.done()] == ["slow/1", "slow/2"]


@pytest.mark.parametrize("at", ["waiting", "handed out", "running"])
async def test_a_cancelled_page_frees_its_turn(at: str) -> None:
    lab = Lab(1)
    await lab.ask("a/1", is_slow=True)
    (second,) = await lab.ask("b/1", is_slow=True)
    if at != "waiting":
        lab.running["a/1"].set_result(None)
        await asyncio.sleep(0)
        if at == "running":
            await lab.settle()
    second.cancel()
    await lab.settle()
    if at == "waiting":
        await lab.done()
    await lab.ask("c/1", is_slow=True)
    assert list(lab.running) == ["c/1"]
    await lab.all_done()


async def test_processes_without_pages_for_long_are_ended() -> None:
    lab = Lab(2, idle_s=0.01)
    await lab.ask("a/1", "b/1")
    await lab.done()
    await asyncio.sleep(0.03)
    assert [worker.kills for worker in lab.workers] == [0, 0], "one has a page"
    await lab.done()
    await until(lambda: [worker.kills for worker in lab.workers] == [1, 1])


async def test_another_process_is_started_when_pages_have_waited_for_some_time() -> None:
    lab = Lab(3, start_after_s=0.2)
    await lab.ask("a/1", "b/1", "c/1")
    assert list(lab.running) == ["a/1"]
    await lab.done()
    await lab.done()
    assert list(lab.running) == ["c/1"]
    await asyncio.sleep(0.3)
    assert [worker.is_running for worker in lab.workers] == [True, False, False], "nobody waits any more"
    await lab.ask("d/1", "e/1", "f/1")
    await until(lambda: list(lab.running) == ["c/1", "d/1"])
    await until(lambda: list(lab.running) == ["c/1", "d/1", "e/1"])
    await lab.all_done()
    await lab.ask("g/1", "h/1", "i/1")
    assert list(lab.running) == ["g/1", "h/1", "i/1"], "those that run wait for nothing"
    await lab.all_done()
