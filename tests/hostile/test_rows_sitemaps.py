"""Sitemaps as sites serve them (X), read through the fetcher as `crawler seed --sitemap` does."""

import asyncio
import contextlib
import gzip
import re
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from typing import Any

import pytest

from crawler.crawl import sitemap_reader
from crawler.crawl.sitemap_reader import SitemapReader
from crawler.errors import NothingFetchedError
from tests.hostile.crawled import NOT_FOUND, ok
from tests.support.hostile_server import Close, HostileServer, Repeat, Step
from tests.support.patience import PATIENCE_S
from tests.web.fetching import fetching

HOST = "http://127.0.0.1:%d"
MIB = 1024 * 1024


class Granted:
    """The reserver of a web on which each turn is granted at once."""

    @contextlib.asynccontextmanager
    async def borrow(self, url: str, *, patience_ms: int) -> AsyncIterator[bool]:
        yield True


class Read:
    """What a reader found: URLs without their host, in order; the requests it made; itself."""

    def __init__(self, urls: list[str], paths: list[str], reader: SitemapReader) -> None:
        self.urls, self.paths, self.reader = urls, paths, reader


async def read(answers: MutableMapping[str, bytes | Sequence[Step]]) -> Read:
    """Read /map.xml. HOST in a body is the server's."""
    by_path: dict[str, Sequence[Step]] = {}
    async with HostileServer(NOT_FOUND, by_path=by_path) as server, fetching(total_timeout_s=5) as fetcher:
        host = server.url[:-1]
        for path, answer in answers.items():
            by_path[path] = (
                [ok(answer.replace(b"HOST", host.encode()), "application/xml")] if isinstance(answer, bytes) else answer
            )
        granted: Any = Granted()
        reader = SitemapReader(fetcher, granted)
        urls = [entry.loc.removeprefix(host) async for found in reader.read(f"{host}/map.xml") for entry in found.urls]
        return Read(urls, server.paths, reader)


def urlset(*locs: str) -> bytes:
    return f"<urlset>{''.join(f'<url><loc>{loc}</loc></url>' for loc in locs)}</urlset>".encode()


def index(*locs: str) -> bytes:
    return f"<sitemapindex>{''.join(f'<sitemap><loc>{loc}</loc></sitemap>' for loc in locs)}</sitemapindex>".encode()


async def too_many_urls() -> None:
    found = await read({"/map.xml": urlset(*(f"HOST/{n}" for n in range(50_001)))})
    assert len(found.urls) == 50_000
    assert found.urls[:2] == ["/0", "/1"]


async def bombs() -> None:
    packed = gzip.compress(urlset("HOST/a")[:-9] + b" " * (20 * MIB))
    answer = ok(packed, "application/xml", more="Content-Encoding: gzip\r\n")
    tracemalloc.start()
    try:
        found = await read({"/map.xml": [answer]})
        assert tracemalloc.get_traced_memory()[1] < 64 * MIB
    finally:
        tracemalloc.stop()
    assert found.paths == ["/map.xml"]


async def endless() -> None:
    """What came before the cut is kept."""
    steps = [b"HTTP/1.1 200 OK\r\n\r\n<urlset><url><loc>/a</loc></url>", Repeat(b"<!-- x -->" * 6000)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sitemap_reader, "BODY_BYTES_MAX", MIB)
        found = await read({"/map.xml": steps})
    assert found.urls == ["/a"]


async def external_entities() -> None:
    body = (b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">'
            b'<!ENTITY % b SYSTEM "HOST/dtd">%b;]>'
            b"<urlset><url><loc>HOST/&a;</loc></url><url><loc>HOST/b</loc></url></urlset>")  # fmt: skip
    found = await read({"/map.xml": body})
    assert "/b" in found.urls
    assert found.paths == ["/map.xml"], "no DTD is fetched"
    assert not any("root:" in url for url in found.urls)


async def laughs() -> None:
    entities = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 30))
    body = f'<!DOCTYPE x [<!ENTITY a0 "ha">{entities}]><urlset><url><loc>HOST/&a29;</loc></url></urlset>'.encode()
    async with asyncio.timeout(PATIENCE_S):
        found = await read({"/map.xml": body + urlset("HOST/b")})
    assert all(len(url) < 100 for url in found.urls)


