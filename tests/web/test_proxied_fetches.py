"""Requests through real proxies: what is said to them, what reaches the target, and whose fault a failure is."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, MutableMapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest

from crawler.model import FailureKind
from crawler.settings import DnsSettings, FromEnvironment, SiteSettings
from crawler.web.fetcher import Fetcher
from crawler.web.resolver import CachingResolver
from tests.support.dns_server import DnsServer
from tests.support.hostile_server import HostileServer, Step
from tests.support.patience import PATIENCE_S
from tests.support.tls import Authority
from tests.support.web_proxy import Fault, WebProxy
from tests.web.fetching import HELLO, fetching, kind_of, response_of

Kind = Literal["http", "socks5"]
KINDS: tuple[Kind, ...] = ("http", "socks5")
HERE = "127.0.0.1"
SECRET = "hunter2-of-the-proxy"
LOGIN = ("me", SECRET)


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    made = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.file))
    return made


@asynccontextmanager
async def through(
    kind: Kind,
    *,
    login: tuple[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    by_path: MutableMapping[str, Sequence[Step]] | None = None,
    **fetch: object,
) -> AsyncIterator[tuple[WebProxy, HostileServer, Fetcher]]:
    """A proxy, a target, and a fetcher that knows no name at all."""
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(WebProxy(kind, login=login))
        server = await stack.enter_async_context(HostileServer(HELLO, tls=tls, by_path=by_path))
        given = {"proxy": proxy.url, "connect_timeout_s": 5.0, "idle_timeout_s": 5.0, "allow_private": False} | fetch
        fetcher = await stack.enter_async_context(fetching(**given))
        await stack.enter_async_context(asyncio.timeout(PATIENCE_S))
        yield proxy, server, fetcher


@pytest.mark.parametrize("login", [None, LOGIN])
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_page_comes_through_a_proxy(
    kind: Kind, scheme: str, login: tuple[str, str] | None, authority: Authority
) -> None:
    tls = authority.server() if scheme == "https" else None
    async with through(kind, login=login, tls=tls) as (proxy, server, fetcher):
        response = response_of(await fetcher.fetch(f"{scheme}://h.test:{server.port}/a?b"))
        assert response.body == b"hello"
        assert response.remote_ip == "", "the address of the proxy is not that of the site"
        assert proxy.asked == [("h.test", server.port)]
        (request,) = server.requests
        assert request.startswith(b"GET /a?b HTTP/1.1\r\n")
        for text in (request, response.request_head):
            assert b"proxy-auth" not in text.lower()
            assert SECRET.encode() not in text


@pytest.mark.parametrize("kind", KINDS)
async def test_the_certificate_is_that_of_the_origin(kind: Kind, authority: Authority) -> None:
    async with through(kind, tls=authority.server(san="DNS:other.test")) as (proxy, server, fetcher):
        for _ in range(2):
            result = await fetcher.fetch(f"https://h.test:{server.port}/")
            assert kind_of(result) is FailureKind.TLS, "the proxy is not at fault, and the failure counts at once"
        assert server.requests == []
        assert len(proxy.asked) == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_an_idle_connection_is_used_for_its_own_origin_alone(kind: Kind, authority: Authority) -> None:
    context = authority.server(san="DNS:a.test,DNS:b.test")
    async with through(kind, tls=context) as (proxy, server, fetcher):
        for host in ("a.test", "a.test", "b.test", "a.test"):
            response_of(await fetcher.fetch(f"https://{host}:{server.port}/"))
        assert proxy.asked == [("a.test", server.port), ("b.test", server.port)]


async def test_no_name_of_a_target_is_looked_up() -> None:
    async with WebProxy("socks5") as proxy, HostileServer(HELLO) as server, DnsServer({"*.test": [HERE]}) as dns:
        resolver = CachingResolver(DnsSettings(nameservers=(dns.address,)), allow_private=True)
        async with fetching(resolver=resolver, proxy=proxy.url) as fetcher:
            url = f"http://h.test:{server.port}/"
            assert fetcher.known_address_of(url) == "h.test"
            assert await fetcher.address_of(url) == "h.test"
            assert await fetcher.reach(url) is None
            response_of(await fetcher.fetch(url))
        assert dns.queries == []


async def test_with_a_gateway_nothing_goes_through_a_proxy() -> None:
    async with WebProxy("http") as proxy, HostileServer(HELLO) as server:
        sites = (SiteSettings(match="h.test", proxy=proxy.url),)
        table, gateway = {"h.test": [HERE]}, f"{HERE}:{server.port}"
        async with fetching(table=table, sites=sites, proxy=proxy.url, gateway=gateway) as fetcher:
            for scheme in ("http", "https"):
                assert response_of(await fetcher.fetch(f"{scheme}://h.test/")).body == b"hello"
            assert kind_of(await fetcher.fetch("http://unknown.test/")) is FailureKind.DNS_NOT_FOUND
        assert proxy.connections == 0
        assert [request.split(b" ")[1] for request in server.requests] == [b"http://h.test/", b"https://h.test/"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "[::1]", "10.0.0.8", "169.254.169.254", "[::ffff:7f00:1]", "localhost", "a.localhost", "intranet",
     "metadata.google.internal", "printer.local", "nas.home.arpa", "localhost.",
     "nas.lan", "wiki.corp", "box.home", "x.intranet", "y.private", "mx.mail", "a.localdomain",
     "a.localhost.localdomain", "kubernetes.default.svc", "KUBERNETES.DEFAULT.SVC.", "expyuzz4wqqyqhjn.onion", "a.alt"],
)  # fmt: skip
async def test_private_targets_are_refused_by_their_names(kind: Kind, host: str) -> None:
    async with through(kind) as (proxy, server, fetcher):
        result = await fetcher.fetch(f"http://{host}:{server.port}/")
        assert kind_of(result) is FailureKind.ADDRESS_REFUSED
        assert await fetcher.reach(f"http://{host}:{server.port}/") == result.failure
        assert proxy.connections == 0


async def test_private_targets_are_allowed_as_without_a_proxy() -> None:
    async with through("http", allow_private=True) as (_, server, fetcher):
        assert response_of(await fetcher.fetch(f"http://127.0.0.1:{server.port}/")).body == b"hello"


async def test_addresses_of_targets_are_told_as_addresses() -> None:
    async with through("socks5", allow_private=True) as (proxy, server, fetcher):
        for host in ("127.0.0.1", "[::1]"):
            response_of(await fetcher.fetch(f"http://{host}:{server.port}/"))
        assert [host for host, _ in proxy.asked] == ["127.0.0.1", 15 * "00" + "01"]


async def test_a_proxy_may_have_a_name_that_is_private() -> None:
    async with WebProxy("http") as proxy, HostileServer(HELLO) as server:
        url = f"http://proxy.test:{proxy.port}"
        async with fetching(table={"proxy.test": ["127.0.0.1"]}, proxy=url, allow_private=False) as fetcher:
            assert response_of(await fetcher.fetch(f"http://h.test:{server.port}/")).body == b"hello"
        async with fetching(proxy=url) as fetcher:
            result = await fetcher.fetch(f"http://h.test:{server.port}/")
            assert kind_of(result) is FailureKind.PROXY
            assert result.failure is not None
            assert "its name" in result.failure.detail


async def test_tables_name_proxies_for_their_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    async with WebProxy("http", login=LOGIN) as common, WebProxy("socks5") as own, HostileServer(HELLO) as server:
        monkeypatch.setenv("MY_PROXY", common.url)
        sites = (
            SiteSettings(match="own.test", proxy=own.url),
            SiteSettings(match="direct.test", proxy=""),
        )
        table = {"direct.test": ["127.0.0.1"]}
        given = FromEnvironment(env="MY_PROXY")
        async with fetching(table=table, sites=sites, proxy=given) as fetcher:
            for host in ("own.test", "direct.test", "other.test"):
                response_of(await fetcher.fetch(f"http://{host}:{server.port}/"))
        assert own.asked == [("own.test", server.port)]
        assert common.asked == [("other.test", server.port)]


async def test_the_environment_counts_only_if_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with WebProxy("http") as proxy, HostileServer(HELLO) as server:
        monkeypatch.setenv("http_proxy", proxy.url.removeprefix("http://"))
        monkeypatch.setenv("NO_PROXY", "direct.test")
        table = {"*.test": ["127.0.0.1"]}
        for setting, expected in (("", []), ("env", ["h.test", "www.other.test"])):
            async with fetching(table=table, proxy=setting) as fetcher:
                for host in ("h.test", "direct.test", "www.direct.test", "www.other.test"):
                    response_of(await fetcher.fetch(f"http://{host}:{server.port}/"))
            assert [host for host, _ in proxy.asked] == expected


# --- a proxy that fails ---


@pytest.mark.parametrize(
    ("kind", "fault", "said"),
    [
        ("http", 403, "answered 403 to CONNECT h.test"), ("http", 502, "answered 502 to CONNECT h.test"),
        ("http", 407, "wants a user"), ("http", 200 + 99, ""), ("http", 101, "not HTTP"),
        ("http", "drop", "closed the connection"), ("http", "hang", "no answer in time"),
        ("http", "garbage", "not HTTP"),
        ("http", "endless", "16 KiB of headers"), ("http", "slow", "no answer in time"), ("http", "liar", ""),
        ("socks5", 1, "general failure"), ("socks5", 2, "not allowed"), ("socks5", 7, "reply 7"),
        ("socks5", 99, "reply 99"), ("socks5", "drop", "closed the connection"),
        ("socks5", "hang", "no answer in time"), ("socks5", "garbage", "not SOCKS5"),
        ("socks5", "endless", "not SOCKS5"),
        ("socks5", "slow", "no answer in time"), ("socks5", "liar", ""),
    ],
)  # fmt: skip
async def test_what_a_proxy_does_wrong_is_its_own_failure(kind: Kind, fault: Fault, said: str) -> None:
    """The first time it always is: a later witness shows whether the target was at fault."""
    async with through(kind, connect_timeout_s=0.4, idle_timeout_s=0.4) as (proxy, server, fetcher):
        proxy.fault = fault
        began = time.monotonic()
        result = await fetcher.fetch(f"https://h.test:{server.port}/")
        assert kind_of(result) is FailureKind.PROXY
        assert result.failure is not None
        assert said in result.failure.detail
        assert result.failure.detail.startswith(f"{kind}://127.0.0.1:{proxy.port}: ")
        assert server.requests == []
        assert time.monotonic() - began < PATIENCE_S
        assert fetcher.own_wait_ms(f"https://h.test:{server.port}/") > 0


ECHO = f"HTTP/1.1 {{}} {SECRET} in-the-url\r\nLocation: /x?p={SECRET}\r\nX-In: in-the-url\r\n{SECRET}\r\n\r\n{SECRET}"


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(
    "fault",
    [403, 407, "drop", "reset", "garbage", "liar", *(ECHO.format(n).encode() for n in (200, 302, 403, 407, 502))],
)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_failure_has_neither_the_password_of_the_proxy_nor_the_query_of_the_url(
    kind: Kind, fault: Fault, scheme: str, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """A form of a login that is sent by GET has its password there."""
    caplog.set_level("DEBUG")
    fault = fault if kind == "http" or not isinstance(fault, int) else 2
    tls = authority.server(san="DNS:other.test") if scheme == "https" else None
    async with through(kind, login=LOGIN, tls=tls) as (proxy, server, fetcher):
        proxy.faults["h.test"] = fault
        for host in ("h.test", "i.test"):
            result = await fetcher.fetch(f"{scheme}://{host}:{server.port}/in?pass=in-the-url")
            failure = result.failure
            assert failure is not None or scheme == "http"
            for text in (str(failure), fetcher.proxy_trouble(), caplog.text):
                assert SECRET not in text
                assert "in-the-url" not in text


@pytest.mark.parametrize("kind", KINDS)
async def test_a_wrong_password_is_named_and_not_shown(kind: Kind) -> None:
    async with WebProxy(kind, login=("me", "another")) as proxy, HostileServer(HELLO) as server:
        for url, said in ((f"{kind}://me:{SECRET}@127.0.0.1:{proxy.port}", "refuses the user and password"),
                          (f"{kind}://127.0.0.1:{proxy.port}", "wants a user and a password")):  # fmt: skip
            async with fetching(proxy=url) as fetcher:
                for scheme in ("http", "https"):
                    result = await fetcher.fetch(f"{scheme}://h.test:{server.port}/")
                    assert kind_of(result) is FailureKind.PROXY
                    assert result.failure is not None
                    assert said in result.failure.detail
                    assert SECRET not in str(result)
        assert server.requests == []


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.1 502 %b\r\nX: %b\r\n\r\n" % (2 * (SECRET.encode(),)),
        b"HTTP/1.1 200\n\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 \xb2\xb2\xb2 OK\r\n\r\n",
        b"\r\n\r\n",
        b"\0" * 20_000,
    ],
)
async def test_a_proxy_that_lies_gets_nothing_through(answer: bytes) -> None:
    """Nor does it get into a message what it repeats."""
    async with (
        HostileServer(answer) as proxy,
        fetching(proxy=f"http://me:{SECRET}@{proxy.host}:{proxy.port}") as fetcher,
    ):
        result = await fetcher.fetch("https://h.test/")
        assert kind_of(result) is FailureKind.PROXY
        assert SECRET not in str(result)
        assert result.failure is not None
        assert result.failure.detail.isprintable()


async def test_a_dead_target_is_at_fault_once_another_was_served() -> None:
    """502 to CONNECT: the proxy may be broken, or the target. The other target is the witness."""
    async with through("socks5") as (proxy, server, fetcher):
        proxy.faults["dead.test"] = 4
        dead, good = (f"http://{name}.test:{server.port}/" for name in ("dead", "good"))
        assert kind_of(await fetcher.fetch(dead)) is FailureKind.PROXY
        response_of(await fetcher.fetch(good))
        result = await fetcher.fetch(dead)
        assert kind_of(result) is FailureKind.CONNECT
        assert result.failure is not None
        assert "host unreachable" in result.failure.detail
        assert fetcher.own_wait_ms(dead) == 0
        proxy.faults["dead.test"] = 5
        assert kind_of(await fetcher.fetch(dead)) is FailureKind.CONNECT


async def test_a_site_that_asks_for_the_password_of_a_proxy_fails_alone() -> None:
    """Any site can answer 407 to a request in whole-URL form; then it is its answer, as without a proxy."""
    wants_login = b"HTTP/1.1 407 Pay\r\nContent-Length: 2\r\n\r\nno"
    async with through("http", by_path={"evil.test": (wants_login,)}) as (_, server, fetcher):
        evil, good = (f"http://{name}.test:{server.port}/" for name in ("evil", "good"))
        assert kind_of(await fetcher.fetch(evil)) is FailureKind.PROXY
        response_of(await fetcher.fetch(good))
        assert response_of(await fetcher.fetch(evil)).status == 407


async def test_a_proxy_that_takes_no_connections_is_tried_at_growing_intervals() -> None:
    async with through("http") as (proxy, server, fetcher):
        urls = [f"http://h{n}.test:{server.port}/" for n in range(5)]
        await proxy.__aexit__(None, None, None)
        for url in urls[:3]:
            result = await fetcher.fetch(url)
            assert kind_of(result) is FailureKind.PROXY
        assert fetcher.own_wait_ms(urls[4]) > 0, "one that was not tried waits, too"
        async with WebProxy("http", port=proxy.port):
            while wait_ms := fetcher.own_wait_ms(urls[4]):
                await asyncio.sleep(wait_ms / 1000)
            assert fetcher.own_wait_ms(urls[3]) > 0, "one at a time tries it"
            response_of(await fetcher.fetch(urls[4]))
            assert [fetcher.own_wait_ms(url) for url in urls] == [0] * 5
            assert fetcher.proxy_trouble() == ""
