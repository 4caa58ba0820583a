"""A table: what proxies answer for one target alone, or for all, and whose fault it is."""

import asyncio
from dataclasses import dataclass
from typing import Literal

import pytest

from crawler.model import FailureKind
from tests.support.hostile_server import HostileServer
from tests.support.patience import PATIENCE_S
from tests.support.web_proxy import ESTABLISHED, Fault, WebProxy
from tests.web.fetching import fetching, response_of

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LURE = b"Location: http://lure.test/\r\nSet-Cookie: lure=1\r\nRetry-After: 3600\r\nProxy-Authenticate: Basic\r\n"
CONNECT, TLS, PROXY = FailureKind.CONNECT, FailureKind.TLS, FailureKind.PROXY


@dataclass(frozen=True)
class Row:
    """`alone`: the failure once another target was served; PROXY: the proxy is still at fault then."""

    kind: Literal["http", "socks5"]
    answer: Fault
    alone: FailureKind
    said: str
    scheme: Literal["http", "https"] = "https"


def status(code: int, body: bytes = b"no") -> bytes:
    return b"HTTP/1.1 %d X\r\n%bContent-Length: %d\r\n\r\n%b" % (code, LURE, len(body), body)


def refused(code: int) -> Row:
    return Row("http", status(code), CONNECT, f"it answered {code} to CONNECT bad.test")


def reply(code: int) -> bytes:
    return bytes((5, code, 0, 1, 0, 0, 0, 0, 0, 0))


NOT_HTTP, NOT_SOCKS = "its answer to CONNECT is not HTTP", "its answer is not SOCKS5"
ROWS = {
    **{str(code): refused(code) for code in (300, 301, 302, 303, 307, 308, 399)},
    **{str(code): refused(code) for code in (400, 401, 403, 404, 405, 408, 410, 418, 451, 499)},
    **{str(code): refused(code) for code in (500, 502, 503, 504, 511, 599)},
    "302 without a body": Row("http", b"HTTP/1.0 302 Found\r\n\r\n", CONNECT, "it answered 302"),
    "302 with line feeds": Row("http", b"HTTP/1.1 302\nLocation: /\n\n", CONNECT, "it answered 302"),
    "407": Row("http", status(407), CONNECT, "wants a user"),
    "429": Row("http", status(429), PROXY, "it answered 429"),  # it was asked too much, whatever the target
    "100 alone": Row("http", b"HTTP/1.1 100 Continue\r\n\r\n", CONNECT, "no answer in time"),
    "100 and 302": Row("http", b"HTTP/1.1 100 Continue\r\n\r\n" + status(302), CONNECT, "it answered 302"),
    "101": Row("http", b"HTTP/1.1 101 X\r\n\r\n", CONNECT, NOT_HTTP),
    "199 without end": Row("http", 700 * b"HTTP/1.1 199 Wait, wait\r\n\r\n", CONNECT, "16 KiB of headers"),
    "200 with a body": Row("http", status(200), CONNECT, "behind its answer"),
    "200 and no tunnel": Row("http", "liar", TLS, ""),
    "204 and no TLS": Row("http", b"HTTP/1.1 204 X\r\n\r\n", TLS, "TLS"),
    "206 and no TLS": Row("http", b"HTTP/1.1 206 X\r\n\r\n", TLS, "TLS"),
    "600": Row("http", status(600), CONNECT, NOT_HTTP),
    "0": Row("http", b"HTTP/1.1 000 X\r\n\r\n", CONNECT, NOT_HTTP),
    "garbage": Row("http", b"SSH-2.0-OpenSSH_9.2\r\n\r\n", CONNECT, NOT_HTTP),
    "zeros": Row("http", 20_000 * b"\0", CONNECT, "16 KiB of headers"),
    "HTTP/2": Row("http", b"HTTP/2 302 X\r\n\r\n", CONNECT, NOT_HTTP),
    "long headers": Row("http", b"HTTP/1.1 302 X\r\n" + 2000 * b"X-A: bbbbb\r\n", CONNECT, "16 KiB of headers"),
    "endless headers": Row("http", "endless", CONNECT, "16 KiB of headers"),
    "slow drip": Row("http", "slow", CONNECT, "no answer in time"),
    "silence": Row("http", "hang", CONNECT, "no answer in time"),
    "closed": Row("http", "drop", CONNECT, "closed the connection"),
    "reset": Row("http", "reset", CONNECT, "closed the connection"),
    "whole URL, 407": Row("http", status(407), PROXY, "wants a user", "http"),  # alone: its answer, see below
    "whole URL, silence": Row("http", "hang", FailureKind.TIMEOUT, "no response in time", "http"),
    "whole URL, closed": Row("http", "drop", FailureKind.DISCONNECTED, "closed the connection", "http"),
    "whole URL, reset": Row("http", "reset", FailureKind.DISCONNECTED, "connection lost", "http"),
    "whole URL, garbage": Row("http", b"SSH-2.0-OpenSSH_9.2\r\n\r\n", FailureKind.PROTOCOL, "", "http"),
    "SOCKS, silence": Row("socks5", "hang", CONNECT, "no answer in time"),
    "SOCKS, closed": Row("socks5", "drop", CONNECT, "closed the connection"),
    "SOCKS, reset": Row("socks5", "reset", CONNECT, "closed the connection"),
    "SOCKS, garbage": Row("socks5", b"HTTP/1.1 400 Bad\r\n\r\n", CONNECT, NOT_SOCKS),
    "SOCKS, unknown kind of address": Row("socks5", bytes((5, 0, 0, 9)), CONNECT, NOT_SOCKS),
    "SOCKS, half an answer": Row("socks5", reply(0)[:7], CONNECT, "no answer in time"),
    "SOCKS, no tunnel": Row("socks5", "liar", TLS, ""),
    "SOCKS, general failure": Row("socks5", reply(1), CONNECT, "general failure"),
    "SOCKS, not allowed": Row("socks5", reply(2), CONNECT, "not allowed"),
    "SOCKS, network unreachable": Row("socks5", reply(3), CONNECT, "network unreachable"),
    "SOCKS, host unreachable": Row("socks5", reply(4), CONNECT, "host unreachable"),
    "SOCKS, TTL expired": Row("socks5", reply(6), CONNECT, "TTL expired"),
    "SOCKS, no CONNECT": Row("socks5", reply(7), CONNECT, "reply 7"),
    "SOCKS, kind of address": Row("socks5", reply(8), CONNECT, "reply 8"),
    "SOCKS, unassigned": Row("socks5", reply(0xF4), CONNECT, "reply 244"),
}  # fmt: skip
SILENT = ("no answer in time", "no response in time", "TLS")
CASES = [
    pytest.param(row, id=name, marks=[pytest.mark.slow(seconds=1)] * (row.said in SILENT and row.answer != "hang"))
    for name, row in ROWS.items()
]


