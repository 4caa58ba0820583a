"""A crawl and the commands that change it, for tests of budgets and of an operator's orders."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crawler.cli.main import main
from tests.cli.cli_lab import HOST, page
from tests.crawl.harness import Crawled, crawl, lab_names, settings_of
from tests.support.engine import Engine
from tests.support.serving import Site, serve_resources


@dataclass
class Desk:
    """A crawl's folder, engine and web, and commands on it."""

    folder: Path
    engine: Engine
    site: Site
    capsys: pytest.CaptureFixture[str]

    def run(self, *words: str) -> tuple[int, str, str]:
        """A command on this crawl: exit code, output, errors."""
        self.capsys.readouterr()
        code = main([*words, "--dir", str(self.folder), "--redis", self.engine.url])
        out, err = self.capsys.readouterr()
        return code, out.strip(), err.strip()

    def say(self, *words: str) -> str:
        code, out, err = self.run(*words)
        assert (code, err) == (0, ""), err
        return out

    def json(self, *words: str) -> dict[str, Any]:
        return dict(json.loads(self.say(*words, "--json")))


class Lab(Desk):
    """A crawl of one domain from its home page, and commands next to it."""

    def crawl(self, *, host: str = HOST, **options: Any) -> int:
        """Crawl from a host's home page until nothing is pending; how many pages there are then."""

        async def by_names() -> Crawled:
            async with lab_names() as dns:
                given = {"frontier__redis": self.engine.url, "dns__nameservers": [dns]} | options
                return await crawl(settings_of(self.folder, **given), [self.site.url(host)])

        done = asyncio.run(by_names())
        assert done.errors == []
        return len(done.entries)

    def audit(self) -> None:
        report = self.json("audit")
        assert {name: found for name, found in report["findings"].items() if found and found["count"]} == {}


@contextlib.contextmanager
def one_page(tmp_path: Path, engine: Engine, capsys: pytest.CaptureFixture[str]) -> Iterator[Lab]:
    """A crawl of one page that has finished."""
    with serve_resources({(HOST, "/"): page()}) as site:
        lab = Lab(tmp_path / "c", engine, site, capsys)
        lab.crawl()
        yield lab
