"""Crawls whose pages go to functions of a user: what they yield is there once, and nothing they do harms the crawl."""

from collections import Counter
from pathlib import Path

import pytest

from tests.crawl.handlers_lab import HOST, asked, lab, page
from tests.crawl.harness import lab_names
from tests.support.serving import serve_resources, serve_web
from tests.support.web import Resource

EVERY_PAGE = """
    @app.page()
    async def every(page):
        yield {"url": page.url, "first": True, "links": len(page.links())}
        yield {"url": page.url, "first": False, "links": len(page.links())}
"""


@pytest.mark.slow(ci=True)
async def test_each_page_of_a_known_web_gives_its_items_once(tmp_path: Path) -> None:
    with serve_web(seed=3, domains=4, pages=5) as site:
        async with lab_names() as dns:
            made = lab(tmp_path, EVERY_PAGE, scope__mode="any", crawl__partitions=64, dns__nameservers=[dns])
            done = await made.crawl(*site.web.seeds, instances=2)
        expected = site.web.expected(site.web.seeds, "any").committed
    assert done.statuses == expected
    fine = {url for url, status in expected.items() if status == 200}
    found = Counter((item["url"], item["first"]) for item in made.items)
    assert found == Counter({(url, first): 1 for url in fine for first in (True, False)})
    assert (await made.totals()).items == 2 * len(fine)


async def test_labels_go_with_a_url_through_failures_redirects_and_the_queue(tmp_path: Path) -> None:
    web = {
        (HOST, "/"): page("/plain", "/moved", "/flaky", "/other"),
        (HOST, "/plain"): page(title="plain"),
        (HOST, "/flaky"): page(title="flaky", fails=2),
        (HOST, "/moved"): Resource(status=301, headers={"Location": "/target"}),
        (HOST, "/target"): page(title="target"),
        (HOST, "/other"): page(title="other"),
        (HOST, "/hidden"): page(title="hidden"),
    }
    made = lab(
        tmp_path,
        """
        @app.page(label="detail")
        async def detail(page):
            yield {"title": page.title, "label": page.label, "depth": page.depth}

        @app.page()
        async def rest(page):
            if page.depth == 0:
                for target in ("/plain", "/moved", "/flaky", "/hidden"):
                    assert page.follow(target, label="detail") == 1
            yield {"title": page.title, "label": page.label, "depth": page.depth}
        """,
    )
    with serve_resources(web) as site:
        await made.crawl(site.url(HOST))
        assert asked(site)["/flaky"] == 3
    found = {item["title"]: (item["label"], item["depth"]) for item in made.items}
    labelled = dict.fromkeys(("plain", "flaky", "target", "hidden"), ("detail", 1))
    assert found == labelled | {"A page": ("", 0), "other": ("", 1)}


async def test_what_is_followed_with_a_priority_leaves_in_that_order(tmp_path: Path) -> None:
    names = [f"/p{n}" for n in range(8)]
    web = {(HOST, name): page() for name in names} | {(HOST, "/"): page(*names)}
    made = lab(
        tmp_path,
        """
        @app.page("*/")
        def home(page):
            for n in range(8):
                page.follow(f"/p{n}", priority=(n * 5) % 8)
        """,
        politeness__delay_s=0.02,
        fetch__concurrency=1,
        frontier__claim_ahead_s=0.001,
    )
    with serve_resources(web) as site:
        await made.crawl(site.url(HOST))
        order = [request.target for request in site.requests() if request.target in names]
    assert order == sorted(names, key=lambda name: -((int(name[2:]) * 5) % 8))


async def test_only_what_handlers_follow_is_crawled_when_that_is_asked_for(tmp_path: Path) -> None:
    web = {
        (HOST, "/"): page("/wanted", "/unwanted"),
        (HOST, "/wanted"): page("/unwanted", "/moved"),
        (HOST, "/moved"): Resource(status=302, headers={"Location": "/end"}),
        (HOST, "/end"): page(),
        (HOST, "/unwanted"): page(),
    }
    app = """
        @app.page("*/", "*/wanted")
        async def some(page):
            page.follow("/wanted")
            page.follow("/moved")
            page.follow("http://elsewhere.test/")
            return {"links": len(page.links())}
        """
    made = lab(tmp_path, app, scope__follow="handlers")
    with serve_resources(web) as site:
        done = await made.crawl(site.url(HOST))
        assert asked(site).keys() == {"/", "/wanted", "/moved", "/end"}
    assert len(done.entries) == 4
    assert [item["links"] for item in made.items] == [2, 2], "a handler sees all of them"


