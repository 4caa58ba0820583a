"""Runs that ask what has changed, with real processes that are killed, and with an engine that is lost."""

import contextlib
import json
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawler.cli.main import main
from crawler.errors import Stopped
from tests.crawl.lab import QUICK, name_server
from tests.revisits.changing_site import changing_site, linking
from tests.support.engine import Engine
from tests.support.patience import PATIENCE_S
from tests.support.processes import nursery

PAGES = 60
SETTINGS = QUICK | {
    "CRAWLER_CRAWL_PARTITIONS": "16",
    "CRAWLER_POLITENESS_DELAY_S": "0.02",
}


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:g} s for {what}"
        time.sleep(0.05)
    return found


@pytest.mark.slow(ci=True)
def test_a_run_is_complete_whoever_is_killed(
    tmp_path: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two instances, each with half of the hosts; one is killed among its 304s, and the other one takes over."""
    folder = tmp_path / "c"

    def command(*words: str) -> str:
        capsys.readouterr()
        assert main(list(words)) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    def rows() -> list[dict[str, Any]]:
        history = json.loads(command("jobs", "history", "news", "--json", "--redis", engine.url))
        return [row for row in history["rows"] if row.get("completed_at") or row.get("failed_at")]

    def exported(run: str, *more: str) -> Counter[tuple[str, int]]:
        lines = command("export", "--run", run, "--dir", str(folder), *more).splitlines()
        return Counter((page["url"], page["status"]) for page in map(json.loads, lines))

    pages = {"/": linking(*(f"/{n}" for n in range(PAGES)))} | {f"/{n}": linking(text=str(n)) for n in range(PAGES)}
    with contextlib.ExitStack() as stack:
        site = stack.enter_context(changing_site(pages))
        dns = stack.enter_context(name_server())
        programs = stack.enter_context(nursery(SETTINGS | {"CRAWLER_DNS_NAMESERVERS": dns}))
        place = ["--dir", str(folder), "--redis", engine.url]
        seeds = [site.url("/", f"d{n}.test") for n in range(6)]
        command("jobs", "add", "news", *seeds, "--every", "1d", "--set", "crawl.partitions=16", "--redis", engine.url)
        both = [programs.crawler("run", *place, "--node", f"node-{n}") for n in range(2)]
        command("jobs", "run", "news", "--redis", engine.url)
        (first,) = until(rows, "the first run")
        assert (first["pages"], first.get("unchanged", 0)) == (len(seeds) * len(pages), 0)
        site.pages |= {f"/{n}": linking(text=f"new {n}") for n in (1, 2)}
        site.forget()
        command("jobs", "run", "news", "--redis", engine.url)
        until(lambda: site.statuses()[304] >= 40, "pages that have not changed")
        both[0].process.kill()
        assert both[0].wait() == -signal.SIGKILL
        second = until(lambda: len(found := rows()) == 2 and found, "the second run")[0]
        total, changed = len(seeds) * len(pages), 2 * len(seeds)
        assert (second["pages"], second["unchanged"]) == (total, total - changed)
        found = exported(second["run"])
        assert set(found.values()) == {1}
        assert Counter(status for _, status in found) == {304: total - changed, 200: changed}
        assert {status for url, status in found if url.endswith(("/1", "/2"))} == {200}
        assert exported(second["run"], "--changed") == Counter({one: 1 for one in found if one[1] == 200})
        assert command("jobs", "diff", first["run"], second["run"], "--dir", str(folder)).startswith(
            f"0 added, 0 removed, {changed} changed, {total - changed} unchanged"
        )
        assert len(site.log) - total <= 40, "only what was under way is requested twice"
        both[1].terminate()
        assert both[1].wait(60) in (Stopped.exit_code, 0), both[1].err
        assert main(["audit", *place]) == 0, capsys.readouterr().out
