"""The list of what is missing in the results: right numbers, true examples, and advice for every reason."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from crawler.crawl.opening import OpenCrawl
from crawler.frontier.stats import Totals
from crawler.model import OURS, FailureKind
from crawler.views.dead_letter_changes import LetterFilter, dead_letter_list, purge, retry
from crawler.views.losses import (
    ADVICE,
    LINES_MAX,
    Kind,
    Loss,
    losses_lines,
    losses_of,
    losses_table,
    losses_text,
)
from crawler.views.values import letter_reason_of
from crawler.views.whole import losses, overview_with_losses
from tests.crawl.runs_lab import ONE, finish, start
from tests.support.engine import Engine
from tests.views.views_lab import ANN, give_up, seeded

WATCHING = Path(__file__).parents[2] / "docs" / "operate" / "watching.md"
URLS = tuple(f"https://{reason}{n}.example/" for reason in ("timeout", "host-dead", "new-kind") for n in range(3))
ALL = LetterFilter()
LATER_MS = 10**7
BEGINNINGS = tuple(f"| {kind} | " for kind in Kind)


def reason_of(url: str) -> str:
    return next(r for r in ("timeout", "host_dead", "new_kind", "tls") if f"//{r.replace('_', '-')}" in url)


@pytest.fixture
async def crawl(tmp_path: Path, engine: Engine) -> AsyncIterator[OpenCrawl]:
    async with seeded(tmp_path / "c", engine, *URLS) as one:
        assert await give_up(one, reason_of) == len(URLS)
        yield one


def given_up(found: list[Loss]) -> dict[str, int]:
    return {one.reason: one.count for one in found if one.kind is Kind.GIVEN_UP}


async def check(crawl: OpenCrawl) -> dict[str, int]:
    """The numbers are those of the dead letters, and each example is one of them; by reason."""
    found = await losses(crawl)
    letters = [one.letter async for some in crawl.letters.read() for one in some]
    reasons = (await dead_letter_list(crawl, ALL, 1)).reasons
    assert given_up(found) == dict(reasons)
    for one in found:
        if one.kind is Kind.GIVEN_UP:
            assert (one.reason, one.example) in {(letter.reason, letter.url) for letter in letters}
    return given_up(found)


async def test_each_reason_of_dead_letters_has_its_number_and_an_example(crawl: OpenCrawl) -> None:
    assert await check(crawl) == {"timeout": 3, "host_dead": 3, "new_kind": 3}
    assert list((await overview_with_losses(crawl)).losses) == await losses(crawl)


async def test_an_example_that_is_put_back_or_purged_is_replaced(crawl: OpenCrawl) -> None:
    for left in (2, 1):
        (example,) = [one.example for one in await losses(crawl) if one.reason == "timeout"]
        await retry(crawl, LetterFilter(urls=(example,)), actor=ANN)
        assert (await check(crawl))["timeout"] == left
    for left in (2, 1):
        (example,) = [one.example for one in await losses(crawl) if one.reason == "host_dead"]
        await purge(crawl, LetterFilter(urls=(example,)), actor=ANN)
        assert (await check(crawl))["host_dead"] == left
    await give_up(crawl, reason_of, since_ms=LATER_MS)
    assert await check(crawl) == {"timeout": 3, "host_dead": 1, "new_kind": 3}
    await purge(crawl, LetterFilter(), actor=ANN)
    assert await losses(crawl) == [], "who purges them asked for it"


async def test_dead_letters_of_a_run_count_also_after_its_end(crawl: OpenCrawl) -> None:
    await start(crawl, ONE, ["https://tls0.example/", "https://timeout0.example/"])
    await give_up(crawl, reason_of, since_ms=LATER_MS)
    assert await check(crawl) == {"timeout": 4, "host_dead": 3, "new_kind": 3, "tls": 1}
    await finish(crawl, ONE)
    assert await check(crawl) == {"timeout": 4, "host_dead": 3, "new_kind": 3, "tls": 1}


def test_what_the_user_asked_to_leave_out_is_not_a_loss() -> None:
    asked = dict.fromkeys(("scope", "depth", "purged", "run_ended", "run_pages", "run_depth"), 9)
    assert losses_of(Totals(refused=asked), {}) == []
    (found,) = losses_of(Totals(refused=asked | {"robots": 2}), {"refused:robots": "http://a.test/x"})
    assert (found.kind, found.reason, found.count, found.example) == (Kind.SKIPPED, "robots", 2, "http://a.test/x")


def test_a_reason_that_nobody_knows_gets_a_general_advice() -> None:
    new = {"new": 1}
    found = losses_of(Totals(dead=1, dead_by=new, refused=new, deferred=1, deferred_by=new, lost=new), {})
    assert {one.kind for one in found} == {*Kind}
    assert all(one.advice for one in found)
    assert "crawler dead retry --reason new" in next(one.advice for one in found if one.kind is Kind.GIVEN_UP)
    assert len(losses_lines(found)) == len(losses_table(found).splitlines()) - 1 == 4


def test_the_end_of_a_crawl_has_five_lines_at_most_the_largest_first() -> None:
    sums = {f"kind{n}": 10 - n for n in range(LINES_MAX)}
    found = losses_of(Totals(dead=40, dead_by=sums), {"dead:kind0": "http://a.test/" + "x" * 500})
    lines = losses_lines(found)
    assert len(lines) == LINES_MAX
    assert lines[0].startswith("Given up: kind0 10 (http://a.test/xxx")
    assert len(lines[0]) < 200
    more = losses_lines(losses_of(Totals(dead=1045, dead_by=sums | {"other": 1005}), {}))
    assert (len(more), more[0][:22]) == (LINES_MAX, "Given up: other 1,005:")
    assert more[-1] == "2 more reasons, 13 in all: crawler stats --losses"
    assert losses_text(found) == "given up 40"
    assert (losses_lines([]), losses_text([]), losses_table([])) == ([], "0", "No losses.")


def test_every_failure_and_every_filter_of_dead_letters_has_advice() -> None:
    reasons = ADVICE[Kind.GIVEN_UP][0]
    assert set(reasons) == {*FailureKind} - OURS  # nothing is given up for it
    assert [letter_reason_of(kind) for kind in FailureKind] == [*FailureKind]


def test_the_page_for_users_has_each_reason_with_its_advice() -> None:
    page = WATCHING.read_text(encoding="utf-8")
    wanted = [
        f"| {kind} | `{reason}` | {advice.format(reason)} |"
        for kind, (advices, _) in ADVICE.items()
        for reason, advice in advices.items()
    ]
    table = page.partition("## Losses")[2].partition("\n## ")[0]
    assert [line for line in table.splitlines() if line.startswith(BEGINNINGS)][-len(wanted) :] == wanted
