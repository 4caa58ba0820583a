"""Instances with handlers that are killed at any point: items are there once, and labels are where they were."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from crawler.archive.folder import open_existing
from crawler.archive.items import ItemReader
from crawler.runtime.crash_points import VARIABLE
from tests.cli.scale_lab import NODES, clean_nursery, crawl, pid_of, status, wait_for_requests, web_for
from tests.crawl.lab import QUICK, name_server
from tests.support.processes import nursery
from tests.support.serving import GeneratedSite, serve_web

pytestmark = pytest.mark.processes

APP = """
from crawler import Crawler

app = Crawler()

@app.page()
async def start(page):
    return await followed(page)

@app.page(label="followed")
async def followed(page):
    for link in page.links():
        page.follow(link, label="followed", priority=len(link) % 7)
    return {"url": page.url, "depth": page.depth}

@app.item
async def labelled(item, page):
    yield item | {"label": page.label}
    yield item  # without

@app.item
def kept(item):
    return item if "label" in item else None
"""


def assert_exact(site: GeneratedSite, folder: Path, seeds: Sequence[str]) -> None:
    """One item for each page of the known graph, with the label that it was followed with."""
    reader = ItemReader(open_existing(folder))
    found = Counter((item["url"], item["label"]) for item in (json.loads(text) for _, _, text in reader.items()))
    assert reader.missing == []
    committed = site.web.expected(seeds, "any").committed
    fine = [url for url, status in committed.items() if status == 200]
    assert found == Counter({(url, "" if url in seeds else "followed"): 1 for url in fine})
    assert len(fine) > 50
    for path in (folder / "items").iterdir():
        subprocess.run(["gzip", "-t", str(path)], check=True)


# Kills at the others, without handlers, are in tests/faults/test_fault_instance_crashes.py.
@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(
    "point",
    [
        "page.handled#40",
        *(
            pytest.param(f"{point}#6", marks=pytest.mark.slow)
            for point in ("archive.written", "archive.synced", "route.added", "ack.answered")
        ),
        pytest.param("index.synced#2", marks=pytest.mark.slow),
    ],
)
def test_killed_at_any_point_and_resumed_each_item_is_there_once(tmp_path: Path, point: str) -> None:
    folder, app = tmp_path / "c", tmp_path / "shop.py"
    app.write_text(APP)
    with name_server() as dns, serve_web(seed=8, domains=3, pages=5) as site:
        seeds = site.web.seeds
        command = (
            "crawl",
            *seeds,
            "--dir",
            str(folder),
            "--app",
            str(app),
            "--scope",
            "any",
            "--delay",
            "0",
            "--quiet",
        )
        with nursery(QUICK | {"CRAWLER_DNS_NAMESERVERS": dns, "CRAWLER_INTERNALS_ARCHIVE_SYNC_S": "0.02"}) as programs:
            for setting in (f"{point}=kill", f"{point}=kill", ""):
                program = programs.crawler(*command, **{VARIABLE: setting})
                code = program.wait()
                assert code == (-signal.SIGKILL if setting else 0), program.err
        assert_exact(site, folder, seeds)


@pytest.mark.slow
def test_killed_and_restarted_instances_write_each_item_once(tmp_path: Path) -> None:
    """Their partitions go to others and back: labels and priorities travel with the URLs."""
    folder, app = tmp_path / "c", tmp_path / "shop.py"
    app.write_text(APP)
    with clean_nursery() as programs, web_for(programs) as site:
        seeds = site.web.seeds
        running = crawl(programs, site, folder, 3, CRAWLER_HANDLERS_APP=f"{app}:app")
        for requests, node in ((40, NODES[1]), (90, NODES[2]), (140, NODES[0])):
            wait_for_requests(site, requests)
            os.kill(pid_of(status(programs, "--dir", str(folder)), node), signal.SIGKILL)
        assert running.wait(90) == 0, running.err
        assert running.err.count("was killed (SIGKILL); starting it again") == 3
        assert_exact(site, folder, seeds)


@pytest.mark.slow(ci=True)
def test_exported_items_are_those_on_disk(tmp_path: Path) -> None:
    folder, app, out = tmp_path / "c", tmp_path / "shop.py", tmp_path / "items.jsonl"
    app.write_text(APP)
    with name_server() as dns, serve_web(seed=9, domains=2, pages=4) as site, nursery(QUICK) as programs:
        where = ("--dir", str(folder), "--app", str(app), "--nameserver", dns)
        done = programs.crawler("crawl", *site.web.seeds, *where, "--scope", "any", "--delay", "0")
        assert done.wait(60) == 0, done.err
        export = [sys.executable, "-m", "crawler", "export", "--dir", str(folder), "--items", "-o", str(out)]
        subprocess.run(export, check=True, capture_output=True, env=programs.environment)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert f"Items: {len(lines)}" in done.out
    assert len(lines) == sum(1 for _ in ItemReader(open_existing(folder)).items()) > 30
