"""`crawler move`, `backup` and `restore`: what they say, and the way back when the target is gone."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from crawler.errors import EngineDown
from crawler.recovery.arrival import Arrival
from crawler.recovery.move import Departure
from tests.cli.cli_lab import Ran, in_process
from tests.support.engine import Engine, running_engine
from tests.support.processes import Nursery

FOLDER = ("--dir", "c")
STOPPED = ("--set", "frontier.call_timeout_s=0.3")  # how long one that never answers is waited for


@pytest.fixture
def target() -> Iterator[Engine]:
    with running_engine() as other:
        yield other


@pytest.fixture
def seeded(programs: Nursery, engine: Engine) -> tuple[str, ...]:
    """Where a crawl with a URL is."""
    at = ("--redis", engine.url, *FOLDER)
    assert in_process(programs, "seed", "http://x.test/", *at, "--set", "crawl.partitions=4").code == 0
    return at


async def _killed(*_arguments: Any) -> Any:
    raise EngineDown("killed")


def test_a_move_and_what_each_engine_says_before_and_after_it(
    programs: Nursery, engine: Engine, target: Engine, seeded: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(*words: str) -> Ran:
        return in_process(programs, *words)

    with monkeypatch.context() as patch:
        patch.setattr(Arrival, "lost", _killed)
        assert said("move", *seeded, "--to", target.url).code == 3
    assert f"on its way to {target.url}" in said("crawls", "--redis", engine.url).out
    assert f"on its way here from {engine.url}" in said("crawls", "--redis", target.url).out
    refused = said("stats", *seeded)
    assert refused.code == 4
    assert refused.err == (
        f"crawler: crawl 'main' is on its way to {target.url}: run that 'crawler move' again, or take it back with "
        "--undo; if that engine is gone, with --undo --without-target\n"
    )
    done = said("move", *seeded, "--to", target.url)
    assert (done.code, done.out.splitlines()[0]) == (
        0, f"Moved the crawl 'main' to {target.url}: 4 partitions, {done.out.split(', ')[1].splitlines()[0]}",
    )  # fmt: skip
    assert f"moved to {target.url}" in said("crawls", "--redis", engine.url).out
    assert said("stats", "--redis", target.url, *FOLDER).code == 0


def test_a_crawl_whose_target_is_gone_is_taken_back_and_its_copy_refused(
    programs: Nursery, engine: Engine, target: Engine, seeded: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(*words: str) -> Ran:
        return in_process(programs, *words)

    with monkeypatch.context() as patch:
        patch.setattr(Departure, "finish", _killed)  # all has arrived, the source does not know
        assert said("move", *seeded, "--to", target.url).code == 3
    back = ("move", *seeded, "--to", target.url, "--undo")
    there = said(*back, "--without-target")
    assert (there.code, there.err) == (4, f"crawler: {target.url} answers: take the move back with --undo alone\n")
    os.kill(target.pid, signal.SIGSTOP)
    try:
        done = said(*back, "--without-target", *STOPPED)
    finally:
        os.kill(target.pid, signal.SIGCONT)
    assert (done.code, done.out) == (
        0,
        f"The crawl 'main' stays in {engine.url}, with a new begin: a copy that comes back is refused.\n",
    )
    assert done.err == "If the crawl has other folders, they are refused until 'crawler rebuild' has read them.\n"
    assert said("stats", *seeded).code == 0
    older = "the engine has an older copy of the crawl 'main' than the one of c: name the engine that has the crawl"
    at_copy = ("--redis", target.url, *FOLDER)
    for words in (("stats", *at_copy), ("seed", "http://y.test/", *at_copy), ("move", *at_copy, "--to", engine.url)):
        refused = said(*words)
        assert refused.code == 4
        assert older in refused.err
    refused = said("move", *seeded, "--to", target.url)
    assert refused.code == 4
    assert f"{target.url} has an older copy of the crawl 'main'" in refused.err
    assert said("crawls", "rm", "main", "--yes", "--redis", target.url).code == 0
    assert said("move", *seeded, "--to", target.url).code == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--to", "redis://x.test/", "--without-target"), "--without-target is for --undo"),
        (("--to", "embedded", "--undo", "--without-target"), "the embedded engine starts with each command"),
    ],
)
def test_what_can_not_be_taken_back_without_its_target(
    programs: Nursery, seeded: tuple[str, ...], words: tuple[str, ...], why: str
) -> None:
    refused = in_process(programs, "move", *seeded, *words)
    assert refused.code == 2
    assert why in refused.err


def test_a_target_that_wants_a_password_answers(programs: Nursery, target: Engine, seeded: tuple[str, ...]) -> None:
    with target.client() as client:
        client.config_set("requirepass", "secret")
    refused = in_process(programs, "move", *seeded, "--to", target.url, "--undo", "--without-target")
    assert (refused.code, refused.err.count("\n")) == (4, 1)
    assert "answers" in refused.err


def test_a_restore_of_another_backup_than_the_interrupted_one(
    programs: Nursery, target: Engine, seeded: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert in_process(programs, "backup", "old.backup", *seeded).code == 0
    assert in_process(programs, "seed", "http://y.test/", *seeded).code == 0
    assert in_process(programs, "backup", "new.backup", *seeded).code == 0
    at = ("--redis", target.url, "--dir", "d")
    with monkeypatch.context() as patch:
        patch.setattr(Arrival, "lost", _killed)
        assert in_process(programs, "restore", "old.backup", *at).code == 3
    refused = in_process(programs, "restore", "new.backup", *at)
    assert refused.code == 4
    assert "has a part of the crawl 'main', from old.backup, by another move or restore" in refused.err
    assert in_process(programs, "restore", "old.backup", *at).code == 0
    assert in_process(programs, "restore", "old.backup", *at).code == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "code", "said"),
    [
        (">&-", 2, "standard output is closed: name a file, or send it somewhere"),
        ("> /dev/full", 5, "can't write standard output: No space left on device: there is no backup"),
        ("| true", 5, "can't write standard output: Broken pipe: there is no backup"),
    ],
)
def test_a_backup_that_nobody_gets_is_none(
    programs: Nursery, seeded: tuple[str, ...], where: str, code: int, said: str
) -> None:
    """One line, and no word that it was written; with --pause as well, which is taken back."""
    for option in ((), ("--pause",)):
        command = shlex.join([sys.executable, "-P", "-m", "crawler", "backup", "-", *option, *seeded])
        shell = f"{{ {command}; echo $? > code; }} {where}" if where[0] == "|" else f"{command} {where}; echo $? > code"
        ran = subprocess.run(
            ["sh", "-c", shell],
            cwd=programs.folder,
            env=programs.environment,
            capture_output=True,
            check=True,
            text=True,
        )
        assert (programs.folder / "code").read_text().strip() == str(code)
        assert ran.stderr.splitlines()[-1] == f"crawler: {said}"
        assert "Wrote" not in ran.stderr
