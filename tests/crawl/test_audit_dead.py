"""The audit sees a page that was given up as the end of processes though no process died of it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from crawler.cli.main import main
from crawler.rules.poison import CrashAction
from crawler.worker.turn import Turn
from tests.cli.cli_lab import HOST, page
from tests.crawl.harness import crawl, settings_of
from tests.support.serving import serve_resources

INNOCENT = "/p1"


@pytest.mark.parametrize(
    ("events", "code"),
    [
        ([], 8),
        ([("session.died", 2)], 8),
        ([("session.died", 3)], 0),
        ([("session.stalled", 1)], 0),
        ([("other", 9)], 8),
    ],
)
async def test_a_page_that_was_given_up_needs_crashes_on_record(
    events: list[tuple[str, int]],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    init = Turn.__init__

    def given_up(self: Turn, *arguments: Any) -> None:
        init(self, *arguments)
        if self.claim.url.endswith(INNOCENT):
            self.crash_action = CrashAction.GIVEN_UP

    monkeypatch.setattr(Turn, "__init__", given_up)
    web = {(HOST, INNOCENT): page("/"), (HOST, "/"): page(INNOCENT)}
    with serve_resources(web) as site:
        done = await crawl(settings_of(tmp_path / "c", fetch__concurrency=1), [site.url(HOST)])
        url = site.url(HOST, INNOCENT)
    assert url not in done.statuses
    (tmp_path / "c" / "log").mkdir(exist_ok=True)
    lines = [json.dumps({"event": event, "urls": [url]}) for event, n in events for _ in range(n)]
    (tmp_path / "c" / "log" / "run.log").write_text("\n".join(lines))
    assert await run_main("audit", "--dir", str(tmp_path / "c"), "--json") == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["findings"]
    assert found["blamed"]["count"] == (1 if code else 0)
    assert found["faults"]["count"] == 1


async def run_main(*words: str) -> int:
    return await asyncio.to_thread(main, list(words))
