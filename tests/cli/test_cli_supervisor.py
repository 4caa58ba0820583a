"""The supervisor over children that crash, end, or won't: no crawler is needed to see what it does."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from crawler.errors import EngineDown
from crawler.supervisor.child import BACKOFF_MAX_S, RESTARTS_MAX, STEADY_S, Child, ChildState, Deaths
from crawler.supervisor.supervisor import GaveUpError, Supervisor
from tests.support.patience import PATIENCE_S, until
from tests.support.processes import is_running

UNTIL_TOLD = """\
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("up", file=sys.stderr, flush=True)
signal.sigwait([signal.SIGTERM])  # a handler could run just before a call that waits for ever
sys.exit(10)
"""


class Alphabet:
    """Names for children: a-0, a-1, ...; those in `taken` belong to others."""

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self.failures = 0

    async def free(self, count: int, besides: Collection[str]) -> list[str]:
        if self.failures:
            self.failures -= 1
            raise EngineDown("no answer")
        return [name for n in range(99) if (name := f"a-{n}") not in {*besides, *self.taken}][:count]

    async def is_free(self, node: str) -> bool:
        return node not in self.taken


class Family:
    """A supervisor over Python snippets, and what it said."""

    def __init__(self, code: str = UNTIL_TOLD, **others: str) -> None:
        """`code` is every child's, but those of `others`: a_1 is that of a-1."""
        self.said: list[str] = []
        self.names = Alphabet()
        codes = {name.replace("_", "-"): other for name, other in others.items()}
        self.supervisor = Supervisor(
            self.names,
            lambda name: [sys.executable, "-I", "-c", codes.get(name, code)],
            environment=dict(os.environ),
            say=self.said.append,
            warn=self.said.append,
            backoff_s=0.01,
        )

    def child(self, name: str) -> Child:
        return next(child for child in self.supervisor.children if child.name == name)

    @property
    def running(self) -> list[str]:
        return [child.name for child in self.supervisor.children]

    async def heard(self, words: str) -> None:
        await until(lambda: any(words in line for line in self.said))

    async def is_up(self, *names: str) -> None:
        for name in names:
            await self.heard(f"[{name}] up")

    @asynccontextmanager
    async def working(self, wanted: int) -> AsyncIterator["asyncio.Task[None]"]:
        """While it runs; stopped at the end, if it has not ended by itself."""
        running = asyncio.create_task(self.supervisor.run(wanted))
        try:
            yield running
        finally:
            self.supervisor.stop()
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(running, return_exceptions=True)


async def test_it_ends_when_all_children_have_ended_well() -> None:
    family = Family("pass")
    await family.supervisor.run(2)
    assert family.said == []
    assert not family.supervisor.stopped_because


