"""Single calls sent together."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from crawler.engine.client import Call, Gathering
from crawler.errors import EngineDown, EngineError
from tests.support.patience import others_run


class Line:
    """An engine that takes its time, and remembers who came together."""

    def __init__(self) -> None:
        self.pipelines: list[list[str]] = []
        self.fails: dict[str, Exception] = {}
        self.open = asyncio.Event()
        self.open.set()

    def shard_of(self, key: str) -> str:
        return key

    async def run_many(self, calls: Sequence[Call]) -> list[Any]:
        self.pipelines.append([call.name for call in calls])
        await self.open.wait()
        if "all" in self.fails:
            raise self.fails["all"]
        return [self.fails.get(call.name, f"<{call.name}>") for call in calls]


def call(name: str) -> Call:
    return Call(name, ("k",), ())


async def test_calls_of_one_moment_and_those_made_meanwhile_go_together() -> None:
    line = Line()
    gathering = Gathering(line)  # type: ignore[arg-type]
    line.open.clear()
    first = [asyncio.create_task(gathering.run(call(name))) for name in "abc"]
    await others_run()
    later = [asyncio.create_task(gathering.run(call(name))) for name in "de"]
    await others_run()
    assert line.pipelines == [["a", "b", "c"]]
    line.open.set()
    assert await asyncio.gather(*first, *later) == ["<a>", "<b>", "<c>", "<d>", "<e>"]
    assert line.pipelines == [["a", "b", "c"], ["d", "e"]]
    assert await gathering.run(call("f")) == "<f>"


async def test_a_call_that_fails_fails_alone_and_one_without_an_answer_all_of_its_pipeline() -> None:
    line = Line()
    gathering = Gathering(line)  # type: ignore[arg-type]
    line.fails = {"b": EngineError("refused")}
    answers = await asyncio.gather(*(gathering.run(call(name)) for name in "abc"), return_exceptions=True)
    assert [str(answer) for answer in answers] == ["<a>", "refused", "<c>"]
    for error in (EngineDown("no answer"), ZeroDivisionError("ours")):
        line.fails = {"all": error}
        answers = await asyncio.gather(*(gathering.run(call(name)) for name in "ab"), return_exceptions=True)
        assert answers == [error, error]
    line.fails.clear()
    assert await gathering.run(call("d")) == "<d>"


async def test_a_cancelled_caller_does_not_affect_the_others() -> None:
    line = Line()
    gathering = Gathering(line)  # type: ignore[arg-type]
    line.open.clear()
    tasks = [asyncio.create_task(gathering.run(call(name))) for name in "ab"]
    await others_run()
    tasks[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    line.open.set()
    assert await tasks[1] == "<b>"
