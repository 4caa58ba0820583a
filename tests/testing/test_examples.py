"""The apps in examples/ find all that the made-up web has; test_docs.py runs the commands of their page."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from crawler.testing import Crawled, ExampleWeb, ServedWeb, crawl, serve
from crawler.testing.example_sites import PASSWORD, TOKEN
from tests.support.pages import blocks_of

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
WEB = ExampleWeb()
HANDLERS_ONLY = {"scope.follow": "handlers"}


@pytest.fixture(scope="module")
def web() -> Iterator[ServedWeb]:
    with serve(WEB) as web:
        yield web


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def crawled(name: str, seed: str | tuple[()], web: ServedWeb, **settings: object) -> Crawled:
    done = crawl(example(name).app, seed, web=web, settings=settings)
    assert done.dead == {}
    return done


def test_quotes_and_authors_are_all_found(web: ServedWeb) -> None:
    items = crawled("quotes", "http://quotes.test/", web, **{"scope.mode": "any"}).items
    quotes = [{name: one[name] for name in ("text", "author", "tags")} for one in items if one["kind"] == "quote"]
    born = {one["name"]: one["born"] for one in items if one["kind"] == "author"}
    assert sorted(map(repr, quotes)) == sorted(map(repr, WEB.quotes))
    assert born == {author["name"]: author["born"] for author in WEB.authors if author["name"] in born}
    assert set(born) == {quote["author"] for quote in WEB.quotes}


def test_the_example_of_the_tutorial_is_the_file() -> None:
    blocks = [block.text for block in blocks_of(ROOT / "docs/guide/first-crawl.md") if block.name == "quotes.py"]
    assert blocks[-1] == (EXAMPLES / "quotes.py").read_text("utf-8")


def test_all_products_of_the_shop_are_found(web: ServedWeb) -> None:
    items = crawled("shop", "http://shop.test/", web, **HANDLERS_ONLY).items
    assert sorted(items, key=lambda one: one["url"]) == sorted(WEB.products, key=lambda one: one["url"])


def test_what_a_list_says_comes_with_its_products(web: ServedWeb) -> None:
    items = crawled("ranks", "http://shop.test/", web, **HANDLERS_ONLY).items
    wanted = [{"place": place, "name": one["name"], "price": one["price"]} for place, one in enumerate(WEB.products, 1)]
    assert sorted(items, key=lambda one: int(one["place"])) == wanted


def test_members_log_in_again_whenever_their_session_ends(web: ServedWeb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMBERS_PASSWORD", PASSWORD)
    items = crawled("members", (), web, **HANDLERS_ONLY).items
    assert sorted(one["text"] for one in items) == sorted(one["text"] for one in WEB.sites.quotes)


def test_a_search_by_post_is_read_to_its_end(web: ServedWeb) -> None:
    items = crawled("search", (), web).items
    wanted = [
        {"word": word, "tea": one["name"]}
        for word in ("assam", "tin")
        for one in WEB.products
        if word in one["name"].lower()
    ]
    assert sorted(map(repr, items)) == sorted(map(repr, wanted))


def test_an_api_is_read_with_its_token(web: ServedWeb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEA_TOKEN", TOKEN)
    items = crawled("api", (), web).items
    assert sorted(items, key=lambda one: str(one["url"])) == sorted(WEB.products, key=lambda one: one["url"])


def test_a_file_of_cookies_opens_the_reading_room(web: ServedWeb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    done = crawl("readers.py", web=web, config=EXAMPLES / "readers.toml")
    assert sorted(one["title"] for one in done.items) == WEB.sites.titles


def test_the_link_checker_finds_the_broken_link_and_its_page(web: ServedWeb) -> None:
    items = crawled("links", "http://shop.test/", web).items
    assert example("links").broken(items) == [("http://shop.test/tea/25/", "http://shop.test/page/3/")]


def test_the_job_of_the_news_site_takes_the_front_page_alone(web: ServedWeb) -> None:
    done = crawled("news", "http://news.test/", web, **HANDLERS_ONLY)
    assert sorted(one["date"] for one in done.items) == sorted(one["date"] for one in WEB.articles[:5])
    assert len(done.pages) == 6


def test_every_example_is_on_their_page() -> None:
    page = (EXAMPLES / "README.md").read_text("utf-8")
    assert [path.name for path in EXAMPLES.glob("*.py") if f"]({path.name})" not in page] == []