async def test_a_child_that_crashes_once_is_started_again(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = f"import os, pathlib; m = pathlib.Path({str(mark)!r})\nif not m.exists(): m.touch(); os.kill(os.getpid(), 9)"
    family = Family(code)
    await family.supervisor.run(1)
    assert family.said == ["instance a-0 was killed (SIGKILL); starting it again in 0.01 s"]


async def test_a_child_that_crashes_again_and_again_ends_the_whole_with_exit_code_1() -> None:
    words = "import sys; print('crawler: out of luck', file=sys.stderr); sys.exit(1)"
    family = Family(a_0=words)
    with pytest.raises(GaveUpError, match=r"instance a-0 ended with exit code 1 \(out of luck\) 9 times") as caught:
        await family.supervisor.run(2)
    assert caught.value.exit_code == 1
    assert sum("starting it again" in line for line in family.said) == RESTARTS_MAX


async def test_a_child_that_would_end_the_same_way_is_not_started_again() -> None:
    family = Family("import sys; sys.exit(5)")
    with pytest.raises(GaveUpError) as caught:
        await family.supervisor.run(1)
    assert caught.value.exit_code == 5
    assert family.said == []


def test_pauses_between_restarts_double_up_to_a_limit_and_a_steady_life_starts_afresh() -> None:
    deaths = Deaths(1.0)
    pauses = [deaths.pause_after(2.0, 1) for _ in range(RESTARTS_MAX)]
    assert pauses == [1, 2, 4, 8, *[BACKOFF_MAX_S] * (RESTARTS_MAX - 4)]
    assert deaths.pause_after(STEADY_S - 1, 1) is None
    assert deaths.pause_after(STEADY_S, 1) == 1


def test_a_page_that_kills_three_times_is_survived_even_where_two_come_together() -> None:
    deaths = Deaths(1.0)
    assert None not in [deaths.pause_after(0.5, -9) for _ in range(6)]


def test_an_engine_that_is_down_is_waited_for() -> None:
    deaths = Deaths(1.0)
    assert {deaths.pause_after(0.5, 3) for _ in range(100)} == {5.0}


async def test_stop_asks_all_children_and_waits_for_them() -> None:
    family = Family()
    async with family.working(2) as running:
        await family.is_up("a-0", "a-1")
        family.supervisor.stop()
        async with asyncio.timeout(PATIENCE_S):
            await running
    assert family.supervisor.stopped_because == "signal"
    assert family.running == []


async def test_a_child_s_input_ends_when_nobody_supervises_it_any_more() -> None:
    family = Family("import sys; print('up', file=sys.stderr, flush=True); sys.stdin.read()")
    async with family.working(1) as running:
        await family.is_up("a-0")
        process = family.child("a-0")._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(PATIENCE_S):
            await running
    assert not family.supervisor.stopped_because


async def test_scaling_takes_the_first_free_names_and_stops_the_highest() -> None:
    family = Family()
    family.names.taken.add("a-1")
    async with family.working(1):
        await family.is_up("a-0")
        family.supervisor.scale(3)
        await family.is_up("a-2", "a-3")
        assert family.running == ["a-0", "a-2", "a-3"]
        family.supervisor.scale(1)
        await until(lambda: family.running == ["a-0"])
        family.names.taken.clear()
        family.supervisor.scale(2)
        await family.is_up("a-1")
    assert family.said[-1] != "crash"
    assert not any("starting it again" in line for line in family.said)


async def test_scaled_to_none_it_waits_until_some_are_wanted_again() -> None:
    family = Family()
    async with family.working(2) as running:
        await family.is_up("a-0", "a-1")
        family.supervisor.scale(0)
        await family.heard("no instance is left: start some with 'crawler scale N'")
        assert family.running == []
        assert not running.done()
        family.said.clear()
        family.supervisor.scale(1)
        await family.is_up("a-0")


async def test_a_child_that_waits_for_its_next_start_can_be_scaled_away() -> None:
    family = Family(a_1="import os; os.kill(os.getpid(), 9)")
    family.supervisor._backoff_s = 60.0
    async with family.working(2):
        await family.heard("instance a-1 was killed")
        assert family.child("a-1").state is ChildState.RESTARTING
        family.supervisor.scale(1)
        await until(lambda: family.running == ["a-0"])


@pytest.mark.parametrize(("words", "why"), [("evicted", "was evicted"), ("stopped", "was stopped by another process")])
async def test_a_child_that_somebody_else_took_off_is_not_started_again_and_the_others_go_on(
    words: str, why: str
) -> None:
    family = Family(a_1=f"import sys; print('crawler: {words}', file=sys.stderr); sys.exit(10)")
    async with family.working(2) as running:
        await family.heard(f"instance a-1 {why}; it is not started again, 1 wanted from now on")
        await family.is_up("a-0")
        assert family.running == ["a-0"]
        assert not running.done()
        assert family.supervisor.wanted == 1


async def test_a_name_that_somebody_took_meanwhile_is_left_to_them(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    code = (
        f"import pathlib, sys, time\nwhile not pathlib.Path({str(taken)!r}).exists(): time.sleep(0.01)\n"
        "print('crawler: node is already running', file=sys.stderr); sys.exit(4)"
    )
    family = Family(a_0=code)
    async with family.working(1):
        await until(lambda: family.running == ["a-0"])
        family.names.taken.add("a-0")  # since it was seen as free
        taken.touch()
        await family.heard("instance a-0: node is already running; starting one under another name")
        await family.is_up("a-1")


async def test_any_other_conflict_ends_the_whole() -> None:
    family = Family("import sys; print('crawler: folder of another crawl', file=sys.stderr); sys.exit(4)")
    with pytest.raises(GaveUpError, match=r"exit code 4 \(folder of another crawl\): the others") as caught:
        await family.supervisor.run(1)
    assert caught.value.exit_code == 4


async def test_children_are_started_once_the_engine_says_which_names_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crawler.supervisor.supervisor.NAMES_RETRY_S", 0.01)
    family = Family()
    family.names.failures = 3
    async with family.working(1):
        await family.is_up("a-0")


async def test_a_crashed_child_is_not_started_again_once_another_found_nothing_left() -> None:
    family = Family(a_0="import time; time.sleep(0.5)", a_1="import os; os.kill(os.getpid(), 9)")
    family.supervisor._backoff_s = 60.0
    async with asyncio.timeout(PATIENCE_S):
        await family.supervisor.run(2)
    assert not family.supervisor.stopped_because


async def test_the_end_of_a_child_is_seen_though_a_helper_of_it_holds_its_pipes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "end")
    helper = ["sh", "-c", f"read _ < '{tmp_path}/end'"]
    family = Family(f"import os, subprocess; subprocess.Popen({helper}, start_new_session=True); os._exit(0)")
    try:
        async with asyncio.timeout(PATIENCE_S):
            await family.supervisor.run(1)
    finally:
        (tmp_path / "end").write_text("")


async def test_lines_of_a_child_carry_its_name_and_its_last_words_are_told_with_its_end() -> None:
    code = (
        "import os, sys; print('x' * 100_000, file=sys.stderr); print('crawler: first', file=sys.stderr);"
        "print('crawler: last', file=sys.stderr); os.write(2, b'no end'); os._exit(5)"
    )
    family = Family(code)
    with pytest.raises(GaveUpError, match=r"exit code 5 \(last\)"):
        await family.supervisor.run(1)
    assert [line[:12] for line in family.said] == ["[a-0] xxxxxx", "[a-0] first", "[a-0] no end"]


async def test_a_child_that_hangs_is_killed_and_started_again() -> None:
    family = Family()
    async with family.working(1):
        await family.is_up("a-0")
        family.said.clear()
        family.child("a-0").kill(hung="no heartbeat for 21 s")
        await family.heard("instance a-0 hung (no heartbeat for 21 s) and was killed; starting it again in 0.01 s")
        await family.is_up("a-0")


async def test_killed_children_are_dead_when_kill_and_wait_returns() -> None:
    family = Family()
    async with family.working(2):
        await family.is_up("a-0", "a-1")
        pids = [child.pid for child in family.supervisor.children]
        family.supervisor.kill_and_wait()
        assert [pid for pid in pids if is_running(pid)] == []
