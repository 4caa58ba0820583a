"""Pages made by hand, and handlers called with them, as users do it in their own tests."""

import asyncio
import functools
from typing import Any

import msgspec
import pytest

from crawler import Crawler
from crawler.errors import InvalidUrl
from crawler.testing import call_handler, fake_page

HTML = '<title>Shop</title><h1>Lamp</h1><a class=next href="/page/2">more</a><a href="http://other.test/#x">other</a>'


def test_a_fake_page_is_what_a_handler_would_be_given() -> None:
    page = fake_page("http://Shop.Example.com:80/lamp#top", HTML, headers={"X-Shelf": "4"}, depth=2, label="detail")
    assert (page.url, page.domain, page.depth, page.label) == (
        "http://shop.example.com/lamp",
        "example.com",
        2,
        "detail",
    )
    assert (page.status, page.title, page.css_first("h1").text()) == (200, "Shop", "Lamp")
    assert page.links() == ["http://shop.example.com/page/2", "http://other.test/"]
    assert page.headers["x-shelf"] == "4"
    assert page.headers["content-type"] == "text/html; charset=utf-8"


def test_a_fake_page_may_be_of_any_kind_status_and_charset() -> None:
    assert fake_page("http://a.test/", '{"price": 3}', headers={"content-type": "application/json"}).json() == {
        "price": 3
    }
    latin = fake_page("http://a.test/", body="<meta charset=iso-8859-1><h1>Käse</h1>".encode("latin-1"), status=404)
    assert (latin.css_first("h1").text(), latin.status) == ("Käse", 404)
    with pytest.raises(InvalidUrl):
        fake_page("lamp.html")


def plain(page: Any) -> Any:
    yield {"title": page.css_first("h1").text()}
    page.follow("a.next", priority=5)


async def streaming(page: Any) -> Any:
    yield {"title": page.css_first("h1").text()}
    await asyncio.sleep(0)
    page.follow("a.next", priority=5)


async def returning(page: Any) -> Any:
    page.follow("a.next", priority=5)
    return {"title": page.css_first("h1").text()}


@functools.wraps(plain)
def wrapping(page: Any) -> Any:
    return returning(page)


@pytest.mark.parametrize("handler", [plain, streaming, returning, wrapping])
def test_every_kind_of_function_can_be_called(handler: Any) -> None:
    items, followed = call_handler(handler, fake_page("http://a.test/", HTML))
    assert items == [{"title": "Lamp"}]
    assert [(one.url, one.priority) for one in followed] == [("http://a.test/page/2", 5)]


async def test_a_handler_can_be_called_in_a_test_that_has_an_event_loop() -> None:
    assert call_handler(streaming, fake_page("http://a.test/", HTML)).items == [{"title": "Lamp"}]


def test_what_a_handler_raises_is_what_the_test_sees() -> None:
    with pytest.raises(LookupError, match="nothing fits 'h1'"):
        call_handler(streaming, fake_page("http://a.test/"))


def test_an_app_calls_the_handler_that_is_for_the_page_with_its_schema() -> None:
    class Item(msgspec.Struct):
        price: float

    app = Crawler()

    @app.page("*.test/lamp", item=Item)
    def lamp(page: Any) -> Any:
        return {"price": page.text}

    @app.page(label="detail", item=Item)
    def detail(page: Any) -> Any:
        return {"price": 3}

    assert call_handler(app, fake_page("http://a.test/lamp", label="detail")).items == [{"price": 3.0}]
    with pytest.raises(ValueError, match=r"invalid item .*field price: Expected `float`"):
        call_handler(app, fake_page("http://a.test/lamp", "cheap"))
    with pytest.raises(LookupError, match=r"no handler is for http://a\.test/other"):
        call_handler(app, fake_page("http://a.test/other"))


def test_a_fake_page_has_the_rights_that_its_headers_and_markup_state() -> None:
    page = fake_page(
        "http://a.test/", '<meta name="tdm-reservation" content="1">', headers={"Content-Usage": "search=y"}
    )
    assert (page.rights.search, page.rights.ai_train, page.rights.tdm) == ("y", "n", "n")
    assert fake_page("http://a.test/").rights.search == ""
