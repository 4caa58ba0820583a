"""A handler and one page: what comes of each kind of function, and that no failure gets past it."""

import asyncio
import contextlib
import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from crawler.handlers.crawler import Crawler
from crawler.handlers.page_run import Handled, HandlerError, Limits, run_handler
from crawler.handlers.threads import LOST_MAX, AllHangError, Threads
from crawler.model import Followed
from tests.handlers.test_handlers_page import page
from tests.support.patience import PATIENCE_S

LIMITS = Limits(items_max=50, bytes_max=10_000)


async def run(
    function: Callable[..., Any], *, timeout_s: float = PATIENCE_S, limits: Limits = LIMITS, **how: Any
) -> Handled:
    made = Crawler()
    made.page(timeout_s=timeout_s, **how)(function)
    return await run_handler(made.handlers[0], page(), limits, Threads(2))


async def failure(function: Callable[..., Any], **how: Any) -> HandlerError:
    with pytest.raises(HandlerError) as raised:
        await run(function, **how)
    assert "\n" not in str(raised.value)
    return raised.value


async def test_each_kind_of_function_gives_its_items() -> None:
    async def asynchronous_generator(page: Any) -> Any:
        yield {"n": 1}
        await asyncio.sleep(0)
        yield {"n": 2}

    def generator(page: Any) -> Any:
        yield {"n": 1}
        yield {"n": 2}

    async def coroutine(page: Any) -> Any:
        return {"n": 1}

    async def nothing(page: Any) -> None: ...

    class Called:
        async def __call__(self, page: Any) -> Any:
            return {"n": 1}

    two, one = [b'{"n":1}', b'{"n":2}'], [b'{"n":1}']
    assert (await run(asynchronous_generator)).items == (await run(generator)).items == two
    assert (await run(lambda page: generator(page))).items == two
    for function in (coroutine, lambda page: {"n": 1}, lambda page: coroutine(page), Called()):
        assert (await run(function)).items == one
    assert (await run(functools.partial(coroutine))).items == one
    assert (await run(nothing)).items == (await run(lambda page: None)).items == []


async def test_plain_functions_run_in_a_thread_and_may_block_others_run_in_the_loop() -> None:
    over = threading.Event()

    def plain(page: Any) -> Any:
        assert over.wait(PATIENCE_S), "the loop stands still meanwhile"
        return {"thread": threading.current_thread() is threading.main_thread()}

    async def asynchronous(page: Any) -> Any:
        return {"thread": threading.current_thread() is threading.main_thread()}

    running = asyncio.create_task(run(plain))
    await asyncio.sleep(0.02)
    over.set()
    assert (await running).items == [b'{"thread":false}']
    assert (await run(asynchronous)).items == [b'{"thread":true}']


async def test_where_it_leads_comes_along_and_invalid_items_are_counted_and_left_out() -> None:
    async def handler(page: Any) -> Any:
        page.follow("a.next", label="list", priority=2)
        for n in range(8):
            yield n
        yield {"valid": True}

    found = await run(handler)
    assert found.items == [b'{"valid":true}']
    assert found.followed == [Followed("https://shop.test/shop/tea?page=2", "list", 2)]
    assert (found.invalid_count, len(found.invalid)) == (8, 5)


async def test_what_it_raises_is_one_line_with_its_place_and_a_traceback_of_its_own_lines() -> None:
    def reads(page: Any) -> Any:
        return page.css_first("h7").text()

    async def asynchronous(page: Any) -> Any:
        yield {"fine": True}
        reads(page)

    for function in (reads, asynchronous):
        error = await failure(function)
        assert str(error).startswith(
            "LookupError: nothing fits 'h7' on https://shop.test/tea (test_handlers_running.py:"
        )
        assert str(error).endswith("in reads)")
        assert 'page.css_first("h7").text()' in error.trace
        assert "crawler/handlers" not in error.trace
        assert error.trace.endswith("nothing fits 'h7' on https://shop.test/tea")


async def test_no_way_of_failing_gets_past() -> None:
    def endless_depth(page: Any) -> Any:
        return endless_depth(page)

    def raising(error: BaseException) -> Callable[[Any], Any]:
        def plain(page: Any) -> Any:
            raise error

        return plain

    def raising_async(error: BaseException) -> Callable[[Any], Any]:
        async def asynchronous(page: Any) -> Any:
            raise error

        return asynchronous

    async def ignores_its_end(page: Any) -> Any:
        try:
            yield {"n": 1}
        finally:
            yield {"n": 2}
            raise ValueError("late")

    assert "RecursionError" in str(await failure(endless_depth))
    for error in (SystemExit(3), StopIteration(), KeyboardInterrupt(), asyncio.CancelledError(), TimeoutError("own")):
        for make in (raising, raising_async):
            assert type(error).__name__ in str(await failure(make(error))), make
    assert "ValueError: late" in str(await failure(ignores_its_end))
    long = await failure(raising(ValueError("x" * 10_000)))
    assert len(str(long)) < 500
    assert len(long.trace) <= 4000


async def test_too_many_items_and_too_many_bytes_end_a_handler() -> None:
    def endless(page: Any) -> Any:
        while True:
            yield {}

    async def endless_async(page: Any) -> Any:
        while True:
            yield "no item"

    def huge(page: Any) -> Any:
        for _ in range(20):
            yield {"text": "x" * 1000}

    assert "handlers.items_max (endless)" in str(await failure(endless))
    assert "handlers.items_max (endless_async)" in str(await failure(endless_async))
    assert "bytes of one page (huge)" in str(await failure(huge))


async def test_the_time_limit_holds_for_each_kind_and_leaves_nobody_waiting() -> None:
    async def sleeps(page: Any) -> Any:
        await asyncio.Event().wait()

    async def clings(page: Any) -> Any:
        for _ in range(2):
            with contextlib.suppress(BaseException):
                await asyncio.Event().wait()

    def blocks(page: Any) -> Any:
        over.wait()

    def yields_for_ever(page: Any) -> Any:
        while True:
            time.sleep(0.01)
            yield {}

    over = threading.Event()
    try:
        for function in (sleeps, clings, blocks, yields_for_ever):
            limits = Limits(items_max=10**9, bytes_max=10**9)
            error = await failure(function, timeout_s=0.1, limits=limits)
            assert str(error) == f"not done after 0.1 s (handler {function.__name__})"
    finally:
        over.set()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_threads_that_hang_are_replaced_up_to_a_number() -> None:
    threads, over = Threads(1), threading.Event()
    for _ in range(LOST_MAX):
        with pytest.raises(TimeoutError):
            await threads.run(lambda: over.wait(60), 0.001)
    with pytest.raises(AllHangError):
        await threads.run(lambda: None, PATIENCE_S)
    over.set()
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        await asyncio.sleep(0.01)
        try:
            assert await threads.run(lambda: 7, PATIENCE_S) == 7
            break
        except AllHangError:
            continue
    else:
        pytest.fail("it never recovered")


async def test_a_handler_that_is_cut_off_with_its_worker_is_cancelled() -> None:
    ended = []

    async def handler(page: Any) -> Any:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cleaned up")

    running = asyncio.create_task(run(handler))
    await asyncio.sleep(0.05)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended == ["cleaned up"]
