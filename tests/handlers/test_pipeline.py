"""Functions of `@app.item`: each kind behind each kind of handler, and what they may not do."""

import asyncio
import itertools
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from crawler.errors import UsageError
from crawler.handlers.crawler import Crawler
from crawler.handlers.page_run import Handled, HandlerError, Limits, run_handler
from crawler.handlers.threads import Threads
from crawler.testing import call_handler
from tests.handlers.test_handlers_page import page
from tests.support.patience import PATIENCE_S

LIMITS = Limits(items_max=50, bytes_max=10_000)
Function = Callable[..., Any]


def app_of(handler: Function, *functions: Function, **how: Any) -> Crawler:
    made = Crawler()
    made.page(**{"timeout_s": PATIENCE_S, **how})(handler)
    for function in functions:
        assert made.item(function) is function
    return made


async def run(handler: Function, *functions: Function, threads: int = 2, **how: Any) -> Handled:
    made = app_of(handler, *functions, **how)
    return await run_handler(made.handlers[0], page(), LIMITS, Threads(threads), made.pipeline)


async def failure(handler: Function, *functions: Function, **how: Any) -> HandlerError:
    with pytest.raises(HandlerError) as raised:
        await run(handler, *functions, **how)
    assert "\n" not in str(raised.value)
    return raised.value


def items_of(handled: Handled) -> list[Any]:
    return [json.loads(item) for item in handled.items]


async def asynchronous(page: Any) -> AsyncIterator[Any]:
    for n in range(4):
        yield {"n": n}
        await asyncio.sleep(0)


def plain(page: Any) -> Iterator[Any]:
    for n in range(4):
        yield {"n": n}


def numbered(page: Any) -> Any:
    """A plain function that returns what is to be awaited, as decorated ones do."""

    async def one() -> Any:
        return {"n": 2}

    return one()


def kinds_of(make: Callable[[Any], list[Any]]) -> list[Function]:
    """Each kind of function that makes these of an item: none, one or several."""

    async def asynchronous_generator(item: Any) -> Any:
        for one in make(item):
            await asyncio.sleep(0)
            yield one

    def generator(item: Any) -> Any:
        yield from make(item)

    return [asynchronous_generator, generator]


def kinds_of_one(make: Callable[[Any], Any]) -> list[Function]:
    async def coroutine(item: Any) -> Any:
        return make(item)

    def with_page(item: Any, page: Any) -> Any:
        assert page.title == "Tea"
        return make(item)

    class Called:
        async def __call__(self, item: Any) -> Any:
            return make(item)

    return [coroutine, with_page, lambda item: coroutine(item), Called(), *kinds_of(lambda item: [make(item)])]


HANDLERS = [asynchronous, plain]
DOUBLED = kinds_of_one(lambda item: {"n": item["n"] * 2})
SPLIT = kinds_of(lambda item: [item] * item["n"])


@pytest.mark.parametrize("handler", HANDLERS)
@pytest.mark.parametrize("doubled", DOUBLED)
@pytest.mark.parametrize("split", SPLIT)
async def test_items_are_changed_split_and_dropped_in_the_order_of_definition(
    handler: Function, doubled: Function, split: Function
) -> None:
    found = await run(handler, doubled, split)
    assert [item["n"] for item in items_of(found)] == [2, 2, 4, 4, 4, 4, 6, 6, 6, 6, 6, 6]
    assert found.dropped_count == 1
    found = await run(handler, split, doubled)
    assert [item["n"] for item in items_of(found)] == [2, 4, 4, 6, 6, 6]
    assert found.dropped_count == 1
    assert call_handler(app_of(handler, split, doubled), page()).items == items_of(found)


@pytest.mark.parametrize("handler", [*HANDLERS, numbered])
async def test_an_item_that_any_kind_of_function_drops_is_counted(handler: Function) -> None:
    def keeps_two(item: Any) -> Any:
        return item if item["n"] == 2 else None

    for drops in (keeps_two, *kinds_of(lambda item: [item] if item["n"] == 2 else [])):
        found = await run(handler, drops)
        assert items_of(found) == [{"n": 2}]
        assert found.dropped_count == (0 if handler is numbered else 3)
        assert call_handler(app_of(handler, drops), page()).items == [{"n": 2}]


async def test_an_item_goes_all_the_way_before_the_next_is_made() -> None:
    told = []

    async def handler(page: Any) -> Any:
        item = {}
        for n in range(2):
            told.append(f"yield {n}")
            item["n"] = n  # the same object
            yield item

    def first(item: Any) -> Any:
        told.append(f"first {item['n']}")
        yield item
        told.append(f"first again {item['n']}")
        yield item

    async def second(item: Any) -> Any:
        told.append(f"second {item['n']}")
        return item

    assert items_of(await run(handler, second)) == [{"n": 0}, {"n": 1}]
    told.clear()

    def twice(item: Any) -> Any:
        return first(item)

    def handler_in_thread(page: Any) -> Any:
        for n in range(2):
            told.append(f"yield {n}")
            yield {"n": n}

    await run(handler_in_thread, twice, second)
    assert told == [
        step.format(n=n)
        for n in range(2)
        for step in ("yield {n}", "first {n}", "second {n}", "first again {n}", "second {n}")
    ]


