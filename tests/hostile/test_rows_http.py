"""What hosts do wrong on the wire (H, some of R and S): docs/internals/hostile-web.md has a line for each letter and number.

A row has the bytes and what must come of them: a kind of failure, or a response as far as it came.
"""

# ruff: noqa: E501 - a table reads best with one row to a line
import asyncio
import gzip
import zlib
from dataclasses import dataclass

import brotli
import pytest
import uvloop
import zstandard

from crawler.model import FailureKind, FetchResult
from crawler.settings import DnsSettings, FetchSettings, Settings
from crawler.web.fetcher import Fetcher
from crawler.web.resolver import CachingResolver
from tests.support.hostile_server import Close, Hold, HostileServer, Repeat, Reset, Step
from tests.support.patience import PATIENCE_S
from tests.web.fetching import fetching, kind_of
from tests.web.test_fetcher_connecting import black_hole

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
MIB = 1024 * 1024
LIMIT = 256 * 1024
TOTAL_S = 0.6
IDLE_S = 0.3
TEXT = b"".join(b"<p>line %d</p>" % n for n in range(500))


@dataclass(frozen=True)
class Row:
    name: str
    steps: tuple[Step, ...]
    failure: FailureKind | None = None
    status: int = 200
    body: bytes | None = None
    truncated: str = ""
    decode_error: str | None = ""  # None: some error, whatever its words


def coded(coding: str, body: bytes) -> tuple[bytes]:
    head = OK + b"Content-Encoding: %s\r\nContent-Length: %d\r\n\r\n" % (coding.encode(), len(body))
    return (head + body,)


def with_length(value: bytes) -> tuple[bytes, Close]:
    return OK + b"Content-Length: " + value + b"\r\n\r\nhello", Close()


P, D, H = FailureKind.PROTOCOL, FailureKind.DISCONNECTED, FailureKind.HEADERS_TOO_LARGE
GZ = gzip.compress(TEXT)
ZSTD_LARGE_WINDOW = zstandard.ZstdCompressor(
    compression_params=zstandard.ZstdCompressionParameters(window_log=27)
).compressobj()
BIG_WINDOW_BODY = ZSTD_LARGE_WINDOW.compress(TEXT) + ZSTD_LARGE_WINDOW.flush()

