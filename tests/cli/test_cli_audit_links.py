"""Which links an audit misses, and which it knows that nobody was to follow."""

import gzip
from typing import Any

import pytest

from crawler.archive.warc_reader import StoredResponse
from crawler.audit.judge_links import CrawlRules, LinkReader
from crawler.audit.ledger import Commit
from crawler.frontier.record import CrawlRecord, ScopeHistory
from crawler.settings import ScopeSettings, Settings, load

PAGE = "http://a.test/"
HEADERS = (("Content-Type", "text/html"),)
LINKS = b"<a href='/1'>1</a><a href='http://b.test/2'>2</a><a rel=nofollow href='/3'>3</a>"


def reader_of(
    *roots: str,
    came: dict[str, int] | None = None,
    before: tuple[tuple[int, ScopeSettings], ...] = (),
    settings: Settings | None = None,
    **scope: Any,
) -> LinkReader:
    rules = ScopeSettings(**scope)
    record = CrawlRecord(layout=1, partitions=16, begun_at=0.0, queue_by="domain", hash_key=bytes(16), scope=rules)
    history = ScopeHistory(roots=came or {}, rules=before)
    options = {f"scope.{name}": value for name, value in scope.items()}
    crawl = CrawlRules(record=record, roots=frozenset(roots), history=history)
    return LinkReader(crawl, settings or load(environment={}, options=options))


def commit(*, depth: int = 0, redirects: int = 0, version: int = 1, status: int = 200) -> Commit:
    return Commit(1, 1, 1, 0, PAGE, status, depth, redirects, version, "", "", 0, "")


def stored(body: bytes = LINKS, *, status: str = "200 OK", headers: tuple[tuple[str, str], ...] = HEADERS) -> Any:
    return StoredResponse(uri=PAGE, status_line=f"HTTP/1.1 {status}", headers=headers, payload=body)


async def required(reader: LinkReader, page: Commit, response: Any = None) -> list[str]:
    found = await reader.required(page, response or stored())
    await reader.close()
    return [candidate.url for candidate in found]


async def test_links_in_scope_are_missed_and_those_out_of_it_or_not_to_be_followed_are_not() -> None:
    assert await required(reader_of("domain:a.test"), commit()) == ["http://a.test/1"]
    both = reader_of("domain:a.test", "domain:b.test", nofollow=False)
    assert await required(both, commit()) == ["http://a.test/1", "http://b.test/2", "http://a.test/3"]


async def test_a_link_is_asked_for_once() -> None:
    reader = reader_of(mode="any")
    assert len(await required(reader, commit())) == 2
    assert await required(reader, commit()) == []


@pytest.mark.parametrize(("depth", "missed"), [(1, 1), (2, 0)])
async def test_a_link_beyond_the_depth_limit_is_not_missed(depth: int, missed: int) -> None:
    assert len(await required(reader_of("domain:a.test", depth_max=2), commit(depth=depth))) == missed


@pytest.mark.parametrize(("depth_max", "missed"), [(0, 0), (3, 1), (-1, 1)])
async def test_a_limit_of_depth_that_a_site_has_for_itself_decides(depth_max: int, missed: int) -> None:
    settings = load(environment={}, options={"sites": [{"match": "a.test/1", "depth_max": depth_max}]})
    reader = reader_of("domain:a.test", depth_max=2, settings=settings)
    assert len(await required(reader, commit(depth=2))) == missed


async def test_rules_that_held_when_the_page_was_committed_decide_not_those_of_today() -> None:
    """The depth limit was raised at version 3: pages of before it were read with the smaller one."""
    before = ((3, ScopeSettings(depth_max=1)),)
    for version, missed in ((3, 0), (4, 1)):
        reader = reader_of("domain:a.test", depth_max=5, before=before)
        assert len(await required(reader, commit(depth=1, version=version))) == missed


@pytest.mark.parametrize(("version", "missed"), [(0, 2), (1, 1), (2, 2), (9, 2)])
async def test_a_site_that_was_seeded_later_is_no_place_for_earlier_links(version: int, missed: int) -> None:
    """Version 0 is that of commits which don't know theirs: they are judged by what is in scope today."""
    reader = reader_of("domain:a.test", "domain:b.test", came={"domain:a.test": 1, "domain:b.test": 2})
    assert len(await required(reader, commit(version=version))) == missed


@pytest.mark.parametrize("root", ["host:b.test", "prefix:http://b.test/", "any:*"])
async def test_every_kind_of_root_has_its_version(root: str) -> None:
    for version, missed in ((1, 1), (2, 2)):
        reader = reader_of("domain:a.test", root, came={root: 2})
        assert len(await required(reader, commit(version=version))) == missed


async def test_where_a_redirect_leads_is_missed_within_its_limits() -> None:
    moved = stored(b"", status="301 Moved", headers=(("Location", "/there"),))
    assert await required(reader_of("domain:a.test"), commit(depth=3, redirects=9), moved) == ["http://a.test/there"]
    assert await required(reader_of("domain:a.test"), commit(depth=3, redirects=10), moved) == []


async def test_a_seeds_redirect_opens_the_scope_for_its_target_by_itself() -> None:
    moved = stored(b"", status="301 Moved", headers=(("Location", "http://b.test/"),))
    came = {"domain:a.test": 1, "domain:b.test": 2}
    for depth, missed in ((0, 1), (1, 0)):
        reader = reader_of("domain:a.test", "domain:b.test", came=came)
        assert len(await required(reader, commit(depth=depth), moved)) == missed


async def test_a_packed_page_is_read_as_the_crawl_read_it_also_one_that_is_not() -> None:
    packed = (*HEADERS, ("Content-Encoding", "gzip"))
    reader = reader_of("domain:a.test")
    assert len(await required(reader, commit(), stored(gzip.compress(LINKS), headers=packed))) == 1
    reader = reader_of("domain:a.test")
    assert len(await required(reader, commit(), stored(LINKS, headers=packed))) == 1
    reader = reader_of("domain:a.test")
    damaged = gzip.compress(LINKS)[:10] + b"\xff" * 40
    assert await required(reader, commit(), stored(damaged, headers=packed)) == []