@pytest.mark.parametrize("handler", HANDLERS)
async def test_plain_functions_may_block_and_asynchronous_ones_run_in_the_loop(handler: Function) -> None:
    may_go, seen = threading.Event(), list[bool]()
    loop = asyncio.get_running_loop()

    async def asynchronous_function(item: Any) -> Any:
        assert asyncio.get_running_loop() is loop
        may_go.set()
        return item

    def blocks(item: Any) -> Any:
        assert may_go.wait(PATIENCE_S), "the loop stands still meanwhile"
        seen.append(threading.current_thread() is threading.main_thread())
        return item

    assert len((await run(handler, asynchronous_function, blocks, threads=1)).items) == 4
    assert seen == [False] * 4


async def test_a_function_may_follow_and_what_it_makes_is_checked_as_what_a_handler_yields() -> None:
    def changes(item: Any, page: Any) -> Any:
        page.follow(f"/{item['n']}")
        yield {"n": str(item["n"])}
        yield ["not", "an", "item"]

    for handler in HANDLERS:
        found = await run(handler, changes)
        assert [one.url for one in found.followed] == [f"https://shop.test/{n}" for n in range(4)]
        assert [item["n"] for item in items_of(found)] == ["0", "1", "2", "3"]
        assert (found.invalid_count, found.dropped_count) == (4, 0)


def raises(item: Any) -> Any:
    return item["price"]


async def raises_too(item: Any) -> Any:
    yield item
    raises(item)


@pytest.mark.parametrize("handler", HANDLERS)
@pytest.mark.parametrize("function", [raises, raises_too])
async def test_what_it_raises_fails_the_page_with_its_name_and_place(handler: Function, function: Function) -> None:
    error = await failure(handler, DOUBLED[0], function, SPLIT[1])
    assert str(error).startswith("KeyError: 'price' (test_pipeline.py:")
    assert str(error).endswith(f"in raises) (@app.item {function.__name__})")
    assert 'return item["price"]' in error.trace
    with pytest.raises(KeyError, match="price"):
        call_handler(app_of(handler, function), page())


async def test_what_a_handler_raises_between_two_items_is_its_own() -> None:
    async def handler(page: Any) -> Any:
        yield {"n": 1}
        raise KeyError("price")

    assert "@app.item" not in str(await failure(handler, DOUBLED[0], DOUBLED[1]))


@pytest.mark.parametrize(
    "error", [SystemExit(1), KeyboardInterrupt(), StopIteration(), TimeoutError("own"), asyncio.CancelledError()]
)
@pytest.mark.parametrize("handler", HANDLERS)
async def test_whatever_it_raises_ends_nothing_else(handler: Function, error: BaseException) -> None:
    def plain_function(item: Any) -> Any:
        raise error

    async def asynchronous_function(item: Any) -> Any:
        raise error

    for function in (plain_function, asynchronous_function):
        failed = await failure(handler, function)
        assert function.__name__ in str(failed)
        assert "not done after" not in str(failed)


@pytest.mark.parametrize("handler", HANDLERS)
async def test_its_time_is_that_of_the_handler(handler: Function) -> None:
    released = threading.Event()

    async def waits(item: Any) -> Any:
        await asyncio.sleep(PATIENCE_S)

    def hangs(item: Any) -> Any:
        released.wait(PATIENCE_S)

    try:
        for function in (waits, hangs):
            error = await failure(handler, function, timeout_s=0.5)  # its function is called before
            assert str(error) == f"not done after 0.5 s (@app.item {function.__name__}) (handler {handler.__name__})"
    finally:
        released.set()


def endless(item: Any) -> Any:
    return ({"n": n} for n in itertools.count())


async def endless_too(item: Any) -> Any:
    for n in itertools.count():
        yield {"n": n}


@pytest.mark.parametrize("handler", HANDLERS)
@pytest.mark.parametrize("function", [endless, endless_too])
async def test_a_function_without_end_stops_at_the_bounds_of_items(handler: Function, function: Function) -> None:
    error = await failure(handler, function)
    assert str(error) == f"more than 50 items of one page, handlers.items_max ({handler.__name__})"
    error = await failure(handler, function, lambda item: None)
    assert str(error) == f"more than 50 items of one page, handlers.items_max ({function.__name__})"
    error = await failure(handler, lambda item: {"long": "x" * 3000})
    assert str(error) == f"items of more than 10000 bytes of one page ({handler.__name__})"


async def test_an_endless_handler_whose_items_are_all_dropped_stops_too() -> None:
    for handler in (endless, endless_too):
        error = await failure(handler, lambda item: None)
        assert str(error) == f"more than 50 items of one page, handlers.items_max ({handler.__name__})"


async def test_a_cancelled_call_ends_what_it_began() -> None:
    ended, begun = asyncio.Event(), asyncio.Event()

    async def waits(item: Any) -> Any:
        begun.set()
        try:
            await asyncio.sleep(PATIENCE_S)
        finally:
            ended.set()

    for handler in HANDLERS:
        ended.clear()
        begun.clear()
        task = asyncio.create_task(run(handler, waits))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(ended.wait(), PATIENCE_S)


@pytest.mark.parametrize(
    ("function", "said"),
    [(lambda: None, "too many positional"), (lambda item, page, more: None, "missing a required"), (7, "not 7")],
)
def test_what_cannot_be_called_with_an_item_is_refused(function: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Crawler().item(function)


async def test_without_functions_nothing_is_in_the_way() -> None:
    began = time.monotonic()
    assert items_of(await run(plain)) == items_of(await run(asynchronous)) == [{"n": n} for n in range(4)]
    assert (await run(plain)).dropped_count == 0
    assert time.monotonic() - began < PATIENCE_S
