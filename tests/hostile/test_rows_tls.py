"""What hosts do wrong with TLS (S)."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable

import pytest

from crawler.model import FailureKind, FetchResult
from crawler.settings import SiteSettings
from tests.support.hostile_server import Close, Hold, HostileServer, Step
from tests.support.patience import PATIENCE_S
from tests.support.tls import Authority
from tests.web.fetching import HELLO, fetching, kind_of, response_of

pytestmark = pytest.mark.usefixtures("_trusted")
NAMES = {"*.test": ["127.0.0.1"]}
TLS = FailureKind.TLS


async def fetched(context: ssl.SSLContext | None, *steps: Step, scheme: str = "https", **fetch: object) -> FetchResult:
    """What comes of a URL of h.test on such a server; nothing is asked for over plain HTTP instead."""
    told = not context or bool(steps)
    patience_s = 5.0 if context else 0.4  # the others are to stall
    async with (
        HostileServer(*steps or (HELLO,), tls=context, wait_for_request=not told) as server,
        fetching(table=NAMES, connect_timeout_s=patience_s, idle_timeout_s=patience_s, **fetch) as fetcher,
        asyncio.timeout(PATIENCE_S),
    ):
        result = await fetcher.fetch(f"{scheme}://h.test:{server.port}/")
        if result.failure is not None:
            assert server.requests == [], "nothing was sent"
            assert "\n" not in result.failure.detail
        return result


Case = Callable[[Authority], Awaitable[None]]


async def good(authority: Authority) -> None:
    assert response_of(await fetched(authority.server())).body == b"hello"
    assert response_of(await fetched(authority.server(name="x", san="DNS:other.test,DNS:h.test"))).body == b"hello"


async def expired(authority: Authority) -> None:
    assert kind_of(await fetched(authority.server(expired=True))) is TLS


async def signed_by_nobody(authority: Authority) -> None:
    context = authority.server()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SSL_CERT_FILE")
        assert kind_of(await fetched(context)) is TLS
        assert response_of(await fetched(context, insecure_tls=True)).body == b"hello"


async def an_incomplete_chain(authority: Authority) -> None:
    """The message says so, and what it advises helps."""
    context, missing = authority.incomplete()
    result = await fetched(context)
    assert result.failure is not None
    advice = f"Set SSL_CERT_FILE to a copy of {authority.file} with that certificate added"
    assert "its chain is incomplete" in result.failure.detail
    assert advice in result.failure.detail
    both = missing.with_name("both.pem")
    both.write_bytes(authority.file.read_bytes() + missing.read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(both))
        assert response_of(await fetched(context)).body == b"hello"
    other = await fetched(authority.server(expired=True))
    assert other.failure is not None
    assert "incomplete" not in other.failure.detail


async def trusted_for_one_site(authority: Authority) -> None:
    """A table decides, and the message of a host without one names it. Sessions of these hosts stay among them."""
    context = authority.server(san="DNS:other.test")
    for match, fetch, is_fine in (
        ("h.test", {}, True),
        ("*.test", {}, True),
        ("https://h.test", {}, True),
        ("other.test", {}, False),
        ("http://h.test", {}, False),
        ("other.test", {"insecure_tls": True}, True),
    ):
        site = SiteSettings(match=match, insecure_tls=True)
        result = await fetched(context, sites=(site,), **fetch)
        assert (result.failure is None) == is_fine, match
        if result.failure is not None:
            assert result.failure.detail.endswith("; insecure_tls = true in a table [[sites]] of this host accepts it")
    stricter = SiteSettings(match="h.test", insecure_tls=False)
    assert kind_of(await fetched(context, sites=(stricter,), insecure_tls=True)) is TLS


async def of_another_host(authority: Authority) -> None:
    assert kind_of(await fetched(authority.server(name="h.test", san="DNS:other.test"))) is TLS


async def of_a_name_around(authority: Authority) -> None:
    for san in ("DNS:*.h.test", "DNS:test", "DNS:*", "IP:127.0.0.1", "email:h.test"):
        assert kind_of(await fetched(authority.server(san=san))) is TLS


async def common_name_alone(authority: Authority) -> None:
    """RFC 9525 6.3: so no common name, with a NUL or without, says whose a certificate is."""
    assert kind_of(await fetched(authority.server(san=""))) is TLS


async def signed_with_sha1(authority: Authority) -> None:
    assert kind_of(await fetched(authority.server(digest="sha1"))) is TLS


async def stalled(authority: Authority) -> None:
    assert kind_of(await fetched(None, Hold())) is TLS


async def stalled_after_a_byte(authority: Authority) -> None:
    assert kind_of(await fetched(None, b"\x16", Hold())) is TLS


async def dripping(authority: Authority) -> None:
    """A record of 16 KiB that comes a byte at a time is a handshake without an end."""
    drip: list[Step] = [step for _ in range(200) for step in (b"\x02", 0.02)]
    assert kind_of(await fetched(None, b"\x16\x03\x03\x40\x00", *drip)) is TLS


async def in_fragments(authority: Authority) -> None:
    """Records may be cut as the server likes: what the handshake's bytes are must not depend on that."""
    context = authority.server()
    async with HostileServer(HELLO, tls=context) as server:

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, back = await asyncio.open_connection("127.0.0.1", server.port)

            async def forward() -> None:
                while data := await reader.read(4096):
                    back.write(data)

            async def in_pieces() -> None:
                while data := await there.read(4096):
                    for at in range(0, len(data), 40):
                        writer.write(data[at : at + 40])
                        await asyncio.sleep(0)

            tasks = [asyncio.create_task(forward()), asyncio.create_task(in_pieces())]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            back.close()
            writer.close()

        relaying = await asyncio.start_server(relay, "127.0.0.1", 0)
        port = relaying.sockets[0].getsockname()[1]
        async with relaying, fetching(table=NAMES) as fetcher:
            assert response_of(await fetcher.fetch(f"https://h.test:{port}/")).body == b"hello"
        await asyncio.sleep(0.05)


