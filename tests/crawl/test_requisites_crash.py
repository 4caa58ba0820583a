"""Requisites across instances that are killed: each is committed once, and the victim of a flood is still crawled."""

import json
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.crawl.harness import entries_of
from tests.crawl.lab import QUICK, name_server
from tests.crawl.requisites_lab import PICTURE, page, sheet
from tests.support.engine import Engine
from tests.support.processes import Nursery, Program, nursery
from tests.support.serving import serve_linked
from tests.support.web import Resource

pytestmark = pytest.mark.processes

HOSTS, PAGES, KILLS = 12, 6, 5


def web(port: int) -> dict[tuple[str, str], Resource]:
    """Sites whose pages show pictures of all others, and a page of the next one as a frame and a picture."""
    found = {}
    for n in range(HOSTS):
        host = f"d{n}.test"
        others = "".join(f"<img src=http://d{m}.test:{port}/p{n % 4}.gif>" for m in range(HOSTS))
        frame = f"http://d{(n + 1) % HOSTS}.test:{port}/1"
        for number in range(PAGES):
            links = f"<a href=/{(number + 1) % PAGES}>n</a><a href=http://d{(n + 1) % HOSTS}.test:{port}/0>n</a>"
            shown = f"<link rel=stylesheet href=/s.css><iframe src={frame}></iframe><img src={frame}>{others}"
            found[host, f"/{number}"] = page(links + shown)
        found |= {(host, f"/p{k}.gif"): PICTURE for k in range(4)}
        found[host, "/s.css"] = sheet("body { background: url(/b.gif) }")
        found[host, "/b.gif"] = PICTURE
    return found


def start(programs: Nursery, engine: Engine, folder: Path, n: int) -> Program:
    return programs.crawler(
        "run", "--redis", engine.url, "--dir", str(folder / f"c{n}"), "--node", f"node-{n}", "--requisites"
    )


def totals(programs: Nursery, engine: Engine, folder: Path) -> dict[str, int]:
    asked = programs.crawler("stats", "--json", "--redis", engine.url, "--dir", str(folder / "c0"))
    assert asked.wait() == 0, asked.err
    return dict(json.loads(asked.out)["totals"])


@pytest.mark.slow(seconds=60)
def test_killed_instances_commit_each_page_and_each_requisite_once(tmp_path: Path, engine: Engine) -> None:
    settings = QUICK | {
        "CRAWLER_SCOPE_MODE": "any", "CRAWLER_POLITENESS_DELAY_S": "0.05", "CRAWLER_MEMBERSHIP_DEAD_S": "4",
    }  # fmt: skip
    with name_server() as dns, serve_linked(web) as site, nursery(settings | {"CRAWLER_DNS_NAMESERVERS": dns}) as lab:
        running = [start(lab, engine, tmp_path, n) for n in range(3)]
        for program in running:
            program.wait_for("waits for work")
        seed = lab.crawler("seed", "--redis", engine.url, "--dir", str(tmp_path / "c0"), site.url("d0.test", "/0"))
        assert seed.wait() == 0, seed.err
        for kill in range(KILLS):
            before = len(site.requests())
            while len(site.requests()) < before + 40 and not _is_done(totals(lab, engine, tmp_path)):
                time.sleep(0.05)
            running[kill % 3].kill()
            running[kill % 3] = start(lab, engine, tmp_path, kill % 3)
        deadline = time.monotonic() + 120
        while not _is_done(found := totals(lab, engine, tmp_path)):
            assert time.monotonic() < deadline, found
            time.sleep(0.3)
        for program in running:
            program.terminate()
            program.wait()
        folders = [str(tmp_path / f"c{n}") for n in range(3)]
        audit = lab.crawler("audit", "--redis", engine.url, *(word for one in folders for word in ("--dir", one)))
        assert audit.wait() == 0, audit.out + audit.err
    entries = [entry for n in range(3) for entry in entries_of(tmp_path / f"c{n}")]
    counted = Counter((entry.url, entry.label) for entry in entries)
    assert max(counted.values()) == 1
    pages = {entry.url for entry in entries if not entry.label}
    assert pages == {site.url(host, path) for host, path in web(0) if path[1:].isdigit()}
    shown = {entry.url for entry in entries if entry.label}
    assert {site.url(host, path) for host, path in web(0) if not path[1:].isdigit()} <= shown
    assert found["dead"] == 0


def _is_done(found: dict[str, int]) -> bool:
    return bool(found["added"]) and found["added"] == found["done"]
