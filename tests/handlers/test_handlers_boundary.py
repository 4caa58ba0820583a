"""The boundary to users' code: whatever it is made of, it comes back as a value, and nothing of ours ends with it."""

import asyncio
import contextlib
import random
import threading
import time
from typing import Any

import pytest

from crawler.handlers import loop_end, run
from crawler.handlers.crawler import Crawler
from crawler.handlers.guards import end_users_tasks, guard_tasks
from crawler.handlers.page_run import Handled, HandlerError, run_handler
from crawler.handlers.tasks import CodeFailure
from crawler.handlers.threads import Threads
from tests.handlers.test_handlers_page import page
from tests.handlers.users_code import LIMITS, run_code, silence
from tests.support.patience import PATIENCE_S

CPU_S = 1.5
RUNS_MIN = 200


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_end, "GRACE_S", 0.01)


@pytest.mark.slow(ci=True)
async def test_users_code_of_random_steps_comes_back_as_a_value() -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # of tasks that nobody awaits
    threads, began_s, kinds, seed = Threads(2), time.process_time(), {Handled: 0, HandlerError: 0}, 0
    with silence():
        while time.process_time() - began_s < CPU_S or seed < RUNS_MIN:
            seed += 1
            random_ = random.Random(seed)
            data = random_.randbytes(random_.choice((4, 20, 80)))
            try:
                async with asyncio.timeout(PATIENCE_S):
                    found = await run_code(data, threads)
            except BaseException as error:
                raise AssertionError(f"seed {seed}, {data.hex()}: {type(error).__name__}: {error}") from error
            kinds[type(found)] += 1
        await end_users_tasks(0.5)
    assert min(kinds.values()) > RUNS_MIN // 10, kinds


async def test_what_an_exception_says_may_take_as_long_as_the_function() -> None:
    """A thread is left behind with it."""
    over = threading.Event()

    class Endless(Exception):
        def __str__(self) -> str:
            while not over.wait(0.01):
                pass
            return "late"

    def handler(page: Any) -> Any:
        raise Endless

    made = Crawler()
    made.page(timeout_s=0.05)(handler)
    try:
        with pytest.raises(HandlerError, match=r"not done after 0\.05 s"):
            await run_handler(made.handlers[0], page(), LIMITS, Threads(1))
    finally:
        over.set()


@pytest.mark.parametrize("is_in_tasks", [False, True])
async def test_code_that_lives_through_its_cancellations_is_left_behind_and_its_caller_ends(is_in_tasks: bool) -> None:
    is_over, loop = False, asyncio.get_running_loop()
    guard_tasks(loop)
    loop.set_exception_handler(lambda *_: None)  # of tasks that nobody awaits

    async def clings() -> Any:
        while not is_over:
            with contextlib.suppress(BaseException):
                await asyncio.sleep(60)

    async def stream() -> Any:
        yield await (asyncio.gather(clings(), asyncio.create_task(clings())) if is_in_tasks else clings())

    async def call(timeout_s: float) -> CodeFailure | None:
        return await run.call_asynchronous(stream, (), lambda _: None, timeout_s)

    with silence():
        async with asyncio.timeout(PATIENCE_S):
            failure = await call(0.02)
        assert failure is not None
        assert failure.is_late
        caller = asyncio.create_task(call(60))
        await asyncio.sleep(0.02)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(PATIENCE_S):
                await caller
        is_over = True
        run._left_behind.clear()
        await end_users_tasks(0.1)


async def test_a_caller_that_is_cancelled_waits_for_what_its_code_cleans_up() -> None:
    cleaned = []

    async def handler() -> Any:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    async def stream() -> Any:
        yield await handler()

    async def call() -> CodeFailure | None:
        return await run.call_asynchronous(stream, (), lambda _: None, 60)

    caller = asyncio.create_task(call())
    await asyncio.sleep(0.005)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert cleaned == [True]
