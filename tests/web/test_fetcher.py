import asyncio
import gzip
import time
from email.utils import formatdate

import pytest
from msgspec.structs import replace

from crawler.errors import InvalidUrl
from crawler.model import Request
from crawler.settings import FetchSettings, Settings
from crawler.web import connection_pool
from crawler.web.fetcher import user_agent
from tests.support.hostile_server import AllArrived, Close, Hold, HostileServer
from tests.support.patience import PATIENCE_S, until
from tests.web.fetching import HELLO, fetching, response_of


async def test_a_response_is_kept_as_it_came() -> None:
    async with HostileServer(HELLO) as server, fetching() as fetcher:
        before = time.time()
        result = await fetcher.fetch(server.url + "a?b=c")
        response = response_of(result)
        assert (response.status, response.reason, response.http_version) == (200, "OK", "1.1")
        assert response.url == server.url + "a?b=c"
        assert response.headers == (
            (b"Content-Type", b"Text/HTML; charset=utf-8"),
            (b"Content-Length", b"5"),
        )
        assert response.content_type == "text/html"
        long = replace(response, headers=((b"Content-Type", b"a/" + b"b" * 60_000),))
        assert len(long.content_type) == 255, "it is stored with each page"
        assert response.body == b"hello"
        assert response.raw_body is response.body
        assert (response.truncated, response.decode_error) == ("", "")
        assert response.remote_ip == "127.0.0.1"
        assert before <= response.started_at <= time.time()
        assert 0 <= response.fetch_ms == result.fetch_ms <= 1000 * PATIENCE_S


async def test_the_request_head_is_told_exactly_as_it_was_sent() -> None:
    async with HostileServer(HELLO) as server, fetching(contact="https://example.org/bot") as fetcher:
        plain = response_of(await fetcher.fetch(server.url + "a?b=c"))
        special = response_of(await fetcher.fetch(server.url, cookies={"id": "42", "b": "c", "": "token"}.items()))
        assert [plain.request_head, special.request_head] == server.requests
        assert plain.request_head.startswith(
            b"GET /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
            b"User-Agent: shardcrawl/9.9 (+https://example.org/bot)\r\n" % server.port
        )
        assert b"\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n" in plain.request_head
        assert b"\r\nCookie: id=42; b=c; token\r\n" in special.request_head
        assert b"Cookie" not in plain.request_head


async def test_cookies_that_hosts_set_can_not_write_headers_and_are_not_kept() -> None:
    setting = HELLO.replace(b"\r\n\r\n", b"\r\nSet-Cookie: id=1\r\n\r\n")
    async with HostileServer(setting) as server, fetching() as fetcher:
        await fetcher.fetch(server.url, cookies={"a": "b\r\nX-Evil: 1"}.items())
        await fetcher.fetch(server.url)
        assert not any(b"X-Evil" in head or b"id=1" in head for head in server.requests)


@pytest.mark.parametrize("value", ["\u00c3\u00a0", "\u00c3\u00ad\u00e2\u0080\u009c", "a\tb", "\xff", '"quoted, one"'])
async def test_a_cookie_is_sent_in_the_bytes_that_it_came_in(value: str) -> None:
    """Also one whose bytes, each for itself, would be blanks or controls: the letter \u00e0 in UTF-8, for one."""
    async with HostileServer(HELLO) as server, fetching() as fetcher:
        await fetcher.fetch(server.url, cookies=[("a", value), ("b", "1")])
        assert b"Cookie: a=%b; b=1\r\n" % value.encode("latin-1") in server.requests[0]


async def test_a_cookie_of_the_request_itself_replaces_that_of_the_session() -> None:
    async with HostileServer(HELLO) as server, fetching() as fetcher:
        request = Request(headers={"Cookie": "a=own; c=3"})
        await fetcher.fetch(server.url, cookies=[("a", "1"), ("b", "2")], request=request)
        assert b"Cookie: b=2; a=own; c=3\r\n" in server.requests[0]


async def test_a_connection_is_used_again_for_the_same_origin() -> None:
    async with HostileServer(HELLO) as server, fetching() as fetcher:
        for _ in range(5):
            response_of(await fetcher.fetch(server.url))
        assert (server.connections, len(server.requests)) == (1, 5)


