"""`crawler users`: lists who shares a crawl, and sets weights that instances follow."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.crawl.opening import open_crawl
from tests.cli.cli_lab import HOST
from tests.cli.operate_lab import Lab, one_page
from tests.crawl.harness import settings_of
from tests.crawl.runs_lab import ONE, TWO, start
from tests.support.engine import Engine

BAD_INPUT = 2


@pytest.fixture
def lab(tmp_path: Path, engine: Engine, capsys: pytest.CaptureFixture[str]) -> Iterator[Lab]:
    with one_page(tmp_path, engine, capsys) as one:
        yield one


def overrides(lab: Lab) -> tuple[int, dict[str, float]]:
    """Their version, and the weights that are stored."""

    async def read() -> tuple[int, dict[str, float]]:
        async with open_crawl(settings_of(lab.folder, frontier__redis=lab.engine.url), create=False) as crawl:
            found = await crawl.operator.overrides()
            return found.version, dict(found.weights)

    return asyncio.run(read())


def test_users_are_listed_with_what_waits_of_them(lab: Lab) -> None:
    async def add() -> None:
        async with open_crawl(settings_of(lab.folder, frontier__redis=lab.engine.url), create=False) as crawl:
            await start(crawl, ONE, [lab.site.url(HOST, f"/{n}") for n in range(3)], user="ann")
            await start(crawl, TWO, [lab.site.url("other.test", "/")], user="ben")

    assert lab.json("users") == {"users": [{"user": None, "weight": 1.0, "waiting": None}]}
    asyncio.run(add())
    lab.say("users", "ben", "0.5")
    assert [line.split() for line in lab.say("users").splitlines()[1:]] == [
        ["(the", "crawl)", "1", "-"], ["ann", "1", "3"], ["ben", "0.5", "1"],
    ]  # fmt: skip


def test_a_weight_is_stored_and_taken_back_and_instances_are_told(lab: Lab) -> None:
    assert lab.say("users", "ann", "3") == "ann: weight 3"
    assert lab.json("users", "--crawl", "0.5") == {"user": None, "weight": 0.5}
    version, weights = overrides(lab)
    assert weights == {"ann": 3.0, "": 0.5}
    lab.say("users", "ann", "1")
    assert overrides(lab) == (version + 1, {"": 0.5})
    log = lab.say("oplog")
    assert [line.split()[5:] for line in log.splitlines()[1:]] == [
        ["users", "ann", "weight", "3"], ["users", "-", "weight", "0.5"], ["users", "ann", "weight", "1"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ann"], "give a weight, like 'crawler users ann 2'"),
        (["ann", "2", "--crawl", "3"], "give a weight, like"),
        (["ann", "0"], "weight 0: expected a number from 0.01 to 1000"),
        (["a b", "1"], "'a b' is not a valid name of a user"),
        (["--crawl", "-1"], "weight -1: expected a number from 0.01 to 1000"),
    ],
)
def test_bad_input_ends_with_exit_code_2(lab: Lab, words: list[str], message: str) -> None:
    code, _, err = lab.run("users", *words)
    assert code == BAD_INPUT
    assert message in err
    assert overrides(lab) == (0, {})
