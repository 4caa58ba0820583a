"""Webs that are served and crawled in one call: what comes back is what the web's own definition says."""

import gzip
import sys
from pathlib import Path
from typing import Any

import pytest

from crawler import Crawler
from crawler.errors import UsageError
from crawler.settings import load
from crawler.testing import ExampleWeb, GeneratedWeb, Resource, crawl, serve
from crawler.web.resolver import CachingResolver
from tests.crawl.harness import warc_of_pages

ANY = {"scope.mode": "any"}


def app_of_titles() -> Crawler:
    app = Crawler()

    @app.page()
    async def every(page: Any) -> Any:
        yield {"url": page.url, "title": page.title}

    return app


@pytest.mark.slow(ci=True)
def test_a_generated_web_is_crawled_to_what_its_definition_expects() -> None:
    with serve(GeneratedWeb(seed=2, domains=3, pages=5, slow_s=0.01)) as served:
        done = crawl(app_of_titles(), served.web.seeds, web=served, settings=ANY)
        expected = served.web.expected()
    assert done.pages == expected.committed
    assert set(done.dead) == expected.dead
    assert not expected.refused & set(served.asked)
    assert {item["url"] for item in done.items} == {url for url, status in done.pages.items() if status == 200}
    assert done.why == "finished"


def test_hosts_ports_and_https_are_as_they_stand_in_the_urls() -> None:
    links = ["https://a.test/", "http://a.test:8080/", "https://b.test:8443/x?y=1", "http://nowhere.test/"]
    pages: dict[str, Resource | str] = {"http://a.test/": "".join(f'<a href="{url}">x</a>' for url in links)}
    pages |= {url: f"<title>{url}</title>" for url in links[:3]}
    with serve(pages) as served:
        done = crawl(app_of_titles(), "http://a.test/", web=served, settings=ANY)
    assert {item["title"] for item in done.items} == {"", *links[:3]}
    assert list(done.dead) == ["http://nowhere.test/"]
    assert "dns_not_found" in done.dead["http://nowhere.test/"]


def test_settings_by_site_hold_for_the_urls_as_they_stand(tmp_path: Path) -> None:
    """The gateway is given whole URLs; what is added to requests looks at them all the same."""
    app, config = Crawler(), tmp_path / "shop.toml"
    config.write_text("[[sites]]\nmatch = 'https://a.test/b'\nlabel = 'b'\nheaders = { X-Team = 'search' }\n")

    @app.page(label="b")
    def labelled(page: Any) -> Any:
        yield {"url": page.url}

    with serve({"https://a.test/": '<a href="/b">x</a><a href="/c">x</a>', "https://a.test/b": "x"}) as served:
        done = crawl(app, "https://a.test/", web=served, config=config, folder=tmp_path / "kept")
    assert done.items == [{"url": "https://a.test/b"}]
    archive = warc_of_pages(tmp_path / "kept")
    heads = [head for head in gzip.decompress(archive.read_bytes()).split(b"\r\n\r\n") if head.startswith(b"GET ")]
    assert [head.split()[1] for head in heads if b"X-Team: search" in head] == [b"https://a.test/b"]
    assert {head.split()[1] for head in heads} == {b"https://a.test/", b"https://a.test/b", b"https://a.test/c"}


async def test_each_host_has_an_address_of_its_own_on_loopback() -> None:
    """So that limits of addresses hold between hosts as they would on the web."""
    with serve({f"http://{name}.test/": "x" for name in "abcdefgh"}) as served:
        settings = load(environment={}, options=served.settings)
        resolver = CachingResolver(settings.dns, allow_private=True)
        try:
            found = [await resolver.lookup(f"{name}.test") for name in "abcdefgh"]
        finally:
            await resolver.close()
    assert len(set(found)) == 8
    assert all(address.startswith("127.") for addresses in found for address in addresses)


def test_a_handler_that_fails_is_reported_with_its_reason() -> None:
    app = Crawler()

    @app.page("a.test/bad")
    def bad(page: Any) -> None:
        raise KeyError("price")

    with serve({"http://a.test/": '<a href="/bad">x</a><a href="/gone">x</a>', "http://a.test/bad": "x"}) as served:
        done = crawl(app, "http://a.test/", web=served)
        assert served.asked.count("http://a.test/bad") == 2
    assert done.pages == {"http://a.test/": 200, "http://a.test/gone": 404}
    assert "KeyError: 'price'" in done.dead["http://a.test/bad"]


def test_an_app_may_be_named_as_on_the_command_line_and_its_crawl_kept(tmp_path: Path) -> None:
    file = tmp_path / "titles_of_a_test.py"
    file.write_text(
        "from crawler import Crawler\napp = Crawler()\n"
        "@app.page(processes=True)\ndef every(page):\n    yield {'title': page.title}\n"
    )
    try:
        with serve({"http://a.test/": "<title>A</title>"}) as served:
            done = crawl(file, "http://a.test/", web=served, folder=tmp_path / "kept")
    finally:
        sys.modules.pop("titles_of_a_test", None)
        sys.path.remove(str(tmp_path))
    assert done.items == [{"title": "A"}]
    assert list((tmp_path / "kept" / "warc").glob("*.warc.gz"))


async def test_a_crawl_can_be_made_in_a_test_that_has_an_event_loop() -> None:
    with serve({"http://a.test/": "<title>A</title>"}) as served:
        assert crawl(None, ["http://a.test/"], web=served).pages == {"http://a.test/": 200}


def test_what_can_not_be_crawled_is_said() -> None:
    app = Crawler()
    app.page(processes=True)(lambda page: None)
    with pytest.raises(UsageError, match="loaded from a file"):
        crawl(app, "http://a.test/")
    with pytest.raises(UsageError, match="no valid seed URL"):
        crawl(None, "lamp.html")
    with serve({"http://a.test/": "x"}) as served, pytest.raises(LookupError, match="no definition"):
        _ = served.web


def test_the_example_web_says_truly_what_is_in_it() -> None:
    example, app = ExampleWeb(pages=3, authors=5), Crawler()

    @app.page("quotes.test/*")
    def quotes(page: Any) -> Any:
        for quote in page.css("div.quote"):
            parts = {name: quote.css_first(selector).text() for name, selector in
                     (("text", "span.text"), ("author", "small.author"))}  # fmt: skip
            yield parts | {"tags": [tag.text() for tag in quote.css("span.tag")]}

    @app.page("*.test/")
    def author(page: Any) -> Any:
        yield {"name": page.title, "born": int(page.css_first("span.born").text()), "url": page.url}

    with serve(example.pages) as served:
        done = crawl(app, example.seeds, web=served, settings=ANY)
        assert f"{example.seeds[0]}login" not in served.asked
    assert set(done.pages.values()) == {200}
    by_text = sorted(str(item) for item in done.items if "text" in item)
    assert by_text == sorted(str(quote) for quote in example.quotes)
    known = {quote["author"] for quote in example.quotes}
    assert sorted(item["name"] for item in done.items if "born" in item) == sorted(known)
    assert ExampleWeb().pages == ExampleWeb().pages
    assert len({author["url"] for author in ExampleWeb(authors=300).authors}) == 300