@pytest.mark.parametrize(("header", "connections"), [(b"ETag: a\r\n", 1), (b"Content-Length: 5\r\n", 3)])
async def test_a_connection_is_used_again_after_an_answer_without_a_body(header: bytes, connections: int) -> None:
    """Unless a length in it makes one doubt that none will come."""
    async with HostileServer(b"HTTP/1.1 304 Not Modified\r\n" + header + b"\r\n") as server, fetching() as fetcher:
        for _ in range(3):
            assert response_of(await fetcher.fetch(server.url)).status == 304
        assert server.connections == connections


async def test_a_connection_that_idled_too_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_pool, "IDLE_S", 0.05)
    async with HostileServer(HELLO) as server, fetching() as fetcher:
        await fetcher.fetch(server.url)
        await asyncio.sleep(0.1)
        response_of(await fetcher.fetch(server.url))
        assert server.connections == 2


async def test_idle_connections_are_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_pool, "IDLE_S", 0.02)
    monkeypatch.setattr(connection_pool, "_SWEEP_S", 0.03)
    async with HostileServer(HELLO) as server, fetching() as fetcher:
        await fetcher.fetch(server.url)
        assert fetcher._pool is not None
        pool = fetcher._pool
        await until(lambda: not pool._idle)


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n"]
)
async def test_a_connection_that_the_server_ends_is_not_used_again(head: bytes) -> None:
    async with HostileServer(head + b"hello", Close()) as server, fetching() as fetcher:
        for _ in range(2):
            response = response_of(await fetcher.fetch(server.url))
            assert (response.body, response.truncated) == (b"hello", "")
        assert response.http_version == head[5:8].decode()
        assert server.connections == 2


async def test_many_fetches_run_side_by_side() -> None:
    """No answer comes before the last request."""
    async with HostileServer(AllArrived(50), HELLO) as server, fetching() as fetcher:
        results = await asyncio.gather(*(fetcher.fetch(f"{server.url}{n}") for n in range(50)))
        assert {response_of(result).body for result in results} == {b"hello"}


async def test_redirects_and_errors_are_responses_and_nothing_is_followed() -> None:
    for status in (301, 302, 307, 404, 429, 500, 503):
        head = b"HTTP/1.1 %d X\r\nLocation: /other\r\nContent-Length: 5\r\n\r\nhello" % status
        async with HostileServer(head) as server, fetching() as fetcher:
            response = response_of(await fetcher.fetch(server.url))
            assert (response.status, response.header("location")) == (status, "/other")
            assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("value", "expected_ms"),
    [("120", 120_000), ("0", 0), ("999999999999999999999", 3_600_000), ("-5", 0), ("soon", 0), ("1.5", 0), ("", 0)],
)
async def test_retry_after_is_read_in_seconds_and_capped(value: str, expected_ms: int) -> None:
    head = f"HTTP/1.1 503 Busy\r\nRetry-After: {value}\r\nContent-Length: 0\r\n\r\n".encode()
    async with HostileServer(head) as server, fetching() as fetcher:
        assert (await fetcher.fetch(server.url)).retry_after_ms == expected_ms


@pytest.mark.parametrize(
    ("offset_s", "low_ms", "high_ms"), [(60, 55_000, 61_000), (-60, 0, 0), (10**6, 3_600_000, 3_600_000)]
)
async def test_retry_after_is_read_as_a_date(offset_s: int, low_ms: int, high_ms: int) -> None:
    date = formatdate(time.time() + offset_s, usegmt=True)
    head = f"HTTP/1.1 429 Slow\r\nRetry-After: {date}\r\nContent-Length: 0\r\n\r\n".encode()
    async with HostileServer(head) as server, fetching() as fetcher:
        assert low_ms <= (await fetcher.fetch(server.url)).retry_after_ms <= high_ms


async def test_a_coded_body_is_inflated_and_kept_as_it_came() -> None:
    text = b"<p>hello</p>" * 1000
    packed = gzip.compress(text)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    async with HostileServer(head + packed) as server, fetching() as fetcher:
        response = response_of(await fetcher.fetch(server.url))
        assert (response.raw_body, response.body) == (packed, text)