ROWS = [
    Row("H01 misspelt protocol", (b"HTP/1.1 200 OK\r\n\r\n", Close()), P),
    Row("H01 status with a letter", (b"HTTP/1.1 20x OK\r\n\r\n", Close()), P),
    Row("H01 status of two digits", (b"HTTP/1.1 99 x\r\n\r\n", Close()), P),
    Row("H01 status below 100", (b"HTTP/1.1 099 x\r\nContent-Length: 0\r\n\r\n", Close()), P),
    Row("H01 status of four digits", (b"HTTP/1.1 1000 x\r\n\r\n", Close()), P),
    Row("H01 another protocol version", (b"HTTP/3.7 200 OK\r\n\r\n", Close()), P),
    Row("H01 HTTP/2.0", (b"HTTP/2.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",), P),
    Row("H01 HTTP/0.9 in words", (b"HTTP/0.9 200 OK\r\nContent-Length: 5\r\n\r\nhello",), P),
    Row("H01 another protocol", (b"RTSP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",), P),
    Row("H02 no status line", (b"<html>hello</html>", Close()), P),
    Row("H03 status line only", (OK, Close()), D),
    Row("H03 nothing", (Close(),), D),
    Row("H03 end before the end of the headers", (OK + b"Content-Type: text/html\r\n", Close()), D),
    Row("H04 bare LF", (b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",), body=b"hello"),
    Row("H04 bare CR", (b"HTTP/1.1 200 OK\r\nX-A: b\rX-C: d\r\nContent-Length: 5\r\n\r\nhello",), P),
    Row("H04 a blank before the first header", (OK + b" X-A: b\r\nContent-Length: 5\r\n\r\nhello",), body=b"hello"),
    Row("H05 headers beyond the cap", (OK + b"".join(b"X-%d: %s\r\n" % (n, b"a" * 1000) for n in range(100)) + b"\r\n", Close()), H),
    Row("H05 headers beyond the cap that don't end", (OK + b"".join(b"X-%d: %s\r\n" % (n, b"a" * 1000) for n in range(100)), Hold()), H),
    Row("H05 one endless header", (OK + b"X-A: ", Repeat(b"a" * 65536)), H),
    Row("H05 ten thousand headers", (OK + b"".join(b"X-%d: a\r\n" % n for n in range(10_000)) + b"\r\n", Close()), H),
    Row("H05 endless small headers", (OK, Repeat(b"X-A: b\r\n" * 100)), H),
    Row("H06 NUL in a value", (OK + b"X-A: a\0b\r\nContent-Length: 5\r\n\r\nhello",), P),
    Row("H06 space in a name", (OK + b"en-US Content-Type: x\r\nContent-Length: 5\r\n\r\nhello",), body=b"hello"),
    Row("H07 lengths that differ", (OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", Close()), P),
    Row("H07 negative length", with_length(b"-1"), P),
    Row("H07 length with a plus", with_length(b"+5"), P),
    Row("H07 length of 2^63", with_length(b"9223372036854775808"), P),
    Row("H07 length of 2^64", with_length(b"18446744073709551616"), P),
    Row("H07 the same length twice in a list", (OK + b"Content-Length: 5, 5\r\n\r\nhello",), body=b"hello"),
    Row("H07 the same length in two headers", (OK + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",), body=b"hello"),
    Row("H07 length with tabs", (OK + b"Content-Length:\t5\t\r\n\r\nhello",), body=b"hello"),
    Row("H08 body shorter than its length", (OK + b"Content-Length: 50\r\n\r\nhello", Close()), body=b"hello", truncated="disconnect"),
    Row("H08 body ends after a pause", (OK + b"Content-Length: 50\r\n\r\nhel", 0.05, b"lo", Close()), body=b"hello", truncated="disconnect"),
    Row("H09 body longer than its length", (OK + b"Content-Length: 5\r\n\r\nhello and more", Close()), body=b"hello"),
    Row("H09 body longer, in pieces", (OK + b"Content-Length: 5\r\n\r\nhel", 0.05, b"lo and more", Close()), body=b"hello"),
    Row("H10 transfer coding and length", (OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",), body=b"hello"),
    Row("H10 transfer coding, then length", (OK + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", 0.05, b"5\r\nhello\r\n0\r\n\r\n"), body=b"hello"),
    Row("H11 huge chunk size", (CHUNKED + b"FFFFFFFFFFFFFFFFF\r\nhello\r\n", Close()), P),
    Row("H11 chunk size in C notation", (CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n", Close()), P),
    Row("H11 negative chunk size", (CHUNKED + b"-1\r\nhello\r\n0\r\n\r\n", Close()), P),
    Row("H11 space after the chunk size", (CHUNKED + b"5 \r\nhello\r\n0\r\n\r\n",), body=b"hello"),
    Row("H11 no CRLF after a chunk", (CHUNKED + b"5\r\nhelloX\r\n0\r\n\r\n", Close()), P),
    Row("H11 no last chunk", (CHUNKED + b"5\r\nhello\r\n", Close()), body=b"hello", truncated="disconnect"),
    Row("H11 endless trailers", (CHUNKED + b"5\r\nhello\r\n0\r\n", Repeat(b"X-A: b\r\n" * 1000)), H),
    Row("H11 endless chunk extension", (CHUNKED + b"5;", Repeat(b"a" * 65536)), truncated="length", body=b""),
    Row("H12 gzip as transfer coding", (OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n%x\r\n" % len(GZ) + GZ + b"\r\n0\r\n\r\n", Close()), body=TEXT),
    Row("H12 misspelt transfer coding", (OK + b"Transfer-Encoding: chunkedchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", Close()), body=b"5\r\nhello\r\n0\r\n\r\n", decode_error=None),
    Row("H12 identity", (OK + b"Transfer-Encoding: identity\r\n\r\nhello", Close()), body=b"hello"),
    Row("H14 a byte of header at a time", (OK, Repeat(b"X", 0.05)), FailureKind.TIMEOUT),
    Row("H14 a byte of body at a time", (OK + b"\r\n", Repeat(b"X", 0.05)), truncated="time"),
    Row("H15 silence", (Repeat(b"", 0.05),), FailureKind.TIMEOUT),
    Row("H15 silence in the body", (OK + b"Content-Length: 9\r\n\r\nhel", Repeat(b"", 0.05)), body=b"hel", truncated="time"),
    Row("H15 reset before the response", (Reset(),), D),
    Row("H15 reset in the body", (OK + b"Content-Length: 9\r\n\r\nhel", 0.05, Reset()), body=b"hel", truncated="disconnect"),
    Row("H16 plain text said to be gzip", coded("gzip", TEXT), body=TEXT, decode_error=None),
    Row("H16 gzip said to be br", coded("br", GZ), body=b"", decode_error=None),
    Row("H16 gzip twice", coded("gzip, gzip", gzip.compress(GZ)), body=TEXT),
    Row("H16 three layers", coded("gzip, gzip, gzip", gzip.compress(gzip.compress(GZ))), body=b"", decode_error=None),
    Row("H16 an unknown coding", coded("x-unknown", TEXT), body=TEXT, decode_error=None),
    Row("H17 gzip bomb", coded("gzip", gzip.compress(bytes(10 * MIB))), body=bytes(LIMIT), truncated="length"),
    Row("H17 gzip bomb in gzip", coded("gzip, gzip", gzip.compress(gzip.compress(bytes(10 * MIB)))), body=bytes(LIMIT), truncated="length"),
    Row("H17 brotli bomb", coded("br", brotli.compress(bytes(10 * MIB), quality=3)), body=bytes(LIMIT), truncated="length"),
    Row("H17 zstd bomb", coded("zstd", zstandard.compress(bytes(10 * MIB))), body=bytes(LIMIT), truncated="length"),
    Row("H18 gzip cut short", coded("gzip", GZ[:-20]), decode_error="incomplete"),
    Row("H18 gzip with a wrong checksum", coded("gzip", GZ[:-8] + b"\0\0\0\0" + GZ[-4:]), body=TEXT, decode_error=None),
    Row("H18 gzip with garbage behind", coded("gzip", GZ + b"\0\0\0"), body=TEXT, decode_error=None),
    Row("H18 gzip in members", coded("gzip", GZ + GZ), body=TEXT + TEXT),
    Row("H18 raw deflate", coded("deflate", zlib.compress(TEXT)[2:-4]), body=TEXT),
    Row("H18 gzip cut by the network", (OK + b"Content-Encoding: gzip\r\nContent-Length: 9999\r\n\r\n" + GZ[:-20], Close()), truncated="disconnect"),
    Row("H19 zstd with a large window", coded("zstd", BIG_WINDOW_BODY), body=b"", decode_error=None),
    Row("H20 a few interim responses", (b"HTTP/1.1 100 Continue\r\n\r\n" * 5 + OK + b"Content-Length: 5\r\n\r\nhello",), body=b"hello"),
    Row("H20 ten thousand interim responses", (b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000 + OK + b"\r\n", Close()), P),
    Row("H20 a flood of early hints", (Repeat(b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n" * 2),), P),
    Row("H20 lengths behind an early hint", (b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",), body=b"hello"),
    Row("H21 204 with a body", (b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello",), status=204, body=b""),
    Row("H21 304 with a body", (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\nhello",), status=304, body=b""),
    Row("H21 205 with a body", (b"HTTP/1.1 205 Reset Content\r\nContent-Length: 5\r\n\r\nhello",), status=205, body=b""),
    Row("H21 an upgrade", (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", Close()), P),
    Row("H22 a flood of cookies", (OK + b"".join(b"Set-Cookie: a%d=%s\r\n" % (n, b"x" * 4000) for n in range(500)) + b"\r\n", Close()), H),
    Row("R05 Location headers that differ", (b"HTTP/1.1 301 Moved\r\nLocation: /a\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n",), P),
    Row("R05 the same Location twice", (b"HTTP/1.1 301 Moved\r\nLocation: /a\r\nLocation: /a\r\nContent-Length: 0\r\n\r\n",), status=301, body=b""),
    Row("R05 Location of a MiB", (b"HTTP/1.1 302 Found\r\nLocation: /" + b"a" * MIB + b"\r\n\r\n", Close()), H),
    Row("R05 Location that is not UTF-8", (b"HTTP/1.1 302 Found\r\nLocation: /\xe9\xff\r\nContent-Length: 0\r\n\r\n",), status=302, body=b""),
    Row("S03 TLS on a plain port", (b"\x15\x03\x01\x00\x02\x02\x46", Close()), P),
]  # fmt: skip


def settings_for(**fetch: object) -> Settings:
    values = {"allow_private": True, "body_bytes_max": LIMIT, "total_timeout_s": TOTAL_S, "idle_timeout_s": IDLE_S}
    return Settings(fetch=FetchSettings(**(values | fetch)), dns=DnsSettings(nameservers=("127.0.0.1:9",)))  # type: ignore[arg-type]


async def fetch(url: str, times: int = 1) -> list[FetchResult]:
    settings = settings_for()
    resolver = CachingResolver(settings.dns, allow_private=True)
    async with Fetcher(settings, resolver=resolver, version="1") as fetcher:
        results = [await fetcher.fetch(url) for _ in range(times)]
    await resolver.close()
    return results


def id_of(row: Row) -> str:
    return row.name.replace(" ", "-")


@pytest.mark.parametrize("row", ROWS, ids=id_of)
async def test_row(row: Row) -> None:
    await check(row)


@pytest.mark.parametrize("row", ROWS, ids=id_of)
def test_row_on_uvloop(row: Row) -> None:
    uvloop.run(check(row))


async def check(row: Row) -> None:
    async with HostileServer(*row.steps) as server, asyncio.timeout(PATIENCE_S):
        (result,) = await fetch(server.url)
    if row.failure is not None:
        assert result.response is None
        assert result.failure is not None
        assert result.failure.kind is row.failure, result.failure
        assert "\n" not in result.failure.detail
        return
    assert result.failure is None, result.failure
    response = result.response
    assert response is not None
    assert (response.status, response.truncated) == (row.status, row.truncated)
    if row.body is not None:
        assert response.body == row.body
    if row.decode_error is None:
        assert response.decode_error
        assert response.raw_body
    else:
        assert response.decode_error == row.decode_error
    assert len(response.body) <= LIMIT
    assert len(response.raw_body) <= LIMIT


async def test_an_endless_body_is_cut_at_exactly_the_limit() -> None:
    async with HostileServer(OK + b"\r\n", Repeat(b"a" * 65536)) as server:
        (result,) = await fetch(server.url)
    assert result.response is not None
    assert result.response.body == b"a" * LIMIT
    assert result.response.truncated == "length"


async def test_endless_one_byte_chunks_are_bounded_in_number() -> None:
    async with HostileServer(CHUNKED, Repeat(b"1\r\na\r\n" * 10_000)) as server:
        (result,) = await fetch(server.url)
    assert result.response is not None
    assert result.response.truncated in ("length", "time")
    assert set(result.response.body) == {ord("a")}


async def test_an_obsolete_folded_header_is_one_header() -> None:
    async with HostileServer(OK + b"X-A: b\r\n c\r\nContent-Length: 5\r\n\r\nhello") as server:
        (result,) = await fetch(server.url)
    assert result.response is not None
    assert result.response.header("x-a") == "b c"


async def test_eight_bit_header_values_are_kept_as_they_came() -> None:
    async with HostileServer(OK + b"X-A: caf\xe9\r\nContent-Length: 5\r\n\r\nhello") as server:
        (result,) = await fetch(server.url)
    assert result.response is not None
    assert (b"X-A", b"caf\xe9") in result.response.headers
    assert result.response.header("x-a") == "caf\u00e9"


@pytest.mark.parametrize(
    "steps",
    [
        (OK + b"Content-Length: 5\r\n\r\nhello" + OK + b"Content-Length: 5\r\n\r\nstale",),
        (OK + b"Content-Length: 5\r\n\r\nhello", 0.05, OK + b"Content-Length: 5\r\n\r\nstale"),
        (OK + b"Content-Length: 5\r\n\r\nhello and more",),
    ],
    ids=["in one piece", "while idle", "garbage"],
)
async def test_bytes_that_nobody_asked_for_never_answer_the_next_request(steps: tuple[Step, ...]) -> None:
    """H23: a response left in the buffer would be taken for the next URL's."""
    async with HostileServer(*steps) as server:
        settings = settings_for()
        resolver = CachingResolver(settings.dns, allow_private=True)
        async with Fetcher(settings, resolver=resolver, version="1") as fetcher:
            for _ in range(3):
                result = await fetcher.fetch(server.url)
                assert result.response is not None
                assert result.response.body == b"hello"
                await asyncio.sleep(0.1)
        await resolver.close()
        assert server.connections == 3


@pytest.mark.parametrize("ending", [Close(), Reset()])
async def test_nothing_is_sent_again_when_the_server_drops_a_kept_connection(ending: Step) -> None:
    """An HTTP client that silently repeats a GET asks a site twice where the crawl counts once."""
    good = (OK + b"Content-Length: 5\r\n\r\nhello",)
    async with HostileServer(per_request=[good, [ending], good]) as server:
        first, second = await fetch(server.url, times=2)
        assert first.response is not None
        assert second.failure is not None
        assert second.failure.kind is FailureKind.DISCONNECTED
        assert second.stale_connection
        assert len(server.requests) == 2


async def test_nothing_is_sent_again_when_the_connection_ends_after_the_headers() -> None:
    head = OK + b"Content-Length: 50\r\nConnection: keep-alive\r\n\r\n"
    async with HostileServer(head, Close()) as server:
        (result,) = await fetch(server.url)
        assert result.response is not None
        assert result.response.truncated == "disconnect"
        assert len(server.requests) == 1


@pytest.mark.parametrize("row", ["H15-a-port-that-does-not-answer"])
async def test_row_of_connecting(row: str) -> None:
    """Packets to it are lost: the time to connect ends the attempt."""
    with black_hole("127.0.0.1") as port:
        async with asyncio.timeout(PATIENCE_S):
            async with fetching(connect_timeout_s=0.2) as fetcher:
                assert kind_of(await fetcher.fetch(f"http://127.0.0.1:{port}/")) is FailureKind.CONNECT
