"""From a URL to a connection: names, addresses, the guard, TLS."""

import asyncio
import contextlib
import gc
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvloop

from crawler.model import FailureKind
from crawler.settings import DnsSettings
from crawler.web.connection import Connection
from crawler.web.resolver import CachingResolver
from tests.support.dns_server import NXDOMAIN, SERVFAIL, DnsAnswer
from tests.support.hostile_server import Close, Cut, Hold, HostileServer, Repeat, Reset, Step
from tests.support.patience import PATIENCE_S
from tests.web.fetching import HELLO, fetching, kind_of, response_of


async def test_a_refused_connection_is_a_failure_to_connect() -> None:
    async with HostileServer(HELLO) as server:
        url = server.url
    async with fetching() as fetcher:
        assert kind_of(await fetcher.fetch(url)) is FailureKind.CONNECT


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        (DnsAnswer(rcode=NXDOMAIN), FailureKind.DNS_NOT_FOUND),
        (DnsAnswer(), FailureKind.DNS_NOT_FOUND),
        (DnsAnswer(rcode=SERVFAIL), FailureKind.DNS_ERROR),
        (DnsAnswer(silent=True), FailureKind.DNS_ERROR),
    ],
)
async def test_a_name_without_an_address_is_a_failure_of_dns(rule: DnsAnswer, kind: FailureKind) -> None:
    async with fetching(table={"h.test": rule}) as fetcher:
        assert kind_of(await fetcher.fetch("http://h.test:8080/")) is kind


@contextmanager
def black_hole(host: str, port: int = 0) -> Iterator[int]:
    """A port whose queue of connections is full, so that further ones get no answer at all."""
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind((host, port))
        listener.listen(0)
        port = listener.getsockname()[1]
        for _ in range(8):
            client = sockets.enter_context(socket.socket())
            client.settimeout(0.0)
            client.connect_ex((host, port))
        yield port


async def test_an_address_that_never_answers_ends_at_the_connect_time_out() -> None:
    with black_hole("127.0.0.1") as port:
        async with asyncio.timeout(PATIENCE_S), fetching(connect_timeout_s=0.2, total_timeout_s=600) as fetcher:
            assert kind_of(await fetcher.fetch(f"http://127.0.0.1:{port}/")) is FailureKind.CONNECT


async def test_an_address_that_never_answers_does_not_hide_one_that_does() -> None:
    async with HostileServer(HELLO, host="::1") as server, fetching(table={"h.test": ["127.0.0.9", "::1"]}) as fetcher:
        with black_hole("127.0.0.9", server.port):
            response = response_of(await fetcher.fetch(f"http://h.test:{server.port}/"))
        assert response.remote_ip == "::1"


async def test_a_name_is_fetched_by_its_address_and_asked_for_by_its_name() -> None:
    async with HostileServer(HELLO) as server, fetching(table={"*.test": ["127.0.0.1"]}) as fetcher:
        response = response_of(await fetcher.fetch(f"http://www.h.test:{server.port}/"))
        assert b"\r\nHost: www.h.test:%d\r\n" % server.port in response.request_head
        assert response.remote_ip == "127.0.0.1"


async def test_a_dead_first_address_does_not_hide_a_live_second_one() -> None:
    table = {"h.test": ["127.0.0.9", "::1"]}
    async with HostileServer(HELLO, host="::1") as server, fetching(table=table) as fetcher:
        response = response_of(await fetcher.fetch(f"http://h.test:{server.port}/"))
        assert response.remote_ip == "::1"
        literal = response_of(await fetcher.fetch(f"http://[::1]:{server.port}/"))
        assert b"\r\nHost: [::1]:%d\r\n" % server.port in literal.request_head


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "10.0.0.1", "169.254.169.254", "0.0.0.0", "[::1]", "[::ffff:7f00:1]", "[fd00::1]", "100.64.1.1"],
)
async def test_a_private_address_in_the_url_is_refused_before_any_connection(host: str) -> None:
    async with HostileServer(HELLO) as server, fetching(allow_private=False) as fetcher:
        result = await fetcher.fetch(f"http://{host}:{server.port}/")
        assert kind_of(result) is FailureKind.ADDRESS_REFUSED
        assert server.connections == 0


async def test_names_that_lead_inside_are_refused() -> None:
    table = {"inside.test": ["127.0.0.1", "::1"]}
    async with HostileServer(HELLO) as server, fetching(table=table, allow_private=False) as fetcher:
        for host in ("inside.test", "localhost"):
            assert kind_of(await fetcher.fetch(f"http://{host}:{server.port}/")) is FailureKind.ADDRESS_REFUSED
        assert server.connections == 0


@pytest.mark.parametrize("addresses", [("127.0.0.1",), ("127.0.0.1", "::1", "127.0.0.2")])
async def test_the_guard_holds_at_connect_time_whatever_a_resolver_hands_out(addresses: tuple[str, ...]) -> None:
    class Lying(CachingResolver):
        async def lookup(self, host: str) -> tuple[str, ...]:
            return addresses

    lying = Lying(DnsSettings(), allow_private=True)
    async with HostileServer(HELLO) as server, fetching(resolver=lying, allow_private=False) as fetcher:
        result = await fetcher.fetch(f"http://h.test:{server.port}/")
        assert kind_of(result) is FailureKind.ADDRESS_REFUSED
        assert server.connections == 0