async def loops() -> None:
    """An index that leads to itself, and one that leads ever deeper."""
    deep = {f"/{n}.xml": index(f"HOST/{n + 1}.xml", "HOST/map.xml") for n in range(100)}
    found = await read({"/map.xml": index("HOST/map.xml", "HOST/0.xml"), **deep})
    assert found.paths == ["/map.xml", "/0.xml", "/1.xml"]


async def too_many_sitemaps() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sitemap_reader, "SITEMAPS_MAX", 5)
        found = await read({"/map.xml": index(*(f"HOST/{n}.xml" for n in range(50_000))), "/0.xml": urlset("HOST/a")})
        assert len(found.paths) == 1 + 5
        assert found.urls == ["/a"]
        assert found.reader.missing("http://h.test/map.xml")[-1] == (
            "49995 sitemaps named by http://h.test/map.xml were not read: only 5 are read of one index; "
            "give the others with --sitemap"
        )


async def odd_fields() -> None:
    body = (b"\xef\xbb\xbf<x:urlset xmlns:x='wrong'><x:url><x:loc>http://other.test/</x:loc></x:url>"
            b"<x:url><x:loc>HOST/a</x:loc><x:priority>NaN</x:priority><x:lastmod>9999-99-99</x:lastmod></x:url>"
            b"<x:url><x:loc>/relative</x:loc></x:url></x:urlset>")  # fmt: skip
    found = await read({"/map.xml": body})
    assert found.urls == ["/a", "/relative"]
    assert found.reader.foreign == 1


async def other_forms() -> None:
    rss = b"<rss><channel><item><link>HOST/rss</link></item></channel></rss>"
    atom = b'<feed><entry><link href="HOST/atom"/></entry></feed>'
    wide = urlset("/wide").decode().encode("utf-16")
    found = await read({"/map.xml": index("HOST/rss", "HOST/atom", "HOST/text", "HOST/wide"), "/rss": rss,
                        "/atom": atom, "/text": b"HOST/text-1\nHOST/text-2\n", "/wide": wide})  # fmt: skip
    assert found.urls == ["/rss", "/atom", "/text-1", "/text-2", "/wide"]


CHALLENGE = ok("<script>sucuri_cloudproxy_js='';w=String.fromCharCode</script>")


async def challenges() -> None:
    said = "this site answers with a challenge (Sucuri)"
    with pytest.raises(NothingFetchedError, match=re.escape(said)):
        await read({"/map.xml": [CHALLENGE]})
    found = await read(
        {"/map.xml": index("HOST/a.xml", "HOST/b.xml"), "/a.xml": [CHALLENGE], "/b.xml": urlset("HOST/b")}
    )
    assert found.urls == ["/b"]
    assert [line.partition(": ")[2] for line in found.reader.missing("")] == [f"not read: {said}"]


async def torn() -> None:
    """A page, a body that was cut off, and tags that are not closed: what can be read is kept, the rest is said."""
    cut = [b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n" + urlset("/cut") + b"<url><loc>/ha", Close()]
    found = await read({"/map.xml": index("HOST/page", "HOST/cut", "HOST/open"), "/page": b"<html><p>gone</p></html>",
                        "/cut": cut, "/open": b"<urlset><url><loc>/open-1<url><loc>/open-2<url><loc>/hal"})  # fmt: skip
    assert found.urls == ["/cut", "/open-1", "/open-2"]
    assert [line.partition(": ")[2] for line in found.reader.missing("")] == [
        "it is no sitemap; 0 URLs were read", "its transfer was cut off (disconnect); 1 URL was read",
        "it is cut off; 2 URLs were read",
    ]  # fmt: skip


ROWS: dict[str, Callable[[], Awaitable[None]]] = {
    "X01-too-many-URLs": too_many_urls,
    "X01-bombs": bombs,
    "X01-endless": endless,
    "X02-external-entities": external_entities,
    "X03-laughs": laughs,
    "X04-loops": loops,
    "X04-too-many-sitemaps": too_many_sitemaps,
    "X05-odd-fields": odd_fields,
    "X05-other-forms": other_forms,
    "X06-torn": torn,
    "X06-challenges": challenges,
}


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("row", ROWS)
async def test_row(row: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await ROWS[row]()