def times_of(row: Row) -> dict[str, float]:
    """How long the silent are waited for; long enough for the others on a machine that is busy."""
    patience_s = 0.4 if row.said in SILENT else 10.0
    return {"connect_timeout_s": patience_s, "idle_timeout_s": patience_s, "total_timeout_s": 2 * patience_s}


@pytest.mark.parametrize("row", CASES)
async def test_what_a_proxy_does_for_one_target_is_that_targets_fault_once_another_was_served(row: Row) -> None:
    async with WebProxy(row.kind) as proxy, HostileServer(OK) as server, asyncio.timeout(PATIENCE_S):
        proxy.faults["bad.test"] = row.answer
        async with fetching(proxy=proxy.url, **times_of(row)) as fetcher:
            bad, good = f"{row.scheme}://bad.test:{server.port}/", f"http://good.test:{server.port}/"
            found = [(await fetcher.fetch(bad)).failure]
            response_of(await fetcher.fetch(good))
            again = await fetcher.fetch(bad)
            response_of(await fetcher.fetch(good))
            assert fetcher.own_wait_ms(good) == 0
        if row.scheme == "http" and row.said == "wants a user":
            assert response_of(again).status == 407
        else:
            found.append(again.failure)
        assert [one.kind for one in found if one is not None] == [PROXY, row.alone][: len(found)]
        assert all(row.said in one.detail for one in found if one is not None)
        assert "lure.test" not in [host for host, _ in proxy.asked], "nothing of its answer is used"
        assert again.response is not None or again.retry_after_ms == 0
        assert not any(b"lure" in head for head in proxy.heads)


@pytest.mark.parametrize("row", CASES)
async def test_what_a_proxy_does_for_all_targets_is_its_own_fault(row: Row) -> None:
    async with WebProxy(row.kind) as proxy, HostileServer(OK) as server, asyncio.timeout(PATIENCE_S):
        hosts = ("a.test", "b.test")
        proxy.faults = dict.fromkeys(hosts, row.answer)
        async with fetching(proxy=proxy.url, **times_of(row)) as fetcher:
            urls = [f"{row.scheme}://{host}:{server.port}/" for host in hosts]
            found = [(await fetcher.fetch(url)).failure for url in (*urls, urls[0])]
        assert [one.kind for one in found if one is not None] == 3 * [PROXY]


async def test_answers_that_only_inform_come_before_the_tunnel_opens() -> None:
    waits = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\nX: y\r\n\r\n"
    async with WebProxy("http") as proxy, HostileServer(OK) as server, asyncio.timeout(PATIENCE_S):
        proxy.faults["h.test"] = waits + ESTABLISHED
        async with fetching(proxy=proxy.url) as fetcher:
            failure = (await fetcher.fetch(f"https://h.test:{server.port}/")).failure
        assert failure is not None
        assert "TLS" in failure.detail, "the tunnel is open; nobody is at its end"


@pytest.mark.parametrize(
    "answer",
    ["drop", b"\0\0", b"SSH-2.0-OpenSSH_9.2\r\n", b"\x05\xff", pytest.param("hang", marks=pytest.mark.slow(seconds=5))],
)
async def test_what_a_socks_proxy_does_before_it_knows_the_target_is_never_a_targets_fault(answer: Fault) -> None:
    patience_s = 2.0 if answer == "hang" else 10.0
    async with (
        WebProxy("socks5") as proxy,
        HostileServer(OK) as server,
        fetching(proxy=proxy.url, connect_timeout_s=patience_s) as fetcher,
        asyncio.timeout(PATIENCE_S),
    ):
        bad, good = (f"http://{name}.test:{server.port}/" for name in ("bad", "good"))
        for _ in range(2):
            proxy.fault = answer
            failure = (await fetcher.fetch(bad)).failure
            assert failure is not None
            assert failure.kind is PROXY
            proxy.fault = ""
            response_of(await fetcher.fetch(good))
