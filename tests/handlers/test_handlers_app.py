"""Which handler gets a page, and what is no handler."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from crawler.errors import UsageError
from crawler.handlers.app import Crawler


def app() -> Crawler:
    made = Crawler()

    @made.page("*.shop.test/product/*", "shop.test/p/*")
    async def product(page: Any) -> AsyncIterator[Any]:
        yield page

    @made.page("*.shop.test")
    async def shop(page: Any) -> None: ...

    @made.page(label="detail")
    def detail(page: Any) -> Iterator[Any]:
        yield page

    return made


@pytest.mark.parametrize(
    ("url", "label", "name"),
    [
        ("https://shop.test/product/1", "", "product"),
        ("https://www.shop.test/product/1?x", "", "product"),
        ("https://shop.test/p/1", "", "product"),
        ("https://shop.test/", "", "shop"),
        ("https://shop.test/product/1", "detail", "detail"),
        ("https://other.test/", "detail", "detail"),
    ],
)
def test_the_label_decides_and_else_the_first_pattern_that_fits(url: str, label: str, name: str) -> None:
    handler = app().handler_for(url, label)
    assert handler is not None
    assert handler.name == name


def test_what_fits_no_pattern_goes_to_the_handler_without_one_if_there_is_one() -> None:
    made = app()
    assert made.handler_for("https://other.test/") is None

    @made.page()
    def rest(page: Any) -> None: ...

    handler = made.handler_for("https://other.test/")
    assert handler is not None
    assert handler.name == "rest"


def test_an_unknown_label_is_told_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match=r"no handler has the label 'x' \(there are: detail\)"):
        app().handler_for("https://shop.test/", "x")


async def collected(function: Any, page: Any) -> list[Any]:
    made = Crawler()
    made.page()(function)
    return [item async for item in made.handlers[0].stream(page)]


async def test_each_kind_of_function_gives_its_items() -> None:
    async def asynchronous_generator(page: Any) -> AsyncIterator[Any]:
        yield page
        yield 2

    def generator(page: Any) -> Iterator[Any]:
        yield page
        yield 2

    async def coroutine(page: Any) -> Any:
        return page

    async def nothing(page: Any) -> None: ...

    assert await collected(asynchronous_generator, 1) == await collected(generator, 1) == [1, 2]
    assert await collected(coroutine, 1) == await collected(lambda page: page, 1) == [1]
    assert await collected(nothing, 1) == await collected(lambda page: None, 1) == []
    assert await collected(lambda page: coroutine(page), 1) == [1]


@pytest.mark.parametrize(
    ("define", "said"),
    [
        (lambda a: a.page("/x")(print), "expected HOST/PATH"),
        (lambda a: a.page(lambda page: None), "with its brackets"),
        (lambda a: a.page(label="detail")(lambda page: None), "is that of detail"),
        (lambda a: [a.page()(lambda page: None) for _ in range(2)], "no pattern and no label either"),
        (lambda a: a.page(timeout_s=0), "above 0"),
        (lambda a: a.page("a.test")(lambda: None), "one argument, the page"),
        (lambda a: a.page("a.test")("text"), "is a function"),
    ],
)
def test_what_is_no_handler_is_told_in_one_line_when_it_is_defined(define: Any, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        define(app())
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_listeners_are_kept_by_what_they_listen_to() -> None:
    made, heard = Crawler(), []
    assert made.on_skip(heard.append) is not None
    made.on_finish(heard.clear)
    assert [len(found) for found in made.listeners.values()] == [0, 1, 0, 0, 1]