async def server_name_required(authority: Authority) -> None:
    """A server that knows its certificate by the name that the client says."""
    context, named = authority.server(san="DNS:other.test"), authority.server()
    told: list[str | None] = []

    def choose(sock: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> int | None:
        told.append(name)
        if name != "h.test":
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        sock.context = named
        return None

    context.sni_callback = choose  # type: ignore[assignment]
    assert response_of(await fetched(context)).body == b"hello"
    assert told == ["h.test"]


async def old_versions_only(authority: Authority) -> None:
    for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
        context = authority.server()
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            context.minimum_version = context.maximum_version = version
        assert kind_of(await fetched(context)) is TLS


async def renegotiation(authority: Authority) -> None:
    """The server wants another handshake in the middle: it gets none, and the fetch ends."""
    async with authority.interactive_server() as (server, port), fetching(table=NAMES, idle_timeout_s=0.5) as fetcher:
        fetching_it = asyncio.create_task(fetcher.fetch(f"https://h.test:{port}/"))
        assert server.stdin is not None
        assert server.stdout is not None
        while b"GET / " not in await server.stdout.readline():
            pass
        server.stdin.write(b"R\n")
        await server.stdin.drain()
        await asyncio.sleep(0.05)
        server.stdin.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\n")
        result = await asyncio.wait_for(fetching_it, PATIENCE_S)
        assert result.response is not None or kind_of(result) in (FailureKind.DISCONNECTED, FailureKind.TIMEOUT)


async def a_chain_of_a_mebibyte(authority: Authority) -> None:
    assert kind_of(await fetched(authority.server(chain_bytes=1024 * 1024))) is TLS


async def plain_http(authority: Authority) -> None:
    answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
    assert kind_of(await fetched(None, answer, Close())) is TLS


async def tls_where_http_is_expected(authority: Authority) -> None:
    async with HostileServer(HELLO, tls=authority.server()) as server, fetching(idle_timeout_s=0.3) as fetcher:
        result = await fetcher.fetch(f"http://127.0.0.1:{server.port}/")
        assert kind_of(result) in (FailureKind.PROTOCOL, FailureKind.DISCONNECTED, FailureKind.TIMEOUT)


ROWS: dict[str, Case] = {
    "S01-good": good,
    "S01-expired": expired,
    "S01-signed-by-nobody": signed_by_nobody,
    "S01-an-incomplete-chain": an_incomplete_chain,
    "S01-trusted-for-one-site": trusted_for_one_site,
    "S01-of-another-host": of_another_host,
    "S01-of-a-name-around": of_a_name_around,
    "S01-common-name-alone": common_name_alone,
    "S01-signed-with-SHA-1": signed_with_sha1,
    "S02-stalled": stalled,
    "S02-stalled-after-a-byte": stalled_after_a_byte,
    "S02-dripping": dripping,
    "S02-in-fragments": in_fragments,
    "S02-server-name-required": server_name_required,
    "S02-old-versions-only": old_versions_only,
    "S02-renegotiation": renegotiation,
    "S02-a-chain-of-a-mebibyte": a_chain_of_a_mebibyte,
    "S03-plain-HTTP": plain_http,
    "S03-TLS-where-HTTP-is-expected": tls_where_http_is_expected,
}


@pytest.mark.parametrize("row", ROWS)
async def test_row(row: str, authority: Authority) -> None:
    await ROWS[row](authority)
