"""A crawl of 500 domains on four instances, of which one is killed, in the dashboard and in top: pictures for the docs.

`PICTURES=docs/images scripts/test -k pictures --all` writes them there, else they go to a temporary folder.
"""

import asyncio
import io
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="playwright is not installed: pip install playwright")

from PIL import Image
from playwright.sync_api import Page, expect

from crawler.crawl.opening import OpenCrawl
from crawler.frontier.operator_log import Actor, Via
from crawler.testing.generated_web import GeneratedWeb
from crawler.testing.web_server import environment_of, serve
from crawler.tui.app import TopApp
from crawler.tui.source import CrawlSource
from tests.dashboard.dashboard_lab import Dashboard, Watched, serve_crawl
from tests.support.patience import PATIENCE_S
from tests.support.processes import Program, nursery
from tests.tui.tui_lab import screen_text

pytestmark = [pytest.mark.slow, pytest.mark.processes, pytest.mark.timeout(400)]
DOMAINS, PAGES, NODES = 500, 40, ("north-1", "north-2", "south-1", "south-2")
RUNS_S = 100  # before the kill, in pictures for the docs; otherwise much less
BYTES_MAX = 150_000
TERMINALS = ((80, 24), (200, 50))
FOLDER = os.environ.get("PICTURES", "")
SETTINGS = {"politeness.delay_s": 4.0, "retry.backoff_s": 2.0, "retry.server_error.backoff_s": 5.0}


@pytest.fixture(scope="module")
def fleet(browser: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Dashboard, list[Program]]]:
    """The crawl, and its instances."""
    folder = tmp_path_factory.mktemp("pictures") / "crawl"
    web = GeneratedWeb(31, domains=DOMAINS, pages=PAGES, slow_s=1.0)
    seeds = folder.parent / "seeds.txt"
    seeds.write_text("".join(f"{web.url(f'd{n}.test', '/')}\n" for n in range(DOMAINS)), encoding="utf-8")
    with serve(web) as site, nursery(site.environment | environment_of(SETTINGS)) as programs:
        assert programs.crawler("seed", "-i", str(seeds), "--dir", str(folder)).wait() == 0
        instances = [programs.crawler("run", "--dir", str(folder), "--node", node) for node in NODES]
        yield serve_crawl(programs, folder), instances


def test_a_killed_instance_and_the_pictures_of_it(
    fleet: tuple[Dashboard, list[Program]], look: Callable[..., Watched], tmp_path: Path
) -> None:
    dashboard, instances = fleet
    folder = Path(FOLDER or tmp_path)
    folder.mkdir(exist_ok=True)
    watched = look(dashboard.base, viewport={"width": 1280, "height": 1030})
    page = watched.page
    page.goto(dashboard.login_link())
    expect(page.locator("#n-instances")).to_have_text(str(len(NODES)), timeout=1000 * PATIENCE_S)
    expect(page.locator("#busiest tbody tr").first).to_be_visible(timeout=1000 * PATIENCE_S)
    if FOLDER:
        page.wait_for_timeout(1000 * RUNS_S)
    ring = page.locator("#ring-small svg")
    expect(ring).to_have_attribute("aria-label", holds_of(NODES[2]), timeout=1000 * PATIENCE_S)
    instances[2].kill()
    chords = page.locator("#ring-small .chord")  # of others too, which may still be joining; each is there for seconds
    chords.filter(has_text=f"{NODES[2]} → ").first.wait_for(state="attached", timeout=1000 * PATIENCE_S)
    expect(ring).not_to_have_attribute("aria-label", holds_of(NODES[2]), timeout=1000 * PATIENCE_S)
    expect(page.locator("#n-instances")).to_have_text("3")
    take(page, folder / "dashboard-desktop.png")
    page.goto(f"{dashboard.base}/#/instances")
    for node in (NODES[0], NODES[1], NODES[3]):
        expect(page.locator("#takeovers")).to_contain_text(f"{node} took over")
        expect(page.locator("#moves")).to_contain_text(f"{NODES[2]} → {node}")

    dark = look(dashboard.base, viewport={"width": 1280, "height": 1030}, color_scheme="dark")
    dark.page.goto(dashboard.login_link())
    busiest = dark.page.locator("#busiest tbody tr a").first
    dark.open(f"domain/{busiest.inner_text(timeout=1000 * PATIENCE_S)}")
    expect(dark.page.locator("#domain-sentence")).not_to_be_empty()
    expect(dark.page.locator("#domain-attempts tbody tr").first).to_be_visible(timeout=1000 * PATIENCE_S)
    take(dark.page, folder / "dashboard-dark.png")
    phone = look(dashboard.base, viewport={"width": 390, "height": 844}, device_scale_factor=2)
    phone.page.goto(dashboard.login_link())
    expect(phone.page.locator("#busiest tbody tr").first).to_be_visible()
    take(phone.page, folder / "dashboard-phone.png")

    for size in TERMINALS:
        drawn = dashboard.ask(partial(top, size=size))
        sheet = watched.page.context.new_page()
        sheet.set_content(re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL))
        sheet.set_viewport_size({"width": 1500, "height": 1000})
        save(sheet.locator("svg").screenshot(), folder / f"top-{size[0]}x{size[1]}.png")
        sheet.close()


async def top(crawl: OpenCrawl, size: tuple[int, int]) -> str:
    """What `crawler top` shows of the crawl in a terminal of this size, as SVG."""
    app = TopApp(CrawlSource(crawl, Actor(who="ann", via=Via.TOP)))
    async with app.run_test(size=size) as pilot:
        async with asyncio.timeout(PATIENCE_S):
            while ".test" not in (text := screen_text(app)):
                await pilot.pause(0.1)
        assert "3 instances" in text
        assert f"{DOMAINS} domains" in text
        assert len([line for line in text.splitlines() if re.match(r"d\d+\.test", line)]) > size[1] // 2
        return app.export_screenshot()


def holds_of(node: str) -> re.Pattern[str]:
    return re.compile(f"{node} holds")


def take(page: Page, path: Path) -> None:
    """A picture of what fits the window."""
    save(page.screenshot(), path)


def save(png: bytes, path: Path) -> None:
    """With 256 colours, so that it is small enough for the docs."""
    Image.open(io.BytesIO(png)).convert("RGB").quantize(256).save(path, optimize=True)
    assert 20_000 < path.stat().st_size < BYTES_MAX
