"""The supervisor over children that crash, end, or won't: no crawler is needed to see what it does."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from crawler.supervisor import RESTARTS_MAX, GaveUpError, Supervisor

UNTIL_TOLD = """\
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(10))
print("up", file=sys.stderr, flush=True)
sys.stdin.read()
"""


class Family:
    """A supervisor over Python snippets, and what it said."""

    def __init__(self, **snippets: str) -> None:
        self.said: list[str] = []
        commands = {name: [sys.executable, "-I", "-c", code] for name, code in snippets.items()}
        self.supervisor = Supervisor(commands, environment=dict(os.environ), say=self.said.append, backoff_s=0.01)

    async def heard(self, words: str) -> None:
        async with asyncio.timeout(20):
            while not any(words in line for line in self.said):
                await asyncio.sleep(0.01)


async def test_it_ends_when_all_children_have_ended_well() -> None:
    family = Family(a="pass", b="pass")
    await family.supervisor.run()
    assert family.said == []
    assert not family.supervisor.was_stopped


async def test_a_child_that_crashes_once_is_started_again(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = f"import os, pathlib; m = pathlib.Path({str(mark)!r})\nif not m.exists(): m.touch(); os.kill(os.getpid(), 9)"
    family = Family(a=code)
    await family.supervisor.run()
    assert family.said == ["instance a was killed (SIGKILL); starting it again in 0.01 s"]


async def test_a_child_that_crashes_again_and_again_ends_the_whole_with_exit_code_1() -> None:
    words = "import sys; print('crawler: out of luck', file=sys.stderr); sys.exit(3)"
    family = Family(a=words, b=UNTIL_TOLD)
    with pytest.raises(GaveUpError, match=r"instance a ended with exit code 3 \(out of luck\) 4 times") as caught:
        await family.supervisor.run()
    assert caught.value.exit_code == 1
    assert sum("starting it again" in line for line in family.said) == RESTARTS_MAX


async def test_a_child_that_would_end_the_same_way_is_not_started_again() -> None:
    family = Family(a="import sys; sys.exit(5)")
    with pytest.raises(GaveUpError) as caught:
        await family.supervisor.run()
    assert caught.value.exit_code == 5
    assert family.said == []


async def test_stop_asks_all_children_and_waits_for_them() -> None:
    family = Family(a=UNTIL_TOLD, b=UNTIL_TOLD)
    running = asyncio.create_task(family.supervisor.run())
    await family.heard("[a] up")
    await family.heard("[b] up")
    family.supervisor.stop()
    async with asyncio.timeout(20):
        await running
    assert family.supervisor.was_stopped


async def test_a_child_s_input_ends_when_nobody_supervises_it_any_more() -> None:
    family = Family(a="import sys; print('up', file=sys.stderr, flush=True); sys.stdin.read()")
    running = asyncio.create_task(family.supervisor.run())
    await family.heard("[a] up")
    (child,) = family.supervisor._children
    assert child.process is not None
    assert child.process.stdin is not None
    child.process.stdin.close()
    async with asyncio.timeout(20):
        await running
    assert child.code == 0
