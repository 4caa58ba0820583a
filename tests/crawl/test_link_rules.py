"""Queries of links in pages that are not UTF-8: in the encoding of the page, but for crawls of earlier releases."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from crawler.archive.folder import open_existing
from crawler.crawl.opening import open_crawl
from crawler.frontier import record as crawl_record
from crawler.outputs.records import Pages
from tests.crawl.harness import crawl, lab_names
from tests.crawl.rebuild_lab import Lab, audit, rebuild
from tests.support.engine import Engine
from tests.support.serving import serve_resources
from tests.support.web import Resource

HOST = "latin.test"
PAGE = "<meta charset=iso-8859-1><a href='/caf&eacute;?q=&eacute;&r=&#8364;&s=&#1078;'>x</a>"
OLD, NEW = "/caf%C3%A9?q=%C3%A9&r=%E2%82%AC&s=%D0%B6", "/caf%C3%A9?q=%E9&r=%80&s=%26%231078%3B"


@pytest.fixture
async def lab(tmp_path: Path, engine: Engine) -> AsyncIterator[Lab]:
    found = Resource(body="<p>found", content_type="text/html")
    web = {(HOST, "/"): Resource(body=PAGE, content_type="text/html"), (HOST, OLD): found, (HOST, NEW): found}
    with serve_resources(web) as site:
        async with lab_names() as dns:
            yield Lab(site, dns, engine, tmp_path)


@pytest.mark.parametrize(("rules", "target"), [(0, OLD), (1, NEW)])
async def test_a_crawl_keeps_the_spelling_that_it_began_with_also_in_a_rebuild(
    lab: Lab, rules: int, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with the rules of this release, by which a page of another spelling would be new."""
    settings, seed, spelled = lab.settings(), lab.site.url(HOST), lab.site.url(HOST, target)
    with monkeypatch.context() as patch:
        record_of = crawl_record._record_of
        patch.setattr(crawl_record, "_record_of", lambda *a, **named: replace(record_of(*a, **named), link_rules=rules))
        done = await crawl(settings, [seed])
    assert done.statuses == {seed: 200, spelled: 200}
    assert await audit(settings) == 0
    lab.engine.flush()
    await rebuild(settings)
    async with open_crawl(settings, create=False) as opened:
        assert opened.record.link_rules == rules
    assert (await crawl(settings, [])).statuses == done.statuses
    assert await audit(settings) == 0
    with contextlib.closing(Pages(open_existing(settings.archive.dir), columns=("links",))) as pages:
        (links,) = [
            record["links"] for entry in done.entries if entry.url == seed for record in pages.records_of(entry)
        ]
    assert links == [spelled]
    assert {request.target for request in lab.site.requests() if not request.is_robots} == {"/", target}
