"""What commands say when the engine lost the crawl of their folder."""

from pathlib import Path

import pytest

from tests.cli.cli_lab import in_process
from tests.support.engine import Engine
from tests.support.processes import Nursery

REBUILD, START = "'crawler rebuild' restores it", "start it with 'crawler crawl URL'"
CASES = [("results", 4, REBUILD), ("seeds", 4, REBUILD), ("nothing", 2, START)]


@pytest.mark.parametrize("where", ["a server", "embedded"])
@pytest.mark.parametrize("command", ["crawl -q", "stats", "dead list", "audit"])
@pytest.mark.parametrize(
    ("has", "code", "said"), [("results", 4, REBUILD), ("seeds", 4, REBUILD), ("nothing", 2, START)]
)
def test_what_a_command_says_of_an_engine_that_was_wiped(
    programs: Nursery, engine: Engine, *, where: str, command: str, has: str, code: int, said: str
) -> None:
    """A folder that has something tells how to get the crawl back; one that has nothing, how to start one."""
    at = ("--dir", "c", *(("--redis", engine.url) if where != "embedded" else ()))
    folder = Path(programs.folder, "c")
    assert in_process(programs, "seed", "http://x.test/", *at, "--set", "crawl.partitions=4").code == 0
    if has == "results":
        (folder / "index" / "s-00000.cdxj").write_bytes(b"")
    elif has == "nothing":
        for path in folder.rglob("*.jsonl*"):
            path.unlink()
    engine.flush()
    for path in (folder / "engine").rglob("*.aof*"):
        path.unlink()
    ran = in_process(programs, *command.split(), *at)
    if has == "nothing" and command == "crawl -q" and where == "embedded":
        said = "give at least one seed URL"  # its own engine has no other crawl
    assert (ran.code, said in ran.err) == (code, True), ran.err
