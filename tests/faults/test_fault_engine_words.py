"""Each error that an engine may answer with: for people's commands, for instances, and what is told of it."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from crawler.crawl.instance import Instance
from tests.cli.cli_lab import in_process
from tests.cli.scale_lab import clean_nursery, web_for
from tests.cli.scale_lab import crawl as supervised
from tests.faults.engine_lab import HASTY, committed, counted, lab
from tests.support.engine import Engine
from tests.support.patience import wait_until
from tests.support.processes import Nursery
from tests.support.proxy import Proxy, tcp_proxy


class Word(NamedTuple):
    answer: str
    told: str  # a part of the line
    known: bytes = b"INFO"  # that an engine in this state still answers


WORDS = [
    Word("READONLY You can't write against a read only replica.", "read-only replica"),
    Word("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", "a replica without its"),
    Word("LOADING Redis is loading the dataset in memory", "reads its files"),
    Word("NOREPLICAS Not enough good replicas to write.", "too few replicas"),
    Word("MISCONF Errors writing to the AOF file: No space left on device", "free space there"),
    Word("BUSY Redis is busy running a script.", "somebody's script", known=b""),
    Word("NOAUTH Authentication required.", "refused the login", known=b""),
    Word("WRONGPASS invalid username-password pair or user is disabled.", "refused the login", known=b""),
    Word("NOPERM User default has no permissions to run the 'fcall' command", "(NOPERM)"),
]
COMMANDS = [("stats",), ("crawls",), ("seed", "http://a.test/"), ("dead", "list"), ("run",)]


def refuse(proxy: Proxy, word: Word) -> None:
    proxy.refuse(f"-{word.answer}\r\n".encode(), without=word.known)


@pytest.fixture
def programs() -> Iterator[Nursery]:
    with clean_nursery() as programs:
        yield programs


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.answer.split()[0])
def test_a_command_ends_at_once_with_code_3_and_what_to_do(
    programs: Nursery, engine: Engine, word: Word, tmp_path: Path
) -> None:
    with tcp_proxy(engine.url) as proxy:
        refuse(proxy, word)
        for command in COMMANDS:
            ran = in_process(programs, *command, "--redis", proxy.url, "--dir", str(tmp_path / "c"))
            assert ran.code == 3, (command, ran)
            assert ran.err.count("\n") == 1
            assert word.told in ran.err
            assert ran.err.startswith("crawler: ")


@pytest.mark.slow(seconds=60)
async def test_instances_go_on_after_each_of_them_and_nothing_is_lost(tmp_path: Path, engine: Engine) -> None:
    with tcp_proxy(engine.url) as proxy:

        async def say_all(instances: list[Instance]) -> None:
            for word in WORDS:
                await committed(instances, sum(i.counters.committed for i in instances) + 5)
                before = proxy.refusals
                refuse(proxy, word)
                await asyncio.sleep(1.0)
                proxy.heal()
                assert proxy.refusals > before, word

        async with lab(tmp_path, seed=58, domains=6) as here:
            await here.crawl(proxy.url, meanwhile=say_all, instances=2, **HASTY)
            totals = await counted(engine.url)
    assert (totals.added, totals.fetched) == (totals.done, here.pages)


def a_second(log: Path) -> int:
    """How many lines about the engine a log has in a second, at most."""
    events = [json.loads(line) for line in log.read_text().splitlines()]
    errors = [event for event in events if event.keys() & {"error", "errors"}]
    return max(Counter(event["at"][:19] for event in errors).values(), default=0)


@pytest.mark.processes
@pytest.mark.slow(seconds=40)
@pytest.mark.parametrize("word", [WORDS[0], WORDS[4]], ids=lambda word: word.answer.split()[0])
@pytest.mark.parametrize("instances", [1, 2])
def test_people_are_told_within_ten_seconds_and_the_log_has_a_line_a_second(
    programs: Nursery, engine: Engine, tmp_path: Path, word: Word, instances: int
) -> None:
    with web_for(programs) as site, tcp_proxy(engine.url) as proxy:
        folder = tmp_path / "c"
        program = supervised(programs, site, folder, instances, CRAWLER_FRONTIER_REDIS=proxy.url)
        wait_until(lambda: len(site.requests()) > 20)
        began = time.monotonic()
        refuse(proxy, word)
        program.wait_for(f"Waiting: .*{word.told}", 30)
        assert time.monotonic() - began < 10
        proxy.heal()
        program.wait_for("The engine serves again after", 30)
        program.interrupt()
        assert program.wait(60) == 10, program.err
        logs = [*(folder / "log").glob("*.log")]
        assert logs
        assert max(map(a_second, logs)) <= 2  # one in a second of its own, which may begin within one of the clock's