async def test_a_chunked_body_comes_without_its_coding_whatever_the_pieces() -> None:
    chunks = b"".join(b"%x\r\n%s\r\n" % (n, b"a" * n) for n in range(1, 60)) + b"0\r\n\r\n"
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    whole = head + chunks
    pieces = [step for n in range(0, len(whole), 97) for step in (whole[n : n + 97], 0.001)]
    async with HostileServer(*pieces) as server, fetching() as fetcher:
        response = response_of(await fetcher.fetch(server.url))
        assert response.body == b"a" * sum(range(1, 60))
        assert response_of(await fetcher.fetch(server.url)).body == response.body
        assert server.connections == 1


@pytest.mark.parametrize(("limit", "truncated"), [(100_000, ""), (99_999, "length"), (10, "length"), (200_000, "")])
async def test_the_limit_of_one_fetch_cuts_exactly_there(limit: int, truncated: str) -> None:
    body = bytes(range(250)) * 400
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
    async with HostileServer(head + body) as server, fetching() as fetcher:
        response = response_of(await fetcher.fetch(server.url, body_bytes_max=limit))
        assert response.body == body[:limit]
        assert response.truncated == truncated


async def test_a_larger_limit_than_the_usual_one_holds_too() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n"
    async with HostileServer(head + bytes(3_000_000)) as server, fetching(body_bytes_max=1000) as fetcher:
        assert len(response_of(await fetcher.fetch(server.url, body_bytes_max=4_000_000)).body) == 3_000_000


async def test_silence_ends_a_fetch_long_before_its_total_time() -> None:
    async with (
        HostileServer(HELLO[:-2], Hold()) as server,
        fetching(idle_timeout_s=0.1, total_timeout_s=600) as fetcher,
    ):
        async with asyncio.timeout(PATIENCE_S):
            response = response_of(await fetcher.fetch(server.url))
        assert (response.body, response.truncated) == (b"hel", "time")


async def test_a_slow_but_steady_body_is_not_taken_for_silence() -> None:
    steps = [step for n in range(5) for step in (b"hello"[n : n + 1], 0.3)]
    async with HostileServer(HELLO[:-5], *steps) as server, fetching(idle_timeout_s=1.0, total_timeout_s=60) as fetcher:
        assert response_of(await fetcher.fetch(server.url)).body == b"hello"


async def test_a_cancelled_fetch_closes_its_connection() -> None:
    async with HostileServer(Hold()) as server, fetching() as fetcher:
        task = asyncio.create_task(fetcher.fetch(server.url))
        await until(lambda: server.requests)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: all(serving.done() for serving in server._tasks))
        assert not fetcher._running


async def test_what_before_send_raises_passes_through_and_nothing_is_sent() -> None:
    class TooLate(Exception):
        pass

    def refuse() -> None:
        raise TooLate

    async with HostileServer(HELLO) as server, fetching() as fetcher:
        with pytest.raises(TooLate):
            await fetcher.fetch(server.url, before_send=refuse)
        response_of(await fetcher.fetch(server.url, before_send=lambda: None))
        assert len(server.requests) == 1


async def test_a_url_that_is_not_canonical_raises() -> None:
    async with fetching() as fetcher:
        for url in ("http://h.test/a b", "http://h.test/a\r\nX:y", "http://h.test", "ftp://h.test/", "/x", "",
                    "http://user@h.test/", "http://h.test/\u00e9"):  # fmt: skip
            with pytest.raises(InvalidUrl):
                await fetcher.fetch(url)


def test_the_user_agent_names_version_and_contact() -> None:
    with_contact = Settings(fetch=FetchSettings(contact="https://example.org/bot"))
    assert user_agent(with_contact, "1.2") == "shardcrawl/1.2 (+https://example.org/bot)"
    assert user_agent(Settings(), "1.2") == "shardcrawl/1.2"
    own = Settings(fetch=FetchSettings(user_agent="Own Bot {version}; {contact}\r\nX-Evil: 1", contact="a@b"))
    assert user_agent(own, "3") == "Own Bot 3; a@b X-Evil: 1"
