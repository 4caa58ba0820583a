"""Two releases of the program on one crawl: the one with another layout reports that and changes nothing."""

import contextlib
import json
from pathlib import Path

import pytest

from crawler.frontier.keys import LAYOUT
from tests.crawl.lab import QUICK
from tests.frontier.raw import dump
from tests.support.engine import Engine
from tests.support.processes import nursery

pytestmark = pytest.mark.processes

CONFLICT = 4
COMMANDS = (["crawl", "http://a.test/", "--quiet"], ["run"], ["seed", "http://a.test/"], ["stats"])


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("other", [LAYOUT - 1, LAYOUT + 1], ids=["older", "newer"])
def test_every_command_refuses_a_crawl_of_another_layout(tmp_path: Path, engine: Engine, other: int) -> None:
    with contextlib.closing(engine.client()) as client, nursery(QUICK) as programs:
        first = programs.crawler("seed", "http://b.test/", "--redis", engine.url, "--dir", str(tmp_path / "first"))
        assert first.wait() == 0, first.err
        record = json.loads(client.hget("{main}:crawl", "record"))
        client.hset("{main}:crawl", "record", json.dumps(record | {"layout": other}))
        before = dump(client, "*")
        started = [
            programs.crawler(*command, "--redis", engine.url, "--dir", str(tmp_path / f"c{n}"))
            for n, command in enumerate(COMMANDS)
        ]
        for command, program in zip(COMMANDS, started, strict=True):
            assert program.wait() == CONFLICT, (command, program.err)
            assert program.err.count("\n") == 0, program.err
            assert f"layout {other}, this release needs layout {LAYOUT}" in program.err
        assert dump(client, "*") == before
