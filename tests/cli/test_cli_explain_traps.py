"""`crawler explain` on URLs of a trap: those that are deferred, those that look like it, and those that don't."""

import asyncio
import json
from pathlib import Path

import pytest

from crawler.cli.main import main
from tests.crawl.harness import crawl, lab_names, settings_of
from tests.support.engine import Engine
from tests.support.serving import serve_traps
from tests.support.trap_sites import trap_site


async def crawled(folder: Path, engine: Engine, port: int) -> set[str]:
    """Crawl the site of repeated segments to its end; what was committed."""
    async with lab_names() as dns:
        options = {
            "dns__nameservers": [dns],
            "frontier__claim_urls_max": 8,
            "traps__steps_max": 6,
            "frontier__redis": engine.url,
        }
        done = await crawl(settings_of(folder, **options), [trap_site("repeats", port).seed])
    return {e.url for e in done.entries}


def test_a_deferred_url_is_explained_by_the_rule_that_deferred_it(
    tmp_path: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve_traps() as web:
        committed = asyncio.run(crawled(tmp_path, engine, web.port))
    site = trap_site("repeats", web.port)
    deferred = (
        f"{max((url for url in committed if url.startswith(site.url('/shop/')) and 'item' not in url), key=len)}shop/"
    )

    def explained(url: str, *words: str) -> str:
        capsys.readouterr()
        assert main(["explain", url, "--dir", str(tmp_path), "--redis", engine.url, *words]) == 0
        return capsys.readouterr().out

    said = explained(deferred)
    assert said.startswith("Not crawled: it is deferred by the trap rule repeats (segment shop ")
    told = json.loads(explained(deferred, "--json"))
    assert (told["state"], told["deferred"], told["trap"]["rule"]) == ("deferred", "trap:repeats", "repeats")
    assert "suspect, fetched after all others of its domain: segment a 3 times" in explained(site.url("/a/a/a/"))
    assert json.loads(explained(site.url("/page/0"), "--json"))["trap"] is None
