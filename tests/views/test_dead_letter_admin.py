"""Dead letters as functions: lists, pages, what is put back and purged, and their entries in the operator log."""

import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from crawler.crawl.opening import OpenCrawl
from crawler.errors import UsageError
from crawler.rules.login_pace import LoginRecord
from crawler.views.dead_letter_changes import (
    SCANS_MAX,
    LetterFilter,
    dead_letter,
    dead_letter_list,
    dead_letter_page,
    dead_letters,
    purge,
    retry,
)
from crawler.views.dead_letters import Letter
from crawler.views.values import letter_reason_of
from tests.crawl.runs_lab import ONE, end, start
from tests.support.engine import Engine
from tests.views.views_lab import ANN, check_nothing_unlogged, give_up, logged, seeded

LARGE, PAGES = "large.example", 100
SMALL = tuple(f"d{n}.example" for n in range(20))
URLS = tuple(f"https://{LARGE}/p{n}" for n in range(PAGES)) + tuple(f"https://{name}/" for name in SMALL)
ALL = LetterFilter()


def reason_of(url: str) -> str:
    return "dns_not_found" if url.startswith("https://d") else "timeout"


@pytest.fixture
async def crawl(tmp_path: Path, engine: Engine) -> AsyncIterator[OpenCrawl]:
    async with seeded(tmp_path / "c", engine, *URLS) as one:
        assert await give_up(one, reason_of) == len(URLS)
        yield one


async def pages(crawl: OpenCrawl, wanted: LetterFilter, limit: int) -> list[list[Letter]]:
    found, cursor = [], ""
    while True:
        page = await dead_letter_page(crawl, wanted, cursor=cursor, limit=limit)
        found.append(list(page.letters))
        if page.next is None:
            return found
        assert page.next != cursor
        cursor = page.next


async def test_the_list_has_the_newest_and_all_reasons(crawl: OpenCrawl) -> None:
    found = await dead_letter_list(crawl, ALL, 3)
    assert (found.total, found.reasons) == (len(URLS), {"timeout": PAGES, "dns_not_found": len(SMALL)})
    assert [one.failed_at for one in found.newest] == [len(URLS), len(URLS) - 1, len(URLS) - 2]
    assert (await dead_letter_list(crawl, LetterFilter(domain="d3.example"), 9)).reasons == {"dns_not_found": 1}


@pytest.mark.parametrize("limit", [1, 7, 1000])
async def test_pages_have_each_dead_letter_once(crawl: OpenCrawl, limit: int) -> None:
    found = await pages(crawl, ALL, limit)
    assert Counter(one.url for page in found for one in page) == Counter(URLS)
    assert max(map(len, found)) <= limit + 30, "what is stored together comes together"


async def test_pages_of_a_domain_or_a_reason_have_only_those(crawl: OpenCrawl) -> None:
    of_domain = await pages(crawl, LetterFilter(domain=LARGE), 30)
    assert sorted(one.url for page in of_domain for one in page) == sorted(URLS[:PAGES])
    of_reason = await pages(crawl, LetterFilter(reason="dns_not_found"), 5)
    assert sorted(one.domain for page in of_reason for one in page) == sorted(SMALL)
    assert await pages(crawl, LetterFilter(domain=LARGE, reason="tls"), 5000) == [[]]
    (one,) = await pages(crawl, LetterFilter(urls=URLS[:1]), 5)
    assert [letter.url for letter in one] == [URLS[0]]


async def test_a_page_stays_right_when_what_it_showed_is_put_back(crawl: OpenCrawl) -> None:
    seen: list[str] = []
    cursor = ""
    while True:
        page = await dead_letter_page(crawl, ALL, cursor=cursor, limit=10)
        urls = [one.url for one in page.letters]
        seen += urls
        await retry(crawl, LetterFilter(urls=urls), actor=ANN)
        if page.next is None:
            break
        cursor = page.next
    assert sorted(seen) == sorted(URLS)