async def test_ports_of_other_protocols_are_refused() -> None:
    async with fetching() as fetcher:
        assert kind_of(await fetcher.fetch("http://127.0.0.1:25/")) is FailureKind.PORT_REFUSED


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """A server's side of TLS with a certificate that nobody signed."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed: no certificate to test with")
    folder: Path = tmp_path_factory.mktemp("tls")
    command = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=h.test -keyout key.pem -out cert.pem"
    subprocess.run([openssl, *command.split()], cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


async def test_a_certificate_that_nobody_signed_is_a_tls_failure(tls: ssl.SSLContext) -> None:
    async with HostileServer(HELLO, tls=tls) as server, fetching() as fetcher:
        assert kind_of(await fetcher.fetch(server.url)) is FailureKind.TLS
        assert server.requests == []


async def test_certificates_are_not_judged_when_told_so(tls: ssl.SSLContext) -> None:
    async with HostileServer(HELLO, tls=tls) as server, fetching(insecure_tls=True) as fetcher:
        for _ in range(2):
            assert response_of(await fetcher.fetch(server.url)).body == b"hello"
        assert server.connections == 1


async def test_an_endless_body_over_tls_is_cut_at_the_limit(tls: ssl.SSLContext) -> None:
    steps = (b"HTTP/1.1 200 OK\r\n\r\n", Repeat(b"a" * 16384))
    async with HostileServer(*steps, tls=tls) as server, fetching(insecure_tls=True, body_bytes_max=50_000) as fetcher:
        response = response_of(await fetcher.fetch(server.url))
        assert (len(response.body), response.truncated) == (50_000, "length")


async def test_a_handshake_that_never_ends_is_a_tls_failure() -> None:
    async with HostileServer(Hold(), wait_for_request=False) as server, fetching(connect_timeout_s=0.3) as fetcher:
        async with asyncio.timeout(PATIENCE_S):
            result = await fetcher.fetch(f"https://127.0.0.1:{server.port}/")
        assert kind_of(result) is FailureKind.TLS


async def test_plain_http_where_tls_was_expected_is_a_tls_failure() -> None:
    async with (
        HostileServer(b"HTTP/1.1 400 Bad\r\n\r\n", Close(), wait_for_request=False) as server,
        fetching() as fetcher,
    ):
        assert kind_of(await fetcher.fetch(f"https://127.0.0.1:{server.port}/")) is FailureKind.TLS


async def test_tls_where_plain_http_was_expected_ends_within_the_deadline(tls: ssl.SSLContext) -> None:
    async with HostileServer(HELLO, tls=tls) as server, fetching(idle_timeout_s=0.3) as fetcher:
        result = await fetcher.fetch(f"http://127.0.0.1:{server.port}/")
        assert kind_of(result) in (FailureKind.PROTOCOL, FailureKind.DISCONNECTED, FailureKind.TIMEOUT)


async def test_a_connection_that_is_closed_is_gone_without_a_search_for_garbage() -> None:
    """Its parser knows it: in a cycle both would stay for minutes, a kilobyte and more for each ever made."""
    last = HELLO.replace(b"Content-Type", b"Connection: close\r\nContent-Type")
    async with HostileServer(last, Close()) as server, fetching() as fetcher:
        gc.collect()
        gc.disable()
        try:
            for _ in range(5):
                response_of(await fetcher.fetch(server.url))
            await asyncio.sleep(0.05)  # transports close one turn of the loop later
            assert server.connections == 5
            # By type: objects that other tests have left may lie about their class, or raise.
            assert [one for one in gc.get_objects() if issubclass(type(one), Connection)] == []
        finally:
            gc.enable()


BODIES = {
    "no length": (b"\r\nhello", False),
    "no length, HTTP/1.0": (b"\r\nhello", False),
    "a length": (b"Content-Length: 5\r\n\r\nhello", True),
    "more than came": (b"Content-Length: 6\r\n\r\nhello", None),
    "chunks": (b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", True),
    "no last chunk": (b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", None),
}


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("is_tls", [True, False])
@pytest.mark.parametrize("end", [(Close(),), (Cut(),), (0.02, Reset())], ids=["close_notify", "FIN", "RST"])
@pytest.mark.parametrize("length", BODIES)
def test_a_body_is_whole_only_if_somebody_said_where_it_ends(
    length: str, end: tuple[Step, ...], is_tls: bool, run: Callable[..., None], tls: ssl.SSLContext
) -> None:
    """`BODIES`: whether it is whole by its length, or None, which no end of the connection can make it."""
    rest, is_whole = BODIES[length]
    if is_whole is False:
        is_whole = end == (Close(),) or (end == (Cut(),) and not is_tls)
    version = b"HTTP/1.0" if "1.0" in length else b"HTTP/1.1"

    async def check() -> None:
        server = HostileServer(version + b" 200 OK\r\n" + rest, *end, tls=tls if is_tls else None)
        async with server, fetching(insecure_tls=True, connect_timeout_s=5.0) as fetcher:
            response = response_of(await fetcher.fetch(server.url))
            assert (response.body, response.truncated) == (b"hello", "" if is_whole else "disconnect")

    run(check())
