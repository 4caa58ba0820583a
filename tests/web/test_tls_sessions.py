"""Sessions of TLS: resumed with the host that gave them, and with no other."""

import ssl

import pytest

from crawler.model import FailureKind
from crawler.web.tls import SESSIONS_MAX, ResumingContext
from tests.support.hostile_server import Close, HostileServer
from tests.support.tls import Authority
from tests.web.fetching import HELLO, fetching, kind_of, response_of

pytestmark = pytest.mark.usefixtures("_trusted")
NAMES = {"*.test": ["127.0.0.1"]}
LAST = HELLO.replace(b"Content-Type", b"Connection: close\r\nContent-Type")


def server_side(authority: Authority, version: ssl.TLSVersion) -> ssl.SSLContext:
    context = authority.server(san="DNS:h.test,DNS:i.test")
    context.maximum_version = version
    return context


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_the_next_connection_to_a_host_resumes_its_session(authority: Authority, version: ssl.TLSVersion) -> None:
    context = server_side(authority, version)
    async with HostileServer(LAST, Close(), tls=context) as server, fetching(table=NAMES) as fetcher:
        for host, resumed in (("h.test", 0), ("h.test", 1), ("i.test", 1), ("h.test", 2)):
            assert response_of(await fetcher.fetch(f"https://{host}:{server.port}/")).body == b"hello"
            assert context.session_stats()["hits"] == resumed
        assert server.connections == 4


async def test_a_server_that_has_forgotten_a_session_gets_a_whole_handshake(authority: Authority) -> None:
    async with fetching(table=NAMES) as fetcher:
        port = 0
        for _ in range(2):
            context = server_side(authority, ssl.TLSVersion.TLSv1_3)
            async with HostileServer(LAST, Close(), tls=context, port=port) as server:
                port = server.port
                assert response_of(await fetcher.fetch(f"https://h.test:{port}/")).body == b"hello"
                assert context.session_stats()["hits"] == 0


async def test_a_session_is_no_way_around_a_certificate_for_another_host(authority: Authority) -> None:
    async with fetching(table=NAMES) as fetcher:
        good = server_side(authority, ssl.TLSVersion.TLSv1_3)
        async with HostileServer(LAST, Close(), tls=good) as server:
            response_of(await fetcher.fetch(f"https://h.test:{server.port}/"))
            assert kind_of(await fetcher.fetch(f"https://j.test:{server.port}/")) is FailureKind.TLS


def test_only_so_many_sessions_are_kept(authority: Authority) -> None:
    context = ResumingContext.create(insecure=False)
    connected = _connected(context, authority.server())
    for number in range(SESSIONS_MAX + 10):
        context.learn_session(f"h{number}.test", connected)
    assert len(context._sessions) == SESSIONS_MAX
    assert "h0.test" not in context._sessions
    context.forget_session(f"h{SESSIONS_MAX}.test")
    assert len(context._sessions) == SESSIONS_MAX - 1


def test_a_host_without_tickets_is_not_asked_again(authority: Authority) -> None:
    context, other = ResumingContext.create(insecure=False), authority.server()
    other.num_tickets = 0
    context.learn_session("h.test", _connected(context, other))
    assert context._sessions["h.test"] is None
    context.learn_session("h.test", _connected(context, authority.server()))
    assert context._sessions["h.test"] is None


def test_a_host_that_refuses_a_new_session_is_not_asked_again(authority: Authority) -> None:
    """As servers without a session cache, which send tickets nevertheless."""
    context = ResumingContext.create(insecure=False)
    for _ in range(2):  # each time another server, which knows nothing of the first one's tickets
        assert context._sessions.get("h.test") is None
        context.learn_session("h.test", _connected(context, authority.server()))
        context.learn_session("h.test", _connected(context, authority.server()))
        assert context._sessions["h.test"] is None


def _connected(context: ResumingContext, other: ssl.SSLContext) -> ssl.SSLObject:
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname="h.test")
    server = other.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for one in (client, server):
            try:
                one.do_handshake()
            except ssl.SSLWantReadError:
                continue
    server.write(b"a")
    client.read(1)
    return client
