"""`crawler audit` in the middle of a crawl, and on a folder whose embedded engine has to be started for it."""

import json
import time
from pathlib import Path

import pytest

from tests.cli.cli_lab import in_process
from tests.crawl.lab import QUICK, name_server
from tests.support.patience import PATIENCE_S
from tests.support.processes import nursery
from tests.support.serving import serve_web

pytestmark = pytest.mark.processes

SETTINGS = QUICK | {"CRAWLER_SCOPE_MODE": "any", "CRAWLER_POLITENESS_DELAY_S": "0.1"}


@pytest.mark.slow
def test_an_audit_of_a_running_crawl_is_clean_and_says_that_it_moves(tmp_path: Path) -> None:
    folder = ("--dir", str(tmp_path / "c"))
    with name_server() as dns, serve_web(seed=6, domains=12, pages=24) as site, nursery(SETTINGS) as programs:
        crawl = programs.crawler("crawl", *folder, *site.web.seeds, CRAWLER_DNS_NAMESERVERS=dns)
        crawl.wait_for(r"\d pages")
        moving, deadline = [], time.monotonic() + PATIENCE_S
        while crawl.process.poll() is None and time.monotonic() < deadline:
            audit = in_process(programs, "audit", "--json", *folder)
            assert audit.code == 0, audit.out + audit.err
            report = json.loads(audit.out)
            assert report["clean"], audit.out
            moving.append(report["is_moving"])
        assert crawl.wait(60) == 0, crawl.err
        assert len(moving) >= 2, crawl.err
        assert any(moving), moving  # not each: between two turns of politeness nothing moves for a moment
        audit = in_process(programs, "audit", *folder)
        assert audit.code == 0, audit.out + audit.err
        assert audit.out.splitlines()[0].endswith("clean.")
        assert programs.left() == []  # the engine that it started is gone
