"""Crawls with an app: written into the test's folder, run by instances in this process, and what came of it."""

import json
import textwrap
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crawler.archive.folder import open_existing
from crawler.archive.items import ItemReader
from crawler.crawl.opening import open_crawl
from crawler.frontier.codec import DeadLetter
from crawler.frontier.dead_letters import DeadLetters
from crawler.frontier.stats import Totals
from crawler.handlers.load_app import load_app
from crawler.settings import Settings
from tests.crawl.harness import Crawled, crawl, settings_of
from tests.support.serving import Site
from tests.support.web import Resource

HOST = "127.0.0.1"


@dataclass
class Lab:
    """One crawl folder and the app in it."""

    folder: Path
    app: Path
    settings: Settings

    async def crawl(self, *seeds: str, instances: int = 1) -> Crawled:
        done = await crawl(self.settings, seeds, instances=instances)
        assert done.errors == []
        return done

    @property
    def items(self) -> list[dict[str, Any]]:
        """As an export has them, in the order of their URLs."""
        reader = ItemReader(open_existing(self.folder))
        found = [json.loads(item) for _, _, item in reader.items()]
        assert reader.missing == []
        return found

    def told(self, name: str) -> Any:
        """What a global variable of the app holds."""
        return load_app(str(self.app)).handlers[0].function.__globals__[name]

    async def totals(self) -> Totals:
        async with open_crawl(self.settings, create=False) as opened:
            return await opened.stats.totals()

    async def letters(self) -> dict[str, DeadLetter]:
        async with open_crawl(self.settings, create=False) as opened:
            letters = DeadLetters(opened.frontier, opened.record.partitions)
            return {one.letter.url: one.letter async for some in letters.read(-1) for one in some}


def lab(tmp_path: Path, app: str, **options: Any) -> Lab:
    """An app's text, without its first two lines, and settings as `settings_of` takes them."""
    file = tmp_path / "shop.py"
    file.write_text("from crawler import Crawler\napp = Crawler()\n" + textwrap.dedent(app))
    settings = settings_of(tmp_path / "c", handlers__app=str(file), **{"crawl__partitions": 16} | options)
    return Lab(tmp_path / "c", file, settings)


def asked(site: Site) -> Counter[str]:
    """How often each page was asked for."""
    return Counter(request.target for request in site.requests() if not request.is_robots)


def page(*links: str, title: str = "A page", **more: object) -> Resource:
    anchors = "".join(f'<a href="{link}">x</a>' for link in links)
    return Resource(body=f"<title>{title}</title><h1>{title}</h1>{anchors}", **more)  # type: ignore[arg-type]
