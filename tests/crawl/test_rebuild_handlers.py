"""A crawl with handlers whose engine lost everything: where they led is known, and what they yielded is there."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from crawler.archive.items import ItemReader
from crawler.errors import ArchiveError
from crawler.settings import Settings
from tests.crawl.harness import crawl, lab_names
from tests.crawl.rebuild_lab import Lab, audit, folder_of, rebuild
from tests.faults.instance_lab import EngineView
from tests.support.engine import Engine
from tests.support.serving import serve_resources
from tests.support.web import Resource

HOST = "127.0.0.1"
PAGES = 12
APP = """
from crawler import Crawler

app = Crawler()

@app.page()
async def home(page):
    for n in range(12):
        page.follow(f"/hidden/{n}", label="hidden")

@app.page(label="hidden")
async def hidden(page):
    yield {"url": page.url, "label": page.label}
"""
WEB = {(HOST, f"/hidden/{n}"): Resource(body="<p>hidden</p>") for n in range(PAGES)} | {
    (HOST, "/"): Resource(body="<p>no links</p>")
}


def yielded(settings: Settings) -> list[tuple[str, str]]:
    items = (json.loads(text) for _, _, text in ItemReader(folder_of(settings)).items())
    return sorted((item["url"], item["label"]) for item in items)


async def test_urls_that_only_a_handler_led_to_come_back_with_their_labels(tmp_path: Path, engine: Engine) -> None:
    """No page has a link to them."""
    (tmp_path / "shop.py").write_text(APP)
    with serve_resources(WEB) as site:
        async with lab_names() as dns:
            lab = Lab(site, dns, engine, tmp_path)
            app = {"handlers__app": str(tmp_path / "shop.py"), "scope__follow": "handlers", "scope__mode": "domain"}
            some = await crawl(lab.settings(crawl__pages_max=5, **app), [site.url(HOST)])
            assert not some.errors
            before = yielded(lab.settings(**app))
            assert 0 < len(before) < PAGES
            engine.flush()
            report = await rebuild(lab.settings(**app))
            assert (report.flaws, report.unplaced) == ([], 0)
            done = await crawl(lab.settings(**app), [])
    assert not done.errors
    assert not done.twice
    assert len(done.entries) == PAGES + 1
    with contextlib.closing(engine.client()) as client:
        assert EngineView(client, partitions=64).totals("items") == [PAGES]
    assert yielded(lab.settings(**app)) == sorted((site.url(HOST, f"/hidden/{n}"), "hidden") for n in range(PAGES))


def remove(path: Path) -> None:
    path.unlink()


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[30:60] = bytes(30)
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("follow", ["handlers", "links"])
@pytest.mark.parametrize("hurt", [remove, damage, cut])
async def test_urls_followed_by_handlers_need_items_or_a_refetch_to_rebuild(
    tmp_path: Path, engine: Engine, hurt: Callable[[Path], None], follow: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shop.py").write_text(APP)
    with serve_resources(WEB) as site:
        async with lab_names() as dns:
            lab = Lab(site, dns, engine, tmp_path)
            app = {"handlers__app": str(tmp_path / "shop.py"), "scope__follow": follow, "scope__mode": "domain"}
            settings = lab.settings(**app)
            await crawl(lab.settings(crawl__pages_max=5, **app), [site.url(HOST)])
            (items,) = folder_of(settings).items.iterdir()
            hurt(items)
            engine.flush()
            with pytest.raises(ArchiveError, match=rf"can't be read.*items/{items.name}.*--refetch"):
                await rebuild(settings)
            report = await rebuild(settings, refetch=True)
            assert report.refetched == report.unreadable[f"items/{items.name}"] > 0
            assert report.flaws == []
            done = await crawl(settings, [])
            assert not done.errors
            assert len(done.entries) == PAGES + 1
            assert yielded(settings) == sorted((site.url(HOST, f"/hidden/{n}"), "hidden") for n in range(PAGES))
            assert await audit(settings) == 0, capsys.readouterr().out