async def test_a_page_reads_only_so_much_where_few_are_wanted(
    crawl: OpenCrawl, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0
    some = type(crawl.letters).some

    async def counted(*arguments: object) -> object:
        nonlocal reads
        reads += 1
        return await some(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(type(crawl.letters), "some", counted)
    monkeypatch.setattr("crawler.views.dead_letter_changes.SCANS_MAX", 3)
    assert SCANS_MAX > 3
    page = await dead_letter_page(crawl, LetterFilter(reason="tls"), limit=10)
    assert (list(page.letters), reads) == ([], 3)
    assert page.next is not None


async def test_what_is_not_a_cursor_is_refused(crawl: OpenCrawl) -> None:
    for cursor in ("x", "1", "1.", ".1", "-1.0", "99999.0", f"0.{2**64}", "1.0.0", "\u0661.0", "9" * 50):
        with pytest.raises(UsageError, match=f"{re.escape(cursor)}.* is not a cursor"):
            await dead_letter_page(crawl, ALL, cursor=cursor)


async def test_those_of_a_run_are_found_apart_from_those_of_the_crawl(crawl: OpenCrawl) -> None:
    await start(crawl, ONE, URLS[:3])
    assert await give_up(crawl, lambda _: "tls") == 3
    of_run = LetterFilter(run=ONE)
    assert (await dead_letter_list(crawl, of_run, 9)).reasons == {"tls": 3}
    assert [one.reason for some in await pages(crawl, LetterFilter(run=ONE, domain=LARGE), 50) for one in some] == [
        "tls"
    ] * 3
    assert (await dead_letter(crawl, LetterFilter(urls=URLS[:1], run=ONE))).run == ONE
    assert (await dead_letter(crawl, LetterFilter(urls=URLS[:1]))).run == ""
    with pytest.raises(UsageError, match=f"{URLS[5]} is not a dead letter of run {ONE}"):
        await retry(crawl, LetterFilter(urls=URLS[5:6], run=ONE), actor=ANN)
    assert (await retry(crawl, LetterFilter(urls=URLS[:1], run=ONE), actor=ANN)).letters == 1
    await end(crawl, ONE)
    assert (await retry(crawl, of_run, actor=ANN)).letters == 0
    assert (await purge(crawl, of_run, actor=ANN)).letters == 2
    assert (await dead_letter_list(crawl, ALL, 1)).total == len(URLS)


async def test_letters_are_put_back_by_url_and_by_filter(crawl: OpenCrawl) -> None:
    assert (await dead_letter(crawl, LetterFilter(urls=URLS[:1]))).reason == "timeout"
    assert (await retry(crawl, LetterFilter(urls=URLS[:2]), actor=ANN)).letters == 2
    with pytest.raises(UsageError, match="is not a dead letter"):
        await retry(crawl, LetterFilter(urls=URLS[1:3]), actor=ANN)
    done = await retry(crawl, LetterFilter(reason="dns_not_found"), limit=5, actor=ANN)
    assert (done.letters, done.is_running) == (5, False)
    assert (await purge(crawl, LetterFilter(domain=LARGE), actor=ANN)).letters == PAGES - 2
    assert [one async for some in dead_letters(crawl, ALL, 4) for one in some] != []
    assert (await dead_letter_list(crawl, ALL, 1)).total == len(SMALL) - 5
    assert await logged(crawl) == [
        ("dead retry", "", "2 URLs"),
        ("dead retry", "", "reason dns_not_found, at most 5"),
        ("dead purge", LARGE, ""),
    ]


@pytest.mark.parametrize("change", [retry, purge])
async def test_no_letter_goes_without_an_entry_in_the_log(crawl: OpenCrawl, change: Any) -> None:
    await check_nothing_unlogged(crawl, lambda its: change(its, ALL, actor=ANN))
    await change(crawl, ALL, actor=ANN)
    assert (await dead_letter_list(crawl, ALL, 1)).total == 0


def test_a_reason_that_is_none_is_refused_with_those_there_are() -> None:
    assert letter_reason_of("timeout") == "timeout"
    with pytest.raises(UsageError, match="reason bad_luck: expected one of dns_not_found, dns_error"):
        letter_reason_of("bad_luck")


async def test_what_is_put_back_does_not_count_as_ending_sessions(tmp_path: Path, engine: Engine) -> None:
    urls = [f"https://a.example{path}" for path in ("/out?a=1", "/x/1", "/y")]
    async with seeded(tmp_path / "c", engine, *urls) as crawl:
        book = crawl.operator.book
        kept = LoginRecord(logins=7, ends=("a.example/out", "a.example/x/*", "a.example/z/*"))
        await book.note_logins("a.example", kept)
        await give_up(crawl, lambda url: "timeout" if url.endswith("y") else "ends_session")
        assert (await retry(crawl, LetterFilter(reason="timeout"), actor=ANN)).letters == 1
        assert await book.login_record("a.example") == kept
        assert (await retry(crawl, LetterFilter(urls=urls[:1]), actor=ANN)).letters == 1
        assert (await book.login_record("a.example")).ends == kept.ends[1:]
        assert (await retry(crawl, LetterFilter(reason="ends_session"), actor=ANN)).letters == 1
        assert await book.login_record("a.example") == LoginRecord(logins=7, ends=kept.ends[2:])
