"""Operator commands as functions: what they return and change, and that nothing changes without an entry in the log."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from msgspec import UNSET

from crawler.crawl.opening import OpenCrawl
from crawler.errors import UsageError
from crawler.views import operator
from crawler.views.values import boost_of, check_release, delay_ms_of, domain_of
from tests.support.engine import Engine
from tests.views.views_lab import ANN, DOMAIN, URLS, all_keys, check_nothing_unlogged, logged, seeded

ALL = len(URLS)
CHANGES: dict[str, Callable[[OpenCrawl], Awaitable[object]]] = {
    "pause": lambda crawl: operator.pause(crawl, DOMAIN, actor=ANN),
    "resume": lambda crawl: operator.resume(crawl, DOMAIN, actor=ANN),
    "block": lambda crawl: operator.block(crawl, DOMAIN, actor=ANN),
    "unblock": lambda crawl: operator.unblock(crawl, DOMAIN, actor=ANN),
    "delay": lambda crawl: operator.set_delay(crawl, DOMAIN, 5000, actor=ANN),
    "boost": lambda crawl: operator.set_boost(crawl, DOMAIN, 5, actor=ANN),
    "purge": lambda crawl: operator.purge(crawl, DOMAIN, actor=ANN),
    "release": lambda crawl: operator.release(crawl, DOMAIN, actor=ANN),
}


@pytest.fixture
async def crawl(tmp_path: Path, engine: Engine) -> AsyncIterator[OpenCrawl]:
    async with seeded(tmp_path / "c", engine) as one:
        yield one


async def test_a_domain_is_paused_and_resumed_once(crawl: OpenCrawl) -> None:
    first = await operator.pause(crawl, DOMAIN, actor=ANN)
    assert (first.domain, first.paused, first.urls, first.is_changed) == (DOMAIN, True, ALL, True)
    assert first.text == f"{DOMAIN} is now paused: {ALL} URLs wait"
    assert first.blocked is first.delay_ms is first.purged is UNSET
    assert not (await operator.pause(crawl, DOMAIN, actor=ANN)).is_changed
    assert (await operator.resume(crawl, DOMAIN, actor=ANN)).is_changed
    assert not (await operator.resume(crawl, DOMAIN, actor=ANN)).is_changed
    assert await logged(crawl) == [(name, DOMAIN, "") for name in ("pause", "resume")]


async def test_the_whole_crawl_is_named_by_no_domain(crawl: OpenCrawl) -> None:
    result = await operator.pause(crawl, "", actor=ANN)
    assert (result.domain, result.paused, result.urls) == (None, True, ALL)
    assert (await crawl.operator.overrides()).is_paused
    assert await logged(crawl) == [("pause", "", "")]


async def test_delay_and_boost_tell_whether_they_changed_anything(crawl: OpenCrawl) -> None:
    for changed in (True, False):
        delay = await operator.set_delay(crawl, DOMAIN, 5000, actor=ANN)
        boost = await operator.set_boost(crawl, DOMAIN, -3, actor=ANN)
        assert (delay.delay_ms, delay.is_changed, boost.boost, boost.is_changed) == (5000, changed, -3, changed)
    assert (await operator.boosts(crawl)).boosts == {DOMAIN: -3}
    auto = await operator.set_delay(crawl, DOMAIN, None, actor=ANN)
    assert (auto.delay_ms, auto.is_changed) == (None, True)
    assert (await logged(crawl))[0] == ("delay", DOMAIN, "5 s")
    assert (await logged(crawl))[-1] == ("delay", DOMAIN, "auto")


async def test_blocked_urls_come_back_and_purged_ones_do_not(crawl: OpenCrawl) -> None:
    assert (await operator.block(crawl, DOMAIN, actor=ANN)).urls == ALL
    assert (await operator.release(crawl, "", reason="urls", urls_max=3, actor=ANN)).released == 0
    assert (await operator.unblock(crawl, DOMAIN, actor=ANN)).urls == ALL
    assert (await operator.purge(crawl, DOMAIN, actor=ANN)).purged == ALL
    assert (await operator.purge(crawl, DOMAIN, actor=ANN)).is_changed is False
    assert ("release", "", "reason urls, at most 3 URLs") in await logged(crawl)
    assert await operator.is_met(crawl, DOMAIN)
    assert not await operator.is_met(crawl, "other.example")


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_nothing_changes_without_an_entry_in_the_log(
    crawl: OpenCrawl, change: Callable[[OpenCrawl], Awaitable[object]]
) -> None:
    await check_nothing_unlogged(crawl, change)
    before = await all_keys(crawl)
    await change(crawl)
    assert await all_keys(crawl) != before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda crawl: operator.set_delay(crawl, DOMAIN, -1, actor=ANN), "delay -1 ms: expected 0 to 86,400,000"),
        (lambda crawl: operator.set_boost(crawl, DOMAIN, 10, actor=ANN), "boost 10: expected a whole number from -9"),
        (lambda crawl: operator.release(crawl, "", urls_max=-1, actor=ANN), "urls -1: expected a number of URLs"),
        (lambda crawl: operator.release(crawl, "", reason="paused", actor=ANN), "reason paused: use 'crawler resume"),
    ],
)
async def test_bad_values_change_nothing_and_are_not_logged(
    crawl: OpenCrawl, change: Callable[[OpenCrawl], Awaitable[object]], words: str
) -> None:
    before = await all_keys(crawl)
    with pytest.raises(UsageError) as raised:
        await change(crawl)
    assert str(raised.value).startswith(words)
    assert await all_keys(crawl) == before


def test_values_are_read_as_people_write_them() -> None:
    assert [domain_of(text) for text in ("https://a.docs.example/x", "docs.example")] == ["docs.example"] * 2
    assert [delay_ms_of(text) for text in ("0", "500ms", "2m", "auto")] == [0, 500, 120_000, None]
    assert [boost_of(text) for text in ("-9", "0", "+9")] == [-9, 0, 9]
    check_release("trap:calendar", 5)


@pytest.mark.parametrize("text", ["x", "10", "-10", "1.5", "", "9" * 5_000])
def test_a_boost_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected a whole number from -9 to 9"):
        boost_of(text)
