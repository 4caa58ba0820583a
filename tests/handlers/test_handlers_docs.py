"""The apps that the page on handlers shows are apps, and yield something."""

import re
from pathlib import Path

import pytest

from tests.crawl.handlers_lab import HOST, Lab
from tests.crawl.harness import settings_of
from tests.support.serving import serve_resources
from tests.support.web import Resource

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "handlers.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def test_there_are_blocks() -> None:
    assert len(BLOCKS) >= 4


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("text", BLOCKS, ids=range(len(BLOCKS)))
async def test_each_block_is_a_whole_app_that_yields_items(tmp_path: Path, text: str) -> None:
    shop = '<h1>Tea</h1><a class="product" href="/product/1">1</a><a class="next" href="/product/2">2</a>'
    shop += '<script type="application/ld+json">{"@type": "Product", "name": "Tea"}</script>'
    web = {(HOST, target): Resource(body=f"<title>t</title>{shop}") for target in ("/", "/product/1", "/product/2")}
    app = tmp_path / "shop.py"
    app.write_text(text)
    settings = settings_of(tmp_path / "c", handlers__app=str(app), crawl__partitions=16)
    lab = Lab(tmp_path / "c", app, settings)
    with serve_resources(web) as site:
        await lab.crawl(site.url(HOST))
    assert lab.items
    totals = await lab.totals()
    assert totals.dead == 0
    assert totals.fetched == 3
