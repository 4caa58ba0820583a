"""Functions of `@app.item` in a crawl: in the instance and in processes, with failures and a takeover in between."""

from pathlib import Path

import pytest

from tests.crawl.handlers_lab import HOST, lab, page
from tests.support.serving import serve_resources

NAMES = [f"/p{n}" for n in range(6)]
WEB = {(HOST, name): page(title=name) for name in NAMES} | {(HOST, "/"): page(*NAMES, title="home")}
APP = """
import asyncio

@app.page(processes={processes})
async def every(page):
    yield {{"title": page.title}}
    yield {{"title": page.title, "part": 2}}

@app.item
def not_home(item):
    return None if item["title"] == "home" else item

@app.item
async def parts(item, page):
    await asyncio.sleep(0)
    item["depth"] = page.depth
    yield item
    if "part" in item:
        yield item | {{"part": 3}}
        yield "no item"
"""


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("processes", [False, True])
async def test_items_are_stored_as_they_come_out_and_what_is_dropped_is_counted(
    tmp_path: Path, processes: bool
) -> None:
    made = lab(tmp_path, APP.format(processes=processes))
    with serve_resources(WEB) as site:
        done = await made.crawl(site.url(HOST), instances=2)
    assert len(done.entries) == 7
    found = sorted((item["title"], item.get("part", 1), item["depth"]) for item in made.items)
    assert found == [(name, part, 1) for name in NAMES for part in (1, 2, 3)]
    totals = await made.totals()
    assert (totals.items, totals.items_invalid, totals.lost) == (18, 6, {"items_dropped": 2})


async def test_a_function_that_raises_fails_its_page_alone_and_none_of_its_items_is_kept(tmp_path: Path) -> None:
    made = lab(
        tmp_path,
        """
        @app.page()
        def every(page):
            yield {"title": page.title, "n": 1}
            yield {"title": page.title, "n": 2}

        @app.item
        def checks(item):
            if item == {"title": "/p3", "n": 2}:
                raise ValueError("odd")
            return item
        """,
        retry__handler__attempts=1,
    )
    with serve_resources(WEB) as site:
        await made.crawl(site.url(HOST))
        failed = site.url(HOST, "/p3")
    assert {item["title"] for item in made.items} == {"home", *NAMES} - {"/p3"}
    letters = await made.letters()
    assert letters.keys() == {failed}
    assert letters[failed].detail.startswith("ValueError: odd (shop.py:")
    assert letters[failed].detail.endswith("in checks) (@app.item checks)")


async def test_a_function_that_hangs_is_left_behind_with_its_page(tmp_path: Path) -> None:
    made = lab(
        tmp_path,
        """
        import threading
        over = threading.Event()

        @app.page(timeout_s=0.2)
        async def every(page):
            yield {"title": page.title}

        @app.item
        def hangs(item):
            if item["title"] == "/p3":
                over.wait(60)
            return item
        """,
        retry__handler__attempts=1,
    )
    with serve_resources(WEB) as site:
        await made.crawl(site.url(HOST))
    made.told("over").set()
    assert len(made.items) == 6
    (letter,) = (await made.letters()).values()
    assert letter.detail == "not done after 0.2 s (@app.item hangs) (handler every)"
