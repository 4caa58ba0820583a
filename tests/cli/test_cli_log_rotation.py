"""Log files that are renamed while a crawl runs, as by logrotate: the next event opens a new file, and none is lost."""

import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import accumulate
from pathlib import Path

import pytest

from tests.cli.cli_lab import page
from tests.cli.scale_lab import clean_nursery
from tests.crawl.lab import QUICK, name_server
from tests.support.processes import Nursery, Program
from tests.support.serving import Site, serve_resources

pytestmark = pytest.mark.processes

APP = """
from crawler import Crawler

app = Crawler()

@app.page("*")
def seen(page):
    page.log.warning("page.seen")
"""
PAUSE_S = 0.05
HOSTS, PATHS = [f"d{number}.test" for number in range(8)], ["/", *(f"/{number}" for number in range(11))]
PLACES = [(host, path) for host in HOSTS for path in PATHS]


@pytest.fixture
def programs() -> Iterator[Nursery]:
    with clean_nursery() as programs:
        yield programs


@pytest.fixture
def site(programs: Nursery) -> Iterator[Site]:
    with name_server() as dns, serve_resources({place: page(*PATHS) for place in PLACES}) as site:
        programs.environment |= QUICK | {"CRAWLER_DNS_NAMESERVERS": dns}
        yield site


def rename_while_it_runs(running: Program, logs: Path) -> None:
    number = 0
    while running.process.poll() is None:
        for log in logs.glob("*.log"):
            number += 1
            log.rename(log.with_name(f"{log.name}.{number:04d}"))
        time.sleep(PAUSE_S)


def files_by_process(logs: Path) -> dict[str, list[Path]]:
    """In the order in which they were written."""
    files: dict[str, list[Path]] = {}
    for path in sorted(logs.glob("*.log*"), key=lambda path: path.name.partition(".log.")[2] or "last"):
        files.setdefault(path.name.partition(".log")[0], []).append(path)
    return files


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one process", "two instances"])
def test_renamed_logs_lose_nothing_and_get_nothing_later(
    options: tuple[str, ...], programs: Nursery, site: Site, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(APP)
    logs, seeds = tmp_path / "c" / "log", [site.url(host) for host in HOSTS]
    more = ("--app", str(tmp_path / "app.py"), "--dir", str(tmp_path / "c"), "--delay", "0.1", *options)
    running = programs.crawler("crawl", *seeds, *more)
    rename_while_it_runs(running, logs)
    assert running.wait() == 0, running.err
    seen: list[str] = []
    written = files_by_process(logs)
    assert sum(map(len, written.values())) > len(written) + 2
    for files in written.values():
        events = [json.loads(line) for path in files for line in path.read_text().splitlines()]
        times = [datetime.fromisoformat(event["at"]) for event in events]
        latest = list(accumulate(times, max))
        # Nothing was written to a file long after the one that followed it; threads may overtake each other.
        assert all(before - at < timedelta(seconds=1) for before, at in zip(latest, times, strict=True))
        seen += [event["url"] for event in events if event["event"] == "page.seen"]
    assert sorted(seen) == sorted(site.url(*place) for place in PLACES)
