"""Which handler gets a page, and what is no handler."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from crawler.errors import UsageError
from crawler.handlers.crawler import Crawler


def app() -> Crawler:
    made = Crawler()

    @made.page("*.shop.test/product/*", "shop.test/p/*")
    async def product(page: Any) -> Any:
        yield page

    @made.page("*.shop.test")
    async def shop(page: Any) -> None: ...

    @made.page("*.shop.test", statuses=(404, 410))
    async def gone(page: Any) -> None: ...

    @made.page(label="detail")
    def detail(page: Any) -> Iterator[Any]:
        yield page

    return made


@pytest.mark.parametrize(
    ("url", "label", "status", "name"),
    [
        ("https://shop.test/product/1", "", 200, "product"),
        ("https://www.shop.test/product/1?x", "", 203, "product"),
        ("https://shop.test/p/1", "", 200, "product"),
        ("https://shop.test/", "", 200, "shop"),
        ("https://shop.test/product/1", "detail", 200, "detail"),
        ("https://other.test/", "detail", 200, "detail"),
        ("https://other.test/", "", 200, ""),
        ("https://shop.test/product/1", "", 404, "gone"),
        ("https://shop.test/product/1", "", 301, ""),
        ("https://shop.test/product/1", "detail", 404, ""),
        ("https://shop.test/product/1", "nobody's", 200, "product"),
    ],
)
def test_the_label_decides_and_else_the_first_pattern_that_fits_of_those_for_the_status(
    url: str, label: str, status: int, name: str
) -> None:
    handler = app().handler_for(url, label, status)
    assert (handler.name if handler else "") == name


def test_what_fits_no_pattern_goes_to_the_handler_without_one_if_there_is_one() -> None:
    made = app()
    assert made.handler_for("https://other.test/") is None

    @made.page()
    def rest(page: Any) -> None: ...

    @made.page(statuses=(500,))
    def broken(page: Any) -> None: ...

    assert made.handlers[-2:] == [made.handler_for("https://other.test/"), made.handler_for("https://a.test/", "", 500)]


@pytest.mark.parametrize(
    ("define", "said"),
    [
        (lambda a: a.page("/x")(print), "expected HOST/PATH"),
        (lambda a: a.page(lambda page: None), "with its brackets"),
        (lambda a: a.page(label="detail")(lambda page: None), "is already used by detail"),
        (lambda a: a.page(label="a/b"), "at most 32 letters"),
        (lambda a: [a.page()(lambda page: None) for _ in range(2)], "has neither a pattern nor a label"),
        (lambda a: a.page(timeout_s=0), "above 0"),
        (lambda a: a.page(statuses=404), "like (404, 410)"),
        (lambda a: a.page(statuses=("404",)), "like (404, 410)"),
        (lambda a: a.page(statuses=(99,)), "like (404, 410)"),
        (lambda a: a.page(item=int), "expected a msgspec.Struct"),
        (lambda a: a.page("a.test")(lambda: None), "called with (page)"),
        (lambda a: a.page("a.test")("text"), "is a function"),
        (lambda a: a.on_skip(lambda url: None), "called with (url, reason)"),
        (lambda a: a.on_finish(lambda: None), "called with (why)"),
    ],
)
def test_what_is_no_handler_is_told_in_one_line_when_it_is_defined(define: Callable[[Crawler], Any], said: str) -> None:
    with pytest.raises(UsageError) as raised:
        define(app())
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_listeners_are_kept_by_what_they_listen_to() -> None:
    made, heard = Crawler(), list[Any]()

    @made.on_skip
    def skipped(url: str, reason: str) -> None:
        heard.append((url, reason))

    assert made.on_finish(heard.append) is not None
    assert {event: len(found) for event, found in made.listeners.items() if found} == {"skip": 1, "finish": 1}
