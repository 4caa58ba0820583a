"""Seeds as a function: what became of them, batch by batch, on the member list meanwhile, and in the operator log."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from crawler.crawl.opening import OpenCrawl
from crawler.crawl.url_input import GivenUrl, SeedReport
from crawler.errors import UsageError
from crawler.views.seeds import add_seeds
from tests.support.engine import Engine
from tests.views.views_lab import ANN, URLS, all_keys, check_nothing_unlogged, give_up, logged, seeded

NEW = "https://new.example/"


@pytest.fixture
async def crawl(tmp_path: Path, engine: Engine) -> AsyncIterator[OpenCrawl]:
    async with seeded(tmp_path / "c", engine) as one:
        yield one


def given(*urls: str) -> list[GivenUrl]:
    return [GivenUrl(f"line {n}", url) for n, url in enumerate(urls, 1)]


async def test_each_given_url_is_counted_as_what_became_of_it(crawl: OpenCrawl) -> None:
    assert await give_up(crawl, lambda url: "poison_url" if url == URLS[0] else "timeout") == len(URLS)
    batches = [given(NEW, NEW, URLS[0], URLS[1]), given("ftp://a.example/", "no url")]
    result = await add_seeds(crawl, batches, given="6 URLs", actor=ANN)
    assert (result.new, result.retried, result.seen, result.out_of_scope, result.invalid) == (1, 1, 2, 0, 2)
    assert [(one.where, one.url) for one in result.complaints] == [("line 1", "ftp://a.example/"), ("line 2", "no url")]
    assert await logged(crawl) == [("seed", "", "6 URLs")]


async def test_a_comment_behind_a_seed_is_cut_and_fields_behind_a_tab_are_refused(crawl: OpenCrawl) -> None:
    result = await add_seeds(crawl, [given(f"{NEW} # new", f"{NEW}\tscore=1", f"{NEW}\t# new")], given="3", actor=ANN)
    assert (result.new, result.seen, result.invalid) == (1, 1, 1)
    assert f"has fields behind a tab: give {NEW} alone" in result.complaints[0].reason


async def test_a_seed_that_had_failed_is_retried_at_its_time(crawl: OpenCrawl) -> None:
    await give_up(crawl)
    later = [replace(one, visible_at=4e9) for one in given(URLS[0], NEW)]
    result = await add_seeds(crawl, [later], given="2 URLs", actor=ANN)
    assert (result.new, result.retried) == (1, 1)
    totals = await crawl.stats.totals()
    assert (totals.pending, totals.scheduled, totals.first_visible_at) == (2, 2, 4e9)


async def test_the_next_batch_is_requested_when_the_last_one_was_added(crawl: OpenCrawl) -> None:
    steps: list[str] = []

    async def batches() -> AsyncIterator[list[GivenUrl]]:
        for n in range(3):
            steps.append(f"read {n}")
            yield given(f"https://new.example/{n}")

    def added(report: SeedReport) -> None:
        steps.append(f"added {report.new}")

    await add_seeds(crawl, batches(), given="a stream", actor=ANN, on_batch=added)
    assert steps == ["read 0", "added 1", "read 1", "added 2", "read 2", "added 3"]


async def test_no_crawl_ends_while_any_of_two_streams_is_read(crawl: OpenCrawl) -> None:
    may_end = [asyncio.Event(), asyncio.Event()]
    has_begun = [asyncio.Event(), asyncio.Event()]

    async def stream(n: int) -> AsyncIterator[list[GivenUrl]]:
        has_begun[n].set()
        await may_end[n].wait()
        yield given(f"https://new.example/{n}")

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(add_seeds(crawl, stream(n), given="1 URL", actor=ANN)) for n in range(2)]
        for begun in has_begun:
            await begun.wait()
        assert [one.state for one in (await crawl.members.read()).values()] == ["seeding"] * 2
        may_end[0].set()
        assert (await tasks[0]).new == 1
        assert len(await crawl.members.read()) == 1
        may_end[1].set()
    assert await crawl.members.read() == {}


async def test_a_stream_that_fails_leaves_the_member_list(crawl: OpenCrawl) -> None:
    async def broken() -> AsyncIterator[list[GivenUrl]]:
        yield given(NEW)
        raise UsageError("the rest can't be read")

    with pytest.raises(UsageError, match="the rest"):
        await add_seeds(crawl, broken(), given="a stream", actor=ANN)
    assert await crawl.members.read() == {}
    assert await logged(crawl) == [("seed", "", "a stream")]


async def test_a_scope_that_was_changed_since_the_crawl_was_opened_holds(crawl: OpenCrawl) -> None:
    await crawl.crawls.change_settings({"scope.exclude": ["new"]})
    result = await add_seeds(crawl, [given(NEW)], given="1 URL", actor=ANN)
    assert (result.new, result.out_of_scope) == (0, 1)
    assert result.complaints[0].reason.startswith("out of scope: ")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"depth": -1}, "depth -1: expected 0 to 255"),
        ({"depth": 256}, "depth 256: expected 0 to 255"),
        ({"priority": 1e12}, "priority 1000000000000.0: expected -"),
        ({"priority": float("nan")}, "priority nan: expected -"),
    ],
)
async def test_options_out_of_bounds_add_nothing(crawl: OpenCrawl, options: dict[str, float], words: str) -> None:
    before = await all_keys(crawl)
    with pytest.raises(UsageError) as raised:
        await add_seeds(crawl, [given(NEW)], given="1 URL", actor=ANN, **options)  # type: ignore[arg-type]
    assert str(raised.value).startswith(words)
    assert await all_keys(crawl) == before


async def test_no_seed_is_added_without_an_entry_in_the_log(crawl: OpenCrawl) -> None:
    await check_nothing_unlogged(crawl, lambda its: add_seeds(its, [given(NEW)], given="1 URL", actor=ANN))