async def test_statuses_bodies_and_kinds_that_reach_a_handler(tmp_path: Path) -> None:
    web = {
        (HOST, "/"): page("/gone", "/empty", "/data.json", "/notes.txt", "/moved"),
        (HOST, "/gone"): Resource(status=404, body="<p>gone</p>"),
        (HOST, "/empty"): Resource(body=""),
        (HOST, "/data.json"): Resource(body='{"price": 3}', content_type="application/json"),
        (HOST, "/notes.txt"): Resource(body="a note", content_type="text/plain"),
        (HOST, "/moved"): Resource(status=302, headers={"Location": "/"}),
    }
    made = lab(
        tmp_path,
        """
        @app.page("*/data.json")
        async def data(page):
            return page.json()

        @app.page()
        async def rest(page):
            return {"text": page.text.strip(), "type": page.headers["content-type"].partition(";")[0]}

        @app.page(statuses=(404, 410))
        async def missing(page):
            return {"missing": page.status}
        """,
    )
    with serve_resources(web) as site:
        done = await made.crawl(site.url(HOST))
    assert sorted(done.statuses.values()) == [200] * 4 + [302, 404]
    assert {"price": 3} in made.items
    assert {"missing": 404} in made.items
    assert {"text": "a note", "type": "text/plain"} in made.items
    assert len(made.items) == 4


async def test_without_an_archive_there_are_items_all_the_same(tmp_path: Path) -> None:
    made = lab(tmp_path, EVERY_PAGE, archive__warc=False)
    with serve_resources({(HOST, "/"): page("/a"), (HOST, "/a"): page("/")}) as site:
        await made.crawl(site.url(HOST))
    assert len(made.items) == 4
    assert list((made.folder / "warc").iterdir()) == []
    assert [path.name.endswith(".items.gz") for path in (made.folder / "items").iterdir()] == [True]


async def test_an_invalid_item_is_counted_and_its_page_is_committed(tmp_path: Path) -> None:
    made = lab(
        tmp_path,
        """
        import msgspec

        class Tea(msgspec.Struct):
            name: str
            price: float

        @app.page(item=Tea)
        async def tea(page):
            yield {"name": page.title, "price": 1.5}
            yield {"name": page.title, "price": "dear"}
            yield Tea(name=page.title, price=2.5)
        """,
    )
    with serve_resources({(HOST, "/"): page("/a"), (HOST, "/a"): page("/")}) as site:
        done = await made.crawl(site.url(HOST))
    assert len(done.entries) == 2
    assert made.items == [{"name": "A page", "price": price} for _ in range(2) for price in (1.5, 2.5)]
    totals = await made.totals()
    assert (totals.items, totals.items_invalid) == (4, 2)


async def test_a_failing_handler_is_a_failed_attempt_of_its_page_only(tmp_path: Path) -> None:
    names = ["/raises", "/flaky", "/exits", "/late", "/endless", "/fine"]
    web = {(HOST, name): page(title=name) for name in names} | {(HOST, "/"): page(*names)}
    made = lab(
        tmp_path,
        """
        import asyncio, itertools
        tried = []

        @app.page("*/raises")
        async def raises(page):
            yield {"half": "done"}
            page.follow("/never")
            raise KeyError("price")

        @app.page("*/flaky")
        def flaky(page):
            tried.append(page.url)
            yield {"title": page.title}
            if len(tried) < 2:
                raise OSError("at first")

        @app.page("*/exits")
        def exits(page):
            raise SystemExit(7)

        @app.page("*/late", timeout_s=0.1)
        async def late(page):
            await asyncio.sleep(60)

        @app.page("*/endless")
        async def endless(page):
            for n in itertools.count():
                yield {"n": n}

        @app.page()
        def rest(page):
            return {"title": page.title}
        """,
    )
    with serve_resources(web) as site:
        done = await made.crawl(site.url(HOST))
        counted = asked(site)
        site_url = site.url(HOST, "")
    assert {url.removeprefix(site_url) for url in done.statuses} == {"/", "/flaky", "/fine"}
    assert sorted(item["title"] for item in made.items) == ["/fine", "/flaky", "A page"]
    assert counted["/never"] == 0
    assert {name: counted[name] for name in names} == {name: 1 if name == "/fine" else 2 for name in names}
    letters = {url.removeprefix(site_url): letter for url, letter in (await made.letters()).items()}
    assert letters.keys() == {"/raises", "/exits", "/late", "/endless"}
    assert {letter.reason for letter in letters.values()} == {"handler"}
    assert letters["/raises"].detail == "KeyError: 'price' (shop.py:11 in raises)"
    assert 'raise KeyError("price")' in letters["/raises"].trace
    assert letters["/exits"].detail.startswith("SystemExit: 7")
    assert letters["/late"].detail == "not done after 0.1 s (handler late)"
    assert "handlers.items_max" in letters["/endless"].detail
    assert [attempt.kind for attempt in letters["/raises"].failures] == ["handler"] * 2


async def test_no_tree_outlives_its_page(tmp_path: Path) -> None:
    made = lab(
        tmp_path,
        """
        kept, trees = [], []

        @app.page("*/a")
        async def looks(page):
            kept.append(page)
            trees.append(id(page.html))
            return {"title": page.css_first("h1").text()}

        @app.page("*/b")
        def looks_in_a_thread(page):
            kept.append(page)
            return {"title": page.css_first("h1").text()}

        @app.page()
        async def never_looks(page):
            kept.append(page)
        """,
    )
    with serve_resources({(HOST, "/"): page("/a", "/b"), (HOST, "/a"): page(), (HOST, "/b"): page()}) as site:
        await made.crawl(site.url(HOST))
    kept = made.told("kept")
    assert len(kept) == 3
    assert len(made.items) == 2
    assert [(one._tree, "html" in vars(one)) for one in kept] == [(None, False)] * 3
